"""The paper's chain of inequalities (its appendix A), line by line, as printed and as repaired (docs/theory.md).

Lines carry the paper's labels "QP PI 2" to "QP PI 8". Each is a number per first state and action (s0, a0); a proof
needs every line to be at most the next.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import islice
from typing import Literal

import numpy as np
from jaxtyping import Bool, Float64

from qpensieve.theory import iteration, soft
from qpensieve.theory.momdp import Momdp
from qpensieve.theory.soft import Prefs

Reading = Literal["printed", "meant"]
"""`printed`: Q'(s2, a2; lam) in lines 5 and 6, as printed; `meant`: Q'(s2, a2; lam')."""
Table = Float64[np.ndarray, "s a"]
Lines = dict[int, Table]
"""Label of the line -> its value at every (s0, a0)."""


@dataclass(frozen=True)
class Offers:
    """One improvement step of one preference, with all quantities in the chain."""

    lam: Float64[np.ndarray, " d"]
    """The preference whose policy is improved."""
    own: int
    """Its number among the preferences."""
    members: Bool[np.ndarray, " m"]
    """W(lam)."""
    q: Float64[np.ndarray, "k m s a d"]
    """Vector Q-functions that are offered, the current one last."""
    logp: Float64[np.ndarray, "k m s a"]
    """The policies they belong to."""

    def scalars(self) -> Float64[np.ndarray, "n s a"]:
        """Values lam . Q'(s, a; lam') for every lam' in W(lam) and every offered Q'."""
        chosen = soft.scalarize(self.lam, self.q[:, self.members])
        return chosen.reshape(-1, *chosen.shape[2:])

    def policies(self) -> Float64[np.ndarray, "n s a"]:
        """The policies of these values, in the same order."""
        chosen = self.logp[:, self.members]
        return chosen.reshape(-1, *chosen.shape[2:])


def printed_chain(momdp: Momdp, offers: Offers, alpha: float, reading: Reading = "printed") -> Lines:
    """Return lines 2 to 8 as in the paper."""
    lines, log_new = _first_lines(momdp, offers, alpha)
    log_old = offers.logp[-1, offers.own]
    second = soft.scalarize(offers.lam, offers.q[:, offers.own]) if reading == "printed" else offers.scalars()
    for label, log_second in ((5, log_old), (6, log_new)):
        bonus = _expect(momdp, alpha * soft.entropy(log_second[None]))[0]
        best = _expect(momdp, (np.exp(log_second) * second).sum(axis=-1)).max(axis=0)
        lines[label] = _first_step(momdp, offers, alpha, log_new, bonus + best)
    return dict(sorted(lines.items()))


def repaired_chain(momdp: Momdp, offers: Offers, alpha: float) -> Lines:
    """Return lines 2 to 8 with line 5 under each offer's own policy, and the sup inside the expectation in line 6."""
    lines, log_new = _first_lines(momdp, offers, alpha)
    scalars, policies = offers.scalars(), offers.policies()
    own_values = (np.exp(policies) * scalars).sum(axis=-1) + alpha * soft.entropy(policies)
    lines[5] = _first_step(momdp, offers, alpha, log_new, _expect(momdp, own_values).max(axis=0))
    best = scalars.max(axis=0)[None]
    lines[6] = _first_step(momdp, offers, alpha, log_new, _expect(momdp, soft.soft_maximum(best, alpha))[0])
    return dict(sorted(lines.items()))


def _first_lines(momdp: Momdp, offers: Offers, alpha: float) -> tuple[Lines, Table]:
    """Return lines 2, 3, 4 and 8, on which both chains agree, and the log-probabilities of the new policy."""
    best = offers.scalars().max(axis=0)[None]
    log_old, log_new = offers.logp[-1, offers.own][None], soft.soft_policy(best, alpha)
    r = momdp.r @ offers.lam
    value = lambda logp: (np.exp(logp) * best).sum(axis=-1) + alpha * soft.entropy(logp)
    q_new = soft.scalarize(offers.lam, soft.evaluate(momdp, log_new, alpha)[0])
    return {
        2: soft.scalarize(offers.lam, offers.q[-1, offers.own]) - r,
        3: _expect(momdp, value(log_old))[0],
        4: _expect(momdp, value(log_new))[0],
        8: q_new - r,
    }, log_new[0]


def _first_step(momdp: Momdp, offers: Offers, alpha: float, log_new: Table, rest: Table) -> Table:
    """Return gamma E over s1 and a1 ~ the new policy of -alpha log pi(a1) + lam . r(s1, a1) + rest(s1, a1)."""
    inner = (np.exp(log_new) * (momdp.r @ offers.lam + rest)).sum(axis=-1) + alpha * soft.entropy(log_new[None])[0]
    return _expect(momdp, inner[None])[0]


def _expect(momdp: Momdp, v: Float64[np.ndarray, "n s"]) -> Float64[np.ndarray, "n s a"]:
    return momdp.discount * soft.expect_scalar(momdp, v)


def worst_drop(lines: Lines, label: int) -> tuple[float, tuple[int, int]]:
    """Return the largest difference of the line before and line `label`, and its place; above 0 the line fails."""
    labels = sorted(lines)
    drop = lines[labels[labels.index(label) - 1]] - lines[label]
    state, action = np.unravel_index(drop.argmax(), drop.shape)
    return float(drop.max()), (int(state), int(action))


def line_5_example() -> tuple[Momdp, Offers, float]:
    """Return an example in which line 5 fails: s0 -> s1 -> s2 -> end; the action matters only in s2.

    There action 0 pays (4, 0) and action 1 pays (0, 4). lam = (1, 0) still acts uniformly; lam' already takes action 0.
    So lam . Q(s1; lam') = 4 / 2 = 2, of which pi(.; lam) in s2 only accounts for (2 + ln 2) / 2 = 1.347.
    """
    p_next, r = _corridor(3), np.zeros((3, 2, 2))
    r[2] = [[4.0, 0.0], [0.0, 4.0]]
    momdp = Momdp("line 5", p_next, r, np.eye(3)[0], discount=0.5)
    logp = np.log(np.full((2, 3, 2), 0.5))
    logp[1, 2] = [0.0, -np.inf]
    q = soft.evaluate(momdp, logp, 1.0)
    return momdp, Offers(np.array([1.0, 0.0]), 0, np.ones(2, dtype=bool), q[None], logp[None]), 1.0


def line_6_example() -> tuple[Momdp, Offers, float]:
    """Return an example in which line 6 fails: s0 -> s1 -> s2; action 0 leads to s3, action 1 to s4; both pay 8 or 0.

    The current policy takes action 0 in s2 and the 8 in s3, but nothing in s4; the snapshot's policy mirrors it. So in
    s2 they offer (4, 0) and (0, 4). The best offer is (4, 4) and the new policy is uniform. It is worth 2 + ln 2 under
    either offer alone, while the old policy had 4.
    """
    p_next, r = _corridor(5), np.zeros((5, 2, 2))
    p_next[2:] = 0.0
    p_next[2, 0, 3] = p_next[2, 1, 4] = 1.0
    r[3:, 0] = [8.0, 8.0]
    momdp = Momdp("line 6", p_next, r, np.eye(5)[0], discount=0.5)
    logp = np.log(np.full((2, 1, 5, 2), 0.5))
    logp[1, 0, 2] = logp[1, 0, 3] = logp[0, 0, 4] = [0.0, -np.inf]
    logp[0, 0, 2] = logp[0, 0, 3] = logp[1, 0, 4] = [-np.inf, 0.0]
    q = np.stack([soft.evaluate(momdp, policies, 1.0) for policies in logp])
    return momdp, Offers(np.array([0.5, 0.5]), 0, np.ones(1, dtype=bool), q, logp), 1.0


def _corridor(length: int) -> Float64[np.ndarray, "s 2 s"]:
    """Both actions go to the next state; the last one ends."""
    p_next = np.zeros((length, 2, length))
    for state in range(length - 1):
        p_next[state, :, state + 1] = 1.0
    return p_next


@dataclass(frozen=True)
class Failure:
    """An inequality of the paper that fails during a run."""

    label: int
    reading: Reading
    iteration: int
    preference: int
    place: tuple[int, int]
    """(s0, a0)."""
    before: float
    """Value of the line before."""
    after: float
    """Value of the line itself, which should not be smaller."""


def offers_along_run(
    momdp: Momdp, prefs: Prefs, alpha: float, num_snapshots: int = 2, num_iterations: int = 4
) -> Iterator[tuple[int, Offers]]:
    """Yield (iteration, offers) of every improvement step of a run from the uniform policy, W = all preferences."""
    method = iteration.pensieve(num_snapshots, None)
    past: list[iteration.Iterate] = []
    for k, current in enumerate(islice(iteration.iterate(momdp, prefs, alpha, method), num_iterations)):
        past = [*past, current][-num_snapshots - 1 :]
        q, logp = np.stack([one.q for one in past]), np.stack([one.logp for one in past])
        for own, lam in enumerate(prefs):
            yield k, Offers(lam, own, np.ones(len(prefs), dtype=bool), q, logp)


def failures_along_run(momdp: Momdp, prefs: Prefs, alpha: float, margin: float = 1e-6) -> list[Failure]:
    """List the failures of lines 5 and 6 by more than `margin` during a run, in either reading."""
    found = []
    readings: tuple[Reading, ...] = ("printed", "meant")
    for k, offers in offers_along_run(momdp, prefs, alpha):
        for reading in readings:
            lines = printed_chain(momdp, offers, alpha, reading)
            for label in (5, 6):
                drop, place = worst_drop(lines, label)
                if drop > margin:
                    before, after = float(lines[label - 1][place]), float(lines[label][place])
                    found.append(Failure(label, reading, k, offers.own, place, before, after))
    return found
