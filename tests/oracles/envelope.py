"""Envelope DQN with loops over transitions, preferences and actions, in float64 NumPy and nothing else."""

from dataclasses import dataclass
from typing import Any

import numpy as np

from tests.oracles.numeric import adam, slope_of

Net = list[tuple[np.ndarray, np.ndarray]]
"""Weight and bias of every layer."""

ADAM_EPS = 1e-8


@dataclass(frozen=True)
class Batch:
    """Transitions; `a` holds indices."""

    s: np.ndarray
    a: np.ndarray
    r: np.ndarray
    s_next: np.ndarray
    terminated: np.ndarray


@dataclass
class Learner:
    """The whole state, changed in place: networks, Adam's moments and the number of updates."""

    net: Net
    target: Net
    first: Net
    second: Net
    num_updates: int = 0


@dataclass(frozen=True)
class Settings:
    """What an update needs to know."""

    learning_rate: float
    discount: float
    clip: float
    target_period: int
    beta_start: float
    anneal_steps: int


def batch_of(batch: Any) -> Batch:
    plain = lambda x: np.asarray(x, np.float64)
    a = np.asarray(batch.a)[:, 0].astype(int)
    return Batch(plain(batch.s), a, plain(batch.r), plain(batch.s_next), plain(batch.terminated))


def net_of(head: Any) -> Net:
    return [(np.array(layer.weight, np.float64), np.array(layer.bias, np.float64)) for layer in head.layers]


def learner_of(state: Any) -> Learner:
    """A learner whose optimiser is still fresh."""
    zeros = lambda: [(np.zeros_like(w), np.zeros_like(b)) for w, b in net_of(state.net)]
    return Learner(net_of(state.net), net_of(state.target), zeros(), zeros())


def values(net: Net, s: np.ndarray, lam: np.ndarray) -> np.ndarray:
    """Q(s, .; lam) [actions, d]: entry d * a + i of the output is objective i of action a."""
    x = np.concatenate([s, lam])
    for weight, bias in net[:-1]:
        x = np.maximum(x @ weight + bias, 0.0)
    x = x @ net[-1][0] + net[-1][1]
    return np.stack([x[len(lam) * a : len(lam) * (a + 1)] for a in range(len(x) // len(lam))])


def every(net: Net, s: np.ndarray, prefs: np.ndarray) -> np.ndarray:
    """Q of all pairs [b, m, actions, d]."""
    return np.array([[values(net, state, lam) for lam in prefs] for state in s])


def envelope_target(online: np.ndarray, target: np.ndarray, prefs: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """The vectors [b, m, d] and the winning preferences [b, m], by four loops."""
    b, m, num_actions, d = online.shape
    y, winner = np.zeros((b, m, d)), np.zeros((b, m), int)
    for j in range(b):
        for i in range(m):
            best = -np.inf
            for other in range(m):
                for a in range(num_actions):
                    score = prefs[i] @ online[j, other, a]
                    if score > best:
                        best, y[j, i], winner[j, i] = score, target[j, other, a], other
    return y, winner


def double_dqn_target(online: np.ndarray, target: np.ndarray, prefs: np.ndarray) -> np.ndarray:
    y = np.zeros((*online.shape[:2], online.shape[3]))
    for j in range(online.shape[0]):
        for i in range(online.shape[1]):
            y[j, i] = target[j, i, np.argmax([prefs[i] @ q for q in online[j, i]])]
    return y


def beta(start: float, num_updates: int, anneal_steps: int) -> float:
    if num_updates >= anneal_steps:
        return 1.0
    return start + (1000 * (1 - start)) ** (num_updates / anneal_steps) / 1000


def losses(net: Net, batch: Batch, prefs: np.ndarray, y: np.ndarray) -> tuple[float, float, np.ndarray]:
    """Vector loss, scalar loss and lam . Q of all pairs."""
    vector, scalar, scores = [], [], []
    for j in range(len(batch.s)):
        for i, lam in enumerate(prefs):
            q = values(net, batch.s[j], lam)[batch.a[j]]
            vector += [(y[j, i, k] - q[k]) ** 2 for k in range(len(lam))]
            scalar.append((lam @ y[j, i] - lam @ q) ** 2)
            scores.append(lam @ q)
    return float(np.mean(vector)), float(np.mean(scalar)), np.array(scores)


def gradient(net: Net, batch: Batch, prefs: np.ndarray, y: np.ndarray, share: float) -> Net:
    """Of (1 - share) A + share B, by central differences in every parameter; `net` is left as it was."""

    def loss() -> float:
        vector, scalar, _ = losses(net, batch, prefs, y)
        return (1 - share) * vector + share * scalar

    return [(slope_of(loss, weight), slope_of(loss, bias)) for weight, bias in net]


def update(cfg: Settings, learner: Learner, batch: Batch, prefs: np.ndarray) -> tuple[dict[str, float], Net]:
    """One step; gives what it reports and the gradient before it was cut."""
    online, target = (every(net, batch.s_next, prefs) for net in (learner.net, learner.target))
    bootstrap, winner = envelope_target(online, target, prefs)
    y = np.array(batch.r)[:, None] + np.zeros_like(bootstrap)
    for j in range(len(y)):
        if not batch.terminated[j]:
            y[j] += cfg.discount * bootstrap[j]
    share = beta(cfg.beta_start, learner.num_updates, cfg.anneal_steps)
    vector, scalar, scores = losses(learner.net, batch, prefs, y)
    raw = gradient(learner.net, batch, prefs, y, share)
    learner.num_updates += 1
    for layer, slopes in enumerate(raw):
        for part, slope in enumerate(slopes):
            cut = np.clip(slope, -cfg.clip, cfg.clip)
            moments = learner.first[layer][part], learner.second[layer][part]
            adam(learner.net[layer][part], moments, cut, learner.num_updates, (cfg.learning_rate, ADAM_EPS))
    if learner.num_updates % cfg.target_period == 0:
        learner.target = [(weight.copy(), bias.copy()) for weight, bias in learner.net]
    own = float(np.mean(winner == np.arange(len(prefs))))
    seen = {"q": float(scores.mean()), "q_max": float(scores.max())}
    return {"loss_a": vector, "loss_b": scalar, **seen, "beta": share, "own_preference_share": own}, raw


def priority(net: Net, batch: Batch, lam: np.ndarray, discount: float) -> np.ndarray:
    """One preference for each transition."""
    out = []
    for j in range(len(batch.s)):
        best = max(lam[j] @ q for q in values(net, batch.s_next[j], lam[j]))
        value = lam[j] @ batch.r[j] + (0.0 if batch.terminated[j] else discount * best)
        out.append(abs(value - lam[j] @ values(net, batch.s[j], lam[j])[batch.a[j]]) + 1e-5)
    return np.array(out)
