"""Stand-ins for tensorboardX and wandb: they remember what they are given, as the real ones would show it."""

import sys
from dataclasses import dataclass, field
from pathlib import Path
from types import SimpleNamespace
from typing import Any, ClassVar

import pytest


class SummaryWriter:
    """Writes one line per number; a file of a later start hides what others have from `purge_step` on."""

    def __init__(self, logdir: str, purge_step: int | None = None, filename_suffix: str = ""):
        folder = Path(logdir)
        folder.mkdir(parents=True, exist_ok=True)
        number = len(list(folder.iterdir()))
        self.file = open(folder / f"events.out.tfevents.{number}{filename_suffix}", "x")  # noqa: SIM115 (closed by close)
        self.file.write(f"purge {purge_step or 0}\n")

    def add_scalar(self, name: str, value: float, step: int) -> None:
        self.file.write(f"{name} {step} {value!r}\n")

    def flush(self) -> None:
        self.file.flush()

    def close(self) -> None:
        self.file.close()


def shown(folder: Path) -> dict[str, list[tuple[int, float]]]:
    """What TensorBoard would show: name -> (step, value) in the order written."""
    rows: list[tuple[str, int, float]] = []
    for path in sorted(folder.iterdir()):
        first, *lines = path.read_text().splitlines()
        purge = int(first.split()[1])
        rows = [row for row in rows if not purge or row[1] < purge]
        rows += [(name, int(step), float(value)) for name, step, value in map(str.split, lines)]
    return {name: [(step, value) for one, step, value in rows if one == name] for name, *_ in rows}


@dataclass
class WandbRun:
    id: str
    asked: dict[str, Any]
    rows: list[dict[str, Any]] = field(default_factory=list)
    defined: list[Any] = field(default_factory=list)
    exit_code: int | None = None

    def define_metric(self, name: str, step_metric: str | None = None) -> None:
        self.defined.append((name, step_metric))

    def log(self, row: dict[str, Any]) -> None:
        assert self.exit_code is None, "the run is finished"
        self.rows.append(row)

    def finish(self, exit_code: int = 0) -> None:
        self.exit_code = exit_code


class Wandb:
    """The module."""

    runs: ClassVar[list[WandbRun]] = []

    @classmethod
    def init(cls, id: str | None = None, **asked: Any) -> WandbRun:
        cls.runs.append(WandbRun(id or f"id{len(cls.runs)}", asked | {"id": id}))
        return cls.runs[-1]


def install(monkeypatch: pytest.MonkeyPatch) -> list[WandbRun]:
    """Put the stand-ins in place; returns the W&B runs that will be made."""
    monkeypatch.setattr(Wandb, "runs", [])
    monkeypatch.setitem(sys.modules, "tensorboardX", SimpleNamespace(SummaryWriter=SummaryWriter))
    monkeypatch.setitem(sys.modules, "wandb", Wandb)
    return Wandb.runs
