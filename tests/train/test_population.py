"""PGMORL and PFA through a whole run: what belongs to a member, what the budget buys, what a resumed run ends as."""

import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import jax
import numpy as np
import pytest

from qpensieve.config import RunConfig, default_config, override
from qpensieve.envs import DOMAINS, LaneOptions, make_lanes
from qpensieve.errors import EnvError
from qpensieve.population import pgmorl, ppo
from qpensieve.population.pgmorl import OWN, PgmorlConfig, iteration_steps
from qpensieve.preferences import das_dennis
from qpensieve.records import evaluations, search
from qpensieve.records.folder import EVALUATIONS, SEARCH
from qpensieve.report.summary import format_summary, summarize_run
from qpensieve.settings import flat
from qpensieve.train import run as runs
from qpensieve.train.population import PopulationTrainer
from qpensieve.train.run_loop import Options
from qpensieve.train.session import EnvFailedError
from tests.train.kill_run import CACHE, NEVER, POPULATION, ROOT, assert_same_run, complete, refuse, stop_at

QUIET = Options(quiet=True)
TINY: dict[str, Any] = POPULATION | {
    "seeds": 2,
    "first_seed": 2,  # seeds 2 and 3 reach a treasure within so few steps: archives and populations are not empty
    "steps": 1150,  # eleven iterations of 96, and 94 that are not enough for a twelfth
    "eval_period": 300,
    "parameters_period": 500,
    "checkpoint_seconds": NEVER,
    "learning_rate": 3e-3,
    "warmup_iterations": 4,
    "generation_iterations": 2,
}
METHODS: tuple[str, ...] = ("pgmorl", "pfa")


def tiny(algo: str = "pgmorl", domain: str = "DST2d", **changes: Any) -> RunConfig:
    return override(default_config(domain, algo), TINY | changes)


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Any:
    """Algorithm -> its run that was never stopped, made once."""
    out = tmp_path_factory.mktemp("whole")

    def make(algo: str) -> Path:
        if not (out / algo).exists():  # it is there only once it is whole, should a test be cut short here
            complete(runs.start(out / f"{algo}-begun", tiny(algo), QUIET))
            (out / f"{algo}-begun").rename(out / algo)
        return out / algo

    return make


def trained(config: RunConfig, iterations: int) -> PopulationTrainer:
    trainer = PopulationTrainer(config)
    for _ in range(iterations):
        trainer.advance()
    return trainer


