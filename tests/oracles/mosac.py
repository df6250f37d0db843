"""MO-SAC and Q-Pensieve with loops over samples, twins, critics and preferences, in float64 NumPy and nothing else."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from tests.oracles.numeric import adam

Net = list[tuple[np.ndarray, np.ndarray]]
"""Weight and bias of three layers."""
Twins = list[Net]

ADAM_EPS = 1e-8


@dataclass(frozen=True)
class Question:
    """Where a policy acts: states [b, obs], preferences [m, b, d] of which the first is lam, noise [b, act].

    The temperature is one, or for targets one for each state.
    """

    actor: Net
    alpha: float | np.ndarray
    s: np.ndarray
    prefs: np.ndarray
    noise: np.ndarray


def net_of(module: Any, *index: int) -> Net:
    """The layers of an `Mlp`, of the one at `index` where its leaves are stacked."""
    parts = (module.first, module.second, module.last)
    return [(np.asarray(p.weight, np.float64)[index], np.asarray(p.bias, np.float64)[index]) for p in parts]


def twins_of(critic: Any, *index: int) -> Twins:
    return [net_of(critic.net, *index, twin) for twin in (0, 1)]


def forward(net: Net, x: np.ndarray) -> np.ndarray:
    for weight, bias in net[:-1]:
        x = np.maximum(x @ weight + bias, 0.0)
    return x @ net[-1][0] + net[-1][1]


def q_value(net: Net, s: np.ndarray, a: np.ndarray, lam: np.ndarray) -> np.ndarray:
    """The vector Q(s, a; lam)."""
    return forward(net, np.concatenate([s, a, lam]))


def action(actor: Net, s: np.ndarray, lam: np.ndarray, noise: np.ndarray) -> tuple[np.ndarray, float]:
    """tanh(u) for Gaussian u, and log pi = sum of log N(u) - log(1 - tanh(u)^2)."""
    mean, log_std = np.split(forward(actor, np.concatenate([s, lam])), 2)
    std = np.exp(np.clip(log_std, -20.0, 2.0))
    u = mean + std * noise
    density = np.exp(-0.5 * ((u - mean) / std) ** 2) / (std * np.sqrt(2.0 * np.pi))
    return np.tanh(u), float(np.sum(np.log(density) - np.log(1.0 - np.tanh(u) ** 2)))


def target(twins: Twins, at: Question, r: np.ndarray, terminated: np.ndarray, discount: float) -> np.ndarray:
    """Backup (9), asked at s'; of the two target critics the whole vector of the one that promises lam less."""
    y, alphas = np.array(r, np.float64), np.broadcast_to(at.alpha, len(r))
    for i in range(len(y)):
        lam = at.prefs[0, i]
        a_next, logp = action(at.actor, at.s[i], lam, at.noise[i])
        one, two = (q_value(net, at.s[i], a_next, lam) for net in twins)
        q = one if lam @ one < lam @ two else two
        if not terminated[i]:
            y[i] += discount * (q - alphas[i] * logp)
    return y


def critic_loss(twins: Twins, batch: Any, lam: np.ndarray, y: np.ndarray) -> float:
    """Loss (10): for each twin the mean over the batch of sum_i lam_i delta_i^2."""
    total = 0.0
    for net in twins:
        for i in range(len(y)):
            delta = q_value(net, batch.s[i], batch.a[i], lam[i]) - y[i]
            total += float(np.sum(lam[i] * delta**2)) / len(y)
    return total


def policy_loss(critics: Sequence[Twins], at: Question) -> tuple[float, float]:
    """Loss (11); and the mean of log pi."""
    losses, logps = [], []
    for i in range(len(at.s)):
        lam = at.prefs[0, i]
        a, logp = action(at.actor, at.s[i], lam, at.noise[i])
        grid = scores(critics, at.prefs[:, i], at.s[i], a)
        losses.append(at.alpha * logp - grid.min(axis=1).max())
        logps.append(logp)
    return float(np.mean(losses)), float(np.mean(logps))


def scores(critics: Sequence[Twins], prefs: np.ndarray, s: np.ndarray, a: np.ndarray) -> np.ndarray:
    """Values lam . Q'(s, a; lam') of every critic, twin and preference [k, 2, m], lam = prefs[0]."""
    return np.array([[[prefs[0] @ q_value(net, s, a, pref) for pref in prefs] for net in twins] for twins in critics])


def adam_step(parameter: np.ndarray, gradient: np.ndarray, learning_rate: float) -> np.ndarray:
    """The first step of Adam, from moments of zero."""
    moved = np.array(parameter, np.float64)
    adam(moved, (np.zeros_like(moved), np.zeros_like(moved)), gradient, 1, (learning_rate, ADAM_EPS))
    return moved
