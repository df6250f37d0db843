"""Make the entry of a policy that comes with the package: its policy file and its card.

    python tools/zoo.py RESULT.json POLICY.npz [POLICY.npz ...] --command "qpensieve train DST2d --preset quick"

RESULT.json is the run as `qpensieve export` wrote it. The policy files are those of its seeds, as
`qpensieve export-policy RUN --seed N` wrote them; calibrate the run before.

Rule, written before any result: the seed with the largest UT is taken, measured on starts that nothing else uses, and
as calibrated if there is a calibration. The numbers on the card come from other starts. Networks are stored as float16
unless that moves UT out of its interval.
"""

import argparse
import json
import shutil
import tempfile
from pathlib import Path
from typing import Any

import numpy as np

from qpensieve import zoo
from qpensieve.deploy.exported import FIRST_START, ExportedPolicies, Reached, measure
from qpensieve.envs.base import FULL_EPISODES
from qpensieve.records.files import write_npz, write_text
from qpensieve.report.results import RunResults, read_run, rounded

CHOICE_START = 2 * FIRST_START
"""Number of the first row of starts on which seeds are compared."""

Both = tuple[Reached, Reached | None]
"""Asked and calibrated."""


def ut_of(both: Both) -> float:
    """UT by which seeds are compared."""
    return (both[1] or both[0]).ut


def choose(files: list[Path]) -> Path:
    """Return the file of the best seed."""
    if len(files) == 1:
        return files[0]
    return max(files, key=lambda file: ut_of(measure(ExportedPolicies(file, trust=True), CHOICE_START)))


def write_small(source: Path, out: Path) -> None:
    """Write a policy file with its networks as float16."""
    with np.load(source, allow_pickle=False) as file:
        is_network = lambda name: name.startswith(("weight_", "bias_"))
        arrays = {name: file[name].astype(np.float16) if is_network(name) else file[name] for name in file.files}
    write_npz(out, arrays)


def is_inside(both: Both, known: Both) -> bool:
    """Whether every UT lies in the interval of another measurement."""
    pairs = [(one, other) for one, other in zip(both, known, strict=True) if one is not None and other is not None]
    return all(other.low <= one.ut <= other.high for one, other in pairs)


def card_of(run: RunResults, policies: ExportedPolicies, both: Both, command: str, precision: str) -> dict[str, Any]:
    """Return the card."""
    about, (asked, calibrated) = policies.policy.about, both
    return {
        "format": about["format"],
        "domain": about["domain"],
        "algo": about["algo"],
        "objectives": about["objectives"],
        "command": command,
        "commit": run.provenance["commit"],
        "machine": run.source.machine,
        "steps": about["step"],
        "seeds": list(run.seeds),
        "seed": about["seed"],
        "precision": precision,
        "licence": "MIT",
        "episodes": FULL_EPISODES,
        "asked": asked.to_dict(),
        "calibrated": None if calibrated is None else calibrated.to_dict(),
        "front": {
            "preferences": asked.preferences.tolist(),
            "returns": rounded(asked.returns.mean(axis=1)).tolist(),
        },
    }


def make(result: Path, files: list[Path], command: str, name: str | None, folder: Path = zoo.FOLDER) -> Path:
    """Write an entry; returns its policy file."""
    run, chosen = read_run(result), choose(files)
    policies = ExportedPolicies(chosen, trust=True)
    about = policies.policy.about
    if (about["domain"], about["algo"]) != (run.domain, run.algo) or about["seed"] not in run.seeds:
        raise ValueError(
            f"{chosen} is of another run than {result}: {about['domain']}, {about['algo']}, {about['seed']}"
        )
    out = folder / f"{name or about['domain']}.npz"
    with tempfile.TemporaryDirectory() as temporary:
        small = Path(temporary) / out.name
        write_small(chosen, small)
        known, both = measure(policies), measure(ExportedPolicies(small, trust=True))
        is_small = is_inside(both, known)
        shutil.copyfile(small if is_small else chosen, out)
    card = card_of(run, policies, both if is_small else known, command, "float16" if is_small else "float32")
    lines = ",\n".join(f"  {json.dumps(key)}: {json.dumps(value)}" for key, value in card.items())
    write_text(out.with_suffix(".json"), f"{{\n{lines}\n}}\n")
    return out


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("result", type=Path)
    parser.add_argument("policies", type=Path, nargs="+")
    parser.add_argument("--command", required=True, help="command that trained the run")
    parser.add_argument("--name", help="name of the entry; default: the domain")
    asked = parser.parse_args()
    print(make(asked.result, asked.policies, asked.command, asked.name))


if __name__ == "__main__":
    main()
