"""Textbook soft policy iteration of one objective, in plain loops."""

import math

from qpensieve.tabular.momdp import Momdp

SWEEPS = 4000


def soft_policy_iteration(momdp: Momdp, alpha: float, num_iterations: int) -> list[list[list[float]]]:
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
    states, actions = range(momdp.num_states), range(momdp.num_actions)
    p_next, r = momdp.p_next.tolist(), momdp.r[..., 0].tolist()
    q = [[0.0 for _ in actions] for _ in states]
    for _ in range(SWEEPS):
        v = [sum(p * (q[s][a] - alpha * math.log(p)) for a, p in zip(actions, pi[s], strict=True) if p) for s in states]
        new = [[r[s][a] + momdp.discount * sum(p_next[s][a][t] * v[t] for t in states) for a in actions] for s in states]
        change = max(abs(new[s][a] - q[s][a]) for s in states for a in actions)
        q = new
        if change < 1e-13:
            break
    return q
