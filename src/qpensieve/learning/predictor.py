"""Policies of all seeds that act in plain NumPy, and the rule which policy serves which row."""

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
from jaxtyping import Bool, Float, Float32, Float64, Int64

from qpensieve.learning.acting import Exportable, Served
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
    parts = [(rows, act(policy, rows)) for policy, rows in _groups(served_by, np.unique(served_by).tolist())]
    out = np.empty((len(served_by), parts[0][1].shape[1]), np.float32)
    for rows, actions in parts:
        out[rows] = actions
    return out


@dataclass(frozen=True, eq=False)
class Batches:
    """Rows in batches of one length, so that all policies act in one call.

    Attributes:
        policy: The policy of each batch.
        index: The rows of each batch; short batches repeat their last row, empty ones row 0.
        is_used: False for repeated rows.
    """

    policy: Int64[np.ndarray, " batch"]
    index: Int64[np.ndarray, "batch length"]
    is_used: Bool[np.ndarray, "batch length"]

    def gather(self, x: Float[np.ndarray, "rows c"]) -> Float[np.ndarray, "batch length c"]:
        return x[self.index]

    def scatter(self, actions: Float[np.ndarray, "batch length act"], num_rows: int) -> Float32[np.ndarray, "rows act"]:
        """Return the actions, each in its row."""
        out = np.empty((num_rows, actions.shape[2]), np.float32)
        out[self.index[self.is_used]] = actions[self.is_used]
        return out


def share_means(
    returns: Float64[np.ndarray, "seed p e d"], served_by: Int64[np.ndarray, "seed p"]
) -> Float64[np.ndarray, "seed p e d"]:
    """Replace episode e of a row by the mean of episode e over all rows that the same policy served.

    Then all rows of a policy have one mean and are one point of a front. Otherwise chance would make some rows of the
    policy look better. The spread over e still gives the error of the mean.

    Args:
        returns: Episodes of every row.
        served_by: The policy of each row, numbered across the seeds.
    """
    shared = np.empty_like(returns)
    for policy in np.unique(served_by):
        rows = returns[served_by == policy]
        shared[served_by == policy] = rows[0] + (rows - rows[0]).mean(axis=0)  # exact where the rows are equal
    return shared


def one_batch_each(served_by: ServedBy, num_policies: int) -> Batches:
    """Make a batch for every policy, also for policies without rows; all are as long as the longest."""
    longest = int(np.bincount(served_by, minlength=num_policies).max())
    return _batches(served_by, range(num_policies), longest)


def even_batches(served_by: ServedBy) -> Batches:
    """Make batches of the mean length for policies that serve a row; cut longer groups.

    At most twice the rows are computed, however unequal the groups are.
    """
    policies = np.unique(served_by).tolist()
    return _batches(served_by, policies, -(-len(served_by) // len(policies)))


def _batches(served_by: ServedBy, policies: Iterable[int], length: int) -> Batches:
    parts = [
        (policy, rows[start : start + length])
        for policy, rows in _groups(served_by, policies)
        for start in range(0, max(len(rows), 1), length)
    ]
    padded = lambda rows: np.pad(rows, (0, length - len(rows)), mode="edge" if len(rows) else "constant")
    is_used = np.arange(length) < np.array([len(rows) for _, rows in parts])[:, None]
    return Batches(np.array([policy for policy, _ in parts]), np.stack([padded(rows) for _, rows in parts]), is_used)


def _groups(served_by: ServedBy, policies: Iterable[int]) -> list[tuple[int, Int64[np.ndarray, " group"]]]:
    """Return each policy with its rows."""
    return [(policy, np.flatnonzero(served_by == policy)) for policy in policies]


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
        """Return actions of one seed's agent: sampled if there is a `stream`, else deterministic.

        Where preferences have their own agents, the agent with the nearest preference serves a row.
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
        """Rows of the preferences -> how all seeds act; `each` maps over the seeds."""
        del preferences, episodes  # the preference is part of what they act on
        return lambda part: partial(self.act_all, each=each)

    def share(
        self, returns: Float64[np.ndarray, "seed p e d"], preferences: Float64[np.ndarray, "p d"]
    ) -> Float64[np.ndarray, "seed p e d"]:
        """The returns as they are: the policy of a preference is its own."""
        del preferences
        return returns

    def arrays(self) -> dict[str, np.ndarray]:
        """The policies as named arrays."""
        return {FLAT: self.flat}

    def plain(self, seed: int) -> Served:
        """Return the agents of one seed with their preferences, for export."""
        num = self._agents_per_seed
        policies = self.acting.policy(self.flat[seed * num : (seed + 1) * num])
        if not isinstance(policies, Exportable):
            raise ValueError(f"a {type(policies).__name__} cannot be exported: it must have a method plain")
        return Served(policies.plain(self.step), self.preferences)

    @property
    def _agents_per_seed(self) -> int:
        return 1 if self.preferences is None else len(self.preferences)
