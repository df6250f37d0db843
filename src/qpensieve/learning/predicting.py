"""Policies as they were at a step, acting in plain NumPy: what is asked of agents, and what evaluations play."""

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any

import numpy as np
from jaxtyping import Float32, Float64

from qpensieve.learning.acting import Exportable, Served
from qpensieve.learning.serving import act_by_policy, nearest
from qpensieve.types import Acting


@dataclass(frozen=True, eq=False)
class AgentPredictor:
    """The policies of all seeds.

    Attributes:
        acting: How they act.
        preferences: Preferences that have their own agent each; None: one agent of a seed serves all.
        flat: Their parameters.
        step: Number of environment steps they have learned from.
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
        """Actions of one seed's agent, deterministic or, if there is a `stream`, sampled.

        If preferences have their own agents, each row is served by the agent with the nearest preference.
        """
        own, first = self.preferences, seed * self._agents_per_seed
        served_by = np.zeros(len(obs), np.int64) if own is None else nearest(own, lam)
        noise = None if stream is None else self.acting.draw_noise(stream, len(obs))
        of_rows = lambda rows: (obs[rows], lam[rows], None if noise is None else noise[rows])
        return act_by_policy(served_by, lambda number, rows: self._act(first + number, *of_rows(rows)))

    def _act(
        self,
        agent: int,
        obs: Float32[np.ndarray, "n obs"],
        lam: Float32[np.ndarray, "n d"],
        noise: Float32[np.ndarray, "n c"] | None,
    ) -> Float32[np.ndarray, "n act"]:
        policy = self.acting.policy(self.flat[agent : agent + 1])
        if noise is None:
            return policy.exploit(obs[None], lam[None])[0]
        return self.acting.decode(policy.sample(obs[None], lam[None], noise[None], self.step)[0])

    def act_all(
        self,
        obs: Float32[np.ndarray, "seed rows obs"],
        lam: Float32[np.ndarray, "seed rows d"],
        each: Callable[..., Iterable[Any]] = map,
    ) -> Float32[np.ndarray, "seed rows act"]:
        """Deterministic actions of every seed's agent; those of a seed do not depend on the other seeds.

        Args:
            obs: What they see.
            lam: Under which preference.
            each: `map`, or that of a pool of threads.
        """
        return np.stack(list(each(self.act, range(len(obs)), obs, lam)))

    def plain(self, seed: int) -> Served:
        """The agents of one seed, and the preferences that they have."""
        num = self._agents_per_seed
        policies = self.acting.policy(self.flat[seed * num : (seed + 1) * num])
        if not isinstance(policies, Exportable):
            raise ValueError(f"a {type(policies).__name__} cannot be exported: it must have a method plain")
        return Served(policies.plain(self.step), self.preferences)

    @property
    def _agents_per_seed(self) -> int:
        return 1 if self.preferences is None else len(self.preferences)
