"""Continuous Deep Sea Treasure (DST2d): a boat on [0, SIZE]^2, treasures among rocks, and its exact front by search.

Cell (i, j) of the map is centred at (i + 0.5, j + 0.5).
"""

from dataclasses import dataclass

import numpy as np
from jaxtyping import Bool, Float64, Int

from qpensieve import metrics
from qpensieve.envs.scenery import PlaneScene, Pose, Shape
from qpensieve.envs.simulator import Index, State, Streams
from qpensieve.envs.treasures import SIZE, TREASURES, draw_sea, is_rock, sea_scene
from qpensieve.host_types import EnvSpec

RADIUS = 0.5
ROCK = -10.0
MAX_STEPS = 50
LATTICE = 8
"""The search moves on multiples of 1/LATTICE: a power of two, so that positions are exact."""


def _values() -> Float64[np.ndarray, "11 11"]:
    values = np.zeros((SIZE, SIZE))
    for row, column in np.ndindex(values.shape):
        values[row, column] = ROCK if is_rock(row, column) else TREASURES.get((row, column), 0.0)
    return values


CELLS = _values()
"""What a cell holds: a treasure's value, ROCK, or 0."""


def find(position: Float64[np.ndarray, "n 2"]) -> Float64[np.ndarray, " n"]:
    """The value at `position`: that of a treasure (round), ROCK (square), or 0 for open water."""
    cell = np.minimum(position.astype(np.int64), SIZE - 1)
    offset = np.abs(position - cell - 0.5)
    value = CELLS[cell[:, 0], cell[:, 1]]
    touches_disc = np.square(offset).sum(axis=1) < RADIUS**2
    touches_square = (offset < RADIUS).all(axis=1)
    return np.where(np.where(value > 0.0, touches_disc, touches_square), value, 0.0)


class DstSimulator:
    """n boats. Objectives: treasure value or ROCK at the end, and -1 a step."""

    def __init__(self, spec: EnvSpec, num_lanes: int):
        self.spec = spec
        self._position = np.zeros((num_lanes, 2))

    def reset(self, lanes: Int[np.ndarray, " lanes"], streams: Streams) -> None:
        del streams  # every episode starts at the same place
        self._position[lanes] = 0.0

    def advance(
        self, lanes: Index, actions: Float64[np.ndarray, "lanes act"]
    ) -> tuple[Float64[np.ndarray, "lanes d"], Bool[np.ndarray, " lanes"], None]:
        before = self._position[lanes]
        moved = before + actions
        # A move that leaves the sea is ignored in that axis alone.
        position = np.where((moved >= 0.0) & (moved <= SIZE), moved, before)
        self._position[lanes] = position
        found = find(position)
        reward = np.empty((len(found), 2))
        reward[:, 0] = found
        reward[:, 1] = -1.0
        return reward, found != 0.0, None

    def observe(self, lanes: Index) -> Float64[np.ndarray, "lanes 2"]:
        return self._position[lanes].copy()

    def state(self) -> State:
        return {"position": self._position.copy()}

    def restore(self, state: State) -> None:
        self._position = state["position"].copy()

    def scene(self) -> PlaneScene:
        return sea_scene()

    def ground(self) -> tuple[Shape, ...]:
        """Round treasures: what a boat touches."""
        return draw_sea(RADIUS)

    @property
    def moments(self) -> int:
        return 1

    def pose(self, moment: int = -1) -> Pose:
        del moment
        row, column = self._position[0]
        return np.array([column, row, 0.0])

    def render(self, lane: int) -> np.ndarray:
        return _draw(self._position[lane])

    def close(self) -> None:
        pass


@dataclass(frozen=True)
class Outcome:
    """A way to end an episode, and the fewest steps to it.

    Attributes:
        value: Treasure value or ROCK.
        steps: Fewest steps.
    """

    value: float
    steps: int


