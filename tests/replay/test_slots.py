"""The host side of replays: rows lie where the host says, and come back in the order written."""

from functools import cache
from typing import Any

import numpy as np
import pytest

from qpensieve.replay.slots import Slots
from qpensieve.train.trainer import Trainer
from tests.train.test_methods import tiny

BLOCKS = 28
"""Blocks of 20 steps, more than the replay holds."""


@cache
def advanced(algo: Any) -> tuple[Trainer, np.ndarray, bool]:
    """A trainer after all blocks, what it wrote, and whether a slot got another priority while its row stayed."""
    trainer, rows, is_changed = Trainer(tiny(algo)), [], False
    for _ in range(BLOCKS):
        values, held = leaves(trainer), np.array(trainer._slots.contents())
        rows.append(trainer.advance())
        stayed = (np.array(trainer._slots.contents()) == held) & (held >= 0)
        is_changed |= bool((leaves(trainer) != values)[stayed].any())
    trainer.drain()
    return trainer, np.concatenate(rows, axis=1), is_changed


def leaves(trainer: Trainer) -> np.ndarray:
    """Priorities of all slots."""
    tree: Any = trainer._state.replay
    return np.asarray(tree.priorities.levels[0]).reshape(2, -1)[:, : trainer._slots.capacity]


@pytest.mark.parametrize("algo", ["envelope", "cnder"])
def test_every_slot_holds_the_transition_the_host_put_there_and_rows_in_order_are_the_same(algo: Any):
    trainer, written, is_changed = advanced(algo)
    assert is_changed == (algo == "cnder")  # by what is sampled
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


def test_envelope_keeps_the_newest_and_cnder_whole_old_episodes_too():
    trainer, written, _ = advanced("envelope")
    newest = set(range(560 - 400, 560))
    assert set(trainer._slots.contents()[0].tolist()) == newest
    slots = Slots(advanced("cnder")[0].algorithm.learning, trainer.layout, 400, 1, discount=0.9)
    slots.place(written[:1], np.arange(560)[None] % 5 == 4)
    held = set(slots.contents()[0].tolist())
    assert set(range(360, 560)) < held
    assert min(held) < 160
