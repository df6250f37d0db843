"""Deep Sea Treasure, continuous (DST2d) and on its classic grid (DeepSeaTreasure): ten treasures, rock below them.

Positions are (row, column). Cell (i, j) of the map spans [i, i + 1] x [j, j + 1].
"""

from collections.abc import Collection, Sequence
from dataclasses import dataclass

import numpy as np
from jaxtyping import Bool, Float, Float64, Int

from qpensieve import metrics
from qpensieve.envs.scenery import PlaneScene, Pose, Shape
from qpensieve.envs.simulator import Index, State, Streams
from qpensieve.errors import UserError
from qpensieve.types import EnvSpec

SIZE = 11
"""Rows and columns of the map."""
VALUES = (0.7, 8.2, 11.5, 14.0, 15.1, 16.1, 19.6, 20.3, 22.4, 23.7)
"""Treasure of each column, from the shore out."""
DEPTHS = (1, 2, 3, 4, 4, 4, 7, 7, 9, 10)
"""Row of each column's treasure; below it is rock. The last column of the map is open water."""
ROCK = -10.0
RADIUS = 0.5
"""Radius of a treasure that is a disc."""
MOVES = np.array([(-1, 0), (1, 0), (0, -1), (0, 1)])
"""Moves on the grid: up, down, left, right."""
BOAT_RADIUS = 0.2
"""Radius of the boat in pictures; on the map the boat is a point."""
TOLERANCE = 1e-3
"""Largest difference between a return and the value of its treasure, from float32 rounding."""
PIXELS_PER_CELL = 40
WATER_COLOUR, ROCK_COLOUR, BOAT_COLOUR = (70, 130, 180), (105, 105, 105), (200, 30, 30)


def _cells() -> Float64[np.ndarray, "11 11"]:
    cells = np.zeros((SIZE, SIZE))
    for column, (depth, value) in enumerate(zip(DEPTHS, VALUES, strict=True)):
        cells[depth, column], cells[depth + 1 :, column] = value, ROCK
    return cells


CELLS = _cells()
"""Content of each cell: the value of a treasure, ROCK, or 0 for water."""


@dataclass(frozen=True)
class Ceilings:
    """The highest possible scores.

    Attributes:
        utility: Best mean of lam . return when the policy obeys each preference.
        best_single: Best mean of lam . return if all preferences have the same return.
        hypervolume: Hypervolume of the exact front.
    """

    utility: float
    best_single: float
    hypervolume: float


@dataclass(frozen=True, eq=False)
class ExactFront:
    """A known Pareto front; `points` are sorted by their first objective."""

    points: Float64[np.ndarray, "f d"]

    def ceilings(self, preferences: Float64[np.ndarray, "p d"], reference: Float64[np.ndarray, " d"]) -> Ceilings:
        """Return the scores of the front; an evaluation above them is a bug."""
        return Ceilings(
            utility=metrics.expected_utility(self.points, preferences),
            best_single=metrics.best_single(self.points, preferences),
            hypervolume=metrics.hypervolume(self.points, reference),
        )

    def discounted(self, gamma: float) -> list[Float64[np.ndarray, " d"]]:
        """Return the front of discounted returns: each treasure is paid at the last of its fewest steps."""
        if not 0.0 < gamma <= 1.0:
            raise UserError(f"gamma must be above 0 and at most 1, got {gamma}")
        ends = [(value * gamma ** (-time - 1), -(gamma ** np.arange(-time)).sum()) for value, time in self.points]
        return list(metrics.non_dominated(ends))


_FRONT = ((0.7, -2), (8.2, -3), (11.5, -4), (15.1, -5), (16.1, -6), (20.3, -8), (22.4, -10), (23.7, -11))
FRONT = ExactFront(np.array(_FRONT))
"""Front of DST2d: (treasure, -fewest steps), which `tests/oracles/deep_sea.py` finds by search."""
FRONT.points.flags.writeable = False


def find(position: Float64[np.ndarray, "*n 2"], is_round: bool = True) -> Float64[np.ndarray, "*n"]:
    """Return the value at each position: of a treasure (a disc or a whole cell), `ROCK`, or 0 for water."""
    cell = np.minimum(position.astype(np.int64), SIZE - 1)
    offset = np.abs(position - cell - 0.5)
    value = CELLS[cell[..., 0], cell[..., 1]]
    touches = (offset < RADIUS).all(axis=-1)
    if is_round:
        touches = np.where(value > 0.0, np.square(offset).sum(axis=-1) < RADIUS**2, touches)
    return np.where(touches, value, 0.0)


