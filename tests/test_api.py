"""Agents: learn, predict, evaluate, save, load."""

import errno
import json
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import gymnasium
import numpy as np
import pytest

import qpensieve
from qpensieve import MOSAC, Agent, QPensieve
from qpensieve.envs.history import episode_seeds
from qpensieve.learning.streams import Purpose, derived_seed
from qpensieve.records.checkpoint import CheckpointError
from qpensieve.settings import flat
from qpensieve.train import run as runs
from qpensieve.train.trainer import Trainer
from tests.envs import foreign
from tests.envs.foreign import PointMass
from tests.train.kill_run import TINY, share_learners

SMALL: dict[str, Any] = {
    name: TINY[name] for name in ("block", "random_steps", "hidden", "batch_size", "num_snapshots")
} | {
    "push_after": 40,
    "push_period": 40,
}
LAM = np.array([[0.2, 0.8], [0.5, 0.5], [1.0, 0.0]])
OBS = np.random.default_rng(0).uniform(0, 11, (3, 2))


@pytest.fixture(scope="module", autouse=True)
def _shared_learners() -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        share_learners(patch)
        yield


def small(**settings: Any) -> QPensieve:
    return QPensieve("DST2d", seeds=2, preset="quick", **(SMALL | settings))


def tiny_population(domain: Any = "DST2d") -> qpensieve.PGMORL:
    sizes = {"divisions": 2, "rollout_steps": 16, "num_lanes": 2, "minibatches": 2, "epochs": 2, "hidden": 8}
    return qpensieve.PGMORL(domain, seeds=1, steps=960, warmup_iterations=2, generation_iterations=1, **sizes)


def everything(agent: Agent) -> dict[str, bytes]:
    """All that learning changes, as bytes."""
    trainer = agent.session
    assert isinstance(trainer, Trainer)
    arrays = trainer.arrays() | {"replay": trainer.replay_rows()[0]}
    return {name: value.tobytes() for name, value in arrays.items()}


def assert_same(agent: Agent, other: Agent) -> None:
    ours, theirs = everything(agent), everything(other)
    assert ours.keys() == theirs.keys()
    assert [name for name in ours if ours[name] != theirs[name]] == []


@pytest.fixture(scope="module")
def learned() -> QPensieve:
    agent = small()
    assert agent.learn(200) is agent
    return agent


class TestLearn:
    def test_takes_the_presets_settings_and_those_given(self, learned: QPensieve):
        assert (learned.config.algo, learned.config.seeds) == ("qpensieve", 2)
        assert flat(learned.config.agent)["learning_rate"] == 1e-3  # quick's
        assert flat(learned.config.agent)["hidden"] == TINY["hidden"]

    def test_counts_steps_from_where_it_was(self, learned: QPensieve):
        assert learned.num_steps == 200
        assert (learned.session.arrays()["state.num_updates"] == 100).all()

    def test_in_two_parts_is_the_same_as_in_one(self, learned: QPensieve):
        agent = small().learn(120).learn(80)
        assert_same(agent, learned)

    def test_changes_what_is_predicted(self, learned: QPensieve):
        before = small().predict(OBS, LAM)
        assert (before != learned.predict(OBS, LAM)).any()

    def test_refuses_a_number_of_steps_that_is_not_whole_blocks(self, learned: QPensieve):
        with pytest.raises(ValueError, match=r"steps must be a multiple of block \(20\), got 230; the nearest is"):
            learned.learn(30)
        assert learned.num_steps == 200
        assert learned.config.steps == 200

    def test_shows_its_progress_where_asked(self, capsys: pytest.CaptureFixture[str]):
        small().learn(40, progress_bar=True)
        assert "Traceback" not in capsys.readouterr().err

    def test_unknown_settings_name_near_ones(self):
        with pytest.raises(ValueError, match="unknown setting 'num_snapshot'; use one of: num_snapshots"):
            QPensieve("DST2d", num_snapshot=3)

    def test_unknown_domains_name_near_ones(self):
        with pytest.raises(ValueError, match=r"unknown domain 'Hoper2d'; did you mean .*Hopper2d"):
            QPensieve("Hoper2d")