class TestRun:
    @pytest.mark.parametrize("algo", METHODS)
    @pytest.mark.parametrize("iteration", [*(pytest.param(k, marks=pytest.mark.slow) for k in (3, 4)), 7])
    def test_a_search_stopped_and_resumed_ends_the_same(self, algo: str, iteration: int, whole: Any, tmp_path: Path):
        """In the warm-up, at its end (where tasks are about to be chosen), and in the middle of a generation."""
        stop_at(runs.start(tmp_path / "run", tiny(algo), QUIET), iteration * 96)
        resumed = runs.resume(tmp_path / "run", QUIET, refuse)
        assert resumed.session.step == iteration * 96
        complete(resumed)
        assert_same_run(tmp_path / "run", whole(algo))
        ours, theirs = (search.load(folder / SEARCH) for folder in (tmp_path / "run", whole(algo)))
        for name, value in vars(ours).items():
            np.testing.assert_array_equal(value, getattr(theirs, name), err_msg=name)

    @pytest.mark.parametrize("algo", METHODS)
    def test_a_search_made_longer_ends_the_same_stopped_or_not(self, algo: str, tmp_path: Path):
        """Rates and preferences are planned for the new length when it is asked for, not when the run is resumed."""
        ours, theirs = tmp_path / "ours", tmp_path / "theirs"
        complete(runs.start(ours, tiny(algo, steps=700), QUIET))
        shutil.copytree(ours, theirs)
        complete(runs.resume(theirs, QUIET, refuse, steps=TINY["steps"]))
        stop_at(runs.resume(ours, QUIET, refuse, steps=TINY["steps"]), 8 * 96)
        with pytest.raises(ValueError, match=f"steps of {algo} may only grow"):  # it is planned for
            runs.resume(ours, QUIET, refuse, steps=TINY["steps"] - 96)
        complete(runs.resume(ours, QUIET, refuse))
        assert_same_run(ours, theirs)
        record = search.load(ours / SEARCH)
        assert record.generation_ends() == [4, 6, 8, 10, 11]
        assert evaluations.load(ours / EVALUATIONS).full_steps.tolist() == [672, 1056]

    @pytest.mark.parametrize("algo", METHODS)
    def test_a_search_uses_its_budget_and_no_more(self, algo: str, whole: Any):
        record = search.load(whole(algo) / SEARCH)
        assert record.num_iterations == 11
        assert record.generation_ends() == [4, 6, 8, 10, 11]
        assert record.num_generations == 4
        summary = summarize_run(whole(algo))
        assert summary["step"] == 11 * 96 <= TINY["steps"]
        assert summary["environment_steps_per_seed"] == 11 * 96
        assert summary["search"]["iterations"] == 11
        assert summary["search"]["generations"] == 4
        text = format_summary(summary)
        assert "11 iterations of 3 tasks, 4 generations after the warm-up" in text
        assert "1,056 environment steps per seed in all" in text
        table = evaluations.load(whole(algo) / EVALUATIONS)
        assert table.short_steps.tolist() == [384, 672, 960, 1056]  # the first iteration at or after each 300

    def test_a_search_counts_every_simulated_step(self):
        trainer = PopulationTrainer(tiny(seeds=1))
        counted = {"training": 0, "fitness": 0}
        for name, lanes in (("training", trainer._collector.lanes), ("fitness", trainer._fitness.lanes)):
            advance = lanes.simulator.advance

            def watched(which: Any, actions: Any, name: str = name, advance: Any = advance):
                counted[name] += len(actions)
                return advance(which, actions)

            lanes.simulator.advance = watched  # pyright: ignore[reportAttributeAccessIssue]
        for _ in range(3):
            trainer.advance()
        assert counted["training"] == 3 * 96 == trainer.step
        assert counted["fitness"] == trainer.search_record().fitness_steps.sum()

    def test_a_seed_does_not_depend_on_the_others(self, monkeypatch: pytest.MonkeyPatch):
        """One compiled program: seed 4 is the second in both trainers, the first differs."""
        one = trained(tiny(first_seed=3), 7)
        monkeypatch.setattr(RunConfig, "seed_list", property(lambda self: [8, 4]))
        other = trained(tiny(), 7)
        ours, theirs = one.searches[1], other.searches[1]
        np.testing.assert_array_equal(ours.archive.objs, theirs.archive.objs)
        np.testing.assert_array_equal(ours.archive.policies, theirs.archive.policies)
        np.testing.assert_array_equal(ours.graph.objs, theirs.graph.objs)
        np.testing.assert_array_equal(one.record.objs[:, 1], other.record.objs[:, 1])
        assert (one.record.objs[:, 0] != other.record.objs[:, 0]).any()


class TestFitness:
    def test_fitness_is_of_the_mean_action_on_normalised_observations(self):
        """Sampled actions or raw observations would give a false front."""
        trainer = trained(tiny(seeds=1), 3)
        kept = trainer._kept()
        moments, size = trainer._moments, 2
        for task in range(3):
            lanes = make_lanes("DST2d", 1, 0, LaneOptions(autoreset=False))
            obs, total = lanes.reset(), np.zeros(2)
            while lanes.running.any():
                x = np.clip((obs - moments.mean[task, :size]) / moments.scale[task, :size], -10, 10)
                net = jax.tree.map(lambda leaf, task=task: leaf[task], trainer._state.actor.net)
                step = lanes.step(np.asarray(jax.vmap(net)(x.astype(np.float32))))
                total += step.reward[0]
                obs = step.obs
            np.testing.assert_allclose(trainer._objs[0, task], total, atol=1e-6)
        assert kept.shape == (3, (2 * 8 + 8) + (8 * 8 + 8) + (8 * 2 + 2) + 2 + 2 * 2)  # no critic, no Adam

    def test_fitness_takes_several_episodes_where_starts_are_random(self):
        assert flat(default_config("Hopper2d", "pgmorl").agent)["fitness_episodes"] > 1
        trainer = trained(tiny(domain="Hopper2d", fitness_episodes=3, steps=400), 1)
        assert trainer._fitness.lanes.num_lanes == 18
        again = [trainer._measure(trainer._kept(), number)[0] for number in (1, 1, 2)]
        np.testing.assert_array_equal(again[0], trainer._objs)
        np.testing.assert_array_equal(again[0], again[1])
        assert (again[2] != again[0]).any()  # every iteration has starts of its own


