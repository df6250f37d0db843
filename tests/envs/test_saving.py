"""Saved lanes: they continue bit for bit, and a state that does not fit is refused before anything changes."""

import numpy as np
import pytest

from qpensieve.envs import LaneOptions, make_lanes
from tests.envs.test_lanes import ALL, RESTING, assert_equal_steps, draw_actions, play, started

CUT = 80
"""Here one lane of LunarLander is in its second episode; the others have more steps than there is space for first."""


def assert_equal_states(one: dict[str, np.ndarray], other: dict[str, np.ndarray]) -> None:
    assert one.keys() == other.keys()
    for name, value in one.items():
        np.testing.assert_array_equal(value, other[name], err_msg=name)


@pytest.mark.parametrize("domain", [*ALL, "Ant2d with contact forces"])
def test_save_restore_continue_equals_never_stopping(domain: str):
    domain, forces, _ = domain.partition(" with")
    options = LaneOptions(contact_forces=bool(forces))
    actions = draw_actions(domain, 140, 3)
    lanes, other = started(domain, 3, 2, options), started(domain, 3, 99, options)
    play(lanes, actions[:CUT])
    saved = lanes.state()
    copies = {name: value.copy() for name, value in saved.items()}
    straight_on = play(lanes, actions[CUT:])
    assert_equal_states(saved, copies)  # not changed by playing on
    play(other, actions[:20])
    other.restore(saved)
    np.testing.assert_array_equal(other.obs, saved["obs"])
    for a, b in zip(straight_on, play(other, actions[CUT:]), strict=True):
        assert_equal_steps(a, b)
    assert_equal_states(lanes.state(), other.state())


@pytest.mark.parametrize(("seed", "first_lane"), [([8, 5], 0), (8, 3)])
@pytest.mark.parametrize("is_reset", [True, False])
def test_the_next_episodes_come_from_the_saved_streams(seed: int | list[int], first_lane: int, is_reset: bool):
    lanes = make_lanes("Hopper2d", 2, seed, LaneOptions(first_lane=first_lane))
    if is_reset:
        lanes.reset()
    other = started("Hopper2d", 2)
    other.restore(lanes.state())
    np.testing.assert_array_equal(other.reset(), lanes.reset())


def test_resting_lanes_rest_after_a_restore_too_and_are_refused_where_lanes_never_rest():
    lanes, other = started("Hopper2d", 6, 3, RESTING), started("Hopper2d", 6, 0, RESTING)
    for actions in draw_actions("Hopper2d", 100, 6):
        lanes.step(actions)
        if (~lanes.running).sum() >= 2:
            break
    assert lanes.running.any()
    other.restore(lanes.state())
    np.testing.assert_array_equal(other.running, lanes.running)
    resting = ", ".join(map(str, np.flatnonzero(~lanes.running)))
    with pytest.raises(ValueError, match=f"Hopper2d: the episodes of lanes {resting} are over.*autoreset=False"):
        make_lanes("Hopper2d", 6, seed=0).restore(lanes.state())
    for actions in draw_actions("Hopper2d", 5, 6):
        assert_equal_steps(lanes.step(actions), other.step(actions))


def _without(name: str):
    return lambda state: {key: value for key, value in state.items() if key != name}


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda state: state | {"version": np.array(99)}, "must have the version 1, got 99"),
        (_without("version"), "must have the version 1, got none"),
        (lambda state: state | {"id": np.array("Hopper3d")}, "must have the id Hopper2d, got Hopper3d"),
        (_without("running"), r"missing arrays \['running'\]"),
        (lambda state: state | {"simulator/wind": np.zeros(2)}, r"unknown arrays \['simulator/wind'\]"),
        (lambda _: make_lanes("Hopper2d", 3, seed=0).state(), "must hold 2 lanes .* 11 numbers, got 3 lanes"),
        (lambda state: state | {"simulator/physics": np.zeros((2, 5))}, r"physics must have shape .*, got \(2, 5\)"),
    ],
)
def test_a_state_that_does_not_fit_is_refused_and_changes_nothing(change, message: str):
    lanes, saved = started("Hopper2d", 2, 1), started("Hopper2d", 2)
    play(saved, draw_actions("Hopper2d", 3, 2))
    before = lanes.state()
    with pytest.raises(ValueError, match=message):
        lanes.restore(change(saved.state()))
    assert_equal_states(lanes.state(), before)
