"""Deep Sea Treasure on its classic grid (DeepSeaTreasure): boats that move by action index over a finite MOMDP.

The map, its rewards and its ends are those of `qpensieve.theory.treasure`; here they become tables for n boats.
"""

from dataclasses import dataclass

import numpy as np
from jaxtyping import Bool, Float64, Int

from qpensieve.envs.simulator import Index, State, Streams
from qpensieve.theory.momdp import Momdp
from qpensieve.theory.treasure import MOVES, deep_sea_treasure
from qpensieve.types import EnvSpec

MAX_STEPS = 100
NUM_ACTIONS = len(MOVES)
"""Up, down, left, right."""
WATER, ROCK, BOAT = (70, 130, 180), (105, 105, 105), (200, 30, 30)


@dataclass(frozen=True)
class Grid:
    """A MOMDP without chance as tables over numbered places: first its states, then the cells where episodes end.

    An end is no state of the MOMDP, but it has a place: the last observation of an episode shows it.

    Attributes:
        next_place: Where an action leads.
        r: Reward vector of the action.
        cells: (row, column) of a place.
        start: Place where episodes begin.
    """

    next_place: Int[np.ndarray, "s a"]
    r: Float64[np.ndarray, "s a d"]
    cells: Float64[np.ndarray, "places 2"]
    start: int

    @property
    def num_states(self) -> int:
        return len(self.next_place)


def lay_out(momdp: Momdp) -> Grid:
    """The grid of `momdp`: from the start, the upper left corner, action i leads by `MOVES[i]` or stays.

    Raises:
        ValueError: If something in it is left to chance, or a state has no cell because no moves lead to it.
    """
    if not (np.isin(momdp.p_next, (0.0, 1.0)).all() and np.isin(momdp.start, (0.0, 1.0)).all()):
        raise ValueError(f"{momdp.name}: lanes on a grid need a certain start and certain moves")
    is_end = momdp.p_next.sum(axis=-1) == 0.0
    next_place = momdp.p_next.argmax(axis=-1)
    start = int(momdp.start.argmax())
    cells, ends, unexplored = {start: (0, 0)}, {}, [start]
    while unexplored:
        s = unexplored.pop()
        for action, (rows, columns) in enumerate(MOVES):
            cell = (cells[s][0] + rows, cells[s][1] + columns)
            if is_end[s, action]:
                next_place[s, action] = ends.setdefault(cell, momdp.num_states + len(ends))
            elif (place := int(next_place[s, action])) not in cells:
                cells[place] = cell
                unexplored.append(place)
    unreached = sorted(set(range(momdp.num_states)) - cells.keys())
    if unreached:
        raise ValueError(f"{momdp.name}: no moves lead from the start to states {unreached}")
    in_order = [*(cells[s] for s in range(momdp.num_states)), *ends]
    return Grid(next_place, momdp.r, np.array(in_order, np.float64), start)


class GridSimulator:
    """n boats on Deep Sea Treasure. Objectives: the treasure's value at the end, and -1 a step."""

    def __init__(self, spec: EnvSpec, num_lanes: int):
        self.spec = spec
        self.grid = lay_out(deep_sea_treasure())
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
