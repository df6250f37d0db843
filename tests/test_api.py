"""Agents: learn, predict, evaluate, save, load."""

import contextlib
import itertools
import os
import shutil
import signal
from functools import partial
from pathlib import Path
from typing import Any, ClassVar

import gymnasium
import numpy as np
import pytest

import qpensieve
from qpensieve import MOSAC, Agent, QPensieve
from qpensieve.envs import name_for
from qpensieve.envs.registry import spec_of
from qpensieve.envs.replayed import SEED_BITS
from qpensieve.errors import UserError
from qpensieve.learning.streams import Purpose, derived_seed
from qpensieve.records.calibration import Calibration
from qpensieve.records.checkpoint import CheckpointError
from qpensieve.replay.log import ReplayLog
from qpensieve.report.pictures import PICTURES
from qpensieve.settings import flat
from qpensieve.train import run as runs
from qpensieve.train import session as sessions
from qpensieve.train.saved import SavedPolicies
from qpensieve.train.trainer import Trainer
from tests.envs import foreign
from tests.envs.foreign import PointMass
from tests.train.kill_run import POPULATION, TINY, assert_same_sessions, contents, no_space

SMALL: dict[str, Any] = {
    name: TINY[name] for name in ("block", "random_steps", "hidden", "batch_size", "num_snapshots")
} | {
    "updates_per_step": 1,
    "learning_rate_end": None,  # so that two calls of `learn` are one
    "push_after": 40,
    "push_period": 40,
    "replay_capacity": 120,  # one compiled program whatever the number of steps
}
LAM = np.array([[0.2, 0.8], [0.5, 0.5], [1.0, 0.0]])
OBS = np.random.default_rng(0).uniform(0, 11, (3, 2))


def small(**settings: Any) -> QPensieve:
    return QPensieve("DST2d", seeds=2, preset="quick", **(SMALL | settings))


def tiny_population(domain: str = "DST2d", **settings: Any) -> qpensieve.PGMORL:
    return qpensieve.PGMORL(domain, seeds=1, **POPULATION, **settings)


@pytest.fixture(scope="module")
def learned() -> QPensieve:
    agent = small()
    assert agent.learn(200) is agent
    return agent


@pytest.fixture(scope="module")
def young() -> QPensieve:
    agent = small()
    agent.learn(120)
    return agent


class TestLearn:
    def test_learn_takes_settings_of_preset_and_caller_and_counts_steps(self, learned: QPensieve):
        assert (learned.config.algo, learned.config.seeds) == ("qpensieve", 2)
        assert flat(learned.config.agent)["learning_rate"] == 6e-4  # quick's
        assert flat(learned.config.agent)["hidden"] == TINY["hidden"]
        assert learned.num_steps == 200
        assert (learned.session.arrays()["state.num_updates"] == 100).all()
        assert repr(learned).startswith("<QPensieve('DST2d', algo='qpensieve', seeds=")

    def test_learning_in_two_parts_equals_learning_at_once(self, learned: QPensieve):
        agent = small()
        before = agent.predict(OBS, LAM)
        assert_same_sessions(agent.learn(120).learn(80), learned)
        assert (before != agent.predict(OBS, LAM)).any()

    def test_learn_is_interrupted_between_two_blocks(self, learned: QPensieve, tmp_path: Path):
        """Within one, the replay would get ahead of the agents: what is saved then could not be loaded."""
        agent = small()
        trainer = agent.session
        assert isinstance(trainer, Trainer)
        place = trainer.place

        def press(collected: Any) -> Any:
            if trainer.step == 140:
                signal.raise_signal(signal.SIGINT)
            return place(collected)

        trainer.place = press  # pyright: ignore[reportAttributeAccessIssue]
        with pytest.raises(KeyboardInterrupt):
            agent.learn(200)
        assert agent.num_steps == 160
        again = qpensieve.load(agent.save(tmp_path / "agent"))
        assert_same_sessions(again.learn(40), learned)

    def test_learn_rounds_up_to_whole_blocks_and_refuses_other_types(self, tmp_path: Path, learned: QPensieve):
        agent = small()
        config = agent.config
        wrong: list[Any] = [1.5, np.nan, np.inf, -20, "100", True, None, 0, np.float32(20.5), np.array([40]), 40j]
        for total in wrong:
            with pytest.raises(ValueError, match="total_timesteps must be a whole number of at least 1, got"):
                agent.learn(total)
        assert agent.config == config
        number: Any = np.float32(181)
        with pytest.warns(UserWarning, match="181 steps are rounded up to 200, whole blocks of 20"):
            assert_same_sessions(agent.learn(number), learned)
        assert type(agent.config.steps) is int
        assert_same_sessions(qpensieve.load(agent.save(tmp_path)), learned)

    def test_learn_of_a_population_refuses_the_same(self):
        agent = tiny_population()
        block, config = agent.session.block, agent.config
        numbers: list[Any] = [block - 1, np.nan, "1000", block + 0.5]
        for wrong in numbers:
            with pytest.raises(ValueError, match=f"total_timesteps must be a whole number of at least {block}"):
                agent.learn(wrong)
        assert agent.config == config
        assert agent.learn(float(block) + 5).num_steps == block

    def test_learn_warns_where_nothing_was_learned(self):
        agent = small()
        with pytest.warns(UserWarning, match="nothing is learned in 40 steps: learning starts after 100 random ones"):
            agent.learn(40, progress_bar=True)
        agent.learn(80)  # no warning: it would be an error

    def test_steps_that_cannot_be_are_refused_though_learn_has_its_own(self):
        with pytest.raises(ValueError, match=r"steps must be .*, got 30"):
            small(steps=30, learning_rate_end=1e-5)

    def test_a_with_block_closes_the_agent_also_where_it_fails(self, monkeypatch: pytest.MonkeyPatch):
        closed: list[str] = []
        with contextlib.suppress(KeyError), small() as agent:
            monkeypatch.setattr(agent.session, "close", lambda: closed.append(agent.algo))
            raise KeyError
        assert closed == ["qpensieve"]


