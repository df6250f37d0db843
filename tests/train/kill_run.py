"""The command `qpensieve`, struck at a chosen moment: python -m tests.train.kill_run MOMENT STEP train DST2d ...

Beside it what the tests of runs share: tiny settings, the command as a real process, and the comparison of two runs.
"""

import errno
import json
import os
import signal
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

ROOT = Path(__file__).parents[2]
TINY: dict[str, Any] = {
    "seeds": 2,
    "steps": 600,
    "random_steps": 100,
    "block": 20,
    "replay_capacity": 400,
    "eval_period": 200,
    "log_period": 40,
    "parameters_period": 200,
    "hidden": 16,
    "batch_size": 16,
    "num_snapshots": 2,
    "push_after": 40,
    "push_period": 40,
    "checkpoint_seconds": 0.05,
}
"""Settings of a run of seconds in which everything happens: the replay wraps around, snapshots are pushed and dropped,
checkpoints are written at evaluations and in between."""
POPULATION: dict[str, Any] = {
    "steps": 960,
    "divisions": 2,
    "rollout_steps": 16,
    "num_lanes": 2,
    "minibatches": 2,
    "epochs": 2,
    "hidden": 8,
    "warmup_iterations": 2,
    "generation_iterations": 1,
}
"""Settings of a search of seconds: three tasks, a warm-up and generations."""
CACHE = {
    "JAX_COMPILATION_CACHE_DIR": str(ROOT / ".cache" / "jax"),
    "JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS": "0.0",
}
"""Environment variables by which processes keep compiled code between runs, as `conftest` does for the tests."""
NEVER = 1e6
"""Seconds between checkpoints in a run that is to write them at evaluations only."""


def tiny_run(domain: str = "DST2d", **settings: Any) -> Any:
    """The configuration of such a run of Q-Pensieve, with checkpoints at evaluations only."""
    from qpensieve.config import default_config, override

    return override(default_config(domain), {**TINY, "checkpoint_seconds": NEVER, **settings})


def complete(run: Any) -> None:
    """Train to the end, and let go of the folder whatever happens."""
    try:
        run.train()
    finally:
        run.close()


def interrupt_at(run: Any, step: int, act: Callable[[], object] = lambda: signal.raise_signal(signal.SIGINT)) -> None:
    """Have something happen at the end of the block that reaches a step: Ctrl-C, unless told otherwise."""
    advance = run.session.advance

    def wrapped() -> Any:
        rows = advance()
        if run.session.step == step:
            act()
        return rows

    run.session.advance = wrapped


def stop_at(run: Any, step: int) -> None:
    """Train until Ctrl-C is pressed at a step."""
    import pytest

    from qpensieve.train.run_loop import Stopped

    interrupt_at(run, step)
    with pytest.raises(Stopped, match=f"stopped at step {step:,}; continue with: {run.resume_command}"):
        complete(run)


def advance_to(session: Any, step: int) -> None:
    """Train a session up to a step."""
    while session.step < step:
        session.advance()


def refuse(message: str) -> None:
    """Fail where a warning is given that should not be."""
    raise AssertionError(f"unexpected warning: {message}")


def no_space(*_: Any, **__: Any) -> None:
    """Take the place of a function that writes, on a full disk."""
    raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))


def words(settings: dict[str, Any]) -> list[str]:
    """The settings as options of the command line."""
    return [word for name, value in settings.items() for word in (f"--{name.replace('_', '-')}", str(value))]


def assert_same_run(run: Path, other: Path) -> None:
    """Final checkpoint, replay, kept parameters, evaluations and rows of the log are equal, but for fields time_*."""
    (one, ours), (two, theirs) = _final(run), _final(other)
    assert one.name == two.name
    _assert_same_files(one / "arrays.npz", two / "arrays.npz")
    assert _replay(run, ours).tobytes() == _replay(other, theirs).tobytes()
    _assert_same_files(run / "evaluations.npz", other / "evaluations.npz")
    mine, others = sorted(rows(run)), sorted(rows(other))
    assert mine == others, [pair for pair in zip(mine, others, strict=False) if pair[0] != pair[1]][:2]
    names = sorted(path.name for path in (run / "parameters").iterdir())
    assert names == sorted(path.name for path in (other / "parameters").iterdir())
    for name in names:
        _assert_same_files(run / "parameters" / name, other / "parameters" / name)


