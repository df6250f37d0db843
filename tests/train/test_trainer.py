"""The trainer's schedule, its independence of other seeds, and its exact restoration in memory."""

import itertools
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from qpensieve.config import RunConfig, default_config, override
from qpensieve.errors import EnvError
from qpensieve.train.collect import Collector
from qpensieve.train.session import Accumulator, DivergedError, EnvFailedError, check_finite, environment_errors
from qpensieve.train.trainer import Trainer
from tests.train.kill_run import TINY, advance_to, assert_same_arrays, assert_same_sessions

BLOCK, RANDOM_STEPS = TINY["block"], TINY["random_steps"]


def tiny(domain: str = "DST2d", **settings: Any) -> RunConfig:
    return override(default_config(domain), {**TINY, **settings})


def test_block_n_is_collected_with_the_policy_that_learned_from_block_n_minus_2():
    trainer = Trainer(tiny())
    collect = trainer.collector.collect
    acting: list[np.ndarray | None] = []

    def recorded(policy: Any, number: int) -> Any:
        assert number == len(acting)
        layers = [] if policy is None else policy.exported(0).net.layers
        parts = [part.reshape(2, -1) for layer in layers for part in layer]
        acting.append(np.concatenate(parts, axis=1) if parts else None)
        return collect(policy, number)

    trainer.collector.collect = recorded  # pyright: ignore[reportAttributeAccessIssue]
    newest = []
    for _ in range(12):
        trainer.advance()
        newest.append(trainer.newest_flat().copy())
    first = RANDOM_STEPS // BLOCK
    assert [policy is None for policy in acting] == [True] * first + [False] * (12 - first)
    for block in range(first, 12):
        assert acting[block] is not None
        np.testing.assert_array_equal(acting[block], newest[block - 2])
    # Every block of learning has changed every seed's policy, so that each comparison above says something.
    for block in range(first, 12):
        assert (newest[block] != newest[block - 1]).any(axis=1).all()


def test_there_is_one_gradient_step_for_every_environment_step_after_the_random_ones():
    trainer = Trainer(tiny())
    for number in range(1, 9):
        rows = trainer.advance()
        assert rows.shape == (2, BLOCK, 2 + 2 + 2 + 2 + 1)
        assert trainer.step == number * BLOCK
        updates = trainer.arrays()["state.num_updates"]
        assert updates.tolist() == [max(0, number * BLOCK - RANDOM_STEPS)] * 2
        assert trainer.arrays()["state.replay.written"].tolist() == [trainer.step] * 2


@pytest.mark.parametrize("domain", ["DST2d", pytest.param("Hopper2d", marks=pytest.mark.slow)])
def test_a_seed_does_not_depend_on_the_others(domain: str, monkeypatch: pytest.MonkeyPatch):
    """One compiled program: in both trainers seed 1 has the same row, the other does not."""
    one = Trainer(tiny(domain))
    monkeypatch.setattr(RunConfig, "seed_list", property(lambda self: [7, 1]))
    other = Trainer(tiny(domain))
    for _ in range(12):
        rows, others = one.advance(), other.advance()
        np.testing.assert_array_equal(rows[1], others[1])
        assert (rows[0] != others[0]).any()
    ours, theirs = one.arrays(), other.arrays()
    assert ours.keys() == theirs.keys()
    state = [name for name in ours if name.startswith(("state", "log/", "acting"))]
    assert [name for name in state if ours[name][1].tobytes() != theirs[name][1].tobytes()] == []
    preferences = np.array([[0.3, 0.7], [1.0, 0.0], [0.5, 0.5]])
    np.testing.assert_array_equal(one.evaluate(preferences, 2)[1], other.evaluate(preferences, 2)[1])