class TestSearch:
    def test_negative_objectives_fill_archive_and_population(self):
        """Time costs -1 a step, so the origin as reference would leave both empty and train nothing."""
        trainer = trained(tiny(rollout_steps=64, steps=50_000, seeds=1), 4)
        for found in trainer.searches:
            assert (found.archive.objs[:, 1] < 0).all()
            assert len(found.archive.objs) >= 1
            assert len(found.samples.node) >= 1
            assert found.graph.parent.tolist() == [-1, -1, -1, 0, 1, 2, 3, 4, 5]
        before = [found.samples for found in trainer.searches]
        trainer.advance()
        assert np.isfinite(trainer.record.predicted).any()
        assert [len(samples.node) for samples in before] == [len(f.samples.node) for f in trainer.searches]

    def test_with_nothing_above_the_reference_tasks_go_on_and_evaluation_still_answers(self):
        trainer = trained(tiny(reference=(1000.0, 1000.0), seeds=1), 5)
        assert len(trainer.searches[0].archive.objs) == 0
        np.testing.assert_array_equal(trainer._lam[0], das_dennis(2, 2))
        np.testing.assert_array_equal(trainer._node[0], [6, 7, 8])
        assert trainer.evaluate(np.array([[0.5, 0.5]]), 1).shape == (1, 1, 1, 2)
        assert np.isnan(trainer.record.predicted).all()

    def test_the_archive_never_loses_hypervolume_and_never_exceeds_the_front(self):
        trainer = PopulationTrainer(tiny(steps=4000))
        volumes = []
        for _ in range(20):
            trainer.advance()
            volumes.append([found.hypervolume for found in trainer.searches])
        assert (np.diff(volumes, axis=0) >= -1e-9).all()
        assert np.max(volumes) <= 1055.0 + 1e-6
        record = trainer.search_record()
        for seed in range(2):
            rebuilt = record.archive_of(seed, 20)
            np.testing.assert_array_equal(np.sort(rebuilt, axis=0), np.sort(record.archive_of(seed), axis=0))
            assert record.hypervolume_of(seed) == pytest.approx(volumes[-1][seed])

    def test_chosen_tasks_start_from_their_sample(self):
        trainer = trained(tiny(rollout_steps=64, steps=50_000, seeds=1), 4)
        found = trainer.searches[0]
        tasks = trainer._propose(0)
        chosen = np.flatnonzero(tasks.source != OWN)
        assert len(chosen)
        trainer._begin_generation()
        members = trainer._members()
        for task in chosen.tolist():
            row = tasks.source[task]
            for mine, theirs in zip(jax.tree.leaves(members), jax.tree.leaves(found.samples.members), strict=True):
                np.testing.assert_array_equal(mine[task], theirs[row])
            assert trainer._node[0, task] == found.samples.node[row]
        np.testing.assert_array_equal(trainer._lam[0], tasks.lam)
        assert trainer.iteration == trainer._generation_start == 4


