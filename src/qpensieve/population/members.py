"""Members of a population, the archive of their policies, and acting with it.

PGMORL and PFA keep the non-dominated policies of every iteration of every task in an archive; it serves a preference
by the policy with the best measured objectives for it. PGMORL's population keeps the samples that its buffers do (Xu
et al., 2020, and its authors' code): the space above the reference is cut into cones, and each keeps the few samples
farthest from the reference.
"""

from collections.abc import Callable, Iterable
from dataclasses import dataclass, fields
from math import comb
from typing import Any

import equinox as eqx
import numpy as np
from jaxtyping import Bool, Float, Float32, Float64, Int64

from qpensieve import metrics
from qpensieve.errors import UserError
from qpensieve.learning.acting import HostMlp, PolicyArrays, PolicySet, num_parameters
from qpensieve.learning.predictor import Act, ServedBy, act_by_policy
from qpensieve.metrics.fronts import check_points
from qpensieve.population.ppo import RunningStatistics, State
from qpensieve.preferences import das_dennis
from qpensieve.types import Actions, Observations, Parameters

OBS_CLIP = np.float32(10.0)
"""Normalised observations are clipped to plus or minus this."""
MIN_HEIGHT = 1e-7
"""A sample is kept only if it is at least this far above the reference in every objective."""


class Member(eqx.Module):
    """Members: networks, optimiser and statistics, which are copied together; leaves lead with an axis of members."""

    state: State
    moments: RunningStatistics
    """Statistics of observations, then of discounted returns."""


class MemberPolicy:
    """Gaussian policies of a population's members: unsquashed, with one standard deviation for all states.

    Args:
        flat: The actors' parameters, network first, then the logarithms of the standard deviations.
        widths: Widths of the network.
    """

    def __init__(self, flat: Parameters, widths: tuple[int, ...]):
        self.net = HostMlp(flat, widths, activation=np.tanh)
        start = num_parameters(widths)
        self.std = np.exp(flat[:, None, start : start + widths[-1]])

    def explore(self, obs: Observations, noise: Actions) -> Actions:
        """Return sampled actions, which only the environment clips to its action box."""
        return self.net(obs) + self.std * noise

    def exploit(self, obs: Observations) -> Actions:
        """Return mean actions, within the box."""
        return np.clip(self.net(obs), -1.0, 1.0)


class KeptPolicy:
    """Policies of an archive: actors, with their observation statistics at the time when they were stored.

    Args:
        flat: Parameters of the actor, then mean and standard deviation of the observations.
        widths: Widths of the network.
    """

    def __init__(self, flat: Parameters, widths: tuple[int, ...]):
        size = widths[0]
        self._actor = MemberPolicy(flat[:, : -2 * size], widths)
        self._mean, self._scale = flat[:, None, -2 * size : -size], flat[:, None, -size:]

    def explore(self, obs: Observations, noise: Actions) -> Actions:
        """Return sampled actions, within the box."""
        return np.clip(self._actor.explore(self._normalize(obs), noise), -1.0, 1.0)

    def exploit(self, obs: Observations) -> Actions:
        """Return mean actions, within the box."""
        return self._actor.exploit(self._normalize(obs))

    def exported(self) -> PolicyArrays:
        """Return the policies for export."""
        moments = {"obs_mean": self._mean[:, 0], "obs_std": self._scale[:, 0]}
        return PolicyArrays("gaussian", self._actor.net, False, {"std": self._actor.std[:, 0], **moments})

    def _normalize(self, obs: Observations) -> Observations:
        return np.clip((obs - self._mean) / self._scale, -OBS_CLIP, OBS_CLIP)


# The archive


@dataclass(frozen=True, eq=False)
class Archive:
    """Policies and the objectives they reached, one row each.

    Attributes:
        objs: Evaluated return vectors, raw (not shifted by a reference).
        policies: Flat parameters of each policy and its observation statistics.
        found_at: Iteration at which the policy was found.
        lam: Preference it was trained under.
    """

    objs: Float64[np.ndarray, "p d"]
    policies: Float32[np.ndarray, "p parameters"]
    found_at: Int64[np.ndarray, " p"]
    lam: Float64[np.ndarray, "p d"]

    def updated(self, new: "Archive", reference: Float64[np.ndarray, " d"]) -> "Archive":
        """Return the archive with new policies, without policies that are dominated or not above the reference.

        Objectives are raw. Rows keep their order, old ones first; of policies with equal objectives the first is kept.

        Raises:
            ValueError: An objective is not finite.
        """
        joined = [np.concatenate([getattr(part, field.name) for part in (self, new)]) for field in fields(Archive)]
        objs = check_points(joined[0], "objs")
        above = np.flatnonzero((objs > reference).all(axis=1))
        kept = above[metrics.is_non_dominated(objs[above])]
        return Archive(*(rows[kept] for rows in joined))

    def hypervolume(self, reference: Float64[np.ndarray, " d"]) -> float:
        """Return the hypervolume of the raw objectives over the reference; 0 if the archive is empty."""
        return metrics.hypervolume(self.objs, reference) if len(self.objs) else 0.0


