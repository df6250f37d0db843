"""The command `qpensieve`: thin functions over the package; tyro turns their signatures into options."""

import dataclasses
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Annotated

import tyro

import qpensieve
from qpensieve import bench as bench_package
from qpensieve.bench import lanes as bench_lanes
from qpensieve.bench import report
from qpensieve.envs import DOMAINS


def domains() -> None:
    """List the ten domains: sizes, time limit, objectives, reference point of the hypervolume."""
    rows = [
        {
            "domain": domain.id,
            "obs": domain.obs_size,
            "act": domain.action_size,
            "steps": domain.max_steps,
            "objectives": ", ".join(domain.objectives),
            "reference": str(domain.spec.reference),
        }
        for domain in DOMAINS.values()
    ]
    print(report.format_table(rows))


def lanes(
    settings: Annotated[bench_lanes.Settings, tyro.conf.OmitArgPrefixes] = bench_lanes.Settings(),  # noqa: B008
    json: Path | None = None,
) -> None:
    """Time lanes of environments beside a Python loop over Gymnasium's.

    Args:
        settings: What to measure.
        json: Also write the figures to this file.
    """
    rows = bench_lanes.run(settings, progress=lambda message: print(message, file=sys.stderr))
    print(report.format_table(rows))
    if json is not None:
        report.write_json(json, "lanes", rows, dataclasses.asdict(settings))
        print(f"written: {json}")


def version() -> None:
    """Print the version."""
    print(qpensieve.__version__)


def bench() -> None:
    """Benchmarks; `qpensieve bench --help` lists them."""


COMMANDS = {"domains": domains, "bench": bench, "version": version}
BENCHMARKS = {"lanes": lanes}


def main(arguments: list[str] | None = None) -> None:
    """Entry point of the command line."""
    words = sys.argv[1:] if arguments is None else arguments
    if words[:1] == ["bench"]:
        _dispatch(BENCHMARKS, "qpensieve bench", bench_package.__doc__, words[1:])
    else:
        _dispatch(COMMANDS, "qpensieve", qpensieve.__doc__, words)


def _dispatch(commands: dict[str, Callable[..., None]], prog: str, about: str | None, words: list[str]) -> None:
    tyro.extras.subcommand_cli_from_dict(commands, prog=prog, description=about, args=words)
