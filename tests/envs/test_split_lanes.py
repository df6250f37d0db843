"""Lanes split over processes: the same numbers as in one process, and no process is left behind."""

import gc
import os
import signal
import weakref
from collections.abc import Callable, Iterator
from dataclasses import replace

import numpy as np
import pytest

from qpensieve.envs import LaneOptions, Lanes, get_domain, make_lanes
from qpensieve.envs.gym_lanes import describe, make_simulator
from qpensieve.envs.simulator import Simulator
from qpensieve.envs.split_lanes import SplitSimulator
from qpensieve.errors import EnvError, UserError
from tests.envs import foreign
from tests.envs.test_lanes import assert_equal_steps, play
from tests.envs.test_saving import assert_equal_states

SPEC = get_domain("LunarLander5d").spec
NOISY = "tests.envs.foreign:Noisy"
EXACT = LaneOptions(dtype=np.float64)
NUM_LANES, NUM_PARTS = 5, 2


def foreign_simulator(num_parts: int) -> Simulator:
    return make_simulator(NOISY, NUM_LANES, num_parts)


def lander(num_parts: int) -> Simulator:
    lunar_lander = pytest.importorskip("qpensieve.envs.lunar_lander", exc_type=ImportError)
    if num_parts == 0:
        return lunar_lander.LunarLanderSimulator(SPEC, NUM_LANES)
    make = lambda num, first: (lunar_lander.LunarLanderSimulator, (SPEC, num))
    return SplitSimulator(SPEC.id, NUM_LANES, num_parts, make, is_first_here=True)


Kind = Callable[[int], Simulator]
"""Number of parts -> the simulator; 0: in this process alone."""


@pytest.fixture(scope="module", params=[foreign_simulator, lander], ids=["foreign", "lander"])
def pair(request: pytest.FixtureRequest) -> Iterator[tuple[Kind, SplitSimulator]]:
    """One kind of simulator, and a split one for every test that leaves it usable: starting it takes the time."""
    split = request.param(NUM_PARTS)
    assert isinstance(split, SplitSimulator)
    yield request.param, split
    split.close()


def lanes_of(simulator: Simulator, seed: int = 3, options: LaneOptions = EXACT) -> Lanes:
    return Lanes(simulator, NUM_LANES, seed, options)


def draw_actions(num_steps: int = 20, seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed).uniform(-1.2, 1.2, (num_steps, NUM_LANES, 2))


@pytest.mark.parametrize("autoreset", [True, False])
def test_split_lanes_give_the_numbers_of_one_process(pair: tuple[Kind, SplitSimulator], autoreset: bool):
    kind, split = pair
    options = replace(EXACT, autoreset=autoreset)
    alone, together = lanes_of(kind(0), options=options), lanes_of(split, options=options)
    np.testing.assert_array_equal(alone.reset(), together.reset())
    for lanes in ([4, 0, 3], [4, 0, 3, 1, 2]):
        np.testing.assert_array_equal(alone.reset(lanes), together.reset(lanes))
    actions = draw_actions(150)
    steps = play(alone, actions)
    for one, other in zip(steps, play(together, actions), strict=True):
        assert_equal_steps(one, other)
    assert sum(step.done.sum() for step in steps) > 2
    assert_equal_states(alone.state(), together.state())


def test_each_continues_what_the_other_saved_and_processes_leave_ctrl_c_to_their_parent(
    pair: tuple[Kind, SplitSimulator],
):
    kind, split = pair
    actions = draw_actions(80, seed=1)
    alone, together, back = lanes_of(kind(0), seed=8), lanes_of(split), lanes_of(kind(0))
    alone.reset()
    play(alone, actions[:50])
    saved = alone.state()
    together.restore(saved)
    assert_equal_states(together.state(), saved)
    for process in split.processes:
        process.process.send_signal(signal.SIGINT)
    for one, other in zip(play(alone, actions[50:]), play(together, actions[50:]), strict=True):
        assert_equal_steps(one, other)
    back.restore(together.state())
    for one, other in zip(play(together, actions[:10]), play(back, actions[:10]), strict=True):
        assert_equal_steps(one, other)


