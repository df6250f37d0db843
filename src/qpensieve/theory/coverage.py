"""The convex coverage set of a finite MOMDP (temperature 0), and how soft policies approach it."""

from dataclasses import dataclass

import numpy as np
from jaxtyping import Float64

from qpensieve.theory import iteration, soft
from qpensieve.theory.momdp import Momdp
from qpensieve.theory.soft import LogProbs, Prefs

SAME = 1e-9
"""A return vector is new only if it gains more than this in scalarised value."""
MOST_ROUNDS = 10_000


def best_policy(momdp: Momdp, prefs: Prefs) -> LogProbs:
    """Return the best deterministic policy for each lam . r, by policy iteration; at a tie the action stays."""
    policy = np.zeros((len(prefs), momdp.num_states), dtype=np.int64)
    for _ in range(MOST_ROUNDS):
        logp = np.where(np.arange(momdp.num_actions) == policy[..., None], 0.0, -np.inf)
        q = soft.scalarize_own(prefs, soft.evaluate(momdp, logp, 0.0))
        own = np.take_along_axis(q, policy[..., None], axis=-1)
        is_better = q.max(axis=-1) > own[..., 0] + SAME * (1 + np.abs(own[..., 0]))
        if not is_better.any():
            return logp
        policy = np.where(is_better, q.argmax(axis=-1), policy)
    raise RuntimeError(f"policy iteration did not settle within {MOST_ROUNDS} rounds")


def coverage_set(momdp: Momdp) -> Float64[np.ndarray, "n 2"]:
    """Return the convex coverage set of two objectives from the start: all vertices of the hull, by first objective.

    Solves both ends first, then the preference at which two neighbours are equally good: a policy that is better than
    both there is a new vertex between them. Ends when no pair of neighbours has one.
    """
    low, high = _corner(momdp, 0.0), _corner(momdp, 1.0)
    vertices = _between(momdp, low, high)
    if high[0] <= low[0] + SAME:
        return np.array([high])
    return np.array([low, *vertices, high])


def _corner(momdp: Momdp, first: float) -> Float64[np.ndarray, " 2"]:
    """Return the best return at an end of the preferences; of equal returns the best in the other objective."""
    # The entry of the other objective is 1e-6: enough to break ties, too small to change any other order.
    return _best_return(momdp, min(max(first, 1e-6), 1 - 1e-6))


def _best_return(momdp: Momdp, first: float) -> Float64[np.ndarray, " 2"]:
    return soft.discounted_returns(momdp, best_policy(momdp, np.array([[first, 1 - first]])))[0]


def _between(momdp: Momdp, low: np.ndarray, high: np.ndarray) -> list[np.ndarray]:
    gained, lost = high[0] - low[0], low[1] - high[1]
    if gained <= SAME or lost <= SAME:
        return []
    lam = np.array([lost, gained]) / (gained + lost)
    middle = _best_return(momdp, lam[0])
    if lam @ middle <= lam @ low + SAME * (1 + abs(lam @ low)):
        return []
    return [*_between(momdp, low, middle), middle, *_between(momdp, middle, high)]


def hard_value(vertices: Float64[np.ndarray, "n d"], prefs: Prefs) -> Float64[np.ndarray, " m"]:
    """Return the best scalarised return for each preference: the maximum over the coverage set."""
    return (prefs @ vertices.T).max(axis=1)


@dataclass(frozen=True)
class SoftFront:
    """Returns of the final policies at one temperature."""

    alpha: float
    """The temperature."""
    returns: Float64[np.ndarray, "m d"]
    """Discounted return from the start without entropy, one row per preference."""
    loss: Float64[np.ndarray, " m"]
    """Best scalarised return minus the one of this policy."""
    bound: float
    """Alpha log(number of actions) / (1 - discount): no loss may exceed it."""


def trace_front(
    momdp: Momdp, prefs: Prefs, alpha: float, vertices: Float64[np.ndarray, "n d"], most_iterations: int = 1000
) -> SoftFront:
    """Return the front of policies at the fixed point of Q-Pensieve soft policy iteration with the full envelope."""
    q = np.full((len(prefs), momdp.num_states, momdp.num_actions), -np.inf)
    logp = soft.uniform_policy(momdp, len(prefs))
    for step, current in enumerate(iteration.iterate(momdp, prefs, alpha, iteration.ENVELOPE)):
        last, q, logp = q, soft.scalarize_own(prefs, current.q), current.logp
        if (q - last).max() <= 1e-12 * (1 + np.abs(q).max()) or step == most_iterations:
            break
    returns = soft.discounted_returns(momdp, logp)
    bound = alpha * float(np.log(momdp.num_actions)) / (1 - momdp.discount)
    return SoftFront(alpha, returns, hard_value(vertices, prefs) - (prefs * returns).sum(axis=1), bound)
