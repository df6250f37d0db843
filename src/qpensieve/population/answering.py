"""Acting with archives: for every preference the policy whose measured objectives serve it best."""

from dataclasses import dataclass
from typing import Any

import numpy as np
from jaxtyping import Float, Float32, Float64

from qpensieve.learning.acting import KeptPolicy
from qpensieve.population import archive as archives


@dataclass(frozen=True, eq=False)
class Policies:
    """One seed's policies and what they reached."""

    objs: Float64[np.ndarray, "p d"]
    flat: Float32[np.ndarray, "p parameters"]


class ArchivePredictor:
    """Acts with the archive's best policy for a preference, in plain NumPy."""

    def __init__(self, policies: list[Policies], widths: tuple[int, ...]):
        self._policies, self._widths = policies, widths

    def act(
        self,
        seed: int,
        obs: Float32[np.ndarray, "n obs"],
        lam: Float[np.ndarray, "n d"],
        stream: np.random.Generator | None = None,
    ) -> Float32[np.ndarray, "n act"]:
        """Mean actions, or sampled ones where there is a `stream`."""
        known = self._policies[seed]
        chosen = archives.best(known.objs, np.asarray(lam, np.float64))
        out = np.empty((len(obs), self._widths[-1]), np.float32)
        for number in np.unique(chosen).tolist():
            rows = chosen == number
            policy = KeptPolicy(known.flat[number : number + 1], self._widths)
            if stream is None:
                out[rows] = policy.exploit(obs[None, rows])[0]
            else:
                noise = stream.standard_normal((1, int(rows.sum()), self._widths[-1])).astype(np.float32)
                out[rows] = policy.explore(obs[None, rows], noise)[0]
        return out


def act_by_group(policies: list[Policies], lam: Float64[np.ndarray, "rows d"], widths: tuple[int, ...]) -> Any:
    """Acts for the same rows of all seeds: rows are grouped by the policy that serves them.

    Groups are cut to at most the mean length and then padded to it, so that no more than twice the rows are worked out.
    """
    groups, flats = [], []
    for i, known in enumerate(policies):
        chosen = archives.best(known.objs, lam)
        for number in np.unique(chosen).tolist():
            groups.append(i * len(lam) + np.flatnonzero(chosen == number))
            flats.append(known.flat[number])
    length = -(-len(lam) * len(policies) // len(groups))
    parts = [
        (group[start : start + length], i) for i, group in enumerate(groups) for start in range(0, len(group), length)
    ]
    index = np.stack([np.pad(part, (0, length - len(part)), constant_values=part[0]) for part, _ in parts])
    policy = KeptPolicy(np.stack([flats[i] for _, i in parts]), widths)

    def act(obs: Float32[np.ndarray, "seed rows obs"], lam: Any) -> Float32[np.ndarray, "seed rows act"]:
        del lam  # the same at every step
        out = np.empty((obs.shape[0] * obs.shape[1], widths[-1]), np.float32)
        out[index] = policy.exploit(obs.reshape(len(out), -1)[index])
        return out.reshape(*obs.shape[:2], -1)

    return act