def test_specs_and_pictures_come_from_the_processes(pair: tuple[Kind, SplitSimulator]):
    kind, split = pair
    if kind is foreign_simulator:
        assert split.spec == describe(foreign.Noisy(), NOISY)
        with pytest.raises(RuntimeError, match="render_mode=None"):
            split.render(3)
        return
    alone, together = lanes_of(kind(0)), lanes_of(split)
    alone.reset()
    together.reset()
    for lane in (0, 4):
        np.testing.assert_array_equal(alone.render(lane), together.render(lane))


@pytest.mark.lander
def test_an_error_in_the_first_part_leaves_the_other_parts_alive(monkeypatch: pytest.MonkeyPatch):
    def broken(*_: object) -> None:
        raise RuntimeError("the first part fails")

    split = lander(2)
    assert isinstance(split, SplitSimulator)
    lanes = lanes_of(split)
    lanes.reset()
    saved, actions = lanes.state(), np.zeros((NUM_LANES, 2))
    monkeypatch.setattr(split._here[0], "play", broken)
    with pytest.raises(RuntimeError, match="the first part fails"):
        lanes.step(actions)
    monkeypatch.undo()
    lanes.restore(saved)
    assert lanes.step(actions).obs.shape[0] == NUM_LANES
    lanes.close()


@pytest.mark.lander
def test_landers_use_processes_only_where_they_pay(monkeypatch: pytest.MonkeyPatch):
    from qpensieve.envs import lunar_lander

    for num_lanes, num_processes in ((31, None), (64, 1)):
        made = lunar_lander.make_lander(SPEC, num_lanes, num_processes)
        assert isinstance(made, lunar_lander.LunarLanderSimulator)
    monkeypatch.setattr("os.sched_getaffinity", lambda _: {0, 1})
    lanes = make_lanes("LunarLander4d", 33, 0)
    assert isinstance(lanes.simulator, SplitSimulator)
    assert len(lanes.simulator.processes) == 1
    lanes.close()


def test_an_error_names_the_global_lane_and_a_garbage_collected_simulator_ends_its_processes():
    simulator = make_simulator(foreign.Raising, 2, 2, first_lane=10)
    assert isinstance(simulator, SplitSimulator)
    seeds = [next(s for s in range(99) if sign * np.random.default_rng(s).normal() > 0) for sign in (1, -1)]
    simulator.start(np.arange(2), np.array(seeds))
    for _ in range(2):
        simulator.advance(slice(None), np.zeros((2, 2)))
    with pytest.raises(EnvError, match=r"Raising: .* lane 11 at step 3 of its episode: ZeroDivisionError: ") as caught:
        simulator.advance(slice(None), np.zeros((2, 2)))
    assert "1 / 0" in str(caught.value.__cause__)
    processes = [os.pidfd_open(one.process.pid) for one in simulator.processes]
    gone = weakref.ref(simulator)
    del simulator, caught
    gc.collect()
    assert gone() is None
    for process in processes:
        with pytest.raises(ProcessLookupError):
            signal.pidfd_send_signal(process, 0)
        os.close(process)


def test_unusable_environments_and_numbers_are_refused(monkeypatch: pytest.MonkeyPatch):
    with pytest.raises(UserError, match=r"ScalarReward: the reward must be a vector"):
        make_simulator(foreign.ScalarReward, 1, 4)
    monkeypatch.setattr(foreign.PointMass, "__module__", "__main__")
    for source in (foreign.PointMass, lambda: foreign.Noisy()):
        with pytest.raises(ValueError, match=r"cannot be sent to worker processes"):
            make_simulator(source, 2, 2)
