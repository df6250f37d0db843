"""Deep Sea Treasure on its classic grid, convex map: ten treasures, two objectives (treasure, time)."""

import numpy as np
from jaxtyping import Float64

from qpensieve.theory.momdp import Momdp

VALUES = (0.7, 8.2, 11.5, 14.0, 15.1, 16.1, 19.6, 20.3, 22.4, 23.7)
"""Treasure of each column, from the shore out."""
DEPTHS = (1, 2, 3, 4, 4, 4, 7, 7, 9, 10)
"""Row of that treasure; below it is rock. The last column of the grid is open water."""
STEPS = tuple(column + depth for column, depth in enumerate(DEPTHS))
"""Fewest steps from the start, the upper left corner."""
SIZE = 11
MOVES = ((-1, 0), (1, 0), (0, -1), (0, 1))
"""Up, down, left, right as (row, column); a move against a rock or an edge costs its step and stays."""


def deep_sea_treasure(discount: float = 0.99) -> Momdp:
    """The grid as a MOMDP; its states are the cells of water, and a treasure is an end, not a state."""
    cells = [(row, column) for row in range(SIZE) for column in range(SIZE) if row < _floor(column)]
    number = {cell: i for i, cell in enumerate(cells)}
    p_next, r = np.zeros((len(cells), len(MOVES), len(cells))), np.zeros((len(cells), len(MOVES), 2))
    r[:, :, 1] = -1.0
    for cell, i in number.items():
        for action, move in enumerate(MOVES):
            reached = (cell[0] + move[0], cell[1] + move[1])
            if reached in TREASURES:
                r[i, action, 0] = TREASURES[reached]
            else:
                p_next[i, action, number.get(reached, i)] = 1.0
    return Momdp("Deep Sea Treasure", p_next, r, np.eye(len(cells))[number[0, 0]], discount)


TREASURES = {(depth, column): value for column, (depth, value) in enumerate(zip(DEPTHS, VALUES, strict=True))}
"""(row, column) -> value."""


def _floor(column: int) -> int:
    """First row of the column that is not water."""
    return DEPTHS[column] if column < len(DEPTHS) else SIZE


def treasure_returns(discount: float = 0.99) -> Float64[np.ndarray, "10 2"]:
    """Discounted return of going straight to each treasure, by the formula: (g^(n-1) value, -(1 - g^n) / (1 - g))."""
    steps, values = np.array(STEPS), np.array(VALUES)
    return np.stack([discount ** (steps - 1) * values, -(1 - discount**steps) / (1 - discount)], axis=1)


def switch_points(returns: Float64[np.ndarray, "n 2"]) -> Float64[np.ndarray, " n-1"]:
    """Weight of the first objective at which two neighbours on a convex front are worth the same, ascending."""
    front = returns[np.argsort(returns[:, 0])]
    gained, lost = np.diff(front[:, 0]), -np.diff(front[:, 1])
    return lost / (gained + lost)
