"""Calibration where the best row for each preference is known."""

import json
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import qpensieve
from qpensieve import cli, metrics
from qpensieve.config import RunConfig, default_config, override
from qpensieve.errors import UserError
from qpensieve.preferences import spaced_grid
from qpensieve.records import calibration
from qpensieve.records.folder import CALIBRATION, lock
from qpensieve.report import pictures
from qpensieve.train import calibrate as calibrating
from qpensieve.train.calibrate import KEPT, LEAST, calibrate, choose, num_rows
from tests.train.kill_run import NEVER, TINY, words

ONE_STEP = "tests.probes:one_step"
LAM = spaced_grid(21)
FRONT = np.stack([1 - (1 - LAM[:, 0]) ** 2, 1 - (1 - LAM[:, 1]) ** 2], axis=1)
"""The best row for each preference is its own."""


class World:
    """Returns of rows with a known mean, and independent noise in every episode."""

    def __init__(self, means: np.ndarray, noise: float = 0.0, seed: int = 0):
        self.means, self.noise, self.rng = np.asarray(means, np.float64), noise, np.random.default_rng(seed)
        self.episodes = np.zeros(self.means.shape[:2], int)

    def play(self, pairs: np.ndarray, episodes: int) -> np.ndarray:
        np.add.at(self.episodes, tuple(pairs.T), episodes)
        means = self.means[tuple(pairs.T)][:, None]
        return means * (1 + self.noise * self.rng.standard_normal((len(pairs), episodes, 1)))


class TestChoose:
    def test_obedient_policies_are_asked_for_the_preference_itself(self):
        asks, gain = choose(World(FRONT[None]).play, LAM, 1, 200)
        np.testing.assert_array_equal(asks, [np.arange(21)])
        np.testing.assert_array_equal(gain, 0.0)

    def test_one_row_that_is_best_everywhere_is_found_for_each_seed(self):
        means = np.stack([FRONT, FRONT])
        means[0, 17] = means[1, 4] = (3.0, 2.0)
        asks, gain = choose(World(means).play, LAM, 2, 200)
        np.testing.assert_array_equal(asks, [[17] * 21, [4] * 21])
        expected = (means[:, [17, 4]][[0, 1], [0, 1]] @ LAM.T) - (means * LAM).sum(axis=2)
        np.testing.assert_allclose(gain.mean(axis=1), expected.sum(axis=1) / [21, 21], rtol=0.1)

    def test_without_a_difference_nothing_is_gained_by_luck(self):
        """In-sample the best row of equal ones is far above them; of the map only what is confirmed is left."""
        in_sample, held_out, changed = [], [], []
        for seed in range(100):
            world = World(np.ones((1, 21, 2)), noise=0.5, seed=seed)
            asks, _ = choose(world.play, LAM, 1, 100)
            fresh = world.play(np.stack([np.zeros(21, int), np.arange(21)], axis=1), 4).mean(axis=1)
            in_sample.append(metrics.expected_utility(fresh, LAM))
            held_out.append(metrics.utility(fresh[asks[0]], LAM))
            changed.append((asks[0] != np.arange(21)).mean())
        assert np.mean(in_sample) > 1.3
        assert np.mean(held_out) == pytest.approx(1.0, abs=0.05)
        assert np.mean(changed) < 0.3

    @pytest.mark.parametrize("episodes", [LEAST, 25, 50, 99, 100, 400, 1001])
    @pytest.mark.parametrize("rows", [2, 3, 5, 19, 100])
    def test_choose_plays_at_most_the_given_episodes(self, rows: int, episodes: int):
        num = num_rows(rows, episodes)
        world = World(np.random.default_rng(0).random((2, num, 2)), noise=0.2)
        choose(world.play, spaced_grid(max(num, 2))[:num], 2, episodes)
        played = world.episodes.sum(axis=1)
        assert (played <= episodes).all()
        assert (played >= 0.6 * episodes).all()
        assert (world.episodes >= 2).all()  # every row is played to choose and to confirm


def contrary(seed: int, obs: np.ndarray, lam: np.ndarray) -> np.ndarray:
    """Do for a preference what is best for the opposite one; the second seed does what is best."""
    del obs
    return ((1 - 2 * seed) * (lam[:, 1:] - lam[:, :1])).astype(np.float32)


def config_of(domain: str, **settings: Any) -> RunConfig:
    return override(default_config(domain, "mosac", "quick"), {"seeds": 2, "first_seed": 5} | settings)


