"""Lanes split over processes: the same numbers as in one process, and no process is left behind."""

import gc
import os
import signal
import subprocess
import sys
import weakref
from collections.abc import Callable, Iterator
from dataclasses import replace

import numpy as np
import pytest

from qpensieve.envs import LaneOptions, Lanes, get_domain, make_lanes
from qpensieve.envs.gym_lanes import GymSimulator, make_simulator
from qpensieve.envs.simulator import Simulator, State
from qpensieve.envs.spaces import describe
from qpensieve.envs.split_lanes import SplitSimulator
from qpensieve.errors import EnvError, UserError
from qpensieve.types import Step
from tests.envs import foreign

SPEC = get_domain("LunarLander5d").spec
NOISY = "tests.envs.foreign:Noisy"
EXACT = LaneOptions(dtype=np.float64)
NUM_LANES, NUM_PARTS = 5, 2
FIELDS = ("obs", "reward", "terminated", "truncated", "last_obs")


def foreign_simulator(num_parts: int) -> Simulator:
    return make_simulator(NOISY, NUM_LANES, num_parts)


def lander(num_parts: int) -> Simulator:
    lunar_lander = pytest.importorskip("qpensieve.envs.lunar_lander", exc_type=ImportError)
    if num_parts == 0:
        return lunar_lander.LunarLanderSimulator(SPEC, NUM_LANES)
    return lunar_lander.split_lander(SPEC, NUM_LANES, num_parts)


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


def run(lanes: Lanes, actions: np.ndarray) -> list[Step]:
    return [lanes.step(a) for a in actions]


def assert_steps_equal(some: list[Step], others: list[Step]) -> None:
    for one, other in zip(some, others, strict=True):
        for field in FIELDS:
            np.testing.assert_array_equal(getattr(one, field), getattr(other, field), err_msg=field)


def assert_states_equal(one: State, other: State) -> None:
    assert one.keys() == other.keys()
    for name in one:
        np.testing.assert_array_equal(one[name], other[name], err_msg=name)


@pytest.mark.parametrize("autoreset", [True, False])
def test_split_lanes_give_the_numbers_of_one_process(pair: tuple[Kind, SplitSimulator], autoreset: bool):
    kind, split = pair
    options = replace(EXACT, autoreset=autoreset)
    alone, together = lanes_of(kind(0), options=options), lanes_of(split, options=options)
    np.testing.assert_array_equal(alone.reset(), together.reset())
    np.testing.assert_array_equal(alone.reset([4, 0, 3]), together.reset([4, 0, 3]))
    actions = draw_actions(150)
    steps = run(alone, actions)
    assert_steps_equal(steps, run(together, actions))
    assert sum(step.done.sum() for step in steps) > 2
    assert_states_equal(alone.state(), together.state())


def test_each_continues_what_the_other_saved(pair: tuple[Kind, SplitSimulator]):
    kind, split = pair
    actions = draw_actions(80, seed=1)
    alone, together, back = lanes_of(kind(0), seed=8), lanes_of(split), lanes_of(kind(0))
    alone.reset()
    run(alone, actions[:50])
    saved = alone.state()
    together.restore(saved)
    assert_states_equal(together.state(), saved)
    assert_steps_equal(run(alone, actions[50:]), run(together, actions[50:]))
    back.restore(together.state())
    assert_steps_equal(run(together, actions[:10]), run(back, actions[:10]))


def test_processes_leave_ctrl_c_to_their_parent(pair: tuple[Kind, SplitSimulator]):
    lanes = lanes_of(pair[1])
    lanes.reset()
    for process in pair[1].processes:
        process.process.send_signal(signal.SIGINT)
    run(lanes, draw_actions(3))


def test_ctrl_c_within_a_step_ends_the_processes_and_the_saved_state_continues(monkeypatch: pytest.MonkeyPatch):
    def interrupt(*_: object) -> None:
        raise KeyboardInterrupt

    split = foreign_simulator(NUM_PARTS)
    assert isinstance(split, SplitSimulator)
    lanes, alone = lanes_of(split), lanes_of(foreign_simulator(0))
    lanes.reset()
    alone.reset()
    processes = [one.process for one in split.processes]
    monkeypatch.setattr(split.processes[0], "receive", interrupt)
    with pytest.raises(KeyboardInterrupt):
        lanes.step(np.ones((NUM_LANES, 2)))
    assert all(process.poll() is not None for process in processes)
    monkeypatch.undo()
    with pytest.raises(EnvError, match="is closed"):
        lanes.step(np.ones((NUM_LANES, 2)))
    other = lanes_of(foreign_simulator(0), seed=9)
    other.restore(lanes.state())
    np.testing.assert_array_equal(other.step(np.ones((NUM_LANES, 2))).obs, alone.step(np.ones((NUM_LANES, 2))).obs)


