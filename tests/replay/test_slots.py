"""The host side of replays with priorities: rows lie where the host says, and come back in the order written."""

from collections.abc import Iterator
from typing import Any

import jax
import numpy as np
import pytest

from qpensieve.preferences import draw_preferences
from qpensieve.train.collect import PREFERENCE, Episodes, generator
from qpensieve.train.trainer import Trainer
from tests.train.kill_run import share_learners
from tests.train.test_methods import tiny


@pytest.fixture(scope="module", autouse=True)
def _shared_learners() -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        share_learners(patch)
        yield


def advanced(algo: Any, num_blocks: int, **changes: Any) -> tuple[Trainer, np.ndarray]:
    trainer = Trainer(tiny(algo, **changes))
    rows = np.concatenate([trainer.advance() for _ in range(num_blocks)], axis=1)
    trainer.drain()
    return trainer, rows


def leaves(trainer: Trainer) -> np.ndarray:
    """Priorities of all slots."""
    tree: Any = trainer._state.replay
    return np.asarray(tree.priorities.levels[0]).reshape(2, -1)[:, : trainer.capacity]


@pytest.mark.parametrize(("algo", "num_blocks"), [("envelope", 12), ("envelope", 28), ("cnder", 4), ("cnder", 28)])
def test_every_slot_holds_the_transition_the_host_put_there(algo: Any, num_blocks: int):
    trainer, written = advanced(algo, num_blocks)
    memory = trainer._memory
    assert memory is not None
    for agent, contents in enumerate(memory._contents()):
        held = contents >= 0
        assert held.any()
        slots = np.asarray(trainer._state.replay.rows)[agent]
        np.testing.assert_array_equal(slots[held], written[agent, contents[held]])
        # What is held can be sampled, and nothing else can.
        np.testing.assert_array_equal(leaves(trainer)[agent] > 0, held)


def test_envelope_keeps_the_newest():
    trainer, _ = advanced("envelope", 28)
    memory = trainer._memory
    assert memory is not None
    assert sorted(memory._contents()[0].tolist()) == list(range(560 - 400, 560))


def test_cnder_keeps_whole_old_episodes_and_the_newest_transitions():
    trainer, _ = advanced("cnder", 28, random_steps=560, replay_capacity=300)
    memory = trainer._memory
    assert memory is not None
    held = memory._contents()[0]
    assert {559, 540} <= set(held.tolist())
    assert held[held >= 0].min() < 560 - 300


@pytest.mark.parametrize("algo", ["envelope", "cnder"])
def test_rows_in_order_and_back_are_the_same(algo: Any):
    trainer, written = advanced(algo, 28)
    memory = trainer._memory
    assert memory is not None
    slots = np.asarray(trainer._state.replay.rows)
    rows, first = memory.in_order(slots)
    again = memory.arrange(rows, first)
    for agent, contents in enumerate(memory._contents()):
        held = contents >= 0
        np.testing.assert_array_equal(again[agent, held], slots[agent, held])
        np.testing.assert_array_equal(rows[agent, contents[held] - first], written[agent, contents[held]])
    assert first + rows.shape[1] == 560


def test_cnders_priorities_change_with_what_is_sampled_and_envelopes_do_not():
    for algo, is_changed in (("cnder", True), ("envelope", False)):
        trainer, _ = advanced(algo, 8, replay_capacity=400)
        before = leaves(trainer)[:, :160]
        trainer.advance()
        after = leaves(trainer)[:, :160]
        assert (before != after).any() == is_changed


def test_past_preferences_are_those_of_earlier_episodes():
    episodes = Episodes([5, 9], 2, "uniform-sum")
    numbers = np.array([0, 0, 1, 7, 7])
    past = episodes.past(1, numbers, number=3, num=200)
    known = np.array([episodes.preference(1, episode) for episode in range(8)])
    expected = draw_preferences(generator(9, PREFERENCE, 4), 1, 2, "uniform-sum")[0]
    np.testing.assert_allclose(known[4], expected, rtol=1e-6)
    for row, number in zip(past, numbers.tolist(), strict=True):
        allowed = known[: max(number, 1)]  # in the first episode there is only its own
        drawn = {tuple(lam) for lam in row.tolist()}
        assert drawn == {tuple(lam) for lam in allowed.tolist()}
    np.testing.assert_array_equal(past, Episodes([5, 9], 2, "uniform-sum").past(1, numbers, number=3, num=200))


def test_hints_tell_the_preference_of_each_step():
    trainer = Trainer(tiny("cnder"))
    collected = trainer.collector.collect(None, 0)
    assert trainer._memory is not None
    hints = trainer._memory.hints(collected, trainer.collector.episodes, 0)
    for agent in range(2):
        for step, episode in enumerate(collected.episodes[agent].tolist()):
            np.testing.assert_array_equal(hints.lam[agent, step], trainer.collector.episodes.preference(agent, episode))
    assert hints.past.shape == (2, 20, 16, 2)
    assert jax.numpy.isfinite(hints.past).all()
