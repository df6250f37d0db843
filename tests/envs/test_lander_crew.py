"""LunarLander over several processes: the same numbers as in one, and no helper left behind."""

import os
import signal
import subprocess
import sys

import numpy as np
import pytest

pytest.importorskip("qpensieve.envs.lunar_lander", exc_type=ImportError)
from qpensieve import remote
from qpensieve.envs import LaneOptions, Lanes, get_domain, make_lanes
from qpensieve.envs.lander_crew import LanderCrew, make_lander
from qpensieve.envs.lunar_lander import LunarLanderSimulator
from qpensieve.errors import EnvError

SPEC = get_domain("LunarLander5d").spec


@pytest.fixture(scope="module")
def crew():
    crew = LanderCrew(SPEC, 7, num_shares=3)
    yield crew
    crew.close()


def _lanes(simulator, autoreset: bool = True) -> Lanes:
    return Lanes(simulator, 7, 3, LaneOptions(autoreset=autoreset))


@pytest.mark.parametrize("autoreset", [True, False])
def test_a_crew_flies_as_one_process_does(crew: LanderCrew, autoreset: bool):
    alone, together = _lanes(LunarLanderSimulator(SPEC, 7), autoreset), _lanes(crew, autoreset)
    np.testing.assert_array_equal(alone.reset(), together.reset())
    generator = np.random.default_rng(0)
    ends = 0
    for _ in range(150):
        actions = generator.uniform(-1, 1, (7, 2))
        a, b = alone.step(actions), together.step(actions)
        for name in ("obs", "reward", "terminated", "truncated", "last_obs"):
            np.testing.assert_array_equal(getattr(a, name), getattr(b, name), err_msg=name)
        ends += a.done.sum()
    assert ends > 3
    saved = alone.state()
    for name, value in together.state().items():
        np.testing.assert_array_equal(value, saved[name], err_msg=name)


def test_a_state_saved_by_one_process_continues_in_a_crew(crew: LanderCrew):
    alone, together = _lanes(LunarLanderSimulator(SPEC, 7)), _lanes(crew)
    alone.reset()
    actions = np.random.default_rng(1).uniform(-1, 1, (80, 7, 2))
    for a in actions[:50]:
        alone.step(a)
    together.restore(alone.state())
    for a in actions[50:]:
        np.testing.assert_array_equal(alone.step(a).reward, together.step(a).reward)
    np.testing.assert_array_equal(alone.render(6), together.render(6))


def test_lanes_are_reset_in_any_order(crew: LanderCrew):
    alone, together = _lanes(LunarLanderSimulator(SPEC, 7)), _lanes(crew)
    alone.reset()
    together.reset()
    np.testing.assert_array_equal(alone.reset([3, 6, 0]), together.reset([3, 6, 0]))
    actions = np.random.default_rng(1).uniform(-1, 1, (7, 2))
    np.testing.assert_array_equal(alone.step(actions).last_obs, together.step(actions).last_obs)


def test_helpers_are_used_only_where_they_pay():
    assert isinstance(make_lander(SPEC, 31, None), LunarLanderSimulator)
    assert isinstance(make_lander(SPEC, 64, 1), LunarLanderSimulator)
    crew = make_lander(SPEC, 33, 8)
    assert isinstance(crew, LanderCrew)
    assert crew.num_shares == 2
    crew.close()
    with pytest.raises(ValueError, match="num_threads must be at least 1, got 0"):
        make_lander(SPEC, 4, 0)


def test_a_lost_helper_is_an_error_and_not_a_wait():
    crew = LanderCrew(SPEC, 4, num_shares=2)
    lanes = Lanes(crew, 4, 0)
    lanes.reset()
    crew._helpers[0].program.process.kill()
    crew._helpers[0].program.process.wait()
    with pytest.raises(EnvError, match=r"^LunarLander5d: the process that flies lanes 2 to 3 was killed by SIGKILL"):
        lanes.step(np.zeros((4, 2)))
    with pytest.raises(EnvError, match=r"^LunarLander5d: these lanes are closed; make new lanes and restore the saved"):
        lanes.step(np.zeros((4, 2)))


def test_ctrl_c_in_the_middle_of_a_step_closes_the_crew_and_the_saved_state_goes_on(monkeypatch):
    def interrupt(*_):
        raise KeyboardInterrupt

    crew = LanderCrew(SPEC, 4, num_shares=2)
    lanes, alone = Lanes(crew, 4, 0), Lanes(LunarLanderSimulator(SPEC, 4), 4, 0)
    lanes.reset()
    alone.reset()
    process = crew._helpers[0].program.process
    monkeypatch.setattr(crew._own, "advance", interrupt)
    with pytest.raises(KeyboardInterrupt):
        lanes.step(np.ones((4, 2)))
    assert process.poll() is not None
    monkeypatch.undo()
    for command in (lambda: lanes.step(np.ones((4, 2))), lanes.reset, lambda: lanes.render(3)):
        with pytest.raises(RuntimeError, match="LunarLander5d: these lanes are closed; make new lanes and restore"):
            command()
    other = Lanes(LunarLanderSimulator(SPEC, 4), 4, 9)
    other.restore(lanes.state())
    np.testing.assert_array_equal(other.step(np.ones((4, 2))).obs, alone.step(np.ones((4, 2))).obs)


def test_helpers_leave_ctrl_c_to_their_parent(crew: LanderCrew):
    lanes = _lanes(crew)
    lanes.reset()
    for helper in crew._helpers:
        helper.program.process.send_signal(signal.SIGINT)
    for _ in range(3):
        lanes.step(np.zeros((7, 2)))


def test_a_helper_that_does_not_end_by_itself_is_killed(monkeypatch):
    monkeypatch.setattr(remote, "CLOSE_SECONDS", 0.2)
    crew = LanderCrew(SPEC, 4, num_shares=2)
    process = crew._helpers[0].program.process
    process.send_signal(signal.SIGSTOP)
    crew.close()
    assert process.returncode == -signal.SIGKILL


def test_a_script_without_a_main_guard_works_and_leaves_no_process():
    script = (
        "import numpy as np\n"
        "from qpensieve.envs import LaneOptions, make_lanes\n"
        "lanes = make_lanes('LunarLander4d', 32, 0, LaneOptions(num_threads=2))\n"
        "lanes.reset()\n"
        "lanes.step(np.zeros((32, 2)))\n"
        "print(lanes.simulator._helpers[0].program.process.pid)\n"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, timeout=60, check=True)
    with pytest.raises(ProcessLookupError):
        os.kill(int(done.stdout), 0)


def test_lanes_of_64_use_the_crew_by_default(monkeypatch):
    monkeypatch.setattr("os.sched_getaffinity", lambda _: {0, 1})
    lanes = make_lanes("LunarLander4d", 64, 0)
    assert isinstance(lanes.simulator, LanderCrew)
    lanes.close()
