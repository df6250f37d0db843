"""An experiment over many MOMDPs: how much sharing preferences and remembering Q-functions help.

The score of a method on a MOMDP is the number of improvements until the loss of its exact policies is at most `TARGET`
at every preference, state and action. Noisy critics cannot reach this loss; their score is the remaining loss.
"""

from collections import deque
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import islice
from typing import Literal

import numpy as np

from qpensieve import metrics
from qpensieve.preferences import spaced_grid
from qpensieve.theory import iteration, soft
from qpensieve.theory.iteration import Critic, Iterate, Method
from qpensieve.theory.momdp import Momdp, RandomSpec, chain, deep_sea_treasure, random_momdp
from qpensieve.theory.soft import LogProbs, Prefs, ScalarQ, VectorQ

Start = Literal["low", "zero", "optimistic"]
Row = dict[str, str | float | int | None]

TARGET = 1e-3
"""Loss at which a run is done."""
MOST_ITERATIONS = 2000
"""Most iterations of a run; longer runs are stopped and count as this many."""
NOISY_ITERATIONS, NOISY_TAIL = 40, 20
"""Iterations of a run with noise, and number of last iterations over which the remaining loss is averaged."""
SIGMA = 0.3
"""Standard deviation of the noise, in units of the mean spread of the optimum over actions."""
METHODS = (
    iteration.NAIVE,
    Method("memory alone, buffer 4", num_preferences=1, num_snapshots=4),
    iteration.SHARED,
    iteration.pensieve(2),
    iteration.pensieve(4),
    iteration.pensieve(6),
    iteration.ENVELOPE,
    Method("full envelope, buffer 4", num_preferences=None, num_snapshots=4),
)


@dataclass(frozen=True)
class Case:
    """A MOMDP with its preferences, temperature and ground truth."""

    family: str
    momdp: Momdp
    prefs: Prefs
    alpha: float
    optimum: ScalarQ
    seed: int

    def run(self, method: Method, setting: "Setting") -> Iterator[Iterate]:
        """Yield the iterates of the method with the critic of the setting."""
        q_start = start_q(self, setting.start) if setting.start else None
        generator, critic = np.random.default_rng((2, self.seed)), setting.make_critic(self)
        return iteration.iterate(
            self.momdp, self.prefs, self.alpha, method, iteration.Course(generator, critic, q_start)
        )


@dataclass(frozen=True)
class Setting:
    """A kind of critic, by which policies are evaluated."""

    name: str
    make_critic: Callable[[Case], Critic]
    start: Start | None = None
    """Q-function to start from. None: the Q-function of the uniform policy."""
    is_noisy: bool = False
    """Whether the score is the remaining loss instead of a number of iterations."""


def make_cases(num_random: int = 100, num_chains: int = 10, num_prefs: int = 11, seed: int = 0) -> list[Case]:
    """Make random MOMDPs of three kinds (dense, sparse, long-sighted), chains of several lengths, and the grid."""
    prefs = spaced_grid(num_prefs)
    kinds = (
        RandomSpec(),
        RandomSpec(num_states=20, num_actions=2, num_successors=1, reward_density=0.15),
        RandomSpec(num_states=10, num_actions=4, num_successors=2, end_probability=0.02, discount=0.95),
    )
    generators = [np.random.default_rng((seed, i)) for i in range(num_random)]
    momdps = [("random", random_momdp(generator, kinds[i % 3]), 0.1) for i, generator in enumerate(generators)]
    momdps += [("chain", chain(length, slip=0.1), 0.02) for length in range(5, 5 + 2 * num_chains, 2)]
    momdps += [("grid", deep_sea_treasure(0.99), alpha) for alpha in (0.1, 0.03, 0.01)]
    return [
        Case(family, momdp, prefs, alpha, soft.soft_optimum(momdp, prefs, alpha, tolerance=1e-7), i)
        for i, (family, momdp, alpha) in enumerate(momdps)
    ]


def settings(num_backups: Sequence[int] = (1, 2, 3, 4, 5)) -> list[Setting]:
    """Return all settings: exact critics, few backups from three starts, and fresh or kept noise."""
    starts: tuple[Start, ...] = ("low", "zero", "optimistic")
    return [
        exact("exact"),
        *(
            Setting(f"{num} backups, {start} start", partial(_backup_critic, num=num), start)
            for start in starts
            for num in num_backups
        ),
        fresh_noise("fresh noise"),
        Setting("fresh noise, mean of last 5", partial(_noisy_critic, is_kept=False, num_averaged=5), is_noisy=True),
        Setting("kept noise", partial(_noisy_critic, is_kept=True), is_noisy=True),
    ]


def exact(name: str) -> Setting:
    """Return the setting with exact critics."""
    return Setting(name, lambda case: iteration.exact_critic(case.momdp, case.alpha))


def fresh_noise(name: str) -> Setting:
    """Return the setting with exact critics plus new noise at each iteration."""
    return Setting(name, partial(_noisy_critic, is_kept=False), is_noisy=True)