class BoatSimulator:
    """n boats of DST2d. Objectives: treasure value or ROCK at the end, and -1 a step."""

    moments = 1
    is_round, centre = True, 0.0
    """Whether treasures are discs, and the boat's offset within its cell."""

    def __init__(self, spec: EnvSpec, num_lanes: int):
        self.spec = spec
        self._position = np.zeros((num_lanes, 2))

    def reset(self, lanes: Int[np.ndarray, " lanes"], streams: Streams) -> None:
        del streams  # every episode starts at the same place
        self._position[lanes] = 0.0

    def advance(
        self, lanes: Index, actions: Float64[np.ndarray, "lanes act"]
    ) -> tuple[Float64[np.ndarray, "lanes d"], Bool[np.ndarray, " lanes"], None]:
        position, found = self._move(self._position[lanes], actions)
        self._position[lanes] = position
        reward = np.empty((len(found), 2))
        reward[:, 0], reward[:, 1] = found, -1.0
        return reward, found != 0.0, None

    def observe(self, lanes: Index) -> Float64[np.ndarray, "lanes 2"]:
        return self._position[lanes].copy()

    def state(self) -> State:
        return {"position": self._position.copy()}

    def restore(self, state: State) -> None:
        self._position = state["position"].copy()

    def scene(self) -> PlaneScene:
        """Return the map from above with one boat: x along the columns, y down the rows."""
        boat = Shape("disc", "boat", radius=BOAT_RADIUS, name="boat")
        return PlaneScene((0.0, 0.0, float(SIZE), float(SIZE)), True, (boat,))

    def ground(self) -> tuple[Shape, ...]:
        """Return water, rocks and treasures."""
        shapes = [Shape("polygon", "water", _rectangle(0, 0, SIZE, SIZE))]
        shapes += [
            Shape("polygon", "rock", _rectangle(column, depth + 1, column + 1, SIZE))
            for column, depth in enumerate(DEPTHS)
            if depth + 1 < SIZE
        ]
        for x, (y, value) in enumerate(zip(DEPTHS, VALUES, strict=True)):
            if self.is_round:
                shapes.append(Shape("disc", "treasure", centre=(x + 0.5, y + 0.5), radius=RADIUS, value=value))
            else:
                shapes.append(Shape("polygon", "treasure", _rectangle(x, y, x + 1, y + 1), value=value))
        return tuple(shapes)

    def pose(self, moment: int = -1) -> Pose:
        del moment
        row, column = self._position[0] + self.centre
        return np.array([column, row, 0.0])

    def render(self, lane: int) -> np.ndarray:
        """Draw the map from above: water blue, rock grey, treasures gold (brighter is richer), the boat red."""
        line = (np.arange(SIZE * PIXELS_PER_CELL) + 0.5) / PIXELS_PER_CELL
        points = np.stack(np.meshgrid(line, line, indexing="ij"), axis=-1)
        touched = find(points, self.is_round)[..., None]
        gold = (120 + 135 * touched / max(VALUES)) * np.array([1.0, 0.84, 0.2])
        picture = np.where(touched > 0, gold, np.where(touched == ROCK, ROCK_COLOUR, WATER_COLOUR)).astype(np.uint8)
        picture[np.hypot(*(points - self._position[lane] - self.centre).T).T < BOAT_RADIUS] = BOAT_COLOUR
        return picture

    def close(self) -> None:
        pass

    def _move(
        self, before: Float64[np.ndarray, "n 2"], actions: Float64[np.ndarray, "n 2"]
    ) -> tuple[Float64[np.ndarray, "n 2"], Float64[np.ndarray, " n"]]:
        """Return positions after a move and their values. An axis along which the boat would leave the map stays."""
        moved = before + actions
        position = np.where((moved >= 0.0) & (moved <= SIZE), moved, before)
        return position, find(position)


class GridBoatSimulator(BoatSimulator):
    """n boats of DeepSeaTreasure, which move from cell to cell. Objectives as in DST2d."""

    is_round, centre = False, 0.5

    def _move(
        self, before: Float64[np.ndarray, "n 2"], actions: Float64[np.ndarray, "n 1"]
    ) -> tuple[Float64[np.ndarray, "n 2"], Float64[np.ndarray, " n"]]:
        """Return cells after a move and their values. A blocked move costs a step and changes nothing."""
        moved = np.clip(before + MOVES[actions[:, 0].astype(np.int64)], 0, SIZE - 1)
        is_rock = find(moved + self.centre, self.is_round) == ROCK
        cells = np.where(is_rock[:, None], before, moved)
        return cells, find(cells + self.centre, self.is_round)


def find_treasures(
    returns: Float[np.ndarray, "seed p e 2"], values: Sequence[float] = VALUES
) -> tuple[frozenset[float], ...]:
    """Return the treasures among `values` that the episodes of each seed ended at."""
    known = np.array(values)
    ends = np.asarray(returns, np.float64)[..., 0].reshape(len(returns), -1, 1)
    reached = np.asarray((np.abs(ends - known) <= TOLERANCE).any(axis=1))
    return tuple(frozenset(known[row].tolist()) for row in reached)


def share_found(found: Sequence[Collection[float]], wanted: Collection[float]) -> Float64[np.ndarray, " seed"]:
    """Return the share of the wanted treasures that each seed found."""
    return np.array([len(set(wanted) & set(values)) / len(wanted) for values in found])


def _rectangle(x0: int, y0: int, x1: int, y1: int) -> tuple[tuple[float, float], ...]:
    left, top, right, bottom = float(x0), float(y0), float(x1), float(y1)
    return ((left, top), (right, top), (right, bottom), (left, bottom))
