"""Soft policy iteration for many preferences: naive (eq. 7) and Q-Pensieve (eq. 8)."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass

import numpy as np
from jaxtyping import Bool, Float64

from qpensieve.theory import soft
from qpensieve.theory.momdp import Momdp
from qpensieve.theory.soft import LogProbs, Prefs, ScalarQ, VectorQ

Members = Bool[np.ndarray, "m m"]
"""W(lam) of every preference: entry (i, j) says whether preference j is in W of preference i. The diagonal is true."""
Snapshots = Float64[np.ndarray, "k m s a d"]
"""Vector Q-functions on offer, oldest first, the current one last."""
Critic = Callable[[VectorQ, LogProbs], VectorQ]
"""(last Q-function, policy) -> Q-function of the policy, exact or estimated."""


def improve_naive(prefs: Prefs, q: VectorQ, alpha: float) -> LogProbs:
    """Return the policies improved with only their own Q-function (eq. 7)."""
    return soft.soft_policy(soft.scalarize_own(prefs, q), alpha)


def improve(prefs: Prefs, members: Members, snapshots: Snapshots, alpha: float) -> LogProbs:
    """Return the policy proportional to exp(best offer / alpha) (eq. 8)."""
    return soft.soft_policy(best_offer(prefs, members, snapshots), alpha)


def best_offer(prefs: Prefs, members: Members, snapshots: Snapshots) -> ScalarQ:
    """Return M(s, a; lam): the sup over lam' in W(lam) and offered Q' of lam . Q'(s, a; lam')."""
    offers = [soft.scalarize(lam, snapshots[:, w]).max(axis=(0, 1)) for lam, w in zip(prefs, members, strict=True)]
    return np.stack(offers)


def draw_members(generator: np.random.Generator, num: int, size: int) -> Members:
    """Draw W(lam): lam and `size` - 1 random other preferences, separately for every lam."""
    order = generator.random((num, num))
    np.fill_diagonal(order, -1.0)
    members = np.zeros((num, num), dtype=bool)
    np.put_along_axis(members, order.argsort(axis=1)[:, :size], True, axis=1)
    return members


def push(buffer: Snapshots, q: VectorQ, size: int) -> Float64[np.ndarray, "kept m s a d"]:
    """Return the Q replay buffer with `q` added; if it exceeds `size`, its oldest entry is dropped."""
    return np.concatenate([buffer, q[None]])[max(0, len(buffer) + 1 - size) :]


@dataclass(frozen=True)
class Method:
    """A method: the offers that an improvement may choose from."""

    name: str
    """Name in tables and pictures."""
    num_preferences: int | None = 1
    """Size of W(lam), including lam; it is drawn at each iteration. None: all preferences."""
    num_snapshots: int = 0
    """Size of the Q replay buffer; the current Q-function is always offered too."""

    def draw(self, generator: np.random.Generator, num: int) -> Members:
        """Draw W of an iteration for `num` preferences."""
        return draw_members(generator, num, num if self.num_preferences is None else self.num_preferences)


NAIVE = Method("naive")
SHARED = Method("shared, no buffer", num_preferences=5)
ENVELOPE = Method("full envelope", num_preferences=None)


def pensieve(num_snapshots: int, num_preferences: int | None = 5) -> Method:
    """Return Q-Pensieve with a buffer of `num_snapshots`."""
    return Method(f"Q-Pensieve, buffer {num_snapshots}", num_preferences, num_snapshots)


@dataclass(frozen=True)
class Iterate:
    """One iteration: the policy and its Q-function."""

    logp: LogProbs
    """The policy pi_k of every preference."""
    q: VectorQ
    """Its vector soft Q-function, exact or as the critic estimates it."""
    buffer: Snapshots
    """The Q replay buffer, without `q`."""


@dataclass(frozen=True)
class Course:
    """Settings of an iteration other than its method.

    Attributes:
        generator: Source of the sets W_k; used only if they are random. None: a fixed one.
        critic: Evaluates policies. None: exactly.
        q_start: Q-function to start from. None: the critic's for the uniform policy.
    """

    generator: np.random.Generator | None = None
    critic: Critic | None = None
    q_start: VectorQ | None = None


EXACTLY = Course()


def iterate(
    momdp: Momdp, prefs: Prefs, alpha: float, method: Method = NAIVE, course: Course = EXACTLY
) -> Iterator[Iterate]:
    """Yield the iterates of soft policy iteration without end.

    Args:
        momdp: The problem.
        prefs: The preferences; each keeps a policy and a Q-function.
        alpha: Temperature.
        method: Which offers to improve with.
        course: Randomness, critic and start; default: exact critics from the uniform policy.
    """
    generator = course.generator or np.random.default_rng(0)
    critic, q_start = course.critic or exact_critic(momdp, alpha), course.q_start
    logp = soft.uniform_policy(momdp, len(prefs))
    q = critic(np.zeros((*logp.shape, momdp.num_objectives)), logp) if q_start is None else q_start
    buffer = np.empty((0, *q.shape))
    while True:
        yield Iterate(logp, q, buffer)
        logp = improve(prefs, method.draw(generator, len(prefs)), np.concatenate([buffer, q[None]]), alpha)
        buffer, q = push(buffer, q, method.num_snapshots), critic(q, logp)


def exact_critic(momdp: Momdp, alpha: float) -> Critic:
    """Return a critic that solves the linear equations exactly."""
    return lambda _, logp: soft.evaluate(momdp, logp, alpha)


def policy_gap(momdp: Momdp, prefs: Prefs, alpha: float, logp: LogProbs, optimum: ScalarQ) -> float:
    """Return the largest loss of the policy's exact lam . Q, over preferences, states and actions."""
    return float((optimum - soft.scalarize_own(prefs, soft.evaluate(momdp, logp, alpha))).max())
