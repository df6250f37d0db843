"""Loggers: TensorBoard's files, written by tensorboardX, and Weights & Biases.

tensorboardX needs NumPy and protobuf alone. The writers of torch and TensorFlow bring their whole library, and the
package `tensorboard` a web server and gRPC, which only the machine that shows the files needs.
"""

import importlib
import os
from pathlib import Path
from typing import Any

from qpensieve.callbacks.protocol import Callback, End, Evaluation, Metrics, Training, scalars
from qpensieve.errors import FileInTheWayError, MissingPackageError, UserError, make_folder
from qpensieve.records.files import interpreting, read_object, write_json
from qpensieve.records.folder import WANDB, refuse_link

FILES = "events.out.tfevents.*"
"""Names of TensorBoard's files."""
OWN_FOLDER = "wandb"
"""Folder that wandb makes for its files."""
STEP = "step"
"""Name of the environment step in every row."""


class _Logger(Callback):
    def on_evaluation(self, step: int, evaluation: Evaluation) -> None:
        """Log the scores of an evaluation."""
        self.on_metrics(step, evaluation.metrics)


class TensorBoard(_Logger):
    """Writes metrics for TensorBoard: show them with `tensorboard --logdir FOLDER`.

    Means over seeds are `train/...`, `eval/UT`, `eval/HV`, ...; values of each seed are `seed_0/train/...`. A training
    that continues (`learn` again, `qpensieve resume`) writes into the same folder, and rows that an earlier training
    wrote after its first step are hidden, so that no step shows twice. If a run was trained without this logger, the
    rows from its first step on are added.

    Args:
        folder: Folder of the files, for this training alone.

    Raises:
        ImportError: tensorboardX is not installed; the message says how to install it.
    """

    def __init__(self, folder: str | Path):
        self.folder = Path(folder)
        self._make_writer = _import("tensorboardX", "TensorBoard", "tensorboard").SummaryWriter
        self._writer: Any = None
        self._seeds: tuple[int, ...] = ()

    def on_start(self, training: Training) -> None:
        """Open a file; FileInTheWayError if a new training finds files of another one."""
        refuse_link(self.folder)
        is_used = next(self.folder.glob(FILES), None) is not None
        if is_used and training.step == 0:
            raise FileInTheWayError(
                f"{self.folder} holds TensorBoard files of another training, but this one begins at step 0: "
                "choose another folder, or remove them"
            )
        self._seeds = training.seeds
        # Two files of one second would have the same name.
        self._writer = self._make_writer(
            str(self.folder),
            purge_step=training.step + 1 if is_used else None,
            filename_suffix=f".{training.step:012d}",
        )
        for step, metrics in () if is_used else training.history:
            self.on_metrics(step, metrics)

    def on_metrics(self, step: int, metrics: Metrics) -> None:
        """Write a row of training metrics to the disk, so that a run that is killed leaves no gap."""
        for name, value in scalars(metrics, self._seeds).items():
            self._writer.add_scalar(name, value, step)
        self._writer.flush()

    def on_end(self, step: int, end: End) -> None:
        """Close the file."""
        if self._writer is not None:
            self._writer.close()
            self._writer = None


def remove_files(folder: Path) -> None:
    """Remove TensorBoard's files from a folder."""
    refuse_link(folder)
    for path in folder.glob(FILES):
        path.unlink()


class WandB(_Logger):
    """Sends metrics to Weights & Biases, or keeps them for `wandb sync` (`mode="offline"`, no account needed).

    Names are those of `TensorBoard`. A resumed training continues the same W&B run: rows that were sent before are
    not sent again, which loses nothing since a resumed run has the same numbers. If the process was killed, it is
    unknown which rows W&B has: then the whole run is sent again, as a new W&B run.

    Args:
        project: The W&B project.
        name: Name of the W&B run. None: the name of the run folder, or W&B's choice.
        mode: `online`, `offline` or `disabled`. None: W&B's choice (the environment variable WANDB_MODE, else online).
        folder: Folder for wandb's files and for the id of the W&B run, so that another process can resume it. None: the
            run folder; for an agent no folder, and the id is kept in memory.
        settings: Further arguments of `wandb.init`, such as entity, group or tags.

    Raises:
        ImportError: wandb is not installed; the message says how to install it.
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
        self._wandb, self._settings = _import("wandb", "Weights & Biases", "wandb"), settings
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
        known = {} if self._id is None else {"id": self._id, **({} if self._mode == "offline" else {"resume": "allow"})}
        asked = {"project": self._project, "name": name, "mode": self._mode, "config": about}
        self._run = self._wandb.init(**asked, **place, **known, **self._settings)
        self._id = str(self._run.id)
        # W&B's own step counts calls, and drops a second row of the same step.
        self._run.define_metric(STEP)
        self._run.define_metric("*", step_metric=STEP)
        self._remember(is_open=True)
        for step, metrics in training.history:
            self.on_metrics(step, metrics)

    def on_metrics(self, step: int, metrics: Metrics) -> None:
        """Send a row of training metrics."""
        group = next(iter(metrics), "").split("/")[0]
        if step <= self._sent.get(group, -1):
            return
        self._run.log({STEP: step, **scalars(metrics, self._seeds)})
        self._sent[group] = step

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


def _import(module: str, name: str, extra: str) -> Any:
    try:
        return importlib.import_module(module)
    except ImportError as error:
        raise MissingPackageError(f"{name} needs an extra package: pip install 'qpensieve[{extra}]'") from error
