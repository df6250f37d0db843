"""Tests of vector soft evaluation and of the ground truth."""

import numpy as np
import pytest
from hypothesis import given, settings

from qpensieve.theory import soft
from qpensieve.theory.momdp import Momdp, two_armed
from tests.theory import oracle
from tests.theory.problems import Problem, make_problem, problems


@settings(deadline=None, max_examples=25, derandomize=True)
@given(problems())
def test_linear_solve_equals_repeated_backups(problem: Problem):
    logp = problem.policies(1)[0]
    solved = soft.evaluate(problem.momdp, logp, problem.alpha)
    repeated = oracle.evaluate_by_backups(problem.momdp, logp, problem.alpha)
    np.testing.assert_allclose(solved, repeated, atol=1e-8, rtol=1e-11)
    np.testing.assert_allclose(solved, soft.backup(problem.momdp, solved, logp, problem.alpha), atol=1e-9, rtol=1e-11)


def test_backup_equals_the_loops_of_equation_9():
    problem = make_problem(seed=11, num_objectives=3, discount=0.9, alpha=0.4)
    momdp, logp = problem.momdp, problem.policies(1)[0]
    q = np.random.default_rng(0).standard_normal((*logp.shape, 3))
    backed = soft.backup(momdp, q, logp, 0.4)
    for m, s, a, i in np.ndindex(q.shape):
        future = sum(
            momdp.p_next[s, a, t] * np.exp(logp[m, t, b]) * (q[m, t, b, i] - 0.4 * logp[m, t, b])
            for t in range(momdp.num_states)
            for b in range(momdp.num_actions)
        )
        assert backed[m, s, a, i] == pytest.approx(momdp.r[s, a, i] + 0.9 * future, rel=1e-12)


def test_the_two_armed_optimum_by_hand():
    lam, alpha = np.array([[0.75, 0.25]]), 2.0
    q = soft.soft_optimum(two_armed(), lam, alpha)
    np.testing.assert_allclose(q, [[[3.0, 1.0]]])
    # 1 / (1 + exp((0.25 * 4 - 0.75 * 4) / 2)) = 1 / (1 + exp(-1))
    assert np.exp(soft.soft_policy(q, alpha))[0, 0, 0] == pytest.approx(1 / (1 + np.exp(-1)))


def test_an_end_carries_no_entropy():
    # One state that goes on with probability 1/2: V = ln 2 + 0.9 / 2 V, so the soft value is ln 2 / 0.55.
    momdp = Momdp("coin", np.full((1, 2, 1), 0.5), np.zeros((1, 2, 2)), np.ones(1), 0.9)
    q = soft.evaluate(momdp, soft.uniform_policy(momdp, 1), 1.0)
    np.testing.assert_allclose(q, 0.45 * np.log(2) / 0.55)
    ended = Momdp("end", np.zeros((1, 2, 1)), np.zeros((1, 2, 2)), np.ones(1), 0.9)
    assert not soft.evaluate(ended, soft.uniform_policy(ended, 1), 1.0).any()


def test_tiny_temperatures_do_not_overflow():
    values = np.array([[[1e5, 0.0, 1e5]]])
    np.testing.assert_allclose(np.exp(soft.soft_policy(values, 1e-8)), [[[0.5, 0.0, 0.5]]])
    np.testing.assert_allclose(soft.soft_maximum(values, 1e-8), 1e5)


def test_the_vector_of_every_offer_scalarises_to_a_soft_q_of_the_scalar_problem():
    # Why sum(lam) = 1 matters: only then lam . (alpha H 1_d) = alpha H.
    problem = make_problem(seed=2, num_objectives=4, discount=0.9, alpha=0.4)
    logp = problem.policies(1)[0]
    q = soft.evaluate(problem.momdp, logp, 0.4)
    for lam in problem.prefs:
        scalar = Momdp("", problem.momdp.p_next, (problem.momdp.r @ lam)[..., None], problem.momdp.start, 0.9)
        np.testing.assert_allclose(soft.scalarize(lam, q), soft.evaluate(scalar, logp, 0.4)[..., 0], rtol=1e-11)
        doubled = Momdp("", problem.momdp.p_next, 2 * scalar.r, problem.momdp.start, 0.9)
        assert np.abs(soft.scalarize(2 * lam, q) - soft.evaluate(doubled, logp, 0.4)[..., 0]).max() > 1e-2
