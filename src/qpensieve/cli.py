"""The command `qpensieve`: thin functions over the package; tyro turns their signatures into options."""

import copy
import dataclasses
import sys
from collections.abc import Callable
from datetime import datetime
from pathlib import Path
from typing import Annotated, Any

import tyro

import qpensieve
from qpensieve import bench as bench_package
from qpensieve import console, presets
from qpensieve.bench import collect as bench_collect
from qpensieve.bench import lanes as bench_lanes
from qpensieve.bench import methods as bench_methods
from qpensieve.bench import train as bench_train
from qpensieve.bench import update as bench_update
from qpensieve.config import RunConfig
from qpensieve.envs import DISCRETE, DOMAINS, find_domain
from qpensieve.methods import get_method
from qpensieve.records import provenance
from qpensieve.records.checkpoint import CheckpointError
from qpensieve.records.evaluations import load as load_evaluations
from qpensieve.records.folder import EVALUATIONS, SUMMARY
from qpensieve.records.lock import FolderInUseError
from qpensieve.records.trust import UntrustedError
from qpensieve.report import compare as comparison
from qpensieve.report import curves as curve_pictures
from qpensieve.report import pictures, tables
from qpensieve.report.export import export as export_run
from qpensieve.theory.command import theory
from qpensieve.train import run as runs
from qpensieve.train.run import Options, Run
from qpensieve.train.session import DivergedError, EnvFailedError

FLAT = (tyro.conf.OmitArgPrefixes, tyro.conf.AvoidSubcommands)
RunFolder = Annotated[Path, tyro.conf.Positional, tyro.conf.arg(metavar="RUN")]
RunFolders = Annotated[tuple[Path, ...], tyro.conf.Positional, tyro.conf.arg(metavar="RUN [RUN ...]")]
EXIT_FAILED, EXIT_STOPPED = 1, 130
USER_ERRORS = (
    *(ValueError, OSError, ImportError, CheckpointError, DivergedError, EnvFailedError, FolderInUseError),
    UntrustedError,
)
"""Errors whose message says all a user needs; shown without a traceback."""


@dataclasses.dataclass(frozen=True)
class TrainArguments:
    """Train one policy for every preference (pgmorl, pfa: an archive of policies), several seeds side by side."""

    config: RunConfig
    preset: presets.PresetName = "paper"
    """Where the other settings start from: the paper's, or small enough for two cores; figure-a to -d are the paper's
    comparison of sac and hybrid-sac: DST2d at 0.9,0.1 and 0.8,0.2, HalfCheetah2d at 0.5,0.5 and 0.6,0.4."""
    out: Path = Path("runs")
    """Folder that holds the runs."""
    name: str | None = None
    """Name of the run folder; default: domain, algorithm and time."""
    options: Options = dataclasses.field(default_factory=Options)


def train(words: list[str]) -> None:
    """Train: qpensieve train DOMAIN [--algo qpensieve|mosac|sac|...] [--preset paper|quick|...] [any setting]."""
    algo, preset = _peek(words, "--algo", "qpensieve"), _peek(words, "--preset", "paper")
    method = get_method(algo)
    arguments = _parse_train(words, algo, preset)
    if method.paper is not None:  # its presets depend on the domain
        arguments = _parse_train(words, algo, preset, arguments.config.domain)
    config = arguments.config
    presets.check_preset(preset, config)
    slug = config.domain.split("/")[-1].replace(":", ".")
    name = arguments.name or f"{slug}-{config.algo}-{datetime.now():%Y%m%d-%H%M%S}"
    _complete(runs.start(arguments.out / name, config, arguments.options))


def _parse_train(words: list[str], algo: str, preset: str, domain: str = "") -> TrainArguments:
    """What the words say, where they say nothing the preset (of a domain)."""
    if {"-h", "--help"} & set(words):  # show the defaults of the domain that seems meant
        domain = next((word for word in words if find_domain(word) is not None), "")
    default = presets.default_config(domain, algo, preset)
    unset = TrainArguments(_without_domain(default))
    return tyro.cli(TrainArguments, default=unset, args=words, prog="qpensieve train", config=FLAT)


def resume(
    run: RunFolder,
    num_threads: int | None = None,
    trust: bool = False,
    start_over: bool = False,
    options: Options = Options(),  # noqa: B008
) -> None:
    """Continue a run that was stopped or killed, to the same numbers as if it never had been.

    Args:
        run: The run folder.
        num_threads: Threads of the simulator; changes no number. Default: as before.
        trust: Import the code that the run's domain names, though the folder is not your own.
        start_over: Begin from the start; whatever the run has reached is removed.
        options: How to show it.
    """
    changes = {} if num_threads is None else {"num_threads": num_threads}
    resumed = runs.resume(run, options, _warn, trust, start_over, **changes)
    if resumed.session.step == resumed.session.goal:
        _warn(f"the run is complete: all {resumed.session.goal:,} steps are done")
    _complete(resumed)


