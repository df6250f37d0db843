"""The benchmark of collection: its loop does what the collector does, and its figures hang together."""

from dataclasses import replace
from itertools import pairwise
from typing import Any

import numpy as np
import pytest

from benchmarks import collect
from qpensieve.envs import mujoco
from qpensieve.population.ppo import PpoConfig

SMALL = PpoConfig(hidden=8, num_lanes=3, rollout_steps=8, epochs=1, minibatches=2)
COLUMNS = ["domain", "loop steps/s", "lanes steps/s", "ratio", "wanted", "update ms", "ms per member", "collecting"]


def make_flat(members: int, spread: float = 0.3) -> np.ndarray:
    """Parameters of policies for DST2d, standard deviations included."""
    sizes = [(rows + 1) * columns for rows, columns in pairwise((2, SMALL.hidden, SMALL.hidden, 2))]
    return np.random.default_rng(0).normal(0, spread, (members, sum(sizes) + 2)).astype(np.float32)


class TestLoop:
    def test_meets_what_the_collector_meets_over_ends_of_episodes(self):
        cfg = replace(SMALL, rollout_steps=120)  # an episode has 50 steps at most
        flat = make_flat(2)
        loop, collector = collect.Loop("DST2d", flat, cfg), collect.make_collector("DST2d", flat, cfg)
        for iteration in range(2):  # the second begins in the middle of episodes
            ours, theirs = loop.collect(iteration), collector(iteration)
            assert len(np.unique(ours["action"][:, 0])) == 2 * 3 * 2  # every environment has noise of its own
            assert theirs.terminated.any() or theirs.truncated.any()
            for name, value in ours.items():
                assert value.shape[:3] == (2, 120, 3), name
                np.testing.assert_allclose(value, getattr(theirs, name), rtol=1e-4, atol=1e-4, err_msg=name)

    def test_pays_hopper2d_its_own_objectives(self):
        action = np.array([0.5, -1.0, 0.25], np.float32)
        motion = mujoco.Motion(np.array([1.7]), np.array([1.2]), action[None].astype(np.float64))
        paid = collect.REWARDS["Hopper2d"](99.0, {"x_velocity": 1.7}, action)
        np.testing.assert_allclose(paid, mujoco.hopper_2d(motion)[0])

    def test_cuts_actions_for_the_environment_only_and_outliers_of_observations(self, monkeypatch: pytest.MonkeyPatch):
        taken: list[np.ndarray] = []

        class Jump:
            """Observes zeros, but something enormous at the end."""

            def reset(self, seed: int) -> tuple[np.ndarray, dict]:
                return np.zeros(2), {}

            def step(self, action: np.ndarray) -> tuple[np.ndarray, np.ndarray, bool, bool, dict]:
                taken.append(action)
                return np.full(2, 1e3 * (len(taken) == 299)), np.ones(2), False, False, {}

        monkeypatch.setattr(collect.bench_lanes, "gym_env", lambda domain: Jump())
        cfg = replace(SMALL, num_lanes=1, rollout_steps=300)
        met = collect.Loop("DST2d", make_flat(1), cfg).collect(0)
        assert np.abs(taken).max() == 1.0
        assert np.abs(met["action"]).max() > 1.0
        np.testing.assert_array_equal(met["obs"][0, -1, 0], [10.0, 10.0])  # 17 standard deviations away


class TestRun:
    @pytest.fixture(autouse=True)
    def _small(self, monkeypatch: pytest.MonkeyPatch):
        monkeypatch.setattr(collect, "PAPER", SMALL)

    @pytest.mark.slow
    def test_gives_a_row_per_domain_whose_figures_hang_together(self):
        said: list[str] = []
        rows = collect.run(collect.Settings(members=2, steps=5, repeats=1), said.append)
        assert [row["domain"] for row in rows] == ["Hopper2d", "DST2d"]
        assert [row["wanted"] for row in rows] == [1.5, 5.0]
        for row in rows:
            assert list(row) == COLUMNS
            assert all(np.isfinite(row[name]) and row[name] > 0 for name in COLUMNS[1:])
            assert row["ratio"] == pytest.approx(row["lanes steps/s"] / row["loop steps/s"])
            assert row["ms per member"] == pytest.approx(row["update ms"] / 2)
            seconds = 8 * 3 * 2 / row["lanes steps/s"]
            assert row["collecting"] == pytest.approx(seconds / (seconds + row["update ms"] / 1e3))
        assert said == ["collect: Hopper2d", "collect: Hopper2d, update", "collect: DST2d", "collect: DST2d, update"]

    def test_counts_steps_of_all_environments(self, monkeypatch: pytest.MonkeyPatch):
        def timed(work: Any) -> float:
            work()
            return 2.0

        monkeypatch.setattr(collect, "seconds", timed)
        (row,) = collect.run(collect.Settings(2, 5, 1, ("DST2d",), update=False), print)
        assert row["loop steps/s"] == row["lanes steps/s"] == 5 * 2 * 3 / 2.0
        assert row["ratio"] == 1.0
        assert [row[name] for name in COLUMNS[-3:]] == [None, None, None]

    def test_refuses_a_domain_that_has_no_loop(self):
        with pytest.raises(ValueError, match="no loop for Ant2d: use Hopper2d, DST2d"):
            collect.run(collect.Settings(domains=("Ant2d",)), print)
