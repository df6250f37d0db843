"""Every method through the one loop: stopped and resumed it ends the same; learned, saved, loaded, asked to act."""

from dataclasses import fields
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import qpensieve
from qpensieve.algos.hybrid_sac import CASES
from qpensieve.config import (
    RunConfig,
    default_config,
    override,
)
from qpensieve.envs import get_domain
from qpensieve.envs.deep_sea import FRONT
from qpensieve.learning.losses import flatten
from qpensieve.methods import make_algorithm
from qpensieve.records import evaluations
from qpensieve.records.folder import EVALUATIONS
from qpensieve.report.summary import format_summary, summarize_run
from qpensieve.settings import flat
from qpensieve.train import run as runs
from qpensieve.train.run_loop import Options
from qpensieve.train.trainer import Trainer
from tests.train.kill_run import NEVER, TINY, assert_same_run, complete, refuse, stop_at

QUIET = Options(quiet=True)
ROOMS = "tests.envs.foreign:Corridor"
OWN: dict[str, dict[str, Any]] = {
    "sac": {"preferences": ("0.9,0.1", "0.5,0.5", "0.2,0.8")},
    "hybrid-sac": {"preferences": ("0.9,0.1", "0.8,0.2"), "switch_after": 100},
    "cnder": {},
    "envelope": {"num_preferences": 4, "bins": 5, "width_factors": (4, 4), "target_period": 30},
}
METHODS = tuple(OWN)
FEW = [pytest.param(algo, marks=[] if algo == "cnder" else pytest.mark.slow) for algo in METHODS]
"""CN-DER, which has the most to lose, in the default suite; all of them among the slow tests."""
SOME = [pytest.param(algo, marks=[] if algo in ("cnder", "envelope") else pytest.mark.slow) for algo in METHODS]
"""Also Envelope, whose replay has priorities and discrete rows."""


def tiny(algo: str, domain: str = "DST2d", **changes: Any) -> RunConfig:
    config = default_config(domain, algo)
    known = {field.name for field in fields(RunConfig)} | flat(config.agent).keys()
    small = {name: value for name, value in TINY.items() if name in known}
    # A replay of 120 in 600 steps: rows are overwritten, traces are moved and dropped.
    capacity = 120 if algo == "cnder" else TINY["replay_capacity"]
    wanted = {**small, "replay_capacity": capacity, "checkpoint_seconds": NEVER, **OWN[algo], **changes}
    return override(config, wanted)


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Any:
    """Algorithm -> its run that was never stopped, made once."""
    out = tmp_path_factory.mktemp("whole")

    def make(algo: str) -> Path:
        if not (out / algo).exists():
            complete(runs.start(out / algo, tiny(algo), QUIET))
        return out / algo

    return make


@pytest.mark.parametrize("algo", SOME)
@pytest.mark.parametrize("step", [pytest.param(80, marks=pytest.mark.slow), 340])
def test_a_run_stopped_and_resumed_ends_as_if_it_never_had_been(algo: str, step: int, whole: Any, tmp_path: Path):
    """Before and after learning began; with SIGINT, whose handling ends in the same checkpoint as any other."""
    run = runs.start(tmp_path / "run", tiny(algo), QUIET)
    stop_at(run, step)
    resumed = runs.resume(tmp_path / "run", QUIET, refuse)
    assert resumed.session.step == step
    complete(resumed)
    assert_same_run(tmp_path / "run", whole(algo))


@pytest.mark.parametrize("algo", SOME)
def test_the_summary_counts_every_environment_step(algo: str, whole: Any):
    folder = whole(algo)
    summary = summarize_run(folder)
    lanes = {"sac": 3, "hybrid-sac": 4}.get(algo, 1)
    assert summary["environment_steps_per_seed"] == 600 * lanes
    table = evaluations.load(folder / EVALUATIONS)
    own = {"sac": 3, "hybrid-sac": 2}.get(algo, 100)
    assert table.full_returns.shape == (1, 2, own, 10, 2)
    ceilings = FRONT.ceilings(table.full_preferences, np.array([0.0, -50.0]))
    assert max(summary["per_seed"]["UT"]) <= ceilings.utility + 1e-6


@pytest.mark.parametrize("algo", FEW)
def test_a_seed_does_not_depend_on_the_others(algo: str, monkeypatch: pytest.MonkeyPatch):
    """One compiled program: seed 4 is the second in both trainers, the first differs."""
    one = Trainer(tiny(algo, first_seed=3))
    monkeypatch.setattr(RunConfig, "seed_list", property(lambda self: [8, 4]))
    other = Trainer(tiny(algo))
    for _ in range(10):
        one.advance()
        other.advance()
    (first, ours), (others_first, theirs) = (np.split(trainer.newest_flat(), 2) for trainer in (one, other))
    np.testing.assert_array_equal(ours, theirs)
    assert (first != others_first).any()


