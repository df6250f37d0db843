"""Alarms: signs by hand, told once, the same for a run that was stopped and resumed."""

from typing import Any

import numpy as np
import pytest

from qpensieve.config import default_config, override, spec_of, with_schedule
from qpensieve.train import alarms
from qpensieve.train.alarms import Aim, Alarm, Limits

ENTROPY_LIMIT: Any = pytest.approx(-6.9)
DST = Limits(2, (23.7, -1.0), 0.99)


def _row(entropy: float, **more: list[float]) -> dict[str, Any]:
    return {"entropy": [entropy, -1.0], "temperature": [0.0, 0.0]} | more


def test_the_entropy_may_be_a_share_of_the_actions_size_below_its_target():
    assert alarms.of_training(Limits(6), {"entropy": np.array([-6.89, -6.91, -3.0])}) == [
        Alarm("entropy", 1, -6.91, ENTROPY_LIMIT)
    ]
    helped = {"entropy": [-6.0], "helper_entropy": [-7.0]}
    assert alarms.of_training(Limits(6), helped) == [Alarm("entropy", 0, -7.0, ENTROPY_LIMIT)]
    assert alarms.of_training(Limits(None), {"entropy": [-100.0]}) == []
    calmer = Limits(6, aim=Aim(-2.0, -2.0))
    assert alarms.of_training(calmer, {"entropy": [-12.8], "entropy_bin_1": [-17.9]}) == []
    signs = [alarm.sign for alarm in alarms.of_training(calmer, {"entropy": [-13.0], "entropy_bin_1": [-18.1]})]
    assert signs == ["entropy", "bin"]
    falling = Limits(6, aim=Aim(-1.0, -3.0, first=100, num=1000))
    found = [alarms.of_training(falling, {"entropy": [-11.0]}, step) for step in (100, 600, 5000)]
    assert [len(signs) for signs in found] == [1, 0, 0]


def test_alarms_follow_a_target_that_moves():
    robust = override(default_config("Walker2d", preset="robust"), {"steps": 30_000})
    limits = alarms.limits_of(with_schedule(robust), spec_of(robust))
    assert limits.aim == Aim(-1.0, -2.5, 3_000, 27_000)
    collapsed = {"entropy": [-6.0], "entropy_bin_5": [-15.0]}
    assert [alarm.sign for alarm in alarms.of_training(limits, collapsed, 4_000)] == ["bin"]
    plain = default_config("Walker2d", "sac")
    assert alarms.limits_of(plain, spec_of(plain)).aim == Aim()
    assert alarms.of_training(Limits(6), {"critic_loss": [1e9]}) == []


def test_a_collapse_under_some_preferences_is_an_alarm_though_the_mean_is_well():
    bins = {f"entropy_bin_{i}": [-6.0, -6.0] for i in range(1, 6)}
    assert alarms.of_training(Limits(6), {"entropy": [-6.0, -6.0]} | bins) == []
    hidden = bins | {"entropy_bin_4": [-11.9, -6.0], "entropy_bin_5": [-2.0, -12.1]}
    found = alarms.of_training(Limits(6), {"entropy": [-6.0, -6.5]} | hidden)
    assert found == [Alarm("bin", 1, -12.1, -12.0)]


def test_values_beyond_what_a_bin_of_preferences_allows_are_an_alarm():
    bins = {f"q_bin_{i}": [0.0, 0.0] for i in range(1, 6)}
    assert alarms.of_training(DST, _row(-1.0, **bins)) == []
    # lam1 up to .4: at most .4 * 23.7 - .6 = 8.88; lam1 up to 1: 23.7
    high = bins | {"q_bin_2": [8.9, 8.8], "q_bin_5": [23.8, 23.0]}
    found = alarms.of_training(DST, _row(-1.0, **high))
    limit: Any = pytest.approx(23.7)
    assert found == [Alarm("value", 0, 23.8, limit)]
    warm = _row(-1.0, **high) | {"temperature": [1.0, 1.0]}  # entropy is worth something too
    assert alarms.of_training(DST, warm) == []
    assert alarms.of_training(DST, _row(-1.0, **high) | {"temperature_max": [1.0, 1.0]}) == []
    assert alarms.of_training(Limits(2), _row(-1.0, **high)) == []


def test_a_loss_is_a_utility_below_half_of_the_best_so_far():
    of = lambda *ut: alarms.of_utility(np.array(ut, np.float64)[:, None])
    assert of(10.0) == []
    assert of(10.0, 5.1) == []
    assert of(10.0, 3.0, 4.9) == [Alarm("utility", 0, 4.9, 5.0)]
    assert of(1.0, -16.0) == [Alarm("utility", 0, -16.0, 0.5)]
    assert of(-10.0, -16.0) == []


def test_early_alarms_are_only_logged_and_later_ones_are_shown_too():
    config = with_schedule(override(default_config("Walker2d"), {"seeds": 2}))
    shown: list[str] = []
    watch = alarms.Watch(config, spec_of(config), None, shown.append)
    early = watch.training(99_000, {"entropy": [-100.0, -1.0], "temperature": [1.0, 1.0]})
    assert [entry["who"] for entry in early] == ["seed 0"]
    assert shown == []
    later = watch.training(100_000, {"entropy": [-99.0, -100.0], "temperature": [1.0, 1.0]})
    assert [entry["who"] for entry in later] == ["seed 1"]  # the sign of seed 0 is no news
    assert [line.partition(":")[0] for line in shown] == ["alarm at step 100,000"]
    assert "seed 1" in shown[0]
