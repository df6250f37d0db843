"""The host side of replays: rows lie where the host says, and come back in the order written."""

from functools import cache
from typing import Any

import numpy as np
import pytest

from qpensieve.train.trainer import Trainer
from tests.train.test_methods import tiny

BLOCKS = 28
"""Blocks of 20 steps, more than the replay holds."""


@cache
def advanced(algo: Any) -> tuple[Trainer, np.ndarray]:
    """A trainer after all blocks and what it wrote; tests only read it."""
    trainer = Trainer(tiny(algo))
    rows = np.concatenate([trainer.advance() for _ in range(BLOCKS)], axis=1)
    trainer.drain()
    return trainer, rows


def leaves(trainer: Trainer) -> np.ndarray:
    """Priorities of all slots."""
    tree: Any = trainer._state.replay
    return np.asarray(tree.priorities.levels[0]).reshape(2, -1)[:, : trainer.capacity]


@pytest.mark.parametrize("algo", ["envelope", "cnder"])
def test_every_slot_holds_the_transition_the_host_put_there_and_rows_in_order_are_the_same(algo: Any):
    trainer, written = advanced(algo)
    slots, (rows, first) = np.asarray(trainer._state.replay.rows), trainer.replay_rows()
    empty = trainer._slots.without_rows(trainer._state.replay)
    again = np.asarray(trainer._slots.restored(empty, trainer._slots.state(), rows, first).rows)
    for agent, contents in enumerate(trainer._slots.contents()):
        held = contents >= 0
        assert held.any()
        np.testing.assert_array_equal(slots[agent, held], written[agent, contents[held]])
        np.testing.assert_array_equal(again[agent, held], slots[agent, held])
        np.testing.assert_array_equal(rows[agent, contents[held] - first], written[agent, contents[held]])
        # Held transitions can be sampled, and no others.
        np.testing.assert_array_equal(leaves(trainer)[agent] > 0, held)
    assert first + rows.shape[1] == 560


def test_envelope_keeps_the_newest():
    assert sorted(advanced("envelope")[0]._slots.contents()[0].tolist()) == list(range(560 - 400, 560))


def test_cnder_keeps_whole_old_episodes_and_the_newest_transitions():
    trainer = Trainer(tiny("cnder", random_steps=560, replay_capacity=300))
    for _ in range(BLOCKS):
        trainer.advance()
    held = trainer._slots.contents()[0]
    assert {559, 540} <= set(held.tolist())
    assert held[held >= 0].min() < 560 - 300


def test_cnders_priorities_change_with_what_is_sampled_and_envelopes_do_not():
    for algo, is_changed in (("cnder", True), ("envelope", False)):
        trainer = Trainer(tiny(algo))
        for _ in range(8):
            trainer.advance()
        before = leaves(trainer)[:, :160]
        trainer.advance()
        assert (before != leaves(trainer)[:, :160]).any() == is_changed