def empty_archive(num_objectives: int, num_parameters: int) -> Archive:
    none = np.empty((0, num_objectives))
    return Archive(none, np.empty((0, num_parameters), np.float32), np.empty(0, np.int64), none)


def best_rows(objs: Float64[np.ndarray, "p d"], lam: Float[np.ndarray, "rows d"]) -> Int64[np.ndarray, " rows"]:
    """Return the row of `objs` with the greatest lam . objs for each preference; the first one at a tie.

    Raises:
        UserError: There are no rows.
    """
    if len(objs) == 0:
        raise UserError("the archive is empty: no policy was above the reference point in every objective")
    return np.argmax(np.asarray(lam, np.float64) @ objs.T, axis=1)


# Buffers of the population


def directions(num_objectives: int, num_buffers: int) -> Float64[np.ndarray, "B d"]:
    """Return unit vectors along the simplex grid whose size is nearest to `num_buffers`; at a tie the larger grid.

    200 becomes 210 for three objectives (190 is as near), 400 becomes 364 for four and 330 for five. With two
    objectives, buffers are angles.
    """
    count = lambda divisions: comb(divisions + num_objectives - 1, num_objectives - 1)
    divisions = 1
    while count(divisions + 1) - num_buffers <= num_buffers - count(divisions):
        divisions += 1
    grid = das_dennis(num_objectives, divisions)
    return grid / np.linalg.norm(grid, axis=1, keepdims=True)


def buffer_of(f: Float64[np.ndarray, "p d"], num_buffers: int) -> Int64[np.ndarray, " p"]:
    """Return the number of the buffer of each point f = objs - reference; all entries must be positive.

    Two objectives: the angle to the second axis, arccos(f2 / |f|), in sectors of equal size. More: the direction with
    the greatest dot product; the first one at a tie.
    """
    if f.shape[1] > 2:
        return np.argmax(f @ directions(f.shape[1], num_buffers).T, axis=1)
    angle = np.arctan2(f[:, 0], f[:, 1])  # equals arccos, without its rounding near the axis
    return np.minimum(np.floor(angle / (np.pi / 2) * num_buffers), num_buffers - 1).astype(np.int64)


def survivors(
    objs: Float64[np.ndarray, "p d"], reference: Float64[np.ndarray, " d"], num_buffers: int, buffer_size: int
) -> Int64[np.ndarray, " s"]:
    """Return the rows of the samples that are kept: in each buffer the `buffer_size` farthest from the reference.

    Objectives are raw, old population first. The rows are ordered by buffer, then from far to near; at equal distance
    the earlier sample comes first. Samples with equal objectives are not merged: they were trained under different
    preferences and lead to different tasks.

    Raises:
        ValueError: An objective is not finite.
    """
    f = check_points(objs, "objs") - reference
    inside = np.flatnonzero((f >= MIN_HEIGHT).all(axis=1))
    buffer = buffer_of(f[inside], num_buffers)
    order = np.lexsort((-np.linalg.norm(f[inside], axis=1), buffer))
    ranked = buffer[order]
    place = np.arange(len(ranked)) - np.searchsorted(ranked, ranked)
    return inside[order[place < buffer_size]]


# Acting


@dataclass(frozen=True, eq=False)
class Policies:
    """The policies of one seed's archive, and the return of each."""

    objs: Float64[np.ndarray, "p d"]
    flat: Float32[np.ndarray, "p parameters"]


