"""Rows of the replay: what is packed on the host comes out on the device."""

import numpy as np

from qpensieve.records.checkpoint import FORMAT_VERSION
from qpensieve.replay.layout import RowLayout
from qpensieve.types import Step

LAYOUT = RowLayout(obs_size=3, action_size=2, num_objectives=4)


def test_unpacking_cuts_at_the_sizes_of_the_layout():
    rows = np.arange(2.0 * 13).reshape(2, 13)
    expected = (rows[:, 0:3], rows[:, 3:5], rows[:, 5:9], rows[:, 9:12], rows[:, 12])
    for part, columns in zip(LAYOUT.unpack(rows), expected, strict=True):
        np.testing.assert_array_equal(part, columns)
    assert FORMAT_VERSION == 1  # another order of the columns is another format of checkpoints


def test_what_is_packed_is_what_is_unpacked():
    draw = np.random.default_rng(0).normal
    obs, action, last = draw(size=(5, 3)), draw(size=(5, 2)), draw(size=(5, 3))
    ends = np.array([True, False, True, False, False])
    step = Step(draw(size=(5, 3)), draw(size=(5, 4)), ends, ~ends, last)
    rows = np.full((5, LAYOUT.width), np.nan, np.float32)
    LAYOUT.pack(rows, obs, action, step)
    for read, written in zip(LAYOUT.unpack(rows), (obs, action, step.reward, last, ends), strict=True):
        np.testing.assert_array_equal(read, written.astype(np.float32))
    np.testing.assert_array_equal(rows[:, LAYOUT.reward], step.reward.astype(np.float32))
    np.testing.assert_array_equal(rows[:, LAYOUT.action], action.astype(np.float32))
