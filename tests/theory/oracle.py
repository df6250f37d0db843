"""Textbook soft policy iteration of one objective, state by state, and evaluation by repeated backups."""

import math

import numpy as np

from qpensieve.theory import soft
from qpensieve.theory.momdp import Momdp


def soft_policy_iteration(momdp: Momdp, alpha: float, num_iterations: int) -> list[list[float]]:
    """Q(s, a) of the policy after so many improvements, from the uniform policy."""
    states, actions = range(momdp.num_states), range(momdp.num_actions)
    pi = [[1 / momdp.num_actions for _ in actions] for _ in states]
    q = _evaluate(momdp, pi, alpha)
    for _ in range(num_iterations):
        for s in states:
            top = max(q[s])
            weights = [math.exp((q[s][a] - top) / alpha) for a in actions]
            pi[s] = [weight / sum(weights) for weight in weights]
        q = _evaluate(momdp, pi, alpha)
    return q


def _evaluate(momdp: Momdp, pi: list[list[float]], alpha: float) -> list[list[float]]:
    """Q by one linear system over all pairs: Q(x) = r(x) + gamma sum_y P(x, y) (Q(y) - alpha log pi(y))."""
    pairs = [(s, a) for s in range(momdp.num_states) for a in range(momdp.num_actions)]
    p_pair = np.array([[momdp.p_next[s, a, t] * pi[t][b] for t, b in pairs] for s, a in pairs])
    surprise = np.array([-math.log(pi[s][a]) if pi[s][a] else 0.0 for s, a in pairs])
    r = np.array([momdp.r[s, a, 0] for s, a in pairs])
    gamma = momdp.discount
    q = np.linalg.solve(np.eye(len(pairs)) - gamma * p_pair, r + gamma * p_pair @ (alpha * surprise))
    return [list(row) for row in q.reshape(momdp.num_states, momdp.num_actions)]


def evaluate_by_backups(momdp: Momdp, logp: np.ndarray, alpha: float) -> np.ndarray:
    """The fixed point of `soft.backup` from 0, to 1e-10 or to rounding."""
    q = np.zeros((*logp.shape, momdp.num_objectives))
    while True:
        q, last = soft.backup(momdp, q, logp, alpha), q
        change = np.abs(q - last).max()
        if momdp.discount * change <= (1 - momdp.discount) * 1e-10 or change <= 1e-15 * np.abs(q).max():
            return q
