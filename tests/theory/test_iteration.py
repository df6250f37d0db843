"""The theorem as properties of random MOMDPs, and that each property can fail."""

import time
from collections.abc import Callable
from functools import cache
from itertools import islice, pairwise

import numpy as np
import pytest
from hypothesis import given, settings

from qpensieve.preferences import draw_preferences
from qpensieve.theory import iteration, soft
from qpensieve.theory.momdp import RandomSpec, random_momdp
from tests.theory import variants
from tests.theory.problems import Problem, make_problem, problems, sparse_problem
from tests.theory.variants import RIGHT, WRONG

ROUNDING = 1e-11
"""Relative to the size of the values; the linear solve at discount 0.99 costs about three digits of sixteen."""
BROKEN = 1e-6
many = settings(deadline=None, max_examples=60, derandomize=True)
some = settings(deadline=None, max_examples=40, derandomize=True)


@many
@given(problems())
def test_the_new_policy_is_at_least_every_offer_everywhere(problem: Problem):
    assert variants.offers_not_reached(problem, RIGHT) < ROUNDING


@many
@given(problems())
def test_values_never_decrease_over_iterations(problem: Problem):
    assert variants.decrease(problem, RIGHT) < ROUNDING


@some
@given(problems())
def test_the_limit_is_soft_value_iteration(problem: Problem):
    assert variants.distance_of_the_limit(problem, RIGHT) < 1e-6


@some
@given(problems())
def test_the_gap_shrinks_by_the_discount_at_least(problem: Problem):
    gaps = variants.gaps(problem, 6)
    for old, new in pairwise(gaps):
        assert new <= problem.momdp.discount * old + 1e-9 * (1 + gaps[0])


@settings(deadline=None, max_examples=60, derandomize=True)
@given(problems(max_objectives=1))
def test_one_objective_is_textbook_soft_policy_iteration(problem: Problem):
    assert variants.distance_from_the_textbook(problem, RIGHT) < 1e-9


@many
@given(problems())
def test_own_preference_and_current_q_alone_is_the_naive_update_exactly(problem: Problem):
    assert variants.distance_from_naive(problem, RIGHT) == 0.0


def test_a_whole_run_without_sharing_and_memory_is_naive_exactly():
    problem = make_problem(seed=3, num_objectives=3, discount=0.9, alpha=0.2)
    logp = soft.uniform_policy(problem.momdp, len(problem.prefs))
    for one in islice(iteration.iterate(problem.momdp, problem.prefs, 0.2, iteration.NAIVE), 6):
        np.testing.assert_array_equal(one.logp, logp)
        q = soft.evaluate(problem.momdp, logp, 0.2)
        np.testing.assert_array_equal(one.q, q)
        logp = iteration.improve_naive(problem.prefs, q, 0.2)


@pytest.mark.parametrize(
    ("wrong", "broken"),
    [
        ("another preference's reward", variants.offers_not_reached),
        ("another preference's reward", variants.decrease),
        ("another preference's reward", variants.distance_of_the_limit),
        ("entropy on one objective", variants.offers_not_reached),
        ("entropy on one objective", variants.decrease),
        ("entropy on one objective", variants.distance_of_the_limit),
        ("preferences sum to 2", variants.offers_not_reached),
        ("preferences sum to 2", variants.decrease),
        ("preferences sum to 2", variants.distance_of_the_limit),
        ("preferences sum to 2", variants.distance_from_naive),
    ],
)
def test_a_wrong_update_breaks_the_property(wrong: str, broken):
    assert _worst_of_the_right_update(broken) < 1e-8
    assert max(broken(example, WRONG[wrong]) for example in _examples()) > 1e-3


@cache
def _examples() -> list[Problem]:
    return [make_problem(seed, 2 + seed % 3, 0.9, 0.3) for seed in range(20)]


@cache
def _worst_of_the_right_update(broken: Callable[..., float]) -> float:
    return max(broken(example, RIGHT) for example in _examples())


