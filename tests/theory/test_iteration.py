"""The theorem as properties of random MOMDPs, that wrong updates break them, and the parts of an iteration."""

from collections.abc import Callable
from itertools import islice, pairwise

import numpy as np
import pytest
from hypothesis import given, settings

from qpensieve.theory import iteration, soft
from tests.theory import oracle
from tests.theory.problems import Problem, make_problem, problems, sparse_problem

ROUNDING = 1e-11
"""Relative to the size of the values; the linear solve at discount 0.99 costs about three digits of sixteen."""
some = settings(deadline=None, max_examples=40, derandomize=True)

Improve = Callable[..., np.ndarray]
Evaluate = Callable[..., np.ndarray]


def scale(q: np.ndarray) -> float:
    return 1.0 + float(np.abs(q).max())


def offers_not_reached(
    problem: Problem, improve: Improve = iteration.improve, evaluate: Evaluate = soft.evaluate
) -> float:
    """How far the new policy is below an offer of three arbitrary policies, relative to the values."""
    prefs, members = problem.prefs, problem.members()
    offered = np.stack([evaluate(problem.momdp, logp, problem.alpha) for logp in problem.policies(3)])
    logp = improve(prefs, members, offered, problem.alpha)
    q = soft.scalarize_own(prefs, evaluate(problem.momdp, logp, problem.alpha))
    return float((iteration.best_offer(prefs, members, offered) - q).max()) / scale(q)


def run_of(problem: Problem, num: int, method: iteration.Method | None = None) -> list[iteration.Iterate]:
    course = iteration.Course(problem.generator())
    run = iteration.iterate(problem.momdp, problem.prefs, problem.alpha, method or problem.method, course)
    return list(islice(run, num))


@some
@given(problems())
def test_a_run_gains_at_every_step_and_closes_the_gap_by_the_discount(problem: Problem):
    assert offers_not_reached(problem) < ROUNDING
    values = [soft.scalarize_own(problem.prefs, one.q) for one in run_of(problem, 8)]
    optimum = soft.soft_optimum(problem.momdp, problem.prefs, problem.alpha)
    gaps = [float((optimum - value).max()) for value in values]
    for (before, old), (after, new) in pairwise(zip(values, gaps, strict=True)):
        assert float((before - after).max()) < ROUNDING * scale(before)
        assert new <= problem.momdp.discount * old + 1e-9 * (1 + gaps[0])


@settings(deadline=None, max_examples=20, derandomize=True)
@given(problems())
def test_the_limit_is_soft_value_iteration(problem: Problem):
    optimum = soft.soft_optimum(problem.momdp, problem.prefs, problem.alpha, tolerance=1e-9)
    assert np.abs(soft.scalarize_own(problem.prefs, run_of(problem, 60)[-1].q) - optimum).max() < 1e-6


@some
@given(problems(max_objectives=1))
def test_one_objective_is_textbook_soft_policy_iteration(problem: Problem):
    expected = np.array(oracle.soft_policy_iteration(problem.momdp, problem.alpha, 3))
    got = soft.scalarize_own(problem.prefs, run_of(problem, 4)[-1].q)
    assert np.abs(got - expected).max() < 1e-9 * scale(expected)


@some
@given(problems())
def test_own_preference_and_current_q_alone_is_the_naive_update_exactly(problem: Problem):
    for before, after in pairwise(run_of(problem, 4, iteration.NAIVE)):
        np.testing.assert_array_equal(after.logp, iteration.improve_naive(problem.prefs, before.q, problem.alpha))


def improve_under_the_other_reward(prefs, members, snapshots, alpha):
    """Scalarises Q'(.; lam') by lam' instead of lam."""
    values = soft.scalarize(prefs[None, :, None, None], snapshots)
    return soft.soft_policy(np.stack([values[:, w].max(axis=(0, 1)) for w in members]), alpha)


def improve_with_one_offer_for_all_states(prefs, members, snapshots, alpha):
    """Takes the (lam', Q') that is best on average over states and actions, everywhere."""
    offers = [soft.scalarize(lam, snapshots[:, w]) for lam, w in zip(prefs, members, strict=True)]
    flat = [one.reshape(-1, *one.shape[2:]) for one in offers]
    return soft.soft_policy(np.stack([one[one.mean(axis=(1, 2)).argmax()] for one in flat]), alpha)


def evaluate_with_entropy_on_one_objective(momdp, logp, alpha):
    plain = soft.evaluate(momdp, logp, 0.0)
    return np.concatenate([soft.evaluate(momdp, logp, alpha)[..., :1], plain[..., 1:]], axis=-1)


@pytest.mark.parametrize(
    ("wrong", "weight"),
    [
        ({}, 2.0),
        ({"improve": improve_under_the_other_reward}, 1.0),
        ({"improve": improve_with_one_offer_for_all_states}, 1.0),
        ({"evaluate": evaluate_with_entropy_on_one_objective}, 1.0),
    ],
    ids=["preferences sum to 2", "another preference's reward", "one offer for all states", "one objective's entropy"],
)
def test_a_wrong_update_breaks_the_property(wrong: dict[str, Callable], weight: float):
    found = [sparse_problem(seed) for seed in range(30)] + [make_problem(s, 2 + s % 3, 0.9, 0.3) for s in range(20)]
    heavy = [Problem(one.momdp, weight * one.prefs, one.alpha, one.seed, one.method) for one in found]
    assert max(offers_not_reached(one, **wrong) for one in heavy) > 1e-6


@settings(deadline=None, max_examples=20, derandomize=True)
@given(problems())
def test_with_exact_critics_memory_adds_nothing_to_the_full_envelope_nor_to_the_own_preference(problem: Problem):
    for size in (1, None):
        methods = iteration.Method("no memory", num_preferences=size), iteration.pensieve(4, num_preferences=size)
        plain, remembering = (np.stack([one.logp for one in run_of(problem, 6, method)]) for method in methods)
        np.testing.assert_allclose(np.exp(plain), np.exp(remembering), atol=1e-7)


def test_best_offer_equals_the_loops():
    problem = make_problem(seed=5, num_objectives=3, discount=0.9, alpha=0.2)
    q = np.stack([soft.evaluate(problem.momdp, logp, 0.2) for logp in problem.policies(3)])
    members, prefs = problem.members(), problem.prefs
    best = iteration.best_offer(prefs, members, q)
    for own, lam in enumerate(prefs):
        for s, a in np.ndindex(best.shape[1:]):
            offers = [lam @ q[k, other, s, a] for k in range(3) for other in np.flatnonzero(members[own])]
            assert best[own, s, a] == pytest.approx(max(offers), rel=1e-12)


def test_the_buffer_keeps_the_newest_and_never_the_current_one():
    problem = make_problem(seed=5, num_objectives=2, discount=0.9, alpha=0.2)
    run = run_of(problem, 5, iteration.pensieve(2, num_preferences=None))
    assert [len(one.buffer) for one in run] == [0, 1, 2, 2, 2]
    np.testing.assert_array_equal(run[4].buffer, [run[2].q, run[3].q])


def test_drawn_sets_hold_their_own_preference_and_have_the_size():
    for size in (5, 8):
        members = iteration.draw_members(np.random.default_rng(0), num=8, size=size)
        assert members.diagonal().all()
        assert members.sum(axis=1).tolist() == [size] * 8
