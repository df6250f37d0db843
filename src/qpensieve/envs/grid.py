"""Deep Sea Treasure on its classic grid (DeepSeaTreasure): boats that move by action index from cell to cell."""

from dataclasses import dataclass
from functools import cache

import numpy as np
from jaxtyping import Bool, Float64, Int

from qpensieve.envs.scenery import PlaneScene, Pose, Shape
from qpensieve.envs.simulator import Index, State, Streams
from qpensieve.envs.treasures import SIZE, TREASURES, draw_sea, is_water, sea_scene
from qpensieve.host_types import EnvSpec

MOVES = ((-1, 0), (1, 0), (0, -1), (0, 1))
"""Up, down, left, right as (row, column); a move against a rock or an edge takes a step but does not move."""
START = (0, 0)
MAX_STEPS = 100
NUM_ACTIONS = len(MOVES)
"""Up, down, left, right."""
WATER, ROCK, BOAT = (70, 130, 180), (105, 105, 105), (200, 30, 30)


@dataclass(frozen=True, eq=False)
class Grid:
    """The map as tables over numbered places: first the cells of water, which are the states, then the treasures.

    A treasure ends the episode, so it is not a state. It still has a place, which the last observation shows.

    Attributes:
        next_place: Where an action leads.
        r: Reward vector of the action.
        cells: (row, column) of a place.
        start: Place where episodes begin.
    """

    next_place: Int[np.ndarray, "s a"]
    r: Float64[np.ndarray, "s a 2"]
    cells: Float64[np.ndarray, "places 2"]
    start: int

    @property
    def num_states(self) -> int:
        return len(self.next_place)


@cache
def lay_out() -> Grid:
    """The grid of the map; states are numbered row by row."""
    water = [cell for cell in np.ndindex(SIZE, SIZE) if is_water(*cell)]
    number = {cell: place for place, cell in enumerate([*water, *TREASURES])}
    next_place = np.zeros((len(water), NUM_ACTIONS), np.int64)
    r = np.zeros((len(water), NUM_ACTIONS, 2))
    r[:, :, 1] = -1.0
    for place, (row, column) in enumerate(water):
        for action, (down, right) in enumerate(MOVES):
            reached = (row + down, column + right)
            next_place[place, action] = number.get(reached, place)
            r[place, action, 0] = TREASURES.get(reached, 0.0)
    return Grid(next_place, r, np.array([*number], np.float64), number[START])


class GridSimulator:
    """n boats on Deep Sea Treasure. Objectives: the treasure's value at the end, and -1 a step."""

    def __init__(self, spec: EnvSpec, num_lanes: int):
        self.spec = spec
        self.grid = lay_out()
        self._place = np.full(num_lanes, self.grid.start)

    def reset(self, lanes: Int[np.ndarray, " lanes"], streams: Streams) -> None:
        del streams  # every episode starts at the same place
        self._place[lanes] = self.grid.start

    def advance(
        self, lanes: Index, actions: Float64[np.ndarray, "lanes 1"]
    ) -> tuple[Float64[np.ndarray, "lanes d"], Bool[np.ndarray, " lanes"], None]:
        move = self._place[lanes], actions[:, 0].astype(np.int64)
        reward, reached = self.grid.r[move], self.grid.next_place[move]
        self._place[lanes] = reached
        return reward, reached >= self.grid.num_states, None

    def observe(self, lanes: Index) -> Float64[np.ndarray, "lanes 2"]:
        return self.grid.cells[self._place[lanes]]

    def state(self) -> State:
        return {"place": self._place.copy()}

    def restore(self, state: State) -> None:
        self._place = state["place"].copy()

    def scene(self) -> PlaneScene:
        return sea_scene()

    def ground(self) -> tuple[Shape, ...]:
        return draw_sea()

    @property
    def moments(self) -> int:
        return 1

    def pose(self, moment: int = -1) -> Pose:
        del moment
        row, column = self.grid.cells[self._place[0]] + 0.5
        return np.array([column, row, 0.0])

    def render(self, lane: int) -> np.ndarray:
        return _draw(self.grid, int(self._place[lane]))

    def close(self) -> None:
        pass


def _draw(grid: Grid, place: int, pixels_per_cell: int = 40) -> np.ndarray:
    """Map from above: rows downwards, water blue, rock grey, treasures gold (brighter is richer), the boat red."""
    rows, columns = grid.cells.astype(np.int64).T
    colours = np.full((rows.max() + 1, columns.max() + 1, 3), ROCK, np.uint8)
    colours[rows, columns] = WATER
    treasure = np.zeros(len(grid.cells))
    treasure[grid.next_place] = grid.r[..., 0]
    richness = treasure[grid.num_states :, None] / treasure.max()
    gold = (120 + 135 * richness) * np.array([1.0, 0.84, 0.2])
    colours[rows[grid.num_states :], columns[grid.num_states :]] = gold.astype(np.uint8)
    picture = colours.repeat(pixels_per_cell, axis=0).repeat(pixels_per_cell, axis=1)
    down, right = np.indices(picture.shape[:2]) + 0.5
    centre = (grid.cells[place] + 0.5) * pixels_per_cell
    picture[np.hypot(down - centre[0], right - centre[1]) < 0.2 * pixels_per_cell] = BOAT
    return picture
