"""The names of all files in a run folder."""

from pathlib import Path

from qpensieve.errors import FileInTheWayError, UserFileError

CONFIG = "config.json"
"""The configuration of the run."""
PROVENANCE = "environment.json"
"""Versions, machine and commit that made the run."""
METRICS = "metrics.jsonl"
"""One row per event: training, short evaluation, full evaluation."""
EVALUATIONS = "evaluations.npz"
"""The returns of every evaluation."""
SEARCH = "search.npz"
"""The search of a population; other methods have none."""
SUMMARY = "summary.json"
"""The scores of the newest full evaluation."""
CRITIC = "critic.json"
"""How far the critics are from Monte-Carlo returns, where someone has measured it."""
CALIBRATION = "calibration.json"
"""Which preference to ask for in place of another one, where someone has measured it."""
WORKER_LOG = "worker.log"
"""Output of the workers that trained the run as a part of an experiment."""
FAILED = "failed.json"
"""Why an experiment has given the run up; the next call tries it again."""
POLICY = "policy"
"""Folder of an exported policy and its loader; no part of the run."""
LOCK = "run.lock"
"""Locked by the process that writes into the folder."""
CHECKPOINTS = "checkpoints"
"""Folder of the last two checkpoints."""
PARAMETERS = "parameters"
"""Folder of the parameters that are kept."""
REPLAY = "replay"
"""Folder of the replay's rows."""
TENSORBOARD = "tensorboard"
"""Folder of TensorBoard's files."""
WANDB = "wandb.json"
"""Which run of Weights & Biases this is, and up to which step it knows it. Its files lie in `wandb`, which is no part
of the run, because they hold links."""

FILES = (
    *(CONFIG, PROVENANCE, METRICS, EVALUATIONS, SEARCH, SUMMARY, CRITIC, CALIBRATION),
    *(WORKER_LOG, FAILED, LOCK, WANDB),
)
PICTURES = ("front.png", "curves.png", "training.png", "generations.png", "predictions.png")
"""Pictures that commands draw in the folder."""
FOLDERS = (CHECKPOINTS, PARAMETERS, REPLAY, TENSORBOARD)


SHOWN = 8
"""How many names of runs a message lists."""


def why_no_run(path: Path) -> str:
    """What is in place of a run folder or saved agent, which would have a configuration; completes "not a run: ..."."""
    if not path.is_dir():
        return "it is a file" if path.exists() else "it does not exist"
    runs = sorted(found.parent.name for found in path.glob(f"*/{CONFIG}"))
    if not runs:
        return f"it has no {CONFIG}"
    more = f" and {len(runs) - SHOWN} more" if len(runs) > SHOWN else ""
    holds = f"it holds {'several' if len(runs) > 1 else 'one'} ({', '.join(runs[:SHOWN])}{more})"
    return f"{holds}: name {'one of them' if len(runs) > 1 else path / runs[0]}"


def check_out(out: Path, example: str) -> None:
    """Refuse what cannot be a file to write, or must not be: a folder, and a file that makes up a run.

    Raises:
        UserFileError: It is a folder.
        FileInTheWayError: It is a run's own.
    """
    if out.is_dir() or not out.name:
        raise UserFileError(f"out must be a file such as {example}, but {out} is a folder")
    if out.name in FILES and (out.parent / CONFIG).exists():
        raise FileInTheWayError(f"{out} is part of a run: choose another file, such as {example}")


def refuse_file(path: Path) -> None:
    """UserFileError if `path` cannot be a folder, because it or one above it is a file; names that."""
    found = next((one for one in (path, *path.parents) if one.exists()), None)
    if found is not None and not found.is_dir():
        raise UserFileError(f"{path} must be a folder, but {found} is a file; choose another folder")
