"""Deep Sea Treasure on its classic grid, convex map: ten treasures, two objectives (treasure, time)."""

from itertools import product

import numpy as np
from jaxtyping import Float64

from qpensieve.envs.deep_sea import CELLS, DEPTHS, MOVES, ROCK, SIZE, VALUES
from qpensieve.theory.momdp import Momdp

STEPS = tuple(column + depth for column, depth in enumerate(DEPTHS))
"""Fewest steps from the start, the upper left corner."""


def deep_sea_treasure(discount: float = 0.99) -> Momdp:
    """The grid as a MOMDP; its states are the cells of water, and a treasure is an end, not a state."""
    water = [cell for cell in np.ndindex(SIZE, SIZE) if CELLS[cell] == 0.0]
    state_of = {cell: state for state, cell in enumerate(water)}
    p_next, r = np.zeros((len(water), len(MOVES), len(water))), np.zeros((len(water), len(MOVES), 2))
    r[:, :, 1] = -1.0
    for (cell, state), (action, move) in product(state_of.items(), enumerate(MOVES.tolist())):
        target = (cell[0] + move[0], cell[1] + move[1])
        if not 0 <= min(target) <= max(target) < SIZE or CELLS[target] == ROCK:
            target = cell
        r[state, action, 0] = CELLS[target]
        if target in state_of:
            p_next[state, action, state_of[target]] = 1.0
    return Momdp("Deep Sea Treasure", p_next, r, np.eye(len(water))[state_of[0, 0]], discount)


def treasure_returns(discount: float = 0.99) -> Float64[np.ndarray, "10 2"]:
    """Discounted return of going straight to each treasure, by the formula: (g^(n-1) value, -(1 - g^n) / (1 - g))."""
    steps, values = np.array(STEPS), np.array(VALUES)
    return np.stack([discount ** (steps - 1) * values, -(1 - discount**steps) / (1 - discount)], axis=1)


def switch_points(returns: Float64[np.ndarray, "n 2"]) -> Float64[np.ndarray, " n-1"]:
    """Preferences for the first objective at which two neighbours on a convex front are equally good, ascending."""
    front = returns[np.argsort(returns[:, 0])]
    gained, lost = np.diff(front[:, 0]), -np.diff(front[:, 1])
    return lost / (gained + lost)
