"""The algorithm as its three replaceable parts, four wrong ones, and the theorem's properties as numbers.

A property is a function (problem, variant) -> by how much it is violated, relative to the size of the values.
"""

from collections.abc import Callable
from dataclasses import dataclass, replace
from itertools import islice, pairwise

import numpy as np

from qpensieve.theory import iteration, soft
from qpensieve.theory.momdp import Momdp
from tests.theory import oracle
from tests.theory.problems import Problem


@dataclass(frozen=True)
class Variant:
    improve: Callable[..., np.ndarray] = iteration.improve
    evaluate: Callable[[Momdp, np.ndarray, float], np.ndarray] = soft.evaluate
    scale: float = 1.0
    """What the preferences sum to."""

    def apply(self, problem: Problem) -> Problem:
        return replace(problem, prefs=problem.prefs * self.scale)


def improve_under_the_other_reward(prefs, members, snapshots, alpha):
    """Scalarises Q'(.; lam') by lam' instead of lam."""
    values = soft.scalarize(prefs[None, :, None, None], snapshots)
    return soft.soft_policy(np.stack([values[:, w].max(axis=(0, 1)) for w in members]), alpha)


def improve_with_one_offer_for_all_states(prefs, members, snapshots, alpha):
    """Takes the (lam', Q') that is best on average over states and actions, everywhere."""
    chosen = []
    for lam, w in zip(prefs, members, strict=True):
        offers = soft.scalarize(lam, snapshots[:, w])
        flat = offers.reshape(-1, *offers.shape[2:])
        chosen.append(flat[flat.mean(axis=(1, 2)).argmax()])
    return soft.soft_policy(np.stack(chosen), alpha)


def evaluate_with_entropy_on_one_objective(momdp, logp, alpha):
    plain = soft.evaluate(momdp, logp, 0.0)
    bonus = soft.evaluate(momdp, logp, alpha)[..., :1] - plain[..., :1]
    return np.concatenate([plain[..., :1] + bonus, plain[..., 1:]], axis=-1)


RIGHT = Variant()
WRONG = {
    "another preference's reward": Variant(improve=improve_under_the_other_reward),
    "one offer for all states": Variant(improve=improve_with_one_offer_for_all_states),
    "entropy on one objective": Variant(evaluate=evaluate_with_entropy_on_one_objective),
    "preferences sum to 2": Variant(scale=2.0),
}


def _scale(q: np.ndarray) -> float:
    return 1.0 + float(np.abs(q).max())


def _run(problem: Problem, variant: Variant, num: int) -> list[np.ndarray]:
    """Values lam . Q of the first `num` policies, with random W_k and the problem's buffer."""
    momdp, alpha, method, generator = problem.momdp, problem.alpha, problem.method, problem.generator()
    q = variant.evaluate(momdp, soft.uniform_policy(momdp, len(problem.prefs)), alpha)
    buffer, values = np.empty((0, *q.shape)), []
    for k in range(num):
        values.append(soft.scalarize_own(problem.prefs, q))
        members = method.draw(generator, len(problem.prefs))
        logp = variant.improve(problem.prefs, members, np.concatenate([buffer, q[None]]), alpha)
        if method.num_snapshots and k % method.push_period == 0:
            buffer = iteration.push(buffer, q, method.num_snapshots)
        q = variant.evaluate(momdp, logp, alpha)
    return values


def offers_not_reached(problem: Problem, variant: Variant) -> float:
    problem = variant.apply(problem)
    offered = np.stack([variant.evaluate(problem.momdp, logp, problem.alpha) for logp in problem.policies(3)])
    logp = variant.improve(problem.prefs, problem.members(), offered, problem.alpha)
    q = soft.scalarize_own(problem.prefs, variant.evaluate(problem.momdp, logp, problem.alpha))
    best = iteration.best_offer(problem.prefs, problem.members(), offered)
    return float((best - q).max()) / _scale(q)


def decrease(problem: Problem, variant: Variant) -> float:
    values = _run(variant.apply(problem), variant, 8)
    return max(float((old - new).max()) / _scale(old) for old, new in pairwise(values))


def distance_of_the_limit(problem: Problem, variant: Variant, num: int = 60) -> float:
    problem = variant.apply(problem)
    optimum = soft.soft_optimum(problem.momdp, problem.prefs, problem.alpha, tolerance=1e-9)
    last = _run(problem, variant, num)[-1]
    return float(np.abs(last - optimum).max())


def distance_from_the_textbook(problem: Problem, variant: Variant, num: int = 3) -> float:
    """For one objective: against plain loops on the reward itself."""
    problem = variant.apply(problem)
    expected = np.array(oracle.soft_policy_iteration(problem.momdp, problem.alpha, num))
    got = _run(problem, variant, num + 1)[-1]
    return float(np.abs(got - expected).max()) / _scale(expected)


def distance_from_naive(problem: Problem, variant: Variant) -> float:
    """W = {lam} and the current Q alone."""
    q = variant.evaluate(problem.momdp, problem.policies(1)[0], problem.alpha)
    naive = iteration.improve_naive(problem.prefs, q, problem.alpha)
    scaled = variant.apply(problem).prefs
    logp = variant.improve(scaled, iteration.only_own(len(scaled)), q[None], problem.alpha)
    return float(np.abs(logp - naive).max())


def gaps(problem: Problem, num: int) -> list[float]:
    """Largest distance to the optimum along a run."""
    optimum = soft.soft_optimum(problem.momdp, problem.prefs, problem.alpha)
    run = iteration.iterate(
        problem.momdp, problem.prefs, problem.alpha, problem.method, iteration.Course(problem.generator())
    )
    return [float((optimum - soft.scalarize_own(problem.prefs, one.q)).max()) for one in islice(run, num)]