class TestLander:
    def test_processes_are_used_only_where_they_pay(self):
        lunar_lander = pytest.importorskip("qpensieve.envs.lunar_lander", exc_type=ImportError)
        for num_lanes, num_processes in ((31, None), (64, 1)):
            made = lunar_lander.make_lander(SPEC, num_lanes, num_processes)
            assert isinstance(made, lunar_lander.LunarLanderSimulator)
        split = lunar_lander.make_lander(SPEC, 33, 8)
        assert len(split.processes) == 2
        split.close()
        with pytest.raises(ValueError, match="num_threads must be at least 1, got 0"):
            lunar_lander.make_lander(SPEC, 4, 0)

    def test_lanes_of_64_are_split_by_default(self, monkeypatch: pytest.MonkeyPatch):
        monkeypatch.setattr("os.sched_getaffinity", lambda _: {0, 1})
        lanes = make_lanes("LunarLander4d", 64, 0)
        assert isinstance(lanes.simulator, SplitSimulator)
        lanes.close()

    def test_a_lost_process_is_an_error_and_not_a_wait(self):
        split = lander(2)
        assert isinstance(split, SplitSimulator)
        lanes = lanes_of(split)
        lanes.reset()
        split.processes[0].process.kill()
        for _ in range(2):
            with pytest.raises(
                EnvError, match=r"^LunarLander5d: the process that steps lanes 0 to 1 was killed by SIG"
            ):
                lanes.step(np.zeros((NUM_LANES, 2)))
        split.close()

    def test_pictures_come_from_the_process_that_has_the_lane(self, pair: tuple[Kind, SplitSimulator]):
        if pair[0] is not lander:
            pytest.skip("the foreign environments here are not drawn")
        alone, together = lanes_of(lander(0)), lanes_of(pair[1])
        alone.reset()
        together.reset()
        for lane in (0, 4):
            np.testing.assert_array_equal(alone.render(lane), together.render(lane))

    def test_a_script_without_a_main_guard_works_and_leaves_no_process(self):
        script = (
            "import numpy as np\n"
            "from qpensieve.envs import LaneOptions, make_lanes\n"
            "lanes = make_lanes('LunarLander4d', 32, 0, LaneOptions(num_threads=2))\n"
            "lanes.reset()\n"
            "lanes.step(np.zeros((32, 2)))\n"
            "print(lanes.simulator.processes[0].process.pid)\n"
        )
        done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, timeout=60, check=True)
        with pytest.raises(ProcessLookupError):
            os.kill(int(done.stdout), 0)


class TestForeign:
    def test_processes_describe_and_refuse_to_draw_like_one(self, pair: tuple[Kind, SplitSimulator]):
        if pair[0] is not foreign_simulator:
            pytest.skip("of foreign environments")
        assert pair[1].spec == describe(foreign.Noisy(), NOISY)
        with pytest.raises(RuntimeError, match="render_mode=None"):
            pair[1].render(3)

    def test_a_garbage_collected_simulator_ends_its_processes_and_an_error_names_the_global_lane(self):
        simulator = make_simulator(foreign.Raising, 2, 2, first_lane=10)
        assert isinstance(simulator, SplitSimulator)
        seeds = [next(s for s in range(99) if np.random.default_rng(s).normal() > 0)] * 2
        seeds[1] = next(s for s in range(99) if np.random.default_rng(s).normal() < 0)
        simulator.start(np.arange(2), np.array(seeds))
        for _ in range(2):
            simulator.advance(slice(None), np.zeros((2, 2)))
        with pytest.raises(
            EnvError, match=r"Raising: .* lane 11 at step 3 of its episode: ZeroDivisionError: "
        ) as caught:
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

    def test_warnings_of_processes_have_no_colours(self, capfd: pytest.CaptureFixture[str]):
        make_simulator("tests.envs.foreign:Colourful", 2, 2).close()
        assert capfd.readouterr().err.splitlines() == ["qpensieve: WARN: the rope is frayed"] * 2

    def test_a_dead_process_is_an_error_and_not_a_wait(self):
        simulator = make_simulator(foreign.Dying, 3, 3)
        assert isinstance(simulator, SplitSimulator)
        simulator.start(np.arange(3), np.arange(3))
        simulator.processes[0].process.kill()
        with pytest.raises(EnvError, match="Dying: the process that steps lanes 0 to 0 was killed by SIGKILL"):
            simulator.advance(slice(None), np.zeros((3, 2)))
        simulator.advance(np.array([1, 2]), np.zeros((2, 2)))
        with pytest.raises(EnvError, match="lanes 2 to 2 ended with exit code 7"):
            simulator.advance(np.array([2]), np.zeros((1, 2)))
        simulator.close()
        simulator.close()

    def test_an_unusable_environment_is_refused(self):
        with pytest.raises(UserError, match=r"IntegerBox: action space must be .*, got Box"):
            make_simulator(foreign.IntegerBox, 1, 4)

    @pytest.mark.parametrize("is_of_the_script", [False, True])
    def test_a_factory_that_another_process_cannot_find_is_refused(
        self, is_of_the_script: bool, monkeypatch: pytest.MonkeyPatch
    ):
        factory = foreign.PointMass if is_of_the_script else lambda: foreign.PointMass()
        if is_of_the_script:
            monkeypatch.setattr(foreign.PointMass, "__module__", "__main__")
        with pytest.raises(ValueError, match=r"cannot be sent to worker processes.* top level of a module"):
            make_simulator(factory, 2, 2)

    @pytest.mark.parametrize("num_workers", [-1, 1])
    def test_counts_below_one_are_refused(self, num_workers: int):
        with pytest.raises(ValueError, match="at least one worker and one lane"):
            make_simulator(foreign.PointMass, 0, num_workers)
        with pytest.raises(ValueError, match="num_lanes must be at least 1"):
            make_simulator(foreign.PointMass, 0)


def test_one_process_is_the_plain_simulator():
    assert isinstance(foreign_simulator(0), GymSimulator)
