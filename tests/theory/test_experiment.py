"""The study's claims that are certain, on few problems; the figures are in results/theory/study.json."""

import pytest

from qpensieve.theory import experiment, iteration, soft


@pytest.fixture(scope="module")
def cases() -> list[experiment.Case]:
    return experiment.make_cases(num_random=6, num_chains=2, num_prefs=5)


def _setting(name: str) -> experiment.Setting:
    return next(setting for setting in experiment.settings() if setting.name == name)


def test_memory_alone_does_nothing_with_exact_critics(cases):
    rows = experiment.run(cases, [_setting("exact")], experiment.METHODS[:2])
    assert [row["minus naive"] for row in rows] == [0.0] * len(rows)
    assert {row["family"] for row in rows} == {"random", "chain", "grid"}


def test_memory_holds_on_to_optimistic_starts(cases):
    chosen = [case for case in cases if case.family == "random"]
    rows = experiment.run(chosen, [_setting("3 backups, optimistic start")], [iteration.NAIVE, iteration.pensieve(6)])
    assert float(str(rows[1]["minus naive"])) > 1


def test_starts_are_below_and_above_every_policy(cases):
    for case in cases:
        q = soft.evaluate(case.momdp, soft.uniform_policy(case.momdp, len(case.prefs)), case.alpha)
        assert (experiment.start_q(case, "low") <= q).all()
        assert (experiment.start_q(case, "optimistic") >= q).all()
