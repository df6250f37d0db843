"""The command `qpensieve`, struck at a chosen moment: python -m tests.train.kill_run MOMENT STEP train DST2d ...

Beside it what the tests of runs share: tiny settings, the command as a real process, and the comparison of two runs.
"""

import json
import os
import signal
import subprocess
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
CACHE = {
    "JAX_COMPILATION_CACHE_DIR": str(ROOT / ".cache" / "jax"),
    "JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS": "0.0",
}
"""Environment variables by which processes keep compiled code between runs, as `conftest` does for the tests."""
NEVER = 1e6
"""Seconds between checkpoints in a run that is to write them at evaluations only."""


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


def words(settings: dict[str, Any]) -> list[str]:
    """The settings as options of the command line."""
    return [word for name, value in settings.items() for word in (f"--{name.replace('_', '-')}", str(value))]


def command(*arguments: str | Path, moment: str = "", step: int = 0) -> subprocess.CompletedProcess[str]:
    """Run `qpensieve` as a process of its own, struck at `moment` of `step` if there is one."""
    program = [sys.executable, "-m", "tests.train.kill_run", moment or "never", str(step)]
    return subprocess.run(
        [*program, *map(str, arguments)],
        cwd=ROOT,
        env=os.environ | CACHE,
        capture_output=True,
        text=True,
        timeout=300,
        start_new_session=True,  # so that a Ctrl-C for all of its processes does not reach ours
    )


def assert_same_run(run: Path, other: Path) -> None:
    """Final checkpoint, replay, kept parameters, evaluations and rows of the log are equal, but for fields time_*."""
    (one, ours), (two, theirs) = _final(run), _final(other)
    assert one.name == two.name
    _assert_same_arrays(one / "arrays.npz", two / "arrays.npz")
    assert _replay(run, ours).tobytes() == _replay(other, theirs).tobytes()
    _assert_same_arrays(run / "evaluations.npz", other / "evaluations.npz")
    mine, others = sorted(rows(run)), sorted(rows(other))
    assert mine == others, [pair for pair in zip(mine, others, strict=False) if pair[0] != pair[1]][:2]
    names = sorted(path.name for path in (run / "parameters").iterdir())
    assert names == sorted(path.name for path in (other / "parameters").iterdir())
    for name in names:
        _assert_same_arrays(run / "parameters" / name, other / "parameters" / name)


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


def _assert_same_arrays(path: Path, other: Path) -> None:
    with np.load(path) as ours, np.load(other) as theirs:
        assert sorted(ours.files) == sorted(theirs.files)
        different = [name for name in ours.files if ours[name].tobytes() != theirs[name].tobytes()]
    assert different == []


def _strike() -> None:
    os.kill(os.getpid(), signal.SIGKILL)
    time.sleep(60)


def _interrupt() -> None:
    """Ctrl-C in a terminal: it reaches the helper processes too."""
    os.killpg(os.getpgid(0), signal.SIGINT)


def _after(owner: Any, name: str, is_time: Callable[..., bool], act: Callable[[], None]) -> None:
    """Have `act` called after `owner.name`, once, when `is_time` says so of its arguments."""
    _wrap(owner, name, is_time, act, is_before=False)


def _before(owner: Any, name: str, is_time: Callable[..., bool], act: Callable[[], None]) -> None:
    _wrap(owner, name, is_time, act, is_before=True)


def _wrap(owner: Any, name: str, is_time: Callable[..., bool], act: Callable[[], None], is_before: bool) -> None:
    plain, done = getattr(owner, name), []

    def wrapped(*arguments: Any, **named: Any) -> Any:
        result = None if is_before else plain(*arguments, **named)
        if not done and is_time(*arguments, **named):
            done.append(True)
            act()
        return plain(*arguments, **named) if is_before else result

    setattr(owner, name, wrapped)


def prepare(moment: str, step: int) -> None:
    """Arrange for the blow."""
    from qpensieve.learning.predictor import AgentPredictor
    from qpensieve.records import checkpoint
    from qpensieve.records.log import MetricsLog
    from qpensieve.train import run
    from qpensieve.train.trainer import Trainer

    folder = f"step_{step:09d}"
    at_step = lambda self, *_: self.session.step == step
    moments: dict[str, Callable[[], None]] = {
        "never": lambda: None,
        # A block is done, and not yet logged.
        "block": lambda: _after(Trainer, "advance", lambda self: self.step == step, _strike),
        # The evaluation is in its file and in the log, the checkpoint has not begun.
        "evaluated": lambda: _before(run.Run, "save", at_step, _strike),
        # All of the checkpoint is on the disk but its name.
        "writing": lambda: _before(os, "rename", lambda _, path: Path(path).name == folder, _strike),
        # The checkpoint stands; older ones and their replay have not been cleared away.
        "saved": lambda: _after(checkpoint, "save", lambda _, saved, *__: saved == step, _strike),
        # Half a line of the log is on the disk.
        "row": lambda: _before(MetricsLog, "write", lambda self, *row: _half(self, step, *row[:3]), _strike),
        # The full evaluation is in its file and not in the log.
        "full": lambda: _before(MetricsLog, "write", lambda _, event, *__: event == "full evaluation", _strike),
        "interrupt evaluation": lambda: _after(
            AgentPredictor, "act_all", lambda self, *_, **__: self.step == step, _interrupt
        ),
        "interrupt full": lambda: _before(run.Run, "evaluate_fully", lambda _: True, _interrupt),
    }
    moments[moment]()


def _half(log: Any, step: int, event: str, at: int, values: Any) -> bool:
    if at < step:
        return False
    log._file.write('{"event": "evaluation", "ste')
    log._file.flush()
    return True


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
