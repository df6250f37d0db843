"""CN-DER with loops over preferences and transitions in float64 NumPy and nothing else."""

from collections.abc import Callable
from typing import Any

import numpy as np

from tests.oracles.mosac import Net, forward, q_value
from tests.oracles.numeric import slope_of


def action(actor: Net, s: np.ndarray, lam: np.ndarray) -> np.ndarray:
    return np.tanh(forward(actor, np.concatenate([s, lam])))


def targets(target_actor: Net, target_critic: Net, batch: Any, prefs: np.ndarray, discount: float) -> np.ndarray:
    """For each preference and transition the vector r, and where the episode goes on gamma Q'(s', pi'(s')) on top."""
    y = np.zeros(prefs.shape)
    for j in range(prefs.shape[0]):
        for i in range(prefs.shape[1]):
            s_next, lam = np.asarray(batch.s_next[i], np.float64), prefs[j, i]
            y[j, i] = batch.r[i]
            if not batch.terminated[i]:
                y[j, i] += discount * q_value(target_critic, s_next, action(target_actor, s_next, lam), lam)
    return y


def errors(critic: Net, batch: Any, prefs: np.ndarray, y: np.ndarray) -> np.ndarray:
    """Q - y for each preference, transition and objective."""
    s, a = np.asarray(batch.s, np.float64), np.asarray(batch.a, np.float64)
    rows = [[q_value(critic, s[i], a[i], lam) for i, lam in enumerate(of_batch)] for of_batch in prefs]
    return np.array(rows) - y


def critic_loss(critic: Net, batch: Any, prefs: np.ndarray, y: np.ndarray) -> float:
    """L1, half for each of two preferences."""
    current, past = (np.abs(e).mean() for e in errors(critic, batch, prefs, y))
    return float(0.5 * (current + past))


def priorities(critic: Net, batch: Any, prefs: np.ndarray, y: np.ndarray) -> np.ndarray:
    current, past = np.abs(errors(critic, batch, prefs, y)).mean(axis=2)
    return (0.5 * (current + past) + 0.01) ** 2


def policy_loss(actor: Net, critic: Net, s: np.ndarray, prefs: np.ndarray) -> float:
    """Minus the mean of lam . Q(s, pi(s; lam); lam) over all rows, each with its own preference."""
    values = [
        lam @ q_value(critic, s[i], action(actor, s[i], lam), lam)
        for of_batch in prefs
        for i, lam in enumerate(of_batch)
    ]
    return -float(np.mean(values))


def gradient(loss: Callable[[Net], float], net: Net) -> list[np.ndarray]:
    """In the order weight and bias of each layer."""
    return [slope_of(lambda: loss(net), parameter) for layer in net for parameter in layer]
