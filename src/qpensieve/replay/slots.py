"""Host side of all replays: the slot of every transition, and rows as they are saved and restored."""

import sys
from collections.abc import Sequence
from dataclasses import replace

import jax.numpy as jnp
import numpy as np
from jaxtyping import Bool, Float32, Int32, Int64

from qpensieve.learning.interface import Learning, PrioritizedLearning
from qpensieve.records.checkpoint import CheckpointError
from qpensieve.replay.diverse import DiverseReplay
from qpensieve.replay.layout import RowLayout, Rows
from qpensieve.replay.ring import AnyReplay, empty_lanes

State = dict[str, np.ndarray]


class Slots:
    """Slots of the replays of all lanes.

    Args:
        learning: Learning of the algorithm, which decides what transitions the replay keeps.
        layout: Layout of a row.
        capacity: Slots of each lane.
        num_lanes: Number of lanes; they write together.
        discount: Discount of the return vectors of diverse episodes.
    """

    def __init__(self, learning: Learning, layout: RowLayout, capacity: int, num_lanes: int, discount: float):
        self._learning, self._layout, self._discount = learning, layout, discount
        self.capacity, self.num_lanes = capacity, num_lanes
        self._is_diverse = isinstance(learning, PrioritizedLearning) and learning.keeps == "diverse"
        self._clear()

    def _clear(self) -> None:
        self.written = 0
        """Transitions that each lane has written so far."""
        lanes = range(self.num_lanes if self._is_diverse else 0)
        self._diverse = [DiverseReplay(self.capacity, self._layout.num_objectives, self._discount) for _ in lanes]

    @property
    def log_capacity(self) -> int:
        """Number of a lane's newest transitions that a checkpoint must hold; all if diverse episodes are kept."""
        return sys.maxsize if self._is_diverse else self.capacity

    def place(
        self, rows: Float32[np.ndarray, "lane K width"], done: Bool[np.ndarray, "lane K"]
    ) -> tuple[Int32[np.ndarray, "lane K"], Sequence[Int32[np.ndarray, " _"]]]:
        """Return slots for the new transitions, and for each lane the slots to free before (an empty list: none).

        Args:
            rows: The transitions.
            done: Whether an episode ended at the step, by itself or by the time limit.
        """
        first, self.written = self.written, self.written + rows.shape[1]
        if not self._is_diverse:
            slots = np.arange(first, self.written) % self.capacity
            return np.tile(slots.astype(np.int32), (self.num_lanes, 1)), []
        of_lanes = zip(self._diverse, rows[..., self._layout.reward], done, strict=True)
        placed = [diverse.append(reward, ends) for diverse, reward, ends in of_lanes]
        return np.stack([placement.slots for placement in placed]), [placement.freed for placement in placed]

    def contents(self) -> list[Int64[np.ndarray, " capacity"]]:
        """Return for each lane the number of the transition in each slot, -1 for none."""
        if self._is_diverse:
            return [np.asarray(diverse.contents) for diverse in self._diverse]
        slot = np.arange(self.capacity)
        newest = self.written - 1 - (self.written - 1 - slot) % self.capacity
        return [np.where(newest >= 0, newest, -1)] * self.num_lanes

    def state(self) -> State:
        """Return arrays for a checkpoint, in addition to the replay; an empty dict for uniform learning."""
        if not isinstance(self._learning, PrioritizedLearning):
            return {}
        arrays = {"written": np.array(self.written)}
        for lane, diverse in enumerate(self._diverse):
            arrays |= {f"{lane}/{name}": value for name, value in diverse.state().items()}
        return arrays

    def in_order(self, replay: AnyReplay) -> tuple[Rows, int]:
        """Return the rows in the order written and the number of the first; dropped rows are zero."""
        slots = np.asarray(replay.rows)
        first = 0 if self._is_diverse else max(0, self.written - self.capacity)
        rows = np.zeros((len(slots), self.written - first, slots.shape[2]), np.float32)
        for lane, contents in enumerate(self.contents()):
            held = contents >= 0
            rows[lane, contents[held] - first] = slots[lane, held]
        return rows, first

    def without_rows(self, replay: AnyReplay) -> AnyReplay:
        """Return the replay without rows, which checkpoints save in their own files."""
        return replace(replay, rows=jnp.zeros((self.num_lanes, 0, self._layout.width)))

    def restored(self, saved: AnyReplay, state: State, rows: Rows | None, first: int) -> AnyReplay:
        """Return the replay of a checkpoint with its rows back in their slots.

        Args:
            saved: The replay without rows.
            state: What `state` returned.
            rows: The newest rows in the order written. None: the replay starts empty.
            first: Number of rows written before them.

        Raises:
            CheckpointError: The rows do not end at the transition of the checkpoint.
        """
        self._clear()
        if rows is None:
            return empty_lanes(self._learning, self._layout, self.capacity, self.num_lanes)
        self.written = int(saved.written[0])
        if first + rows.shape[1] != self.written:
            end = first + rows.shape[1]
            raise CheckpointError(
                f"the replay must end at transition {self.written} like the rest of the checkpoint, got {end}"
            )
        for lane, diverse in enumerate(self._diverse):
            prefix = f"{lane}/"
            diverse.restore({name.removeprefix(prefix): v for name, v in state.items() if name.startswith(prefix)})
        slots = np.zeros((len(rows), self.capacity, rows.shape[2]), np.float32)
        for lane, contents in enumerate(self.contents()):
            held = contents >= first
            slots[lane, held] = rows[lane, contents[held] - first]
        return replace(saved, rows=jnp.asarray(slots))

    def grown(self, replay: AnyReplay, capacity: int) -> AnyReplay:
        """Return the replay with room for `capacity` rows; it must not have wrapped around."""
        missing = capacity - self.capacity
        if missing <= 0:
            return replay
        rows = jnp.pad(replay.rows, ((0, 0), (0, missing), (0, 0)))
        self.capacity = capacity  # only once there is room: memory may run out
        return replace(replay, rows=rows)
