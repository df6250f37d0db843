"""Policies of all seeds that act in plain NumPy, and the rule that chooses the policy for each row."""

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
from jaxtyping import Float, Float32, Float64, Int64

from qpensieve.learning.acting import Exportable, PolicySet
from qpensieve.types import Acting

Act = Callable[
    [Float32[np.ndarray, "seed rows obs"], Float32[np.ndarray, "seed rows d"]], Float[np.ndarray, "seed rows act"]
]
"""(observations, preferences) -> deterministic actions of every seed's policies."""
ServedBy = Int64[np.ndarray, " rows"]
"""Number of the policy that serves each row."""
FLAT = "flat"
"""Name of the parameters among the arrays of a predictor."""


def nearest(own: Float64[np.ndarray, "p d"], lam: Float[np.ndarray, "rows d"]) -> ServedBy:
    """Return the policies whose own preferences are nearest to `lam`."""
    return np.square(lam[:, None] - own[None]).sum(axis=2).argmin(axis=1)


def act_by_policy(
    served_by: ServedBy, act: Callable[[int, Int64[np.ndarray, " group"]], Float32[np.ndarray, "group act"]]
) -> Float32[np.ndarray, "rows act"]:
    """Return the actions of all rows, computed policy by policy.

    Args:
        served_by: The policy of each row.
        act: (policy, its rows) -> actions.
    """
    groups = [(policy, np.flatnonzero(served_by == policy)) for policy in np.unique(served_by).tolist()]
    parts = [(rows, act(policy, rows)) for policy, rows in groups]
    out = np.empty((len(served_by), parts[0][1].shape[1]), np.float32)
    for rows, actions in parts:
        out[rows] = actions
    return out


@dataclass(frozen=True, eq=False)
class AgentPredictor:
    """The policies of all seeds.

    Attributes:
        acting: How the policies act.
        preferences: Preferences that have their own agent each. None: the agent of a seed serves all.
        flat: Parameters of the policies.
        step: Number of environment steps that the policies have learned from.
    """

    acting: Acting
    preferences: Float64[np.ndarray, "p d"] | None
    flat: Float32[np.ndarray, "agent parameters"]
    step: int

    def act(
        self,
        seed: int,
        obs: Float32[np.ndarray, "n obs"],
        lam: Float32[np.ndarray, "n d"],
        stream: np.random.Generator | None = None,
    ) -> Float32[np.ndarray, "n act"]:
        """Return actions of one seed's agent: sampled if there is a `stream`, else deterministic.

        Where preferences have their own agents, the agent with the nearest preference serves a row.
        """
        own, first = self.preferences, seed * self._agents_per_seed
        served_by = np.zeros(len(obs), np.int64) if own is None else nearest(own, lam)
        noise = None if stream is None else self.acting.draw_noise(stream, len(obs))

        def act(number: int, rows: Int64[np.ndarray, " group"]) -> Float32[np.ndarray, "group act"]:
            policy = self.acting.policy(self.flat[first + number : first + number + 1])
            if noise is None:
                return policy.exploit(obs[None, rows], lam[None, rows])[0]
            return self.acting.decode(policy.sample(obs[None, rows], lam[None, rows], noise[None, rows], self.step)[0])

        return act_by_policy(served_by, act)

    def act_all(
        self,
        obs: Float32[np.ndarray, "seed rows obs"],
        lam: Float32[np.ndarray, "seed rows d"],
        each: Callable[..., Iterable[Any]] = map,
    ) -> Float32[np.ndarray, "seed rows act"]:
        """Return deterministic actions of every seed's agent; seeds do not depend on each other.

        Args:
            obs: Observations.
            lam: Preferences.
            each: `map`, or the `map` of a pool of threads.
        """
        return np.stack(list(each(self.act, range(len(obs)), obs, lam)))

    def player(
        self, preferences: Float64[np.ndarray, "p d"], episodes: int, each: Callable[..., Iterable[Any]] = map
    ) -> Callable[[slice], Act]:
        """Return a function: rows of the preferences -> how all seeds act in them; `each` maps over the seeds."""
        del preferences, episodes  # the preference is an input of the policies
        return lambda part: partial(self.act_all, each=each)

    def share(
        self, returns: Float64[np.ndarray, "seed p e d"], preferences: Float64[np.ndarray, "p d"]
    ) -> Float64[np.ndarray, "seed p e d"]:
        """Return the returns unchanged: each row is played by its own conditioned policy."""
        del preferences
        return returns

    def arrays(self) -> dict[str, np.ndarray]:
        """Return the policies as named arrays."""
        return {FLAT: self.flat}

    def exported(self, seed: int) -> PolicySet:
        """Return the agents of one seed with their preferences, for export; ValueError if they cannot be exported."""
        num = self._agents_per_seed
        policies = self.acting.policy(self.flat[seed * num : (seed + 1) * num])
        if not isinstance(policies, Exportable):
            raise ValueError(f"a {type(policies).__name__} cannot be exported: it must have a method exported")
        return PolicySet(policies.exported(self.step), self.preferences)

    @property
    def _agents_per_seed(self) -> int:
        return 1 if self.preferences is None else len(self.preferences)
