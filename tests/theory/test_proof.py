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
def test_lines_5_and_6_fail_in_numbers_for_the_hand(reading):
    lines = proof.printed_chain(*proof.line_5_example(), reading)
    # Half of: entropy ln 2 of the twin actions in s1, and lam . Q(s1; lam') = 4 / 2.
    assert lines[4][0, 0] == pytest.approx((LN2 + 2) / 2)
    # Half of: the same entropy, and half of what the uniform pi_k(.; lam) gets in s2, 2 + ln 2.
    assert lines[5][0, 0] == pytest.approx((LN2 + (2 + LN2) / 2) / 2)
    lines = proof.printed_chain(*proof.line_6_example(), reading)
    assert lines[5][0, 0] == pytest.approx((LN2 + 4 / 2) / 2)
    assert lines[6][0, 0] == pytest.approx((LN2 + (2 + LN2) / 2) / 2)
    # It even ends below where the chain began, so it cannot be mended by skipping line 5.
    assert lines[6][0, 0] < lines[2][0, 0] - 0.3


@pytest.mark.parametrize("example", [proof.line_5_example, proof.line_6_example])
def test_the_examples_obey_the_repaired_chain(example):
    _assert_rises(proof.repaired_chain(*example()), 1e-12)


def test_the_printed_chain_fails_along_actual_runs_and_the_repaired_one_holds():
    failed = {(26, 5, "printed"): 0.0, (26, 6, "meant"): 0.0, (13, 6, "printed"): 0.0}
    for seed in (13, 26):
        momdp = random_momdp(np.random.default_rng(seed), RUN_SPEC)
        for one in proof.failures_along_run(momdp, spaced_grid(5), 0.1):
            key = seed, one.label, one.reading
            failed[key] = max(failed.get(key, 0.0), one.before - one.after)
        for _, offers in proof.offers_along_run(momdp, spaced_grid(5), 0.1):
            _assert_rises(proof.repaired_chain(momdp, offers, 0.1), 1e-10)
    assert all(failed[key] > 0.1 for key in ((26, 5, "printed"), (26, 6, "meant"), (13, 6, "printed")))


@settings(deadline=None, max_examples=40, derandomize=True)
@given(problems())
def test_the_repaired_chain_holds_for_arbitrary_offers(problem: Problem):
    logp = problem.policies(3)
    q = np.stack([soft.evaluate(problem.momdp, one, problem.alpha) for one in logp])
    for own, (lam, w) in enumerate(zip(problem.prefs, problem.members(), strict=True)):
        lines = proof.repaired_chain(problem.momdp, Offers(lam, own, w, q, logp), problem.alpha)
        _assert_rises(lines, 1e-10 * (1 + np.abs(q).max()))
        # Each offer is the Q of its own policy, so line 5 is line 4 written out once more.
        np.testing.assert_allclose(lines[5], lines[4], rtol=1e-9, atol=1e-9)


def _assert_rises(lines: proof.Lines, rounding: float) -> None:
    for label in sorted(lines)[1:]:
        assert proof.worst_drop(lines, label)[0] < rounding, label
