"""Saved lanes: they continue bit for bit, and a state that does not fit is refused before anything changes."""

import numpy as np
import pytest

from qpensieve.envs import LaneOptions, Lanes, make_lanes
from tests.envs.test_lanes import ALL, _actions, _assert_equal_steps, _play

STEPS = 300


@pytest.mark.parametrize("domain", ALL)
def test_save_restore_continue_equals_never_stopping(domain: str):
    actions = _actions(domain, STEPS, 3)
    lanes = make_lanes(domain, 3, seed=2)
    lanes.reset()
    _play(lanes, actions[:137])
    saved = lanes.state()
    straight_on = _play(lanes, actions[137:])
    other = make_lanes(domain, 3, seed=99)
    other.reset()
    _play(other, actions[:20])
    other.restore(saved)
    np.testing.assert_array_equal(other.obs, saved["obs"])
    for a, b in zip(straight_on, _play(other, actions[137:]), strict=True):
        _assert_equal_steps(a, b)
    end, resumed_end = lanes.state(), other.state()
    assert end.keys() == resumed_end.keys()
    for name, value in end.items():
        np.testing.assert_array_equal(value, resumed_end[name], err_msg=name)


def test_a_saved_state_is_not_changed_by_playing_on():
    lanes = make_lanes("Hopper2d", 2, seed=0)
    lanes.reset()
    saved = lanes.state()
    copies = {name: value.copy() for name, value in saved.items()}
    _play(lanes, _actions("Hopper2d", 30, 2))
    for name, value in copies.items():
        np.testing.assert_array_equal(saved[name], value, err_msg=name)


def test_contact_forces_are_saved_too():
    options = LaneOptions(contact_forces=True)
    lanes, other = make_lanes("Ant2d", 2, 0, options), make_lanes("Ant2d", 2, 1, options)
    lanes.reset()
    _play(lanes, _actions("Ant2d", 40, 2))
    other.restore(lanes.state())
    np.testing.assert_array_equal(other.simulator.observe(slice(None)), lanes.simulator.observe(slice(None)))


def _assert_equal_states(one: dict[str, np.ndarray], other: dict[str, np.ndarray]) -> None:
    assert one.keys() == other.keys()
    for name, value in one.items():
        np.testing.assert_array_equal(value, other[name], err_msg=name)


@pytest.mark.parametrize(("seed", "first_lane"), [([8, 5], 0), (8, 3)])
def test_the_next_episodes_come_from_the_saved_streams(seed: int | list[int], first_lane: int):
    lanes = make_lanes("Hopper2d", 2, seed, LaneOptions(first_lane=first_lane))
    lanes.reset()
    other = make_lanes("Hopper2d", 2, seed=0)
    other.reset()
    other.restore(lanes.state())
    np.testing.assert_array_equal(other.reset(), lanes.reset())


def _with_resting_lanes() -> Lanes:
    lanes = make_lanes("Hopper2d", 6, 3, LaneOptions(autoreset=False))
    lanes.reset()
    for actions in _actions("Hopper2d", 100, 6):
        lanes.step(actions)
        if (~lanes.running).sum() >= 2:
            break
    assert lanes.running.any()
    return lanes


def test_resting_lanes_go_on_resting():
    lanes = _with_resting_lanes()
    other = make_lanes("Hopper2d", 6, 0, LaneOptions(autoreset=False))
    other.reset()
    other.restore(lanes.state())
    np.testing.assert_array_equal(other.running, lanes.running)
    for actions in _actions("Hopper2d", 5, 6):
        _assert_equal_steps(lanes.step(actions), other.step(actions))


def test_resting_lanes_are_refused_where_lanes_never_rest():
    lanes = _with_resting_lanes()
    resting = ", ".join(map(str, np.flatnonzero(~lanes.running)))
    other = make_lanes("Hopper2d", 6, seed=0)
    with pytest.raises(ValueError, match=f"Hopper2d: the episodes of lanes {resting} are over.*autoreset=False"):
        other.restore(lanes.state())


def test_a_state_saved_before_the_first_reset_starts_the_same_episodes():
    lanes, other = make_lanes("Hopper2d", 2, seed=4), make_lanes("Hopper2d", 2, seed=0)
    other.restore(lanes.state())
    np.testing.assert_array_equal(other.reset(), lanes.reset())


@pytest.mark.lander
def test_a_state_needs_no_pickle(tmp_path):
    lanes, other = make_lanes("LunarLander4d", 2, seed=4), make_lanes("LunarLander4d", 2, seed=0)
    lanes.reset()
    _play(lanes, _actions("LunarLander4d", 70, 2))
    np.savez(tmp_path / "lanes.npz", **lanes.state())  # pyright: ignore[reportArgumentType]
    with np.load(tmp_path / "lanes.npz", allow_pickle=False) as file:
        other.restore(dict(file))
    _assert_equal_states(other.state(), lanes.state())


def _without(name: str):
    return lambda state: {key: value for key, value in state.items() if key != name}


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda state: state | {"version": np.array(99)}, "must have format version 1, got 99"),
        (_without("version"), "must have format version 1, got none"),
        (lambda state: state | {"id": np.array("Hopper3d")}, "lane state must be of Hopper2d, got Hopper3d"),
        (_without("id"), "lane state must be of Hopper2d, got an unnamed domain"),
        (_without("running"), r"Hopper2d: missing arrays \['running'\], unknown arrays \[\]"),
        (lambda state: state | {"simulator/wind": np.zeros(2)}, r"unknown arrays \['simulator/wind'\]"),
        (lambda _: make_lanes("Hopper2d", 3, seed=0).state(), "must hold 2 lanes .* 11 numbers, got 3 lanes"),
        (lambda state: state | {"simulator/physics": np.zeros((2, 5))}, r"physics must have shape .*, got \(2, 5\)"),
    ],
)
def test_a_state_that_does_not_fit_is_refused_and_changes_nothing(change, message: str):
    lanes, saved = make_lanes("Hopper2d", 2, seed=1), make_lanes("Hopper2d", 2, seed=0)
    lanes.reset()
    saved.reset()
    _play(saved, _actions("Hopper2d", 3, 2))
    before = lanes.state()
    with pytest.raises(ValueError, match=message):
        lanes.restore(change(saved.state()))
    _assert_equal_states(lanes.state(), before)


@pytest.mark.lander
def test_a_domain_of_the_same_sizes_is_not_the_same_domain():
    saved = make_lanes("LunarLander5d", 2, seed=0).state()
    with pytest.raises(ValueError, match="lane state must be of LunarLander4d, got LunarLander5d"):
        make_lanes("LunarLander4d", 2, seed=0).restore(saved)