class TestRestored:
    def test_a_restored_trainer_continues_exactly_within_a_log_period(self):
        original = Trainer(tiny())
        advance_to(original, 240)
        original.drain()
        original.sums.take()
        advance_to(original, 260)
        saved = {name: value.copy() for name, value in original.arrays().items()}
        rows, first = original.replay_rows()

        other = Trainer(tiny())
        advance_to(other, 140)  # what it did before does not matter
        other.restore(saved, rows, first)
        assert (other.step, other.summed_to) == (260, 260)
        assert_same_sessions(other, original)
        for trainer in (original, other):
            advance_to(trainer, 560)
        assert_same_sessions(other, original)
        logs = [trainer.sums.take() for trainer in (original, other)]
        assert_same_arrays(*logs)
        preferences = np.array([[0.2, 0.8]])
        np.testing.assert_array_equal(original.evaluate(preferences, 3), other.evaluate(preferences, 3))

    def test_a_restored_trainer_continues_exactly_with_guards_and_correlated_noise(self):
        config = tiny(random_noise="ar1", updates_per_step=2, push_period=80, guards=True)
        original = Trainer(config)
        advance_to(original, 260)
        saved = {name: value.copy() for name, value in original.arrays().items()}
        assert saved["state.num_updates"].tolist() == [2 * (260 - RANDOM_STEPS)] * 2
        rows, first = original.replay_rows()
        assert rows.shape == (2, 260, 2 + 2 + 2 + 2 + 1)
        other = Trainer(config)
        other.restore(saved, rows, first)
        for trainer in (original, other):
            advance_to(trainer, 400)
        assert_same_sessions(other, original)
        assert original.arrays()["state.agent.snapshots.filled"].any()

    def test_a_restored_trainer_continues_to_fill_a_lost_replay(self):
        """Agents are saved with what they hold of it: a loaded one must not learn from so little."""
        original, other = Trainer(tiny()), Trainer(tiny())
        advance_to(original, 160)
        original.restore(original.arrays())  # without rows
        advance_to(original, 200)
        other.restore(original.arrays(), *original.replay_rows())
        for trainer, step in ((original, 240), (other, 240), (original, 300), (other, 300)):
            advance_to(trainer, step)
            assert trainer.arrays()["state.num_updates"].tolist() == [60 + max(0, step - 260)] * 2
        assert_same_sessions(other, original)

    def test_restoring_refuses_a_replay_of_another_moment(self):
        trainer = Trainer(tiny())
        advance_to(trainer, 60)
        arrays, (rows, first) = trainer.arrays(), trainer.replay_rows()
        with pytest.raises(
            RuntimeError, match="the replay must end at transition 60 like the rest of the checkpoint, got 40"
        ):
            trainer.restore(arrays, rows[:, :40], first)


class TestExtended:
    def test_an_extended_trainer_continues_as_if_planned_longer(self):
        """Exactly: a replay that grows is another compiled program, so learning begins when it has grown."""
        planned, extended = (Trainer(tiny(steps=steps, random_steps=180)) for steps in (400, 200))
        for trainer in (planned, extended):
            advance_to(trainer, 180)
        rows, first = extended.replay_rows()
        extended.plan(400)
        assert extended.config == planned.config
        np.testing.assert_array_equal(extended.replay_rows()[0], rows)
        assert extended.replay_rows()[1] == first == 0
        assert_same_sessions(extended, planned)
        for trainer in (planned, extended):
            advance_to(trainer, 400)
        assert_same_sessions(extended, planned)

    def test_a_plan_that_does_not_fit_changes_nothing(self):
        trainer = Trainer(tiny())
        with pytest.raises(ValueError, match=r"steps must be a multiple of block \(20\), got 630"):
            trainer.plan(630)
        assert trainer.config == tiny()


@pytest.mark.parametrize("error", [EnvError("lost"), KeyboardInterrupt()], ids=["failed", "interrupted"])
def test_a_block_that_was_cut_short_is_collected_again_from_its_beginning(error: BaseException):
    """Lanes that go on from where it failed would put steps into the replay that do not follow each other."""
    trainer, undisturbed = Trainer(tiny()), Trainer(tiny())
    advance_to(trainer, 160)
    assert isinstance(trainer.collector, Collector)
    lanes = trainer.collector.lanes
    step, calls = lanes.step, itertools.count()

    def cut(actions: Any) -> Any:
        if next(calls) == BLOCK // 2:
            raise error
        return step(actions)

    lanes.step = cut  # pyright: ignore[reportAttributeAccessIssue]
    with pytest.raises((EnvFailedError, KeyboardInterrupt)):
        trainer.advance()
    for one in (trainer, undisturbed):
        advance_to(one, 240)
    assert_same_sessions(trainer, undisturbed)


