"""Finite multi-objective Markov decision processes (MOMDPs), and ways to make one.

A row of `p_next` may sum to less than 1: the rest is the probability that the episode ends, and an end is worth 0. An
end is not an absorbing state, which would collect an entropy bonus for ever.
"""

from dataclasses import dataclass
from itertools import product

import numpy as np
from jaxtyping import Float64

from qpensieve.envs.deep_sea import CELLS, MOVES, ROCK, SIZE
from qpensieve.errors import UserError


@dataclass(frozen=True)
class Momdp:
    """A finite MOMDP with states s, actions a and d objectives."""

    name: str
    """Name in tables and pictures."""
    p_next: Float64[np.ndarray, "s a s"]
    """Probability of the next state; a row may sum to less than 1: the rest is the probability of the end."""
    r: Float64[np.ndarray, "s a d"]
    """Expected reward vector of an action."""
    start: Float64[np.ndarray, " s"]
    """Distribution of the first state; matters only for returns, not for Q-functions."""
    discount: float
    """Discount of the next reward, 0 or more and below 1."""

    def __post_init__(self):
        if not 0 <= self.discount < 1:
            raise UserError(f"discount must be 0 or more and below 1, got {self.discount}")

    @property
    def num_states(self) -> int:
        return self.r.shape[0]

    @property
    def num_actions(self) -> int:
        return self.r.shape[1]

    @property
    def num_objectives(self) -> int:
        return self.r.shape[2]


@dataclass(frozen=True)
class RandomSpec:
    """Sizes and probabilities of a random MOMDP."""

    num_states: int = 12
    num_actions: int = 3
    num_objectives: int = 2
    num_successors: int = 3
    """States that an action can lead to."""
    reward_density: float = 0.5
    """Share of rewards that are not 0; these are standard normal."""
    end_probability: float = 0.0
    """Probability that an action ends the episode."""
    discount: float = 0.9


def random_momdp(generator: np.random.Generator, spec: RandomSpec = RandomSpec()) -> Momdp:
    """Make a random MOMDP; successors are drawn without repetition, their probabilities from Dirichlet(1)."""
    shape = (spec.num_states, spec.num_actions)
    if not 1 <= spec.num_successors <= spec.num_states:
        raise UserError(f"num_successors must be from 1 to {spec.num_states}, got {spec.num_successors}")
    successors = generator.random((*shape, spec.num_states)).argsort(axis=-1)[..., : spec.num_successors]
    weights = generator.dirichlet(np.ones(spec.num_successors), size=shape)
    p_next = np.zeros((*shape, spec.num_states))
    np.put_along_axis(p_next, successors, weights * (1 - spec.end_probability), axis=-1)
    r = generator.standard_normal((*shape, spec.num_objectives))
    r *= generator.random(r.shape) < spec.reward_density
    start = np.full(spec.num_states, 1 / spec.num_states)
    return Momdp(f"random {spec.num_states}x{spec.num_actions}", p_next, r, start, spec.discount)


def chain(length: int = 15, slip: float = 0.1, discount: float = 0.95) -> Momdp:
    """Make a corridor with a prize at each end, one per objective, and a small reward for both in the middle.

    Action 0 goes left, action 1 right; with probability `slip` it goes the other way. Both prizes are 1 and end the
    episode; every step from the middle pays (0.02, 0.02). The start is the middle.
    """
    if length < 3:
        raise UserError(f"length must be 3 or more, got {length}")
    p_next, r = np.zeros((length, 2, length)), np.zeros((length, 2, 2))
    for state in range(length):
        for action, side in enumerate((-1, 1)):
            for step, probability in ((side, 1 - slip), (-side, slip)):
                if 0 <= state + step < length:
                    p_next[state, action, state + step] += probability
                else:
                    r[state, action, int(step > 0)] += probability
    r[length // 2] += 0.02
    start = np.eye(length)[length // 2]
    return Momdp(f"chain {length}", p_next, r, start, discount)


def two_armed(first: float = 4.0, second: float = 4.0, discount: float = 0.5) -> Momdp:
    """Make one state with two actions, then the end: rewards (first, 0), (0, second). docs/theory.md solves it by hand.

    With preference lam the soft optimum is pi(first) = 1 / (1 + exp((lam_2 second - lam_1 first) / alpha)).
    """
    r = np.array([[[first, 0.0], [0.0, second]]], dtype=np.float64)
    return Momdp("two-armed", np.zeros((1, 2, 1)), r, np.ones(1), discount)


def deep_sea_treasure(discount: float = 0.99) -> Momdp:
    """Make Deep Sea Treasure on its grid; states are the cells of water, and a treasure is an end, not a state."""
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
