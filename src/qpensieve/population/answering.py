"""Acting with archives: every preference is served by the policy with the best measured objectives for it."""

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any

import numpy as np
from jaxtyping import Bool, Float, Float32, Float64, Int64

from qpensieve.learning.acting import Served
from qpensieve.learning.predictor import Act, ServedBy, act_by_policy
from qpensieve.population import archive as archives
from qpensieve.population.members import KeptPolicy


@dataclass(frozen=True, eq=False)
class Policies:
    """The policies of one seed and the objectives they reached."""

    objs: Float64[np.ndarray, "p d"]
    flat: Float32[np.ndarray, "p parameters"]

    def best(self, lam: Float[np.ndarray, "rows d"]) -> Int64[np.ndarray, " rows"]:
        """The policy that serves each preference best."""
        return archives.best(self.objs, np.asarray(lam, np.float64))


class ArchivePredictor:
    """Acts with the archive's best policy for a preference, in plain NumPy."""

    def __init__(self, policies: list[Policies], widths: tuple[int, ...]):
        self._policies, self._widths = policies, widths

    def plain(self, seed: int) -> Served:
        """The archive of one seed, and what each of its policies brings."""
        known = self._policies[seed]
        return Served(KeptPolicy(known.flat, self._widths).plain(0), returns=known.objs)

    def act(
        self,
        seed: int,
        obs: Float32[np.ndarray, "n obs"],
        lam: Float[np.ndarray, "n d"],
        stream: np.random.Generator | None = None,
    ) -> Float32[np.ndarray, "n act"]:
        """Mean actions, or sampled ones if there is a `stream`."""
        known, size = self._policies[seed], self._widths[-1]

        def act(number: int, rows: Int64[np.ndarray, " group"]) -> Float32[np.ndarray, "group act"]:
            policy = KeptPolicy(known.flat[number : number + 1], self._widths)
            if stream is None:
                return policy.exploit(obs[None, rows])[0]
            noise = stream.standard_normal((1, len(rows), size)).astype(np.float32)
            return policy.explore(obs[None, rows], noise)[0]

        return act_by_policy(known.best(lam), act)

    def player(
        self, preferences: Float64[np.ndarray, "p d"], episodes: int, each: Callable[..., Iterable[Any]] = map
    ) -> Callable[[slice], Act]:
        """Rows of the preferences -> how all seeds act in `episodes` lanes for each."""
        del each  # all policies act in one call
        answering = who_answers(self._policies, preferences)
        return lambda part: act_as(self._policies, np.repeat(answering[:, part], episodes, axis=1), self._widths)

    def share(
        self, returns: Float64[np.ndarray, "seed p e d"], preferences: Float64[np.ndarray, "p d"]
    ) -> Float64[np.ndarray, "seed p e d"]:
        """The returns, with one mean for all preferences that the same policy answers."""
        return share_means(returns, who_answers(self._policies, preferences))

    def arrays(self) -> dict[str, np.ndarray]:
        """The policies as named arrays."""
        parts = [{f"{i}/objs": known.objs, f"{i}/flat": known.flat} for i, known in enumerate(self._policies)]
        return {name: value for part in parts for name, value in part.items()}


def who_answers(policies: list[Policies], lam: Float[np.ndarray, "rows d"]) -> Int64[np.ndarray, "seed rows"]:
    """Which policy of each seed serves each preference best; the policies of all seeds are numbered in one row."""
    first = np.cumsum([0, *(len(known.objs) for known in policies)])
    return np.stack([start + known.best(lam) for start, known in zip(first, policies, strict=False)])


@dataclass(frozen=True, eq=False)
class Batches:
    """Rows in batches of one length, so that all policies act in one call.

    Attributes:
        policy: The policy of each batch.
        index: The rows of each batch; short batches repeat their last row.
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


def even_batches(served_by: ServedBy) -> Batches:
    """Make batches of the mean length for policies that serve a row; cut longer groups.

    At most twice the rows are computed, however unequal the groups are.
    """
    policies = np.unique(served_by).tolist()
    length = -(-len(served_by) // len(policies))
    groups = [(policy, np.flatnonzero(served_by == policy)) for policy in policies]
    parts = [(policy, rows[i : i + length]) for policy, rows in groups for i in range(0, len(rows), length)]
    index = np.stack([np.pad(rows, (0, length - len(rows)), mode="edge") for _, rows in parts])
    is_used = np.arange(length) < np.array([len(rows) for _, rows in parts])[:, None]
    return Batches(np.array([policy for policy, _ in parts]), index, is_used)


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


def act_as(policies: list[Policies], answering: Int64[np.ndarray, "seed rows"], widths: tuple[int, ...]) -> Act:
    """Acts for the same rows of all seeds, every row by the policy that answers it."""
    served_by = answering.reshape(-1)
    batches = even_batches(served_by)
    policy = KeptPolicy(np.concatenate([known.flat for known in policies])[batches.policy], widths)

    def act(
        obs: Float32[np.ndarray, "seed rows obs"], lam: Float32[np.ndarray, "seed rows d"]
    ) -> Float32[np.ndarray, "seed rows act"]:
        del lam  # the same at every step
        rows = obs.reshape(len(served_by), -1)
        return batches.scatter(policy.exploit(batches.gather(rows)), len(rows)).reshape(*obs.shape[:2], -1)

    return act