def _backup_critic(case: Case, num: int) -> Critic:
    """Return a critic that applies `num` backups to the last Q-function, as a deep algorithm does."""

    def run(q: VectorQ, logp: LogProbs) -> VectorQ:
        for _ in range(num):
            q = soft.backup(case.momdp, q, logp, case.alpha)
        return q

    return run


def _noisy_critic(case: Case, is_kept: bool, num_averaged: int = 1) -> Critic:
    """Return a critic of exact Q-functions plus normal noise on every entry, the same each time if `is_kept`.

    If `num_averaged` is above 1, it returns the mean of that many last Q-functions: a control that uses the same
    memory in another way.
    """
    generator = np.random.default_rng((1, case.seed))
    scale = SIGMA * float(np.ptp(case.optimum, axis=-1).mean())
    shape = (*case.optimum.shape, case.momdp.num_objectives)
    kept = scale * generator.standard_normal(shape)
    last: deque[VectorQ] = deque(maxlen=num_averaged)

    def run(_: VectorQ, logp: LogProbs) -> VectorQ:
        noise = kept if is_kept else scale * generator.standard_normal(shape)
        last.append(soft.evaluate(case.momdp, logp, case.alpha) + noise)
        return np.mean(last, axis=0)

    return run


def start_q(case: Case, start: Start) -> VectorQ:
    """Return a constant Q-function: below that of any policy, 0, or above that of any policy."""
    momdp = case.momdp
    if start == "zero":
        value = 0.0
    elif start == "low":
        value = min(0.0, momdp.r.min()) / (1 - momdp.discount)
    else:
        value = (max(0.0, momdp.r.max()) + case.alpha * np.log(momdp.num_actions)) / (1 - momdp.discount)
    return np.full((*case.optimum.shape, momdp.num_objectives), value)


def loss(case: Case, one: Iterate) -> float:
    """Return the largest exact loss of the policies, independent of the critic's estimate."""
    return iteration.policy_gap(case.momdp, case.prefs, case.alpha, one.logp, case.optimum)


def score(case: Case, method: Method, setting: Setting) -> float:
    """Return the iterations until the loss reaches its target, or the remaining loss if critics are noisy."""
    run = case.run(method, setting)
    if setting.is_noisy:
        tail = islice(run, NOISY_ITERATIONS - NOISY_TAIL, NOISY_ITERATIONS)
        return float(np.mean([loss(case, one) for one in tail]))
    is_done = (loss(case, one) <= TARGET for one in islice(run, MOST_ITERATIONS))
    return float(next((k for k, done in enumerate(is_done) if done), MOST_ITERATIONS))


def summarize(
    setting: Setting, family: str, scores: dict[str, list[float]], reference: str = iteration.NAIVE.name
) -> list[Row]:
    """Return one row per method: mean score, and its mean difference to the naive method with an interval."""
    rows: list[Row] = []
    for name, values in scores.items():
        difference = np.array(values) - np.array(scores[reference])
        low, high = metrics.bootstrap_interval(difference, statistic=_mean)
        mean_low, mean_high = metrics.bootstrap_interval(np.array(values), statistic=_mean)
        rows.append(
            {
                "family": family,
                "critic": setting.name,
                "method": name,
                "score": "loss" if setting.is_noisy else "iterations",
                "mean": float(np.mean(values)),
                "low": mean_low,
                "high": mean_high,
                "minus naive": float(difference.mean()),
                "minus low": low,
                "minus high": high,
                "never": 0 if setting.is_noisy else int(np.sum(np.array(values) >= MOST_ITERATIONS)),
                "num": len(values),
            }
        )
    return rows


def shown(rows: Sequence[Row], family: str) -> list[Row]:
    """Return the rows of one family, short enough for a terminal."""
    names = ("family", "critic", "method", "score", "mean", "minus naive", "95 %", "never")
    full = [row | {"95 %": f"[{row['minus low']:.3g}, {row['minus high']:.3g}]"} for row in rows]
    return [{name: row[name] for name in names} for row in full if row["family"] == family]


def _mean(scores: np.ndarray) -> float:
    return float(scores.mean())


def run(
    cases: Sequence[Case],
    chosen: Sequence[Setting],
    methods: Sequence[Method] = METHODS,
    progress: Callable[[int, str], None] = lambda done, what: None,
) -> list[Row]:
    """Run every method on every case in every setting; returns rows per setting and family."""
    rows: list[Row] = []
    done = 0
    for setting in chosen:
        scores: dict[str, dict[str, list[float]]] = {}
        for case in cases:
            for method in methods:
                values = scores.setdefault(case.family, {}).setdefault(method.name, [])
                values.append(score(case, method, setting))
            done += 1
            progress(done, setting.name)
        for family, by_method in scores.items():
            rows += summarize(setting, family, by_method)
    return rows
