"""TensorBoard's files, written by tensorboardX.

tensorboardX needs NumPy and protobuf alone. The writers of torch and TensorFlow bring their whole library, and the
package `tensorboard` a web server and gRPC, which only the machine that shows the files needs.
"""

import importlib
from pathlib import Path
from typing import Any

from qpensieve.callbacks.protocol import Callback, End, Evaluation, Metrics, Training, scalars
from qpensieve.errors import FileInTheWayError, MissingPackageError
from qpensieve.records.folder import refuse_link

FILES = "events.out.tfevents.*"
"""Names of TensorBoard's files."""


class TensorBoard(Callback):
    """Writes metrics for TensorBoard: look at them with `tensorboard --logdir FOLDER`.

    Means over seeds are `train/...`, `eval/UT`, `eval/HV`, ...; those of each seed are `seed_0/train/...`. A training
    that continues (`learn` again, `qpensieve resume`) writes into the same folder; what an earlier one wrote after the
    step it continues from is hidden, so that no step shows twice. A run that was trained without it is written from its
    first step on.

    Args:
        folder: Where to write; a folder for this training alone.

    Raises:
        ImportError: tensorboardX is not installed; says how to get it.
    """

    def __init__(self, folder: str | Path):
        self.folder = Path(folder)
        self._make_writer = _import()
        self._writer: Any = None
        self._seeds: tuple[int, ...] = ()

    def on_start(self, training: Training) -> None:
        """Open a file; refuse a folder with those of another training."""
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
        """Write a row of training metrics; it is on the disk afterwards, so that a run that is killed leaves no gap."""
        for name, value in scalars(metrics, self._seeds).items():
            self._writer.add_scalar(name, value, step)
        self._writer.flush()

    def on_evaluation(self, step: int, evaluation: Evaluation) -> None:
        """Write the scores of an evaluation."""
        self.on_metrics(step, evaluation.metrics)

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


def _import() -> Any:
    try:
        return importlib.import_module("tensorboardX").SummaryWriter
    except ImportError as error:
        raise MissingPackageError("TensorBoard needs an extra package: pip install 'qpensieve[tensorboard]'") from error
