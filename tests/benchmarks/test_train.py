"""The benchmark of training from end to end."""

import pytest

from benchmarks import train


@pytest.mark.slow
def test_the_rate_is_seeds_times_steps_over_the_seconds():
    said: list[str] = []
    (row,) = train.run(train.Settings("DST2d", "mosac", seeds=2, steps=100), said.append)
    assert row["seed-steps/s"] == pytest.approx(2 * 100 / row["seconds"])
    assert 0 < row["collecting"] < 1
    assert (row["domain"], row["algo"], row["seeds"]) == ("DST2d", "mosac", 2)
    assert "train: measuring" in said
