"""The paper's lines 5 and 6 fail as printed; the repaired chain holds."""

import numpy as np
import pytest
from hypothesis import given, settings

from qpensieve.preferences import spaced_grid
from qpensieve.theory import proof, soft
from qpensieve.theory.momdp import RandomSpec, random_momdp
from qpensieve.theory.proof import Offers
from tests.theory.problems import Problem, problems

LN2 = np.log(2)
RUN_SPEC = RandomSpec(5, 3, 2, num_successors=1, reward_density=0.5)


@pytest.mark.parametrize("reading", ["printed", "meant"])
def test_line_5_fails_in_numbers_for_the_hand(reading):
    lines = proof.printed_chain(*proof.line_5_example(), reading)
    # Half of: entropy ln 2 of the twin actions in s1, and lam . Q(s1; lam') = 4 / 2.
    assert lines[4][0, 0] == pytest.approx((LN2 + 2) / 2)
    # Half of: the same entropy, and half of what the uniform pi_k(.; lam) gets in s2, 2 + ln 2.
    assert lines[5][0, 0] == pytest.approx((LN2 + (2 + LN2) / 2) / 2)
    assert lines[4][0, 0] > lines[5][0, 0] + 0.3


@pytest.mark.parametrize("reading", ["printed", "meant"])
def test_line_6_fails_in_numbers_for_the_hand(reading):
    lines = proof.printed_chain(*proof.line_6_example(), reading)
    assert lines[5][0, 0] == pytest.approx((LN2 + 4 / 2) / 2)
    assert lines[6][0, 0] == pytest.approx((LN2 + (2 + LN2) / 2) / 2)
    assert lines[5][0, 0] > lines[6][0, 0] + 0.3
    # It even ends below where the chain began, so it cannot be mended by skipping line 5.
    assert lines[6][0, 0] < lines[2][0, 0] - 0.3


@pytest.mark.parametrize("example", [proof.line_5_example, proof.line_6_example])
def test_the_examples_obey_the_repaired_chain(example):
    _assert_rises(proof.repaired_chain(*example()), 1e-12)


@pytest.mark.parametrize(("seed", "label", "reading"), [(26, 5, "printed"), (26, 6, "meant"), (13, 6, "printed")])
def test_both_lines_fail_along_actual_runs(seed, label, reading):
    momdp = random_momdp(np.random.default_rng(seed), RUN_SPEC)
    failures = proof.failures_along_run(momdp, spaced_grid(5), 0.1)
    matching = [one for one in failures if (one.label, one.reading) == (label, reading)]
    assert max(one.before - one.after for one in matching) > 0.1


@settings(deadline=None, max_examples=100, derandomize=True)
@given(problems())
def test_the_repaired_chain_holds_for_arbitrary_offers(problem: Problem):
    logp = problem.policies(3)
    q = np.stack([soft.evaluate(problem.momdp, one, problem.alpha) for one in logp])
    for own, (lam, w) in enumerate(zip(problem.prefs, problem.members(), strict=True)):
        lines = proof.repaired_chain(problem.momdp, Offers(lam, own, w, q, logp), problem.alpha)
        _assert_rises(lines, 1e-10 * (1 + np.abs(q).max()))
        # Each offer is the Q of its own policy, so line 5 is line 4 written out once more.
        np.testing.assert_allclose(lines[5], lines[4], rtol=1e-9, atol=1e-9)


def test_the_repaired_chain_holds_along_the_runs_where_the_printed_one_fails():
    for seed in (13, 26):
        momdp = random_momdp(np.random.default_rng(seed), RUN_SPEC)
        for _, offers in proof.offers_along_run(momdp, spaced_grid(5), 0.1):
            _assert_rises(proof.repaired_chain(momdp, offers, 0.1), 1e-10)


def _assert_rises(lines: proof.Lines, rounding: float) -> None:
    for label in sorted(lines)[1:]:
        assert proof.worst_drop(lines, label)[0] < rounding, label