class ArchivePredictor:
    """Acts with the archive's best policy for a preference, in plain NumPy."""

    def __init__(self, policies: list[Policies], widths: tuple[int, ...]):
        self._policies, self._widths = policies, widths

    def exported(self, seed: int) -> PolicySet:
        """Return the archive of one seed with the objectives of each policy, for export."""
        known = self._policies[seed]
        return PolicySet(KeptPolicy(known.flat, self._widths).exported(), returns=known.objs)

    def act(
        self,
        seed: int,
        obs: Float32[np.ndarray, "n obs"],
        lam: Float[np.ndarray, "n d"],
        stream: np.random.Generator | None = None,
    ) -> Float32[np.ndarray, "n act"]:
        """Return mean actions, or sampled ones if there is a `stream`."""
        known, size = self._policies[seed], self._widths[-1]

        def act(number: int, rows: Int64[np.ndarray, " group"]) -> Float32[np.ndarray, "group act"]:
            policy = KeptPolicy(known.flat[number : number + 1], self._widths)
            if stream is None:
                return policy.exploit(obs[None, rows])[0]
            noise = stream.standard_normal((1, len(rows), size)).astype(np.float32)
            return policy.explore(obs[None, rows], noise)[0]

        return act_by_policy(best_rows(known.objs, lam), act)

    def player(
        self, preferences: Float64[np.ndarray, "p d"], episodes: int, each: Callable[..., Iterable[Any]] = map
    ) -> Callable[[slice], Act]:
        """Return a function: rows of the preferences -> how all seeds act in them, in `episodes` lanes for each."""
        del each  # all policies act in one call
        served_by = self._served_by(preferences)
        return lambda part: self._act_of_rows(np.repeat(served_by[:, part], episodes, axis=1))

    def share(
        self, returns: Float64[np.ndarray, "seed p e d"], preferences: Float64[np.ndarray, "p d"]
    ) -> Float64[np.ndarray, "seed p e d"]:
        """Return the returns, with one mean for all preferences that the same policy answers."""
        return share_means(returns, self._served_by(preferences))

    def arrays(self) -> dict[str, np.ndarray]:
        """Return the policies as named arrays."""
        parts = [{f"{i}/objs": known.objs, f"{i}/flat": known.flat} for i, known in enumerate(self._policies)]
        return {name: value for part in parts for name, value in part.items()}

    def _served_by(self, lam: Float[np.ndarray, "rows d"]) -> Int64[np.ndarray, "seed rows"]:
        """Return the policy of each seed that serves each preference; numbers count on from seed to seed."""
        first = np.cumsum([0, *(len(known.objs) for known in self._policies)])
        served_by = [best_rows(known.objs, lam) for known in self._policies]
        return np.stack([start + rows for start, rows in zip(first, served_by, strict=False)])

    def _act_of_rows(self, served_by: Int64[np.ndarray, "seed rows"]) -> Act:
        """Return a function that acts in the same rows of all seeds, each by its policy, with one call for all."""
        policies, index, is_used = even_batches(served_by.reshape(-1))
        policy = KeptPolicy(np.concatenate([known.flat for known in self._policies])[policies], self._widths)

        def act(
            obs: Float32[np.ndarray, "seed rows obs"], lam: Float32[np.ndarray, "seed rows d"]
        ) -> Float32[np.ndarray, "seed rows act"]:
            del lam  # the same at every step
            actions = policy.exploit(obs.reshape(served_by.size, -1)[index])
            out = np.empty((served_by.size, actions.shape[2]), np.float32)
            out[index[is_used]] = actions[is_used]
            return out.reshape(*obs.shape[:2], -1)

        return act


def even_batches(
    served_by: ServedBy,
) -> tuple[Int64[np.ndarray, " batch"], Int64[np.ndarray, "batch length"], Bool[np.ndarray, "batch length"]]:
    """Cut rows into batches of one length, the mean number of rows of a policy, so that all policies act in one call.

    At most twice the rows are computed, however unequal the groups are.

    Returns:
        The policy of each batch, its rows, and False where a short batch repeats its last row.
    """
    policies = np.unique(served_by).tolist()
    length = -(-len(served_by) // len(policies))
    groups = [(policy, np.flatnonzero(served_by == policy)) for policy in policies]
    parts = [(policy, rows[i : i + length]) for policy, rows in groups for i in range(0, len(rows), length)]
    index = np.stack([np.pad(rows, (0, length - len(rows)), mode="edge") for _, rows in parts])
    is_used = np.arange(length) < np.array([len(rows) for _, rows in parts])[:, None]
    return np.array([policy for policy, _ in parts]), index, is_used


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
