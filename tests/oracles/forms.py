"""Forms of eq. (11) with one snapshot: loops over samples, critics, twins and preferences, in float64 NumPy."""

from typing import NamedTuple

import numpy as np

from tests.oracles.mosac import Net, Twins, scores


class Climbed(NamedTuple):
    """Each sample's candidate: its judged value, its place, and the gradient of its own value by the action."""

    value: np.ndarray
    critic: np.ndarray
    twin: np.ndarray
    preference: np.ndarray
    gradient: np.ndarray


def climb(rule: tuple[str, float | None], critics: list[Twins], prefs: np.ndarray, s: np.ndarray, a: np.ndarray):
    """What each sample climbs by a form and its margin. The current critic is the last; prefs [m, b, d], first lam."""
    (form, margin), b, m, current = rule, len(s), len(prefs), len(critics) - 1
    grid = np.stack([scores(critics, prefs[:, i], s[i], a[i]) for i in range(b)], axis=-1)  # [k, 2, m, b]
    q = grid.min(axis=1)
    own = q[current, 0]
    size = np.abs(own).mean()
    found = []
    for i in range(b):
        best = (-np.inf, current, 0)
        for k in range(len(critics)):
            for j in range(m):
                is_own = k == current and j == 0
                if form == "pairs" and not is_own and (k == current or j == 0):
                    continue
                value, counts = q[k, j, i], True
                apart = q[k, j] - q[current, j]
                if form in ("drift", "outlier") and k != current:
                    value -= apart.mean()
                if form == "batch":
                    value = q[k, j].mean()
                if form == "outlier":
                    counts = value > own[i] + 2 * np.sqrt(np.mean((apart - apart.mean()) ** 2))
                elif margin is not None:
                    counts = value <= (own.mean() if form == "batch" else own[i]) + margin * size
                if (is_own or counts) and value > best[0]:
                    best = (value, k, j)
        value, k, j = best
        twin = int(grid[k, 1, j, i] < grid[k, 0, j, i])
        slope = by_action(critics[k][twin], prefs[0, i], prefs[j, i], s[i], a[i])
        found.append((value, k, twin, j, slope))
    return Climbed(*map(np.array, zip(*found, strict=True)))


def by_action(net: Net, lam: np.ndarray, pref: np.ndarray, s: np.ndarray, a: np.ndarray) -> np.ndarray:
    """Gradient of lam . Q(s, a; pref) by the action, layer by layer."""
    (w1, b1), (w2, b2), (w3, _) = net
    first = np.concatenate([s, a, pref]) @ w1 + b1
    second = np.maximum(first, 0) @ w2 + b2
    back = w2 @ ((second > 0) * (w3 @ lam))
    return (w1 @ ((first > 0) * back))[len(s) : len(s) + len(a)]


def slots_after(num_slots: int, num_pushes: int) -> list[int]:
    """Which push lies in each slot when slot j is replaced at every 2^(j+1)-th push; 0: none."""
    slots = [0] * num_slots
    for push in range(1, num_pushes + 1):
        for j in range(num_slots):
            if push % 2 ** (j + 1) == 0:
                slots[j] = push
    return slots
