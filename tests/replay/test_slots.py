"""The host side of replays: rows lie where the host says, and come back in the order written."""

from typing import Any

import numpy as np
import pytest

from qpensieve.train.trainer import Trainer
from tests.train.test_methods import tiny


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
    for agent, contents in enumerate(trainer._slots.contents()):
        held = contents >= 0
        assert held.any()
        slots = np.asarray(trainer._state.replay.rows)[agent]
        np.testing.assert_array_equal(slots[held], written[agent, contents[held]])
        # What is held can be sampled, and nothing else can.
        np.testing.assert_array_equal(leaves(trainer)[agent] > 0, held)


def test_envelope_keeps_the_newest():
    trainer, _ = advanced("envelope", 28)
    assert sorted(trainer._slots.contents()[0].tolist()) == list(range(560 - 400, 560))


def test_cnder_keeps_whole_old_episodes_and_the_newest_transitions():
    trainer, _ = advanced("cnder", 28, random_steps=560, replay_capacity=300)
    held = trainer._slots.contents()[0]
    assert {559, 540} <= set(held.tolist())
    assert held[held >= 0].min() < 560 - 300


@pytest.mark.parametrize("algo", ["envelope", "cnder"])
def test_rows_in_order_and_back_are_the_same(algo: Any):
    trainer, written = advanced(algo, 28)
    slots = np.asarray(trainer._state.replay.rows)
    rows, first = trainer.replay_rows()
    empty = trainer._slots.without_rows(trainer._state.replay)
    again = np.asarray(trainer._slots.restored(empty, trainer._slots.state(), rows, first).rows)
    for agent, contents in enumerate(trainer._slots.contents()):
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
