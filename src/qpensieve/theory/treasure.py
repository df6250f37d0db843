"""Deep Sea Treasure on its classic grid, convex map: ten treasures, two objectives (treasure, time)."""

import numpy as np
from jaxtyping import Float64

from qpensieve.envs import grid
from qpensieve.envs.treasures import DEPTHS, VALUES
from qpensieve.theory.momdp import Momdp

STEPS = tuple(column + depth for column, depth in enumerate(DEPTHS))
"""Fewest steps from the start, the upper left corner."""


def deep_sea_treasure(discount: float = 0.99) -> Momdp:
    """The grid as a MOMDP; its states are the cells of water, and a treasure is an end, not a state."""
    sea = grid.lay_out()
    p_next = np.zeros((*sea.next_place.shape, sea.num_states))
    for state, action in np.ndindex(sea.next_place.shape):
        place = sea.next_place[state, action]
        if place < sea.num_states:
            p_next[state, action, place] = 1.0
    return Momdp("Deep Sea Treasure", p_next, sea.r.copy(), np.eye(sea.num_states)[sea.start], discount)


def treasure_returns(discount: float = 0.99) -> Float64[np.ndarray, "10 2"]:
    """Discounted return of going straight to each treasure, by the formula: (g^(n-1) value, -(1 - g^n) / (1 - g))."""
    steps, values = np.array(STEPS), np.array(VALUES)
    return np.stack([discount ** (steps - 1) * values, -(1 - discount**steps) / (1 - discount)], axis=1)


def switch_points(returns: Float64[np.ndarray, "n 2"]) -> Float64[np.ndarray, " n-1"]:
    """Preferences for the first objective at which two neighbours on a convex front are equally good, ascending."""
    front = returns[np.argsort(returns[:, 0])]
    gained, lost = np.diff(front[:, 0]), -np.diff(front[:, 1])
    return lost / (gained + lost)