@pytest.mark.parametrize("broken", [variants.offers_not_reached, variants.decrease])
def test_one_offer_for_all_states_breaks_the_property(broken):
    examples = [sparse_problem(seed) for seed in range(30)]
    assert max(broken(example, RIGHT) for example in examples) < ROUNDING
    assert sum(broken(example, WRONG["one offer for all states"]) > BROKEN for example in examples) >= 2


def test_one_objective_with_a_preference_of_2_is_not_the_textbook():
    problem = make_problem(seed=0, num_objectives=1, discount=0.9, alpha=0.3)
    assert variants.distance_from_the_textbook(problem, WRONG["preferences sum to 2"]) > 1e-2


@some
@given(problems())
def test_with_exact_critics_memory_adds_nothing_to_the_full_envelope_nor_to_the_own_preference(problem: Problem):
    for size in (1, None):
        with_memory = iteration.pensieve(4, num_preferences=size)
        without = iteration.Method("no memory", num_preferences=size)
        pair = [_policies(problem, method, 6) for method in (without, with_memory)]
        np.testing.assert_allclose(np.exp(pair[0]), np.exp(pair[1]), atol=1e-7)


def _policies(problem: Problem, method: iteration.Method, num: int) -> np.ndarray:
    run = iteration.iterate(problem.momdp, problem.prefs, problem.alpha, method, iteration.Course(problem.generator()))
    return np.stack([one.logp for one in islice(run, num)])


def test_best_offer_equals_the_loops():
    problem = make_problem(seed=5, num_objectives=3, discount=0.9, alpha=0.2)
    q = np.stack([soft.evaluate(problem.momdp, logp, 0.2) for logp in problem.policies(3)])
    members, prefs = problem.members(), problem.prefs
    best = iteration.best_offer(prefs, members, q)
    for own, lam in enumerate(prefs):
        for s, a in np.ndindex(best.shape[1:]):
            offers = [lam @ q[k, other, s, a] for k in range(3) for other in np.flatnonzero(members[own])]
            assert best[own, s, a] == pytest.approx(max(offers), rel=1e-12)


def test_the_buffer_is_first_in_first_out():
    buffer = np.empty((0, 1, 1, 1, 1))
    for value in (1.0, 2.0, 3.0):
        buffer = iteration.push(buffer, np.full((1, 1, 1, 1), value), size=2)
    assert buffer.ravel().tolist() == [2.0, 3.0]


def test_pushes_keep_their_interval():
    problem = make_problem(seed=5, num_objectives=2, discount=0.9, alpha=0.2)
    method = iteration.pensieve(2, num_preferences=None, push_period=3)
    run = list(islice(iteration.iterate(problem.momdp, problem.prefs, 0.2, method), 8))
    assert [len(one.buffer) for one in run] == [0, 1, 1, 1, 2, 2, 2, 2]
    np.testing.assert_array_equal(run[7].buffer, [run[3].q, run[6].q])


def test_drawn_sets_hold_their_own_preference_and_have_the_size():
    members = iteration.draw_members(np.random.default_rng(0), num=8, size=5)
    assert members.diagonal().all()
    assert members.sum(axis=1).tolist() == [5] * 8


@pytest.mark.slow
def test_a_large_problem_takes_seconds():
    generator = np.random.default_rng(0)
    momdp = random_momdp(generator, RandomSpec(500, 10, 2, num_successors=10))
    prefs = draw_preferences(generator, 50, 2)
    start = time.perf_counter()
    last = list(islice(iteration.iterate(momdp, prefs, 0.1, iteration.pensieve(4)), 6))[-1]
    assert time.perf_counter() - start < 60
    optimum = soft.soft_optimum(momdp, prefs, 0.1)
    assert iteration.policy_gap(momdp, prefs, 0.1, last.logp, optimum) < 1e-6