def assert_same_arrays(arrays: dict[str, np.ndarray], others: dict[str, np.ndarray]) -> None:
    """The same names, types and bits."""
    assert arrays.keys() == others.keys()
    assert [name for name, one in arrays.items() if bits(one) != bits(others[name])] == []


def bits(array: np.ndarray) -> tuple[Any, ...]:
    return array.dtype, array.shape, array.tobytes()


def everything(session: Any) -> dict[str, np.ndarray]:
    """Copies of all that learning changes, rows of the replay included."""
    held = session.replay_rows()
    arrays = session.arrays() | ({} if held is None else {"replay": held[0], "first row": np.asarray(held[1])})
    return {name: value.copy() for name, value in arrays.items()}


def assert_same_sessions(session: Any, other: Any) -> None:
    """Two agents or trainers hold the same bits."""
    ours, theirs = (everything(getattr(one, "session", one)) for one in (session, other))
    assert_same_arrays(ours, theirs)


def contents(folder: Path) -> dict[str, bytes]:
    """Every file of a folder but its lock."""
    files = [path for path in folder.rglob("*") if path.is_file() and path.name != "run.lock"]
    return {str(path.relative_to(folder)): path.read_bytes() for path in files}


def rows(run: Path) -> list[str]:
    """The rows of the log, without what is expected to differ; as text, since a number may be NaN."""
    parsed = [json.loads(line) for line in (run / "metrics.jsonl").read_text().splitlines()]
    return [json.dumps({k: v for k, v in row.items() if not k.startswith("time_")}) for row in parsed]


def final_arrays(run: Path) -> dict[str, np.ndarray]:
    with np.load(_final(run)[0] / "arrays.npz") as arrays:
        return dict(arrays)


def steps_saved(run: Path) -> list[int]:
    return sorted(int(path.name.removeprefix("step_")) for path in (run / "checkpoints").glob("step_*"))


def _final(run: Path) -> tuple[Path, dict[str, Any]]:
    folder = max((run / "checkpoints").glob("step_*"))
    return folder, json.loads((folder / "meta.json").read_text())["meta"]


def _replay(run: Path, meta: dict[str, Any]) -> np.ndarray:
    """The newest rows of the replay; how many files they lie in depends on when checkpoints were written."""
    if meta["replay"] is None:  # a population has none
        return np.zeros(0)
    capacity = min(meta["config"]["replay_capacity"], meta["config"]["steps"])
    parts = [np.load(run / "replay" / segment["file"]) for segment in meta["replay"]]
    return np.ascontiguousarray(np.concatenate(parts, axis=1)[:, -capacity:])


def _assert_same_files(path: Path, other: Path) -> None:
    with np.load(path) as ours, np.load(other) as theirs:
        assert_same_arrays(dict(ours), dict(theirs))


def _strike() -> None:
    os.kill(os.getpid(), signal.SIGKILL)
    time.sleep(60)


def _wrap(owner: Any, name: str, is_time: Callable[..., bool], is_before: bool = False) -> None:
    """Strike once after `owner.name` was called, or before, when `is_time` says so of its arguments."""
    plain, done = getattr(owner, name), []

    def wrapped(*arguments: Any, **named: Any) -> Any:
        result = None if is_before else plain(*arguments, **named)
        if not done and is_time(*arguments, **named):
            done.append(True)
            _strike()
        return plain(*arguments, **named) if is_before else result

    setattr(owner, name, wrapped)


def prepare(moment: str, step: int) -> None:
    """Arrange for the blow: once a block is done and not logged; or before a whole checkpoint gets its name."""
    from qpensieve.train.trainer import Trainer

    if moment == "block":
        _wrap(Trainer, "advance", lambda self: self.step == step)
    elif moment == "writing":
        _wrap(os, "rename", lambda _, path: Path(path).name == f"step_{step:09d}", is_before=True)


def main() -> None:
    from qpensieve import cli
    from qpensieve.report import pictures

    pictures.draw_pictures = lambda folder: []  # they take as long as all the rest
    # Python leaves Ctrl-C ignored where a shell has started the tests in the background.
    signal.signal(signal.SIGINT, signal.default_int_handler)
    prepare(sys.argv[1], int(sys.argv[2]))
    cli.main(sys.argv[3:])


if __name__ == "__main__":
    main()