class TestPredict:
    def test_a_batch_is_its_observations_one_by_one(self, learned: QPensieve):
        batch = learned.predict(OBS, LAM, seed=1)
        for row in range(3):
            np.testing.assert_allclose(learned.predict(OBS[row], LAM[row], seed=1), batch[row], atol=1e-6)
        shared = learned.predict(OBS, LAM[1], seed=1)
        np.testing.assert_allclose(shared[1], batch[1], atol=1e-6)

    def test_predict_depends_on_preference_and_seed(self, learned: QPensieve):
        actions = learned.predict(OBS, LAM[0])
        assert (actions != learned.predict(OBS, LAM[2])).all()
        assert (actions != learned.predict(OBS, LAM[0], seed=1)).all()

    def test_predict_is_deterministic_unless_asked_for_a_sample(self, learned: QPensieve):
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
            (OBS, LAM[:2], 0, "preference must be one, or one for each of 3 observations, got 2"),
            (OBS[0], LAM, 0, "one for each of 1 observations, got 3"),
            (OBS, [0.2, 0.9], 0, r"preference must sum to 1, got 1\.1"),
            (OBS, None, 0, "treasure, time"),
            (OBS, LAM[0], 2, "seed must be a whole number from 0 to 1, got 2"),
            (OBS, LAM[0], True, "seed must be a whole number from 0 to 1, got True"),
            (np.zeros((0, 2)), LAM[0], 0, "obs must hold at least one observation"),
            (np.array([np.nan, 0.0]), LAM[0], 0, "obs must be finite, got nan"),
            ((OBS[0], {}), LAM[0], 0, "obs must be an array of numbers, got a tuple: .*reset\\(\\) returns a pair"),
            ("left", LAM[0], 0, "obs must be an array of numbers, got a str"),
        ],
    )
    def test_predict_says_what_is_wrong_with_its_input(
        self, obs: Any, lam: Any, seed: Any, complaint: str, learned: QPensieve
    ):
        with pytest.raises(ValueError, match=complaint):
            learned.predict(obs, lam, seed=seed)


