"""Lanes whose episodes go on beyond the time limit; nothing else about them changes."""

import numpy as np
import pytest

from qpensieve.envs import LaneOptions, make_lanes
from tests.probes import WALK_LENGTH, WALK_LIMIT


@pytest.mark.parametrize("domain", ["DST2d", "HalfCheetah2d"])
def test_a_domain_goes_on_beyond_its_limit(domain: str):
    limited, unlimited = (
        make_lanes(domain, 2, 0, LaneOptions(autoreset=False, time_limit=is_on)) for is_on in (True, False)
    )
    first = limited.reset()
    np.testing.assert_array_equal(unlimited.reset(), first)
    limit, state = limited.spec.max_steps or 0, unlimited.state()
    unlimited.restore(state | {"elapsed": np.full(2, limit - 2)})
    limited.restore(state | {"elapsed": np.full(2, limit - 2)})
    still = np.zeros((2, limited.spec.action_size))
    for t in range(4):
        cut, gone_on = limited.step(still), unlimited.step(still)
        assert cut.truncated.all() == (t == 1)
        assert not gone_on.done.any()
        if t < 2:
            np.testing.assert_array_equal(gone_on.last_obs, cut.last_obs)
            np.testing.assert_array_equal(gone_on.reward, cut.reward)
    assert (unlimited.elapsed == limit + 2).all()


def test_a_foreign_environment_is_stepped_on_to_its_real_end():
    lanes = make_lanes("tests.probes:walk", 8, 0, LaneOptions(autoreset=False, time_limit=False))
    start = np.round(lanes.reset()[:, 0] * WALK_LENGTH)
    lengths = np.zeros(8)
    while lanes.running.any():
        lengths += lanes.running
        step = lanes.step(np.zeros((8, 1)))
        assert not step.truncated.any()
    np.testing.assert_array_equal(lengths, WALK_LENGTH - start)
    assert lengths.max() > WALK_LIMIT


def test_a_walk_is_cut_at_its_limit_and_pays_what_it_says():
    lanes = make_lanes("tests.probes:endless_walk", 1, 0, LaneOptions(autoreset=False))
    lanes.reset()
    steps = [lanes.step(np.full((1, 1), 0.5)) for _ in range(WALK_LIMIT)]
    assert [bool(step.truncated[0]) for step in steps] == [False] * (WALK_LIMIT - 1) + [True]
    np.testing.assert_allclose([step.reward[0] for step in steps], [[1.0, 0.5]] * WALK_LIMIT)


def test_lanes_can_rest_until_their_next_reset():
    lanes = make_lanes("DST2d", 3, 0, LaneOptions(autoreset=False))
    lanes.reset()
    lanes.rest([1])
    step = lanes.step(np.full((3, 2), 0.5))
    np.testing.assert_array_equal(step.last_obs, [[0.5, 0.5], [0.0, 0.0], [0.5, 0.5]])
    np.testing.assert_array_equal(step.reward[:, 1], [-1.0, 0.0, -1.0])
    lanes.reset([1])
    assert lanes.running.all()
    with pytest.raises(RuntimeError, match="use autoreset=False"):
        make_lanes("DST2d", 3, 0).rest([1])