def evaluate(run: RunFolder, other: Path | None = None, trust: bool = False) -> None:
    """Run the full protocol (whole test table, 10 episodes) on a run's newest checkpoint; scores and pictures.

    Args:
        run: The run folder.
        other: A second run, fully evaluated: also print ED, the share of preferences where the first scores more.
        trust: Import the code that the run's domain names, though the folder is not your own.
    """
    runs.evaluate(run, _warn, trust)
    _report(run)
    if other is not None:
        print(_dominance(run, other))


def plot(run: RunFolders, out: Path | None = None) -> None:
    """Draw front.png and curves.png of a run, of pgmorl and pfa its search too; several runs: their curves in one.

    Args:
        run: One run's folder, or several.
        out: Where the picture of several runs goes; default: compare.png.
    """
    if len(run) == 1:
        paths = pictures.all_pictures(run[0])
    else:
        paths = [curve_pictures.compare_curves(list(run), out or Path("compare.png"))]
    for path in paths:
        print(path)


def export(run: Annotated[Path, tyro.conf.Positional, tyro.conf.arg(metavar="RUN")], out: Path) -> None:
    """Write a run as one small JSON file: configuration, machine, scores and mean returns of every evaluation.

    Args:
        run: The run folder.
        out: The file to write.
    """
    print(export_run(run, out))


def compare(
    results: Annotated[tuple[Path, ...], tyro.conf.Positional, tyro.conf.arg(metavar="RUN_OR_FILE [RUN_OR_FILE ...]")],
    step: int | None = None,
    out: Path | None = None,
    curves: bool = False,
) -> None:
    """Set runs side by side on the test preferences they share: UT, HV, ED against MO-SAC.

    Args:
        results: Run folders, or files written by `qpensieve export`.
        step: Environment step of the full evaluation; default: each run's newest.
        out: Also draw a picture here.
        curves: The files are of single preferences (sac, hybrid-sac): only draw their learning curves.
    """
    if curves:
        print(comparison.draw_single_curves(results, out or Path("curves.png")))
        return
    shared = comparison.on_common_preferences([comparison.read(path, step) for path in results])
    print(console.format_markdown(comparison.table(shared)))
    if out is not None:
        print(comparison.draw(shared, out))


def domains() -> None:
    """List the ten domains and those with discrete actions: sizes, time limit, objectives, reference of the HV."""
    rows = [
        {
            "domain": domain.id,
            "obs": domain.obs_size,
            "act": domain.action_size,
            "steps": domain.max_steps,
            "objectives": ", ".join(domain.objectives),
            "reference": str(domain.spec.reference),
        }
        for domain in (*DOMAINS.values(), *DISCRETE.values())
    ]
    print(console.format_table(rows))
    for domain in DISCRETE.values():
        index = f"an index below {domain.num_actions}"
        print(f"{domain.id} is not one of the ten: its action is {index}, which only --algo envelope supports.")


def version() -> None:
    """Print the version."""
    print(qpensieve.__version__)


def lanes(settings: bench_lanes.Settings = bench_lanes.Settings(), json: Path | None = None) -> None:  # noqa: B008
    """Time lanes of environments beside a Python loop over Gymnasium's.

    Args:
        settings: What to measure.
        json: Also write the figures to this file.
    """
    _measure("lanes", bench_lanes.run, settings, json)


def update(settings: bench_update.Settings = bench_update.Settings(), json: Path | None = None) -> None:  # noqa: B008
    """Time gradient steps beside the plain form of the loss and the floor of this machine's matrix products.

    Args:
        settings: What to measure.
        json: Also write the figures to this file.
    """
    _measure("update", bench_update.run, settings, json)


def methods(settings: bench_methods.Settings = bench_methods.Settings(), json: Path | None = None) -> None:  # noqa: B008
    """Time gradient steps of every method beside MO-SAC's.

    Args:
        settings: What to measure.
        json: Also write the figures to this file.
    """
    _measure("methods", bench_methods.run, settings, json)


def collect(settings: bench_collect.Settings = bench_collect.Settings(), json: Path | None = None) -> None:  # noqa: B008
    """Time the collection of a population (pgmorl, pfa) beside a Python loop over Gymnasium's, and its update.

    Args:
        settings: What to measure.
        json: Also write the figures to this file.
    """
    _measure("collect", bench_collect.run, settings, json)


