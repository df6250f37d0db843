"""Rows of the replay: what is packed on the host comes out on the device."""

import numpy as np

from qpensieve.algos import mosac
from qpensieve.envs import make_lanes
from qpensieve.replay.layout import RowLayout, layout_of
from qpensieve.train.collect import Collector
from qpensieve.types import Step

LAYOUT = RowLayout(obs_size=3, action_size=2, num_objectives=4)


def test_unpacking_cuts_at_the_sizes_of_the_layout():
    rows = np.arange(2.0 * 13).reshape(2, 13)
    expected = (rows[:, 0:3], rows[:, 3:5], rows[:, 5:9], rows[:, 9:12], rows[:, 12])
    for part, columns in zip(LAYOUT.unpack(rows), expected, strict=True):
        np.testing.assert_array_equal(part, columns)


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


def test_rows_are_read_as_the_collector_packs_them():
    """Two seeds of a foreign environment, stepped again with the actions read from the rows."""
    source, seeds, block = "tests.envs.foreign:PointMass", [3, 8], 60
    lanes = make_lanes(source, 2, seeds)
    algorithm = mosac.make(mosac.SacConfig(), lanes.spec)
    collector = Collector(lanes, seeds, block, algorithm.behaviour)
    collector.start()
    layout = layout_of(lanes.spec, algorithm.behaviour)
    s, a, r, s_next, terminated = layout.unpack(np.array(collector.collect(None, 0).rows))
    assert s.shape == (2, block, 4)
    lanes = make_lanes(source, 2, seeds)
    obs = lanes.reset()
    num_cut, num_ended = 0, 0
    for k in range(block):
        step = lanes.step(a[:, k])
        np.testing.assert_array_equal(s[:, k], obs)
        np.testing.assert_array_equal(r[:, k], step.reward.astype(np.float32))
        np.testing.assert_array_equal(s_next[:, k], step.last_obs)
        np.testing.assert_array_equal(terminated[:, k], step.terminated)
        assert not np.array_equal(s[:, k], s_next[:, k])
        obs = step.obs
        num_cut, num_ended = num_cut + step.truncated.sum(), num_ended + step.terminated.sum()
    assert num_cut > 0
    assert num_ended > 0