class TestPredict:
    @pytest.mark.parametrize(
        ("obs", "lam", "shape"),
        [(OBS[0], LAM[0], (2,)), (OBS, LAM[0], (3, 2)), (OBS, LAM, (3, 2)), (OBS[:1], LAM[:1], (1, 2))],
    )
    def test_one_or_many_observations_under_one_or_many_preferences(
        self, obs: np.ndarray, lam: np.ndarray, shape: tuple[int, ...], learned: QPensieve
    ):
        action = learned.predict(obs, lam)
        assert action.shape == shape
        assert (np.abs(action) <= 1).all()

    def test_a_batch_is_its_observations_one_by_one(self, learned: QPensieve):
        batch = learned.predict(OBS, LAM, seed=1)
        for row in range(3):
            np.testing.assert_allclose(learned.predict(OBS[row], LAM[row], seed=1), batch[row], atol=1e-6)
        shared = learned.predict(OBS, LAM[1], seed=1)
        np.testing.assert_allclose(shared[1], batch[1], atol=1e-6)

    def test_preference_and_seed_matter(self, learned: QPensieve):
        actions = learned.predict(OBS, LAM[0])
        assert (actions != learned.predict(OBS, LAM[2])).all()
        assert (actions != learned.predict(OBS, LAM[0], seed=1)).all()

    def test_a_preference_may_be_a_list(self, learned: QPensieve):
        np.testing.assert_array_equal(learned.predict(OBS, [0.2, 0.8]), learned.predict(OBS, LAM[0]))

    def test_is_what_the_device_and_so_the_evaluation_does(self, learned: QPensieve):
        obs, lam = np.tile(OBS.astype(np.float32), (2, 1, 1)), np.tile(LAM.astype(np.float32), (2, 1, 1))
        assert isinstance(learned.session, Trainer)
        on_device = learned.session.act(obs, lam)
        for seed in range(2):
            np.testing.assert_allclose(learned.predict(OBS, LAM, seed=seed), on_device[seed], atol=1e-5)

    def test_is_deterministic_unless_asked_for_a_sample(self, learned: QPensieve):
        np.testing.assert_array_equal(learned.predict(OBS, LAM), learned.predict(OBS, LAM))
        draw = lambda seed: learned.predict(OBS, LAM, deterministic=False, generator=np.random.default_rng(seed))
        np.testing.assert_array_equal(draw(1), draw(1))
        assert (draw(1) != draw(2)).all()
        assert (learned.predict(OBS, LAM, deterministic=False) != learned.predict(OBS, LAM)).all()
        assert (np.abs(draw(1)) <= 1).all()

    @pytest.mark.parametrize(
        ("obs", "lam", "seed", "complaint"),
        [
            (np.zeros(3), LAM[0], 0, r"obs must have shape \(2,\) or \(n, 2\), got \(3,\)"),
            (np.zeros((4, 1)), LAM[0], 0, r"obs must have shape \(2,\) or \(n, 2\), got \(4, 1\)"),
            (np.zeros((2, 3, 2)), LAM[0], 0, r"obs must have shape .*, got \(2, 3, 2\)"),
            (OBS, LAM[:2], 0, "preference must be one, or one for each of 3 observations, got 2"),
            (OBS[0], LAM, 0, "one for each of 1 observations, got 3"),
            (OBS, [0.2, 0.3, 0.5], 0, "preference must have 2 entries, one per objective, got 3"),
            (OBS, [0.2, 0.9], 0, r"preference must sum to 1, got 1\.1"),
            (OBS, [-0.5, 1.5], 0, "preference entries must be 0 or more, got -0.5 at index 0"),
            (OBS, [np.nan, 1.0], 0, "preference entries must be finite, got nan"),
            (OBS, LAM[0], 2, "seed must be from 0 to 1, got 2"),
            (OBS, LAM[0], -1, "seed must be from 0 to 1, got -1"),
        ],
    )
    def test_says_what_is_wrong_with_its_input(
        self, obs: np.ndarray, lam: Any, seed: int, complaint: str, learned: QPensieve
    ):
        with pytest.raises(ValueError, match=complaint):
            learned.predict(obs, lam, seed=seed)


def play(agent: Agent, env: gymnasium.Env, lam: np.ndarray, row: int) -> np.ndarray:
    """Return of an episode of a plain Gymnasium loop, from the start state of a row of the evaluation."""
    lane = np.random.SeedSequence(derived_seed(agent.config.first_seed, Purpose.EVALUATION, row), spawn_key=(0, 0))
    obs, _ = env.reset(seed=int(episode_seeds(np.array([0]), lambda _: lane)[0]))
    total, done = np.zeros(len(lam)), False
    while not done:
        obs, reward, terminated, truncated, _ = env.step(agent.predict(obs, lam))
        total += np.asarray(reward)
        done = terminated or truncated
    return total