def test_pfa_slides_from_each_preference_to_the_next(whole: Any):
    """11 iterations, 4 of them warm-up, generations of 2: the way gone is 2/7, 4/7, 6/7, 1 of half."""
    record = search.load(whole("pfa") / SEARCH)
    base = np.array([0.0, 0.5, 1.0])
    np.testing.assert_allclose(record.lam[:5, 0, :, 0], np.tile(base, (5, 1)))
    for end, share in zip([6, 8, 10, 11], [2 / 7, 4 / 7, 6 / 7, 1.0], strict=True):
        np.testing.assert_allclose(record.lam[end, 0, :, 0], np.clip(base + 0.5 * share, 0, 1))
        np.testing.assert_allclose(record.lam[end, 0].sum(axis=1), 1.0)
    np.testing.assert_allclose(record.lam[11, 0, :-1, 0], base[1:])  # task k ends where task k + 1 began


@pytest.mark.parametrize(
    "domain", ["Hopper3d", *(pytest.param(name, marks=pytest.mark.slow) for name in ("LunarLander4d", "Hopper5d"))]
)
def test_three_to_five_objectives_evolve(domain: str):
    d = DOMAINS[domain].spec.num_objectives
    config = tiny(domain=domain, seeds=1, divisions=1, steps=32 * d * 7, fitness_episodes=1, num_buffers=30)
    trainer = trained(config, 7)
    assert trainer.generation == 2
    assert trainer.evaluate(np.full((1, d), 1 / d), 1).shape == (1, 1, 1, d)


class TestConfig:
    @pytest.mark.parametrize(
        ("domain", "shared", "per_task"),
        [
            ("DST2d", 36, 183),
            ("LunarLander4d", 26, 915),
            ("Hopper3d", 122, 1831),
        ],
    )
    def test_iterations_of_the_papers_budgets(self, domain: str, shared: int, per_task: int):
        for total, iterations in (("shared", shared), ("per-task", per_task)):
            config = override(default_config(domain, "pgmorl"), {"total": total})
            agent = config.agent
            assert isinstance(agent, PgmorlConfig)
            num_tasks = len(pgmorl.warmup_preferences(agent.stages, DOMAINS[domain].spec.num_objectives))
            assert config.steps // iteration_steps(agent, num_tasks) == iterations

    @pytest.mark.parametrize(
        ("changes", "message"),
        [
            ({"steps": 90}, "steps must be at least 96, got 90: one iteration is 3 tasks x 2 lanes x 16 steps"),
            ({"warmup_iterations": 5}, "must be a multiple of generation_iterations"),
            ({"minibatches": 5}, "do not split into 5 equal minibatches"),
            ({"replay_capacity": 10}, "pgmorl has no replay"),
            ({"sparsity_weight": -1.0}, "must be 0 or more .a negative weight would reward gaps in the front.*got -1"),
            ({"reference": (float("nan"), 0.0)}, "reference must be finite"),
            ({"num_candidates": 1}, "num_candidates must be at least 2, got 1"),
            ({"fitness_episodes": 0}, "fitness_episodes must be at least 1, got 0"),
            ({"reference": (1.0,)}, "reference must have 2 numbers, one per objective of DST2d .*, got 1"),
        ],
    )
    def test_settings_of_a_search_that_cannot_run_are_refused(self, changes: dict[str, Any], message: str):
        with pytest.raises(ValueError, match=message):
            PopulationTrainer(tiny(**changes))


class TestUpdates:
    def test_updates_get_the_preference_the_scale_of_returns_and_a_falling_rate(self, monkeypatch: pytest.MonkeyPatch):
        """Weights on normalised rewards (a scale of 1), yesterday's scale or a rate that stays would go unnoticed."""
        trainer = PopulationTrainer(tiny(seeds=1))
        update, told = trainer._learner.update, []

        def watched(state: Any, rollouts: Any, aims: Any, number: int) -> Any:
            told.append((aims, number))
            return update(state, rollouts, aims, number)

        monkeypatch.setattr(trainer._learner, "update", watched)
        for iteration in range(7):
            trainer.advance()
            aims, number = told[-1]
            assert number == iteration
            np.testing.assert_allclose(aims.lam, trainer._lam[0], rtol=1e-6)
            np.testing.assert_allclose(aims.scale, trainer._moments.scale[:, 2:], rtol=1e-6)
            assert np.abs(aims.scale - 1.0).min() > 1e-3
            np.testing.assert_allclose(aims.learning_rate, TINY["learning_rate"] * (1 - iteration / 11), rtol=1e-6)
        assert trainer.generation == 2

    def test_lanes_restart_with_every_stage_and_only_then(self, monkeypatch: pytest.MonkeyPatch):
        trainer = PopulationTrainer(tiny(seeds=1))
        start, started = trainer._collector.start, []
        monkeypatch.setattr(trainer._collector, "start", lambda: (started.append(trainer.iteration), start()))
        for _ in range(9):
            trainer.advance()
        assert started == [0, 4, 6, 8]