def test_a_trainer_that_ended_between_host_and_device_is_neither_saved_nor_trained():
    trainer = Trainer(tiny())
    advance_to(trainer, 160)
    whole, rows = trainer.arrays(), trainer.replay_rows()
    learner = trainer._learner

    def interrupted(*_: Any) -> Any:
        raise KeyboardInterrupt

    trainer._learner = replace(learner, learn=interrupted)
    with pytest.raises(KeyboardInterrupt):
        trainer.advance()
    trainer._learner = learner
    for use in (trainer.advance, trainer.arrays):
        with pytest.raises(RuntimeError, match="ended within the block to step 180"):
            use()
    trainer.restore(whole, *rows)
    assert_same_arrays(trainer.arrays(), whole)


def test_a_policy_that_is_no_longer_finite_is_told_with_its_step_and_seed():
    trainer = Trainer(tiny(first_seed=7))
    advance_to(trainer, 160)
    trainer.drain()
    flat = trainer.newest_flat().copy()
    flat[1, 3] = np.inf
    learn = trainer._learner.learn

    def spoilt(*arguments: Any) -> Any:
        state, _, info = learn(*arguments)
        return state, flat, info

    trainer._learner = replace(trainer._learner, learn=spoilt)
    trainer.advance()
    with pytest.raises(DivergedError, match="a parameter of the policy of seed 8 is no longer finite at step 180"):
        trainer.advance()


def test_a_second_run_with_the_same_settings_is_not_compiled_again():
    first, second = Trainer(tiny()), Trainer(tiny(first_seed=5))
    assert second._learner is first._learner
    programs = []
    for trainer in (first, second):
        advance_to(trainer, RANDOM_STEPS + 2 * BLOCK)
        programs.append(trainer._learner.learn._cache_size())  # pyright: ignore[reportFunctionMemberAccess]
    assert programs[0] == programs[1]


@pytest.mark.parametrize("kind", [EnvError, FloatingPointError])
def test_what_an_environment_raises_is_named_with_its_moment(kind: type[Exception]):
    with (
        pytest.raises(EnvFailedError, match="the environment failed after step 20: no fuel") as failure,
        environment_errors("after step 20"),
    ):
        raise kind("no fuel")
    assert isinstance(failure.value.__cause__, kind)


@pytest.mark.parametrize("kind", [LookupError, ValueError, RuntimeError, MemoryError, ZeroDivisionError])
def test_a_bug_of_ours_is_not_blamed_on_the_environment(kind: type[Exception]):
    with pytest.raises(kind, match="ours"), environment_errors("after step 20"):
        raise kind("ours")


def test_the_first_row_that_is_not_finite_is_named():
    values = np.zeros((3, 2, 2), np.float32)
    check_finite("a loss", values, str, 40)
    values[2, 0, 1], values[1, 1, 0] = np.nan, np.inf
    with pytest.raises(DivergedError, match=r"^a loss of row 1 is no longer finite at step 40$"):
        check_finite("a loss", values, lambda row: f"row {row}", 40)


def test_means_since_the_last_call_keep_type_and_what_was_added():
    sums, value = Accumulator(), np.array([1.0, 2.0], np.float32)
    assert sums.take() == {}
    sums.add({"loss": value})
    sums.add({"loss": np.array([3.0, 6.0], np.float32)})
    assert value.tolist() == [1.0, 2.0]
    taken = sums.take()["loss"]
    assert (taken.tolist(), taken.dtype) == ([2.0, 4.0], np.float32)
    assert sums.take() == {}


def test_a_restored_one_goes_on_and_of_peaks_the_largest_counts():
    sums = Accumulator()
    add = lambda to, value: to.add({"loss_max": np.array([value, 0.5]), "loss": np.array([value, 0.5])})
    for value in (-3.0, -1.0):
        add(sums, value)
    again = Accumulator(sums.sums, sums.count)
    for one in (sums, again):
        add(one, -2.0)
        taken = one.take()
        assert taken["loss_max"].tolist() == [-1.0, 0.5]
        assert taken["loss"].tolist() == [-2.0, 0.5]