POINT_MASS = "tests.envs.foreign:make_point_mass"


@pytest.fixture(scope="module")
def pushing() -> QPensieve:
    return QPensieve(POINT_MASS, seeds=2, preset="quick", **SMALL).learn(140)


class TestActionScale:
    """A foreign environment whose box is [-2, 4]."""

    def assert_a_plain_loop_scores_what_returns_says(self, agent: Agent) -> None:
        returns = agent.returns(LAM, episodes=2)
        for row in range(6):
            np.testing.assert_allclose(play(agent, PointMass(), LAM[row // 2], row), returns[0, row // 2, row % 2], 1e-3)

    def test_a_plain_loop_scores_what_returns_says(self, pushing: QPensieve):
        self.assert_a_plain_loop_scores_what_returns_says(pushing)

    def test_a_plain_loop_scores_what_returns_says_with_a_population(self):
        agent = tiny_population(POINT_MASS)
        self.assert_a_plain_loop_scores_what_returns_says(agent.learn(2 * agent.session.block))

    @pytest.mark.parametrize("deterministic", [True, False])
    def test_actions_are_points_of_the_box_and_the_old_ones_an_option(self, deterministic: bool, pushing: QPensieve):
        obs = np.random.default_rng(0).normal(0, 5, (50, 4))
        draw = lambda normalized: pushing.predict(
            obs, [0.5, 0.5], deterministic=deterministic, generator=np.random.default_rng(1), normalized=normalized
        )
        old, new = draw(True), draw(False)
        assert np.abs(old).max() <= 1
        np.testing.assert_allclose(new, foreign.LOW + (old + 1) / 2 * (foreign.HIGH - foreign.LOW), atol=1e-5)
        assert all(PointMass().action_space.contains(action) for action in new)

    def test_observations_may_have_the_shape_of_the_environment(self, pushing: QPensieve):
        obs = np.random.default_rng(0).normal(size=(3, 2, 2))
        flat = pushing.predict(obs.reshape(3, 4), LAM)
        np.testing.assert_array_equal(pushing.predict(obs, LAM), flat)
        np.testing.assert_allclose(pushing.predict(obs[1], LAM[1]), flat[1], atol=1e-6)

    def test_discrete_actions_are_integers(self):
        settings: dict[str, Any] = {name: SMALL[name] for name in ("block", "random_steps", "batch_size")}
        agent = qpensieve.EnvelopeDQN("DeepSeaTreasure", seeds=1, preset="quick", **settings)
        one, many = agent.predict(np.zeros(2), [0.5, 0.5]), agent.predict(np.zeros((3, 2)), [0.5, 0.5])
        assert gymnasium.spaces.Discrete(4).contains(one)
        assert many.tolist() == [one] * 3
        assert np.issubdtype(many.dtype, np.integer)


class TestEvaluate:
    def test_scores_every_seed_on_the_test_table(self, learned: QPensieve):
        scores = learned.evaluate(episodes=1)
        assert scores.ut.shape == (2,)
        assert scores.hv is not None
        assert scores.correlation.shape == (2, 2)

    def test_takes_preferences_of_ones_own(self, learned: QPensieve):
        returns = learned.returns(LAM, episodes=2)
        assert returns.shape == (2, 3, 2, 2)
        expected = (returns.mean(axis=2) * LAM).sum(axis=2).mean(axis=1)
        np.testing.assert_allclose(learned.evaluate(LAM, episodes=2).ut, expected)
        with pytest.raises(ValueError, match="preference must have 2 entries"):
            learned.evaluate([[0.2, 0.3, 0.5]])


class TestSaveAndLoad:
    def test_the_loaded_agent_goes_on_exactly_as_one_never_saved(self, learned: QPensieve, tmp_path: Path):
        assert learned.save(tmp_path / "agent") == tmp_path / "agent"
        loaded = qpensieve.load(tmp_path / "agent")
        assert type(loaded) is QPensieve
        assert loaded.num_steps == 200
        assert loaded.config == learned.config
        assert_same(loaded, learned)
        np.testing.assert_array_equal(loaded.predict(OBS, LAM), learned.predict(OBS, LAM))
        assert_same(loaded.learn(100), small().learn(300))

    @pytest.mark.slow
    def test_a_second_save_replaces_the_first_even_by_a_younger_agent(self, learned: QPensieve, tmp_path: Path):
        learned.save(tmp_path)
        young = small().learn(120)
        young.save(tmp_path)
        assert_same(qpensieve.load(tmp_path), young)

    def test_a_save_that_fails_leaves_the_one_before(
        self, learned: QPensieve, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ):
        learned.save(tmp_path)
        young = small().learn(120)

        def no_space(*_: Any) -> None:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

        monkeypatch.setattr(os, "fsync", no_space)
        with pytest.raises(CheckpointError, match=r"cannot save the agent: .*No space"):
            young.save(tmp_path)
        monkeypatch.undo()
        assert sorted(path.name for path in tmp_path.iterdir()) == ["checkpoints", "config.json", "replay"]
        assert_same(qpensieve.load(tmp_path), learned)

    def test_a_new_agent_can_be_saved_too(self, tmp_path: Path):
        agent = small()
        agent.save(tmp_path)
        assert_same(qpensieve.load(tmp_path).learn(120), small().learn(120))

    def test_a_replay_that_has_wrapped_around_is_saved_whole(self, tmp_path: Path):
        agent = small(replay_capacity=160).learn(240)
        agent.save(tmp_path)
        assert_same(qpensieve.load(tmp_path), agent)

    @pytest.mark.slow
    def test_mosac_comes_back_as_mosac(self, tmp_path: Path):
        settings: dict[str, Any] = {name: SMALL[name] for name in ("block", "random_steps", "hidden", "batch_size")}
        agent = MOSAC("DST2d", seeds=1, preset="quick", **settings).learn(140)
        agent.save(tmp_path)
        loaded = qpensieve.load(tmp_path)
        assert type(loaded) is MOSAC
        assert_same(loaded, agent)

    def test_a_runs_folder_can_be_loaded(self, learned: QPensieve, tmp_path: Path):
        run = runs.start(tmp_path / "run", learned.config, runs.Options(quiet=True, final_evaluation=False))
        run.train()
        run.close()
        assert_same(qpensieve.load(tmp_path / "run"), learned)

    def test_a_run_without_its_replay_is_loaded_with_a_warning(self, tmp_path: Path):
        config = small(keep_replay="off").config
        run = runs.start(tmp_path / "run", config, runs.Options(quiet=True, final_evaluation=False))
        run.train()
        run.close()
        with pytest.warns(UserWarning, match="has no replay"):
            agent = qpensieve.load(tmp_path / "run")
        assert agent.learn(200).num_steps == 300

    def test_what_is_no_agent_is_refused(self, tmp_path: Path):
        with pytest.raises(FileNotFoundError, match="is neither a saved agent nor a run folder"):
            qpensieve.load(tmp_path / "nowhere")

    def test_a_run_that_has_no_checkpoint_yet_says_so(self, learned: QPensieve, tmp_path: Path):
        run = runs.start(tmp_path / "run", learned.config, runs.Options(quiet=True))
        run.close()
        with pytest.raises(CheckpointError, match="holds no checkpoint yet"):
            qpensieve.load(tmp_path / "run")

    def test_another_configuration_is_named(self, learned: QPensieve, tmp_path: Path):
        learned.save(tmp_path)
        values = json.loads((tmp_path / "config.json").read_text())
        (tmp_path / "config.json").write_text(json.dumps(values | {"seeds": 3}))
        with pytest.raises(CheckpointError, match="seeds was 2, is 3"):
            qpensieve.load(tmp_path)


@pytest.mark.filterwarnings("ignore:.*precision lowered by casting:UserWarning")  # MO-Gymnasium's own
@pytest.mark.parametrize(
    "domain",
    [pytest.param("mo-mountaincarcontinuous-v0", marks=pytest.mark.slow), "tests.envs.foreign:make_point_mass"],
)
def test_a_gymnasium_id_or_a_factory_works_in_place_of_a_domain(domain: str, tmp_path: Path):
    agent = QPensieve(domain, seeds=2, preset="quick", **SMALL).learn(140)
    d, obs_size = agent.session.spec.num_objectives, agent.session.spec.obs_size
    preference = np.full(d, 1 / d)
    assert np.abs(agent.predict(np.zeros(obs_size), preference)).max() <= 1
    assert agent.returns([preference], episodes=1).shape == (2, 1, 1, d)
    agent.save(tmp_path)
    assert_same(qpensieve.load(tmp_path), agent)
    agent.close()