@pytest.mark.parametrize(
    ("iteration", "calls"),
    [pytest.param(0, 3, marks=pytest.mark.slow), (0, 40), pytest.param(3, 3, marks=pytest.mark.slow), (4, 12)],
)
def test_failures_in_a_fitness_episode_or_a_rollout_leave_no_trace(
    iteration: int, calls: int, whole: Any, tmp_path: Path
):
    """At the very start, in the warm-up, at a generation's start; resumed, all is as if nothing had failed."""
    run = runs.start(tmp_path / "run", tiny(), QUIET)
    trainer = run.session
    assert isinstance(trainer, PopulationTrainer)
    goal = iteration * trainer.block
    run.train_blocks(lambda: trainer.step >= goal)
    count = iter(range(1000))
    lanes = trainer._fitness.lanes if calls > 10 else trainer._collector.lanes
    step = lanes.step

    def failing(actions: Any) -> Any:
        if next(count) == calls:
            raise EnvError("the simulator is gone")
        return step(actions)

    lanes.step = failing  # pyright: ignore[reportAttributeAccessIssue]
    kept = "the run is saved" if iteration > 0 else "nothing is learned yet"
    with pytest.raises(EnvFailedError, match=f"the simulator is gone; {kept}, continue with"):
        complete(run)
    warned: list[str] = []
    complete(runs.resume(tmp_path / "run", QUIET, warned.append))
    assert len(warned) == int(iteration == 0)
    assert_same_run(tmp_path / "run", whole("pgmorl"))


def test_a_second_run_with_the_same_settings_is_not_traced_again(monkeypatch: pytest.MonkeyPatch):
    trained(tiny(), 1)
    monkeypatch.setattr(ppo, "update", lambda *given: pytest.fail("traced"))
    trained(tiny(first_seed=4), 1)


WIDE: dict[str, Any] = {
    "seeds": 1,
    "steps": 200,
    "parameters_period": 96,
    "hidden": 256,
    "full_eval_stride": 20,
    "max_eval_steps": 100,
}
"""Products of networks of this width are shared among threads."""
HASWELL = {"OPENBLAS_CORETYPE": "Haswell"}
"""Kernels that round differently with another number of threads; a processor without AVX2 takes others."""


@pytest.mark.filterwarnings("ignore:.*did not end within")
def test_a_population_resumed_with_another_number_of_blas_threads_ends_the_same(tmp_path: Path):
    """Its returns in Hopper2d show the smallest difference of an action."""
    config = tiny(domain="Hopper2d", **WIDE)
    run = runs.start(tmp_path / "1", config, QUIET)
    run.session.advance()
    run.save()
    run.close()
    shutil.copytree(tmp_path / "1", tmp_path / "2")
    resume = [sys.executable, "-m", "tests.train.kill_run", "never", "0", "resume"]
    programs = [
        subprocess.Popen(
            [*resume, str(tmp_path / threads)],
            cwd=ROOT,
            env=os.environ | CACHE | HASWELL | {"OPENBLAS_NUM_THREADS": threads},
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )
        for threads in ("1", "2")
    ]
    for program in programs:
        said, _ = program.communicate()
        assert program.returncode == 0, said
    assert_same_run(tmp_path / "1", tmp_path / "2")