class TestCalibrate:
    def test_calibrate_finds_the_known_map_of_each_seed(self):
        found = calibrate(config_of(ONE_STEP), contrary, 300, None, 2, episodes=1000)
        assert (found.step, found.seeds, len(found.preferences)) == (300, [5, 6], 100)
        np.testing.assert_allclose(found.asks[0], np.arange(99, -1, -1), atol=15)
        lam = found.preferences
        reward = lambda asked: (
            -np.square(np.stack([asked[:, 1] - asked[:, 0] - 1, asked[:, 1] - asked[:, 0] + 1], axis=1))
        )
        own, reached = (np.mean((reward(asked) * lam).sum(axis=1)) for asked in (lam, found.ask(0, lam)))
        best = np.mean((reward(lam[:, ::-1]) * lam).sum(axis=1))
        assert reached - own > 0.9 * (best - own)
        np.testing.assert_array_equal(found.asks[1], np.arange(100))
        assert found.environment_steps.tolist() == [found.episodes] * 2  # an episode is one step
        assert found.episodes <= 1000

    def test_parts_of_foreign_environments_change_nothing(self, monkeypatch: pytest.MonkeyPatch):
        whole = calibrate(config_of(ONE_STEP), contrary, 0, None, 2, episodes=40)
        monkeypatch.setattr(calibrating, "LANES_AT_ONCE", 7)
        assert calibrate(config_of(ONE_STEP), contrary, 0, None, 2, episodes=40).to_dict() == whole.to_dict()

    def test_calibrate_counts_the_steps_of_episodes_of_any_length(self):
        """A boat that never moves sails until the time limit."""
        still = lambda seed, obs, lam: np.zeros((len(obs), 2), np.float32)
        found = calibrate(config_of("DST2d", seeds=1), still, 0, None, 2, episodes=LEAST)
        assert found.environment_steps[0] > 10 * found.episodes
        np.testing.assert_array_equal(found.asks, [np.arange(KEPT)])

    def test_only_own_preferences_are_asked_for(self):
        own = np.array([[0.9, 0.1], [0.5, 0.5], [0.1, 0.9]])
        found = calibrate(config_of(ONE_STEP), contrary, 0, own, 2)
        np.testing.assert_array_equal(found.preferences, own)
        np.testing.assert_array_equal(found.asks, [[2, 1, 0], [0, 1, 2]])

    @pytest.mark.parametrize("episodes", [LEAST - 1, 0, 50.0, True, "100", None])
    def test_too_few_episodes_are_refused(self, episodes: Any):
        with pytest.raises(UserError, match=f"episodes must be a whole number of at least {LEAST}"):
            calibrate(config_of(ONE_STEP), contrary, 0, None, 2, episodes)

    def test_archives_and_single_preferences_need_no_calibration(self):
        with pytest.raises(UserError, match="pgmorl needs no calibration"):
            calibrate(default_config("DST2d", "pgmorl", "quick"), contrary, 0, None, 2)
        with pytest.raises(UserError, match="at least 2 preferences"):
            calibrate(config_of(ONE_STEP), contrary, 0, np.array([[0.5, 0.5]]), 2)


RUN = {**TINY, "checkpoint_seconds": NEVER, "steps": 400, "eval_period": 400, "parameters_period": 100, "first_seed": 3}


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("runs")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(pictures, "draw_pictures", lambda folder: [])
        cli.main(["train", "DST2d", *words(RUN), "--out", str(out), "--name", "ours", "--quiet"])
    return out / "ours"


class TestRun:
    @pytest.fixture
    def run(self, trained: Path, tmp_path: Path) -> Path:
        return shutil.copytree(trained, tmp_path / "run")

    def test_the_command_calibrate_stores_and_shows_its_result(self, run: Path, capsys: pytest.CaptureFixture[str]):
        cli.main(["calibrate", str(run), "--episodes", "24", "--quiet"])
        said = capsys.readouterr().out
        found = calibration.load(run / CALIBRATION)
        assert found is not None
        assert (found.step, found.seeds) == (400, [3, 4])
        summary = json.loads((run / "summary.json").read_text())
        assert summary["calibration_steps_per_seed"] == found.environment_steps.tolist()
        per_seed = summary["per_seed"]
        assert len(per_seed["UT"]) == len(per_seed["UT calibrated"]) == len(per_seed["UT best row"]) == 2
        assert str(run / CALIBRATION) in said
        assert "held out" in said
        agent = qpensieve.load(run)
        assert agent.calibration is not None
        assert agent.calibration.to_dict() == found.to_dict()
        assert agent.calibrate(24).to_dict() == found.to_dict()  # in Python the same

    def test_a_run_in_use_is_refused(self, run: Path, capsys: pytest.CaptureFixture[str]):
        held = lock(run)
        with pytest.raises(SystemExit):
            cli.main(["calibrate", str(run), "--quiet"])
        held.close()
        assert "is in use" in capsys.readouterr().err
        assert not (run / CALIBRATION).exists()

    @pytest.mark.parametrize(("words", "is_kept"), [(["--steps", "600"], True), (["--start-over"], False)])
    def test_a_resumed_run_keeps_its_calibration_but_its_tables_do_not(
        self, words: list[str], is_kept: bool, run: Path
    ):
        cli.main(["calibrate", str(run), "--episodes", "24", "--quiet"])
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(pictures, "draw_pictures", lambda folder: [])
            cli.main(["resume", str(run), *words, "--quiet"])
        assert (run / CALIBRATION).exists() == is_kept
        is_same_step = json.loads((run / "summary.json").read_text())["step"] == 400
        assert "--steps" not in words or not is_same_step
        assert "UT calibrated" not in json.loads((run / "summary.json").read_text())["per_seed"]
