"""The exact front of continuous Deep Sea Treasure by search over a lattice, and the returns on the grid by formula."""

import numpy as np

from qpensieve.envs.deep_sea import CELLS, DEPTHS, RADIUS, ROCK, SIZE, VALUES, find
from tests.oracles.pareto import is_non_dominated

LATTICE = 8
"""The search moves on multiples of 1/LATTICE: a power of two, so that positions are exact."""

GRID_STEPS = tuple(column + depth for column, depth in enumerate(DEPTHS))
"""Fewest steps to each treasure of the grid from the start, the upper left corner."""


def grid_returns(discount: float = 0.99) -> np.ndarray:
    """Discounted return of going straight to each treasure: (g^(n-1) value, -(1 - g^n) / (1 - g))."""
    steps = np.array(GRID_STEPS)
    return np.stack([discount ** (steps - 1) * VALUES, -(1 - discount**steps) / (1 - discount)], axis=1)


def fewest_steps(lattice: int = LATTICE) -> dict[float, int]:
    """Fewest steps to every treasure and to the nearest rock, by value.

    A lower bound proves the number of each treasure: a lattice too coarse for a passage raises an error.
    """
    line = np.arange(SIZE * lattice + 1) / lattice
    positions = np.stack(np.meshgrid(line, line, indexing="ij"), axis=-1)
    touched = find(positions)
    steps = _search(touched == 0.0, lattice)
    found = {}
    for cell in np.argwhere(CELLS > 0):
        value = float(CELLS[*cell])
        here = (touched == value) & (np.floor(positions) == cell).all(axis=-1)
        found[value] = int(steps[here].min())
        assert found[value] == _lower_bound(cell), value
    return found | {ROCK: int(steps[touched == ROCK].min())}


def exact_front() -> np.ndarray:
    """Pareto front of (treasure, -steps), by increasing treasure; an idle boat gets (0, -50)."""
    points = np.array([*((value, -steps) for value, steps in fewest_steps().items()), (0.0, -50.0)])
    front = points[is_non_dominated(points.tolist())]
    return front[np.argsort(front[:, 0])]


def _search(is_open: np.ndarray, lattice: int) -> np.ndarray:
    """Fewest moves to every lattice point (a move shifts each axis by at most 1), sailing on open water only."""
    fewest = np.full(is_open.shape, np.iinfo(np.int64).max)
    reached = np.zeros(is_open.shape, bool)
    reached[0, 0] = True
    steps = 0
    while (reached & (fewest > steps)).any():
        fewest[reached & (fewest > steps)] = steps
        reached = _reach_along(_reach_along(reached & is_open, 0, lattice), 1, lattice)
        steps += 1
    return fewest


def _reach_along(reached: np.ndarray, axis: int, lattice: int) -> np.ndarray:
    """Points within one move along `axis`."""
    padding = [(lattice, lattice) if i == axis else (0, 0) for i in range(2)]
    windows = np.lib.stride_tricks.sliding_window_view(np.pad(reached, padding), 2 * lattice + 1, axis)
    return np.asarray(windows.any(axis=-1))


def _lower_bound(cell: np.ndarray) -> int:
    """Steps that every boat needs: after k moves each coordinate is at most k; the nearest such point must touch."""
    centre, steps = cell + 0.5, 0
    while np.square(centre - np.minimum(centre, steps)).sum() >= RADIUS**2:
        steps += 1
    return steps