@pytest.mark.parametrize("algo", METHODS)
def test_the_host_acts_as_the_device_does(algo: str):
    config = tiny(algo)
    algorithm, draws, num = make_algorithm(algo, config.agent, get_domain("DST2d").spec), np.random.default_rng(0), 3
    like = jax.eval_shape(jax.vmap(algorithm.init), jax.random.split(jax.random.key(0), num), np.zeros((num, 2)))
    state = jax.tree.map(lambda leaf: jnp.asarray(draws.uniform(-0.3, 0.3, leaf.shape), leaf.dtype), like)
    obs = draws.uniform(0, 11, (num, 12, 2)).astype(np.float32)
    lam = np.tile(np.array([[0.9, 0.1], [0.8, 0.2], [0.5, 0.5], [0.2, 0.8]], np.float32), (num, 3, 1))
    assert algorithm.action_values is not None
    no_noise = np.zeros((num, 12, algorithm.acting.action_size), np.float32)
    stored, _ = jax.jit(jax.vmap(algorithm.action_values.act))(state, obs, lam, no_noise)
    host = algorithm.acting.policy(np.asarray(jax.vmap(flatten)(algorithm.actor(state)))).exploit(obs, lam)
    np.testing.assert_allclose(host, algorithm.acting.decode(np.asarray(stored)), atol=1e-5)
    assert (host != host[:, :1]).any()


def test_hints_tell_the_preference_of_each_step():
    trainer = Trainer(tiny("cnder"))
    collected = trainer.collector.collect(None, 0)
    hints = trainer.place(collected).hints
    assert hints is not None
    for agent in range(2):
        for step, episode in enumerate(collected.episodes[agent].tolist()):
            np.testing.assert_array_equal(hints.lam[agent, step], trainer.collector.episodes.preference(agent, episode))
    assert hints.past.shape == (2, 20, 16, 2)
    assert np.isfinite(hints.past).all()


class TestDiscreteActions:
    @pytest.mark.slow
    def test_discrete_actions_of_a_foreign_environment_are_learned(self, tmp_path: Path):
        """Rooms 1 to 5, from 3; action 1 goes left and pays the second objective, 2 goes right and pays the first.

        A detour pays as much as the way straight on, so the discount is low.
        """
        settings = {"random_steps": 200, "block": 20, "batch_size": 32, "width_factors": (4, 4), "target_period": 20}
        settings |= {"learning_rate": 0.003, "learning_rate_end": None, "discount": 0.5, "anneal_steps": 500}
        settings |= {"tau": None}
        agent = qpensieve.EnvelopeDQN(ROOMS, seeds=1, preset="quick", **settings).learn(1000)
        assert (agent.predict(3, [0.9, 0.1]), agent.predict(3, [0.1, 0.9])) == (2, 1)
        assert agent.predict([2, 4], [[0.9, 0.1], [0.1, 0.9]]).tolist() == [2, 1]
        np.testing.assert_array_equal(agent.returns([[1, 0], [0, 1]], 1)[0, :, 0], [[2, -2], [-2, 2]])
        again = qpensieve.load(agent.save(tmp_path / "agent"), trust=True)
        assert again.predict(3, [0.9, 0.1]) == 2
        with pytest.raises(ValueError, match=r"obs must have shape \(\) or \(n,\), got \(2, 2\)"):
            agent.predict(np.zeros((2, 2)), [0.5, 0.5])

    def test_envelope_trains_on_discrete_actions(self, tmp_path: Path):
        run = runs.start(tmp_path / "run", tiny("envelope", "DeepSeaTreasure", steps=300), QUIET)
        complete(run)
        assert isinstance(run.session, Trainer)
        rows = run.session.replay_rows()[0]
        assert set(np.unique(rows[:, :, 2]).tolist()) == {0.0, 1.0, 2.0, 3.0}
        assert "of 10 treasures" in format_summary(summarize_run(tmp_path / "run"))


@pytest.mark.parametrize("domain", CASES)
def test_hybrids_train_the_cases_of_the_figure(domain: str):
    config = default_config(domain, "hybrid-sac")
    algorithm = make_algorithm(config.algo, config.agent, get_domain(domain).spec)
    assert (algorithm.agents_per_seed, algorithm.num_lanes) == (2, 2)