def train_rate(settings: bench_train.Settings = bench_train.Settings(), json: Path | None = None) -> None:  # noqa: B008
    """Time training from end to end, and the share of it that is collection.

    Args:
        settings: What to measure.
        json: Also write the figures to this file.
    """
    _measure("train", bench_train.run, settings, json)


def bench() -> None:
    """Benchmarks; `qpensieve bench --help` lists them."""


def _train_help() -> None:
    """Train Q-Pensieve or another method; `qpensieve train DOMAIN --algo NAME --help` lists every setting."""


COMMANDS: dict[str, Callable[..., None]] = {
    "train": _train_help,
    "resume": resume,
    "evaluate": evaluate,
    "plot": plot,
    "export": export,
    "compare": compare,
    "domains": domains,
    "theory": theory,
    "bench": bench,
    "version": version,
}
BENCHMARKS: dict[str, Callable[..., None]] = {
    "lanes": lanes,
    "update": update,
    "methods": methods,
    "collect": collect,
    "train": train_rate,
}


def main(arguments: list[str] | None = None) -> None:
    """Entry point of the command line."""
    words = sys.argv[1:] if arguments is None else arguments
    try:
        if words[:1] == ["train"]:
            train(words[1:])
        elif words[:1] == ["bench"]:
            _dispatch(BENCHMARKS, "qpensieve bench", bench_package.__doc__, words[1:])
        else:
            _dispatch(COMMANDS, "qpensieve", qpensieve.__doc__, words)
    except runs.Stopped as stopped:
        print(stopped, file=sys.stderr)
        sys.exit(EXIT_STOPPED)
    except KeyboardInterrupt:
        print("interrupted", file=sys.stderr)
        sys.exit(EXIT_STOPPED)
    except USER_ERRORS as error:
        print(f"qpensieve: {error}", file=sys.stderr)
        sys.exit(EXIT_FAILED)


def _dispatch(commands: dict[str, Callable[..., None]], prog: str, about: str | None, words: list[str]) -> None:
    tyro.extras.subcommand_cli_from_dict(commands, prog=prog, description=about, args=words, config=FLAT)


def _peek(words: list[str], option: str, default: str) -> str:
    """The value of an option that decides which settings there are, before they are parsed; the last one counts."""
    found = default
    for i, word in enumerate(words):
        if word == option and i + 1 < len(words):
            found = words[i + 1]
        elif word.startswith(f"{option}="):
            found = word.split("=", 1)[1]
    return found


def _without_domain(config: RunConfig) -> RunConfig:
    """The config with its domain still to be given. tyro's mark for that is no string: it goes past the constructor."""
    unset = copy.copy(config)
    object.__setattr__(unset, "domain", tyro.MISSING)
    return unset


def _complete(run: Run) -> None:
    print(f"run folder: {run.folder}", file=sys.stderr)
    try:
        run.train()
    except DivergedError as error:
        step = run.last_checkpoint_step
        kept = f"the last good checkpoint is at step {step}" if step else "there is no checkpoint yet"
        raise DivergedError(f"{error}; training stopped, {kept} ({run.folder})") from error
    except KeyboardInterrupt:  # the second one, or one after training
        raise runs.Stopped(f"interrupted; continue with: qpensieve resume {run.folder}") from None
    finally:
        run.close()
    _report(run.folder)


def _report(folder: Path) -> None:
    """Table, summary.json and pictures of a run that was fully evaluated."""
    if len(load_evaluations(folder / EVALUATIONS).full_steps) == 0:
        return
    print(tables.format_summary(tables.write_summary(folder)))
    drawn = pictures.draw_pictures(folder)
    for path in [folder / SUMMARY, *drawn]:
        print(path)
    if not drawn:
        print("no pictures: pip install 'qpensieve[plots]'")


def _dominance(run: Path, other: Path) -> str:
    ours, theirs = comparison.on_common_preferences([comparison.read(run), comparison.read(other)])
    shares = comparison.dominance(ours, theirs)
    spread = f"{shares.mean():.3f}" if len(shares) == 1 else f"{shares.mean():.3f} +- {shares.std():.3f}"
    return f"ED against {other}: {spread} over {len(shares)} seed pair(s), {len(ours.preferences)} preferences"


def _measure(name: str, run: Callable[..., list[console.Row]], settings: Any, json: Path | None) -> None:
    rows = run(settings, progress=_warn)
    print(console.format_table(rows))
    if json is not None:
        provenance.write_rows(json, name, rows, dataclasses.asdict(settings))
        print(f"written: {json}")


def _warn(message: str) -> None:
    print(message, file=sys.stderr)