def best_outcomes() -> list[Outcome]:
    """Every treasure and the nearest rock, with the fewest steps to it.

    Found by search over a lattice of positions. A bound proves the number of each treasure: a lattice too coarse for
    some passage would raise an error, not return a wrong front.
    """
    positions, touched = _lattice()
    fewest = _fewest_steps(touched == 0.0)
    outcomes = []
    for cell, value in TREASURES.items():
        here = (touched == value) & (np.floor(positions) == np.array(cell)).all(axis=-1)
        steps = int(fewest[here].min())
        if steps != _lower_bound(cell):
            raise AssertionError(f"search found {steps} steps to treasure {value}, the bound is {_lower_bound(cell)}")
        outcomes.append(Outcome(value, steps))
    return [*outcomes, Outcome(ROCK, int(fewest[touched == ROCK].min()))]


def exact_front() -> Float64[np.ndarray, "f 2"]:
    """Pareto front of (treasure, -steps), by increasing treasure."""
    idle = (0.0, -float(MAX_STEPS))
    points = np.array([(o.value, -float(o.steps)) for o in best_outcomes()] + [idle])
    front = metrics.non_dominated(points)
    return front[np.argsort(front[:, 0])]


def _lattice() -> tuple[Float64[np.ndarray, "g g 2"], Float64[np.ndarray, "g g"]]:
    line = np.arange(SIZE * LATTICE + 1) / LATTICE
    positions = np.stack(np.meshgrid(line, line, indexing="ij"), axis=-1)
    return positions, find(positions.reshape(-1, 2)).reshape(positions.shape[:2])


def _fewest_steps(is_open: Bool[np.ndarray, "g g"]) -> Int[np.ndarray, "g g"]:
    """Fewest moves to every lattice point (a move shifts each axis by at most 1), sailing on open water only."""
    fewest = np.full(is_open.shape, np.iinfo(np.int64).max)
    reached = np.zeros(is_open.shape, bool)
    reached[0, 0] = True
    steps = 0
    while (reached & (fewest > steps)).any():
        fewest[reached & (fewest > steps)] = steps
        reached = _reach_along(_reach_along(reached & is_open, 0), 1)
        steps += 1
    return fewest


def _reach_along(reached: Bool[np.ndarray, "g g"], axis: int) -> Bool[np.ndarray, "g g"]:
    """Points within one move along `axis`."""
    padding = [(LATTICE, LATTICE) if i == axis else (0, 0) for i in range(2)]
    windows = np.lib.stride_tricks.sliding_window_view(np.pad(reached, padding), 2 * LATTICE + 1, axis)
    return np.asarray(windows.any(axis=-1))


def _lower_bound(cell: tuple[int, int]) -> int:
    """Steps that every boat needs: after k moves each coordinate is at most k; the nearest such point must touch."""
    centre = np.array(cell) + 0.5
    steps = 0
    while np.square(centre - np.minimum(centre, steps)).sum() >= RADIUS**2:
        steps += 1
    return steps


def _draw(position: Float64[np.ndarray, "2"], pixels_per_cell: int = 40) -> np.ndarray:
    """Map from above: rows downwards, water blue, rock grey, treasures gold (brighter is richer), the boat red."""
    line = (np.arange(SIZE * pixels_per_cell) + 0.5) / pixels_per_cell
    points = np.stack(np.meshgrid(line, line, indexing="ij"), axis=-1)
    touched = find(points.reshape(-1, 2)).reshape(points.shape[:2])
    picture = np.full((*touched.shape, 3), (70, 130, 180), np.uint8)
    picture[touched == ROCK] = (105, 105, 105)
    richness = (touched / max(TREASURES.values()))[..., None]
    gold = (120 + 135 * richness) * np.array([1.0, 0.84, 0.2])
    picture = np.where(touched[..., None] > 0, gold.astype(np.uint8), picture)
    picture[np.square(points - position).sum(axis=-1) < 0.2**2] = (200, 30, 30)
    return picture
