"""Weights & Biases."""

import importlib
import os
from pathlib import Path
from typing import Any

from qpensieve.callbacks.protocol import Callback, End, Evaluation, Metrics, Training, scalars
from qpensieve.errors import MissingPackageError, UserError, make_folder
from qpensieve.records.files import interpreting, read_object, write_json
from qpensieve.records.folder import WANDB, refuse_link

OWN_FOLDER = "wandb"
"""Folder that wandb makes for its files."""
STEP = "step"
"""Name under which every row says its environment step."""


class WandB(Callback):
    """Sends metrics to Weights & Biases, or keeps them for `wandb sync` (`mode="offline"`, no account needed).

    Names are those of `TensorBoard`. A resumed training continues the same W&B run: rows that were sent before are
    not sent again, which loses nothing since a resumed run has the same numbers. If the process was killed, nobody
    knows what W&B has got: then the whole run is sent again, as a new W&B run.

    Args:
        project: The W&B project.
        name: Name of the W&B run; default: the run folder's, or W&B's choice.
        mode: `online`, `offline` or `disabled`; default: W&B's (the environment variable WANDB_MODE, else online).
        folder: Where wandb puts its files, and where it is remembered which W&B run this is, so that a training that
            another process resumes continues it. Default: the run folder; an agent has none.
        settings: Further arguments of `wandb.init`, such as entity, group or tags.

    Raises:
        ImportError: wandb is not installed; says how to get it.
    """

    def __init__(
        self,
        project: str,
        name: str | None = None,
        mode: str | None = None,
        folder: str | Path | None = None,
        **settings: object,
    ):
        if mode not in (None, "online", "offline", "disabled"):
            raise UserError(f"mode must be online, offline or disabled, got {mode!r}")
        if not project.strip():
            raise UserError("project must name the W&B project, got an empty one")
        self._wandb, self._settings = _import(), settings
        self._project, self._name = project, name
        self._mode = mode or os.environ.get("WANDB_MODE")
        self._folder = None if folder is None else Path(folder)
        self._run: Any = None
        self._id: str | None = None
        self._sent: dict[str, int] = {}
        """Group of metrics (train, eval, eval_full) -> the newest step that was sent."""
        self._state: Path | None = None
        self._seeds: tuple[int, ...] = ()

    def on_start(self, training: Training) -> None:
        """Open the W&B run of this training, or a new one."""
        folder = self._folder or training.folder
        self._seeds, self._state = training.seeds, None if folder is None else folder / WANDB
        if folder is not None:
            make_folder(folder)
            refuse_link(folder / OWN_FOLDER)
        if training.step == 0:
            self._id, self._sent = None, {}
        elif self._state is not None and self._state.exists():
            self._recall(self._state)
        name = self._name or (training.folder.name if training.folder else None)
        about = {"domain": training.domain, "algo": training.algo, **training.settings}
        place = {} if folder is None else {"dir": str(folder)}
        # Offline there is nothing to resume: `wandb sync` joins files of the same id, in the order of their time.
        known = {} if self._id is None else {"id": self._id, **({} if self._is_offline else {"resume": "allow"})}
        asked = {"project": self._project, "name": name, "mode": self._mode, "config": about}
        self._run = self._wandb.init(**asked, **place, **known, **self._settings)
        self._id = str(self._run.id)
        # W&B's own step counts calls, and drops a second row of the same step.
        self._run.define_metric(STEP)
        self._run.define_metric("*", step_metric=STEP)
        self._remember(is_open=True)
        for step, metrics in training.history:
            self.on_metrics(step, metrics)

    @property
    def _is_offline(self) -> bool:
        return self._mode == "offline"

    def on_metrics(self, step: int, metrics: Metrics) -> None:
        """Send a row of training metrics."""
        group = next(iter(metrics), "").split("/")[0]
        if step <= self._sent.get(group, -1):
            return
        self._run.log({STEP: step, **scalars(metrics, self._seeds)})
        self._sent[group] = step

    def on_evaluation(self, step: int, evaluation: Evaluation) -> None:
        """Send the scores of an evaluation."""
        self.on_metrics(step, evaluation.metrics)

    def on_end(self, step: int, end: End) -> None:
        """Finish the W&B run."""
        if self._run is not None:
            run, self._run = self._run, None
            run.finish(exit_code=1 if end == "failed" else 0)
            self._remember(is_open=False)

    def _remember(self, is_open: bool) -> None:
        if self._state is not None:
            write_json(self._state, {"id": self._id, "sent": self._sent, "is_open": is_open})

    def _recall(self, path: Path) -> None:
        content = read_object(path)
        with interpreting(path, "a note of a W&B run"):
            if content["is_open"]:  # the process was killed before it had finished
                self._id, self._sent = None, {}
            else:
                self._id, self._sent = str(content["id"]), {str(k): int(v) for k, v in content["sent"].items()}


def _import() -> Any:
    try:
        return importlib.import_module("wandb")
    except ImportError as error:
        raise MissingPackageError("Weights & Biases needs an extra package: pip install 'qpensieve[wandb]'") from error