def play(agent: Agent, env: gymnasium.Env, lam: np.ndarray, row: int) -> np.ndarray:
    """Return of an episode of a plain Gymnasium loop, from the start state of a row of the evaluation."""
    lane = np.random.SeedSequence(derived_seed(agent.config.first_seed, Purpose.EVALUATION, row), spawn_key=(0, 0))
    obs, _ = env.reset(seed=int(lane.generate_state(1)[0] & SEED_BITS))
    total, done = np.zeros(len(lam)), False
    while not done:
        obs, reward, terminated, truncated, _ = env.step(agent.predict(obs, lam))
        total += np.asarray(reward)
        done = terminated or truncated
    return total


POINT_MASS = "tests.envs.foreign:make_point_mass"


@pytest.fixture(scope="module")
def pushing() -> Agent:
    return QPensieve(POINT_MASS, seeds=2, preset="quick", **SMALL).learn(140)


class TestActionScale:
    """A foreign environment whose box is [-2, 4]."""

    def assert_a_plain_loop_scores_what_returns_says(self, agent: Agent) -> None:
        """Episodes start from (seed, preference row, episode)."""
        returns = agent.returns(LAM, episodes=2)
        for row in range(6):
            played = play(agent, PointMass(), LAM[row // 2], row)
            np.testing.assert_allclose(played, returns[0, row // 2, row % 2], 1e-3)

    def test_a_plain_loop_scores_what_returns_says(self, pushing: Agent):
        self.assert_a_plain_loop_scores_what_returns_says(pushing)

    def test_a_plain_loop_scores_what_returns_says_with_a_population(self):
        """One preference: several that the same policy answers would share its mean."""
        agent = tiny_population(POINT_MASS)
        agent.learn(2 * agent.session.block)
        returns = agent.returns(LAM[:1], episodes=2)
        for episode in range(2):
            np.testing.assert_allclose(play(agent, PointMass(), LAM[0], episode), returns[0, 0, episode], 1e-3)

    @pytest.mark.parametrize("deterministic", [True, False])
    def test_actions_are_points_of_the_box_and_the_old_ones_an_option(self, deterministic: bool, pushing: Agent):
        obs = np.random.default_rng(0).normal(0, 5, (50, 4))
        draw = lambda normalized: pushing.predict(
            obs, [0.5, 0.5], deterministic=deterministic, generator=np.random.default_rng(1), normalized=normalized
        )
        old, new = draw(True), draw(False)
        assert np.abs(old).max() <= 1
        np.testing.assert_allclose(new, foreign.LOW + (old + 1) / 2 * (foreign.HIGH - foreign.LOW), atol=1e-5)
        assert all(PointMass().action_space.contains(action) for action in new)

    def test_observations_may_have_the_shape_of_the_environment(self, pushing: Agent):
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


def test_returns_and_evaluate_take_given_preferences(learned: QPensieve):
    returns = learned.returns(LAM, episodes=2)
    assert returns.shape == (2, 3, 2, 2)
    expected = (returns.mean(axis=2) * LAM).sum(axis=2).mean(axis=1)
    np.testing.assert_allclose(learned.evaluate(LAM, episodes=2).ut, expected)
    np.testing.assert_array_equal(learned.returns([0.9, 0.1], 1), learned.returns([[0.9, 0.1]], 1))


class TestEnvironmentsWithoutAName:
    def test_a_class_or_function_that_can_be_imported_is_saved_by_its_name(self, tmp_path: Path):
        for source in (PointMass, foreign.make_point_mass):
            agent = QPensieve(source, seeds=2, preset="quick", **SMALL)
            assert agent.config.domain == f"tests.envs.foreign:{source.__name__}"
        assert_same_sessions(qpensieve.load(agent.save(tmp_path), trust=True), agent)

    def test_a_nameless_environment_trains_but_cannot_be_saved(self, tmp_path: Path):
        sources: list[Any] = [partial(PointMass), lambda: PointMass()]
        for source in sources:
            with pytest.warns(UserWarning, match=r"can be trained but not saved: .*pass its name, 'module:factory'"):
                agent = QPensieve(source, seeds=2, preset="quick", **SMALL)
            with pytest.raises(ValueError, match=r"must have a name to be saved, .* pass its name, 'module:factory'"):
                agent.save(tmp_path / "agent")
            with pytest.raises(ValueError, match="must have a name to be saved"):
                runs.start(tmp_path / "run", agent.config, runs.Options(quiet=True))
            if source is sources[0]:
                assert np.isfinite(agent.learn(120).returns(LAM, episodes=1)).all()
        assert list(tmp_path.iterdir()) == []

    def test_two_functions_of_one_name_are_two_environments(self):
        makers = [lambda kind=kind: kind() for kind in (PointMass, foreign.NoRewardSpace)]
        names = [name_for(make) for make in makers]
        assert [spec_of(name).num_objectives for name in names] == [2, 3]
        assert [name_for(make) for make in makers] == names


class TestEndlessEnvironments:
    SETTINGS: ClassVar[dict[str, Any]] = {"seeds": 2, "preset": "quick", "max_eval_steps": 30, **SMALL}

    def test_an_evaluation_ends_at_the_limit_with_the_returns_so_far_and_a_warning(self):
        agent = QPensieve(foreign.Endless, **self.SETTINGS)
        complaint = r"tests\.envs\.foreign:Endless: an episode .* did not end within 30 steps.* max_eval_steps"
        with pytest.warns(UserWarning, match=complaint) as said:
            returns = agent.returns(LAM, episodes=2)
        assert len({str(one.message) for one in said}) == 1  # Python shows equal warnings once
        assert (returns == -30).all()
        with pytest.warns(UserWarning, match=complaint):
            assert (agent.evaluate(LAM, episodes=1).ut == -30).all()


class TestSaveAndLoad:
    def test_the_loaded_agent_goes_on_exactly_as_one_never_saved(self, learned: QPensieve, tmp_path: Path):
        assert learned.save(tmp_path / "agent") == tmp_path / "agent"
        loaded = qpensieve.load(tmp_path / "agent")
        assert type(loaded) is QPensieve
        assert loaded.num_steps == 200
        assert loaded.config == learned.config
        assert_same_sessions(loaded, learned)
        np.testing.assert_array_equal(loaded.predict(OBS, LAM), learned.predict(OBS, LAM))
        assert_same_sessions(loaded.learn(100), small().learn(300))

    def test_a_save_that_fails_leaves_the_one_before_or_no_folder(
        self, learned: QPensieve, young: QPensieve, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ):
        folder = learned.save(tmp_path / "agent")

        monkeypatch.setattr(os, "fsync", no_space)
        for path in (folder, tmp_path / "other"):
            with pytest.raises(CheckpointError, match=r"cannot save the agent: .*No space"):
                young.save(path)
        monkeypatch.undo()
        assert list(tmp_path.iterdir()) == [folder]
        assert sorted(path.name for path in folder.iterdir()) == ["checkpoints", "config.json", "replay"]
        assert_same_sessions(qpensieve.load(folder), learned)

    def test_a_save_also_replaces_results_of_the_agent_that_it_replaces(
        self, learned: QPensieve, young: QPensieve, tmp_path: Path
    ):
        learned.save(tmp_path)
        runs.evaluate(tmp_path, lambda message: None)
        for picture in PICTURES:
            (tmp_path / f"{picture}.png").touch()
        assert {"evaluations.npz", "metrics.jsonl", "run.lock"} < {path.name for path in tmp_path.iterdir()}
        young.save(tmp_path)
        assert {path.name for path in tmp_path.iterdir()} == {"checkpoints", "config.json", "replay"}
        assert_same_sessions(qpensieve.load(tmp_path), young)

    def test_a_link_in_place_of_a_save_to_finish_is_not_followed(self, learned: QPensieve, tmp_path: Path):
        folder = learned.save(tmp_path / "saved")
        other = tmp_path / "other"
        (other / "checkpoints").mkdir(parents=True)
        (other / "parts.json").write_text('["checkpoints"]')
        (folder / ".tmp-ready").symlink_to(other)
        assert_same_sessions(qpensieve.load(folder), learned)
        assert sorted(path.name for path in other.iterdir()) == ["checkpoints", "parts.json"]

    @pytest.mark.parametrize(
        "files",
        [
            ["config.json"],
            ["config.json", "checkpoints/mine"],
            ["config.json", "checkpoints/step_000000200/arrays.npz", "replay/rows_0_200.npy"],
            ["checkpoints/best.pt"],
            ["replay/rows_0_200.npy"],
            ["notes.txt"],
            [".hidden"],
        ],
    )
    def test_a_save_touches_no_files_of_others(self, files: list[str], learned: QPensieve, tmp_path: Path):
        for name in files:
            (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
            (tmp_path / name).write_text('{"theirs": 1}')
        before = contents(tmp_path)
        with pytest.raises(
            FileExistsError, match=r"must be new, empty or hold an earlier save, but it holds something"
        ):
            learned.save(tmp_path)
        assert contents(tmp_path) == before

    @pytest.mark.parametrize(
        "extra", ["notes.txt", "checkpoints/mine.npz", "checkpoints/step_000000200/x", "replay/x", "parameters/x.npz"]
    )
    def test_an_earlier_save_beside_which_something_else_lies_is_not_touched(
        self, extra: str, learned: QPensieve, tmp_path: Path
    ):
        learned.save(tmp_path)
        (tmp_path / extra).parent.mkdir(exist_ok=True)
        (tmp_path / extra).write_text("theirs")
        before = contents(tmp_path)
        with pytest.raises(FileExistsError, match="choose another folder"):
            learned.save(tmp_path)
        assert contents(tmp_path) == before

    def test_a_run_folder_is_not_touched(self, learned: QPensieve, tmp_path: Path):
        runs.start(tmp_path / "run", learned.config, runs.Options(quiet=True)).close()
        before = contents(tmp_path)
        with pytest.raises(FileExistsError, match=r"but it holds a run \(config\.json, environment\.json, run\.lock\)"):
            learned.save(tmp_path / "run")
        assert contents(tmp_path) == before
        with pytest.raises(CheckpointError, match="holds no checkpoint yet"):
            qpensieve.load(tmp_path / "run")

    @pytest.mark.parametrize("number", range(6))
    def test_a_save_in_which_one_rename_fails_leaves_the_agent_before(
        self, number: int, learned: QPensieve, young: QPensieve, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ):
        """`tests/contracts/test_saving.py` kills a save at every moment."""
        learned.save(tmp_path)
        rename, count = Path.rename, itertools.count()
        fail_once = lambda path, target: no_space() if next(count) == number else rename(path, target)
        monkeypatch.setattr(Path, "rename", fail_once)
        with pytest.raises(CheckpointError):
            young.save(tmp_path)
        monkeypatch.undo()
        assert SavedPolicies(tmp_path).steps == [learned.num_steps]
        assert_same_sessions(qpensieve.load(tmp_path), learned)

    def test_an_agent_that_has_not_learned_is_evaluated_though_its_schedules_have_no_length_yet(self, tmp_path: Path):
        few: Any = {"hidden": 8, "full_eval_stride": 50, "full_eval_episodes": 1, "eval_stride": 50}
        with MOSAC("DST2d", preset="robust", seeds=1, **few) as agent:
            agent.save(tmp_path)
        runs.evaluate(tmp_path, lambda message: None)
        assert (tmp_path / "evaluations.npz").exists()

    def test_a_run_whose_replay_is_lost_predicts_evaluates_and_learns_on(self, learned: QPensieve, tmp_path: Path):
        run = runs.start(tmp_path / "run", learned.config, runs.Options(quiet=True, final_evaluation=False))
        run.train()
        run.close()
        assert_same_sessions(qpensieve.load(tmp_path / "run"), learned)
        shutil.rmtree(tmp_path / "run" / "replay")
        with pytest.warns(UserWarning, match=r"is loaded without its replay .*is missing") as said:
            agent = qpensieve.load(tmp_path / "run")
        assert len(said) == 1
        assert agent.num_steps == learned.num_steps
        obs, lam = np.zeros(2), [0.5, 0.5]
        np.testing.assert_array_equal(agent.predict(obs, lam), learned.predict(obs, lam))
        np.testing.assert_array_equal(agent.returns(lam, 1), learned.returns(lam, 1))
        before = agent.session.parameters()
        agent.learn(agent.config.random_steps)  # fills the replay, with actions of the policy
        assert all(np.array_equal(value, before[name]) for name, value in agent.session.parameters().items())
        agent.learn(2 * agent.config.block)
        assert any(not np.array_equal(value, before[name]) for name, value in agent.session.parameters().items())

    def test_a_run_that_replaces_its_checkpoints_meanwhile_is_loaded_with_its_replay(
        self, learned: QPensieve, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ):
        learned.save(tmp_path)
        found = iter(["a file is missing"])  # as of a checkpoint that is gone by now
        monkeypatch.setattr(ReplayLog, "verify", lambda *_: next(found, None))
        assert_same_sessions(qpensieve.load(tmp_path), learned)  # warnings are errors


@pytest.mark.filterwarnings("ignore:.*precision lowered by casting:UserWarning")  # MO-Gymnasium's own
@pytest.mark.parametrize(
    "domain",
    [pytest.param("mo-mountaincarcontinuous-v0", marks=pytest.mark.slow)],
)
def test_a_gymnasium_id_or_a_factory_works_in_place_of_a_domain(domain: str, tmp_path: Path):
    agent = QPensieve(domain, seeds=2, preset="quick", **SMALL).learn(140)
    d, obs_size = agent.session.spec.num_objectives, agent.session.spec.obs_size
    preference = np.full(d, 1 / d)
    assert np.abs(agent.predict(np.zeros(obs_size), preference, normalized=True)).max() <= 1
    assert agent.returns([preference], episodes=1).shape == (2, 1, 1, d)
    agent.save(tmp_path)
    assert_same_sessions(qpensieve.load(tmp_path, trust=True), agent)
    agent.close()


class TestCalibrate:
    """`backwards` is a calibration that asks for the opposite of every preference."""

    @pytest.fixture
    def agent(self, learned: QPensieve, tmp_path: Path) -> QPensieve:
        learned.save(tmp_path / "first")
        return QPensieve.load(tmp_path / "first")

    def backwards(self, step: int) -> Calibration:
        lam = np.array(qpensieve.preferences.test_table(2))
        rows = np.tile(np.arange(99, -1, -1), (2, 1))
        return Calibration(step, [0, 1], lam, rows, np.ones((2, 100)), 98, np.array([700, 800]))

    def test_a_calibrated_agent_predicts_under_the_asked_preference_on_request(self, agent: QPensieve):
        obs, table = np.zeros(2), np.array(qpensieve.preferences.test_table(2))
        lam = table[10]
        with pytest.raises(UserError, match=r"call agent\.calibrate\(\) first"):
            agent.predict(obs, lam, calibrated=True)
        before, other = agent.predict(obs, table[10]), agent.predict(obs, table[89])
        agent.calibration = self.backwards(agent.num_steps)
        np.testing.assert_array_equal(agent.predict(obs, lam), before)
        np.testing.assert_array_equal(agent.predict(obs, lam, calibrated=True), other)
        assert not np.array_equal(before, other)

    def test_evaluate_scores_the_asked_preferences(self, agent: QPensieve):
        agent.calibration = self.backwards(agent.num_steps)
        lam = np.array(qpensieve.preferences.test_table(2))
        summary, returns = agent.evaluate(episodes=1), agent.returns(lam, 1).mean(axis=2)
        np.testing.assert_allclose(summary.ut, (returns * lam).sum(axis=2).mean(axis=1))
        assert summary.calibrated is not None
        np.testing.assert_allclose(summary.calibrated, (returns[:, ::-1] * lam).sum(axis=2).mean(axis=1))
        np.testing.assert_allclose(summary.best_row, (returns @ lam.T).max(axis=1).mean(axis=1))

    def test_a_calibration_is_saved_loaded_and_out_of_date_after_learning(self, agent: QPensieve, tmp_path: Path):
        agent.calibration = self.backwards(agent.num_steps)
        agent.save(tmp_path / "second")
        loaded = QPensieve.load(tmp_path / "second")
        assert loaded.calibration is not None
        assert loaded.calibration.to_dict() == agent.calibration.to_dict()
        loaded.learn(loaded.session.block)
        with pytest.raises(UserError, match="the calibration is out of date: it is of step"):
            loaded.predict(np.zeros(2), [0.5, 0.5], calibrated=True)
        assert loaded.evaluate([[0.5, 0.5]], episodes=1).calibrated is None
        loaded.calibration = None
        loaded.save(tmp_path / "second")
        assert QPensieve.load(tmp_path / "second").calibration is None


class TestFront:
    def test_rows_of_a_front_are_the_means_of_returns(self, learned: QPensieve):
        lam = np.array([[0.9, 0.1], [0.1, 0.9]])
        front = learned.front(seed=1, preferences=lam, episodes=2)
        np.testing.assert_array_equal(front.mean, learned.returns(lam, 2)[1].mean(axis=1))
        assert front.objectives == ("treasure", "time")

    def test_a_choice_is_a_row_of_the_front(self, learned: QPensieve):
        choice = learned.choose("time", episodes=1)
        front = learned.front(episodes=1)
        assert choice.returns["time"] == front.mean[:, 1].max()

    def test_the_spread_of_a_populations_front_is_that_of_single_episodes(self):
        """Rows that one policy answers share a mean; the spread of such means was shown, which is smaller."""
        agent = tiny_population("Hopper2d")
        lam = qpensieve.preferences.spaced_grid(9)
        front = agent.front(preferences=lam, episodes=3)
        np.testing.assert_array_equal(front.mean, agent.returns(lam, 3)[0].mean(axis=1))
        assert len(np.unique(front.mean, axis=0)) < len(lam)
        returns = sessions.play(agent.session.predictor(), agent.config, agent.num_steps, lam, 3)
        np.testing.assert_array_equal(front.spread, returns[0].std(axis=1))
        assert front.spread.mean() > 1.2 * agent.returns(lam, 3)[0].std(axis=1).mean()
        agent.close()


class TestLoadOfAClass:
    @pytest.fixture(scope="class")
    @classmethod
    def saved(cls, learned: QPensieve, tmp_path_factory: pytest.TempPathFactory) -> Path:
        return learned.save(tmp_path_factory.mktemp("agents") / "agent")

    def test_a_class_loads_agents_of_its_own_method(self, saved: Path, learned: QPensieve):
        class Mine(QPensieve):
            """A user's class keeps its type."""

        for kind, type_ in ((QPensieve, QPensieve), (Agent, QPensieve), (Mine, Mine)):
            agent = kind.load(saved)
            assert type(agent) is type_
            assert_same_sessions(agent, learned)

    @pytest.mark.parametrize("kind", [MOSAC, qpensieve.PGMORL, qpensieve.SAC])
    def test_another_method_is_refused_with_the_class_to_use(self, kind: type[Agent], saved: Path):
        said = f"holds an agent of qpensieve, but {kind.__name__} is {kind.algo}: use qpensieve.QPensieve.load or"
        with pytest.raises(ValueError, match=said):
            kind.load(saved)


class TestPlotFront:
    LAM = np.array([[1.0, 0.0], [0.5, 0.5], [0.0, 1.0]])

    def test_plot_front_draws_the_means_of_one_seed_or_of_all(self, learned: QPensieve, tmp_path: Path):
        figure = learned.plot_front("treasure", 1, 1, self.LAM, 1, tmp_path / "front.png")
        axes = figure.axes[0]
        drawn = np.concatenate([np.asarray(one.get_offsets()) for one in axes.collections])
        means = learned.returns(self.LAM, 1)[1].mean(axis=1)
        assert sorted(map(tuple, drawn)) == sorted(map(tuple, means))
        assert axes.get_xlabel() == "treasure (value)"
        assert (tmp_path / "front.png").read_bytes().startswith(b"\x89PNG")
        assert figure.get_suptitle() == "DST2d · qpensieve · step 200 · seed 1"
        whole = learned.plot_front(seed=None, preferences=self.LAM, episodes=1)
        assert sum(len(np.asarray(one.get_offsets())) for one in whole.axes[0].collections) == 6

    @pytest.mark.parametrize(
        ("asked", "complaint"),
        [
            ({"x": "speed"}, "objective must be one of treasure .0., time .1., got 'speed'"),
            ({"path": "front.txt"}, r"the name of a picture must end in .png, .pdf, .* got front.txt"),
            ({"seed": 7}, "seed must be a whole number from 0 to 1, got 7"),
        ],
    )
    def test_plot_front_refuses_before_it_evaluates(
        self, asked: dict[str, Any], complaint: str, learned: QPensieve, monkeypatch: pytest.MonkeyPatch
    ):
        monkeypatch.setattr(learned, "returns", lambda *_: pytest.fail("evaluated"))
        with pytest.raises(ValueError, match=complaint):
            learned.plot_front(**asked)
