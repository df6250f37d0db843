"""The MuJoCo domains against Gymnasium's own v4 environments, step by step, in float64."""

from collections.abc import Callable
from dataclasses import replace

import mujoco
import numpy as np
import pytest
from gymnasium.envs.mujoco.ant_v4 import AntEnv
from gymnasium.envs.mujoco.half_cheetah_v4 import HalfCheetahEnv
from gymnasium.envs.mujoco.hopper_v4 import HopperEnv
from gymnasium.envs.mujoco.mujoco_env import MujocoEnv
from gymnasium.envs.mujoco.walker2d_v4 import Walker2dEnv

from qpensieve.envs import LaneOptions, Lanes, Simulator, make_lanes
from qpensieve.envs.mujoco import Body, is_ant_healthy, is_hopper_healthy, is_walker_healthy, quiet_mujoco

NUM_STATES, NUM_LANES = {"Hopper3d": 40, "Hopper5d": 40, "Ant3d": 40}, 4
"""States that are compared: 120, and less of a robot's further reward vectors."""
FLOAT64 = LaneOptions(dtype=np.float64)


def _cost(a: np.ndarray) -> float:
    return float((a**2).sum())


# What each reward vector should be, from what Gymnasium has: forward velocity, the environment after the step, action.
REWARDS: dict[str, Callable[[float, MujocoEnv, np.ndarray], list[float]]] = {
    "HalfCheetah2d": lambda vx, env, a: [1.1 * vx, -0.7 * _cost(a)],
    "Hopper2d": lambda vx, env, a: [vx, -1.5 * _cost(a)],
    "Hopper3d": lambda vx, env, a: [vx, 15 * (env.data.qpos[1] - env.init_qpos[1]), -1.5 * _cost(a)],
    "Hopper5d": lambda vx, env, a: [vx, -1.5 * a[0] ** 2, -1.5 * a[1] ** 2, -1.5 * a[2] ** 2, env.healthy_reward],  # pyright: ignore
    "Ant2d": lambda vx, env, a: [vx, -0.5 * _cost(a)],
    "Ant3d": lambda vx, env, a: [vx, env.healthy_reward, -0.5 * _cost(a)],  # pyright: ignore
    "Walker2d": lambda vx, env, a: [vx, -_cost(a)],
}
BODIES = {"HalfCheetah": HalfCheetahEnv, "Hopper": HopperEnv, "Ant": AntEnv, "Walker": Walker2dEnv}


def _gymnasium_env(domain: str, **kwargs: bool) -> MujocoEnv:
    with quiet_mujoco():
        return next(make for name, make in BODIES.items() if domain.startswith(name))(**kwargs)


def _poses(lanes: Lanes, env: MujocoEnv) -> tuple[np.ndarray, np.ndarray]:
    physics = lanes.state()["simulator/physics"]
    nq, nv = env.model.nq, env.model.nv
    return physics[:, 1 : 1 + nq], physics[:, 1 + nq : 1 + nq + nv]


@pytest.mark.parametrize("domain", REWARDS)
def test_one_step_from_visited_states_equals_gymnasiums(domain: str):
    env = _gymnasium_env(domain)
    lanes = make_lanes(domain, NUM_LANES, seed=3, options=FLOAT64)
    lanes.reset()
    costs = [name.startswith("control") for name in lanes.spec.objectives]
    assert not np.signbit(lanes.step(np.zeros((NUM_LANES, lanes.spec.action_size))).reward[:, costs]).any()
    generator = np.random.default_rng(0)
    ends = 0
    for _ in range(NUM_STATES.get(domain, 120) // NUM_LANES):
        poses = _poses(lanes, env)
        actions = generator.uniform(-1, 1, (NUM_LANES, lanes.spec.action_size))
        step = lanes.step(actions)
        for lane in range(NUM_LANES):
            env.reset()
            env.set_state(poses[0][lane], poses[1][lane])
            x_before = env.data.qpos[0]
            obs, _, terminated, _, info = env.step(actions[lane])
            # Gymnasium's Ant reads the torso's position one simulator step late; ours reads qpos.
            vx = (env.data.qpos[0] - x_before) / env.dt if domain.startswith("Ant") else info["x_velocity"]
            np.testing.assert_allclose(step.last_obs[lane], obs, rtol=0, atol=1e-9)
            np.testing.assert_allclose(step.reward[lane], REWARDS[domain](vx, env, actions[lane]), rtol=0, atol=1e-9)
            assert step.terminated[lane] == terminated
            ends += terminated
    assert ends > 0 or domain not in ("Hopper2d", "Walker2d")


def set_pose(simulator: Simulator, lane: int, qpos: np.ndarray, qvel: np.ndarray) -> None:
    """Put a lane into a position and velocity."""
    state, posture = simulator.state(), np.concatenate([qpos, qvel])
    state["physics"][lane, 1 : 1 + len(posture)] = posture  # the clock comes first
    simulator.restore(state)


@pytest.mark.parametrize(("domain", "height"), [("Ant3d", 1.2), ("Walker2d", 0.75)])
def test_leaving_the_healthy_range_terminates_as_in_gymnasium(domain: str, height: float):
    env = _gymnasium_env(domain)
    lanes = make_lanes(domain, 1, seed=0, options=FLOAT64)
    lanes.reset()
    qpos = env.init_qpos.copy()
    qpos[2 if domain == "Ant3d" else 1] = height
    set_pose(lanes.simulator, 0, qpos, np.zeros(env.model.nv))
    env.reset()
    env.set_state(qpos, np.zeros(env.model.nv))
    action = np.zeros(lanes.spec.action_size, np.float32)
    _, _, terminated, _, _ = env.step(action)
    step = lanes.step(action[None])
    assert terminated
    assert step.terminated[0]
    assert not step.truncated[0]
    assert domain != "Ant3d" or step.reward[0, 1] == 1.0  # paid for health on its last step too


@pytest.mark.parametrize(
    ("is_healthy", "index", "value", "expected"),
    [
        (is_ant_healthy, 2, 0.2, True),
        (is_ant_healthy, 2, 0.1999, False),
        (is_ant_healthy, 2, 1.0, True),
        (is_ant_healthy, 7, np.inf, False),
        (is_hopper_healthy, 1, 0.7, False),
        (is_hopper_healthy, 1, 0.701, True),
        (is_hopper_healthy, 2, 0.2, False),
        (is_hopper_healthy, 4, 100.0, False),
        (is_hopper_healthy, 0, 1e6, True),  # how far it has come does not matter
        (is_walker_healthy, 1, 2.0, False),
        (is_walker_healthy, 1, 0.8, False),
        (is_walker_healthy, 2, -1.0, False),
        (is_walker_healthy, 4, 1e3, True),
    ],
)
def test_health_is_judged_at_the_exact_bounds(is_healthy, index: int, value: float, expected: bool):
    posture = np.zeros((2, {is_hopper_healthy: 12, is_walker_healthy: 18, is_ant_healthy: 29}[is_healthy]))
    posture[:, 1:3] = (0.9, 0.0) if is_healthy is not is_ant_healthy else (0.0, 0.5)
    posture[1, index] = value
    np.testing.assert_array_equal(is_healthy(posture), [True, expected])


@pytest.mark.parametrize("domain", ["Hopper2d", "Ant2d"])
def test_resets_have_the_noise_of_gymnasiums(domain: str):
    env = _gymnasium_env(domain)
    lanes = make_lanes(domain, 400, seed=0, options=FLOAT64)
    lanes.reset()
    qpos, qvel = _poses(lanes, env)
    samples = []
    for seed in range(400):
        env.reset(seed=seed)
        samples.append(np.concatenate([env.data.qpos, env.data.qvel]))
    theirs, ours = np.array(samples), np.concatenate([qpos, qvel], axis=1)
    scale = theirs.std(axis=0)
    # 400 draws: two means differ by 0.07 scale, two spreads by 5 % (normal). Five sigma each.
    np.testing.assert_array_less(np.abs(theirs.mean(axis=0) - ours.mean(axis=0)) / scale, 0.36)
    np.testing.assert_array_less(np.abs(ours.std(axis=0) / scale - 1), 0.25)
    np.testing.assert_allclose(np.abs(ours).max(axis=0), np.abs(theirs).max(axis=0), rtol=0.6)
    if domain == "Ant2d":
        noise = np.abs(qpos - env.init_qpos).max(axis=0)
        assert (noise <= 0.1).all()
        assert (noise > 0.095).all()  # 400 draws all stay below that once in 1e9


def test_the_number_of_threads_does_not_change_the_numbers():
    one, three = (make_lanes("Hopper5d", 7, 0, LaneOptions(num_threads=threads)) for threads in (1, 3))
    np.testing.assert_array_equal(one.reset(), three.reset())
    for actions in np.random.default_rng(0).uniform(-1, 1, (60, 7, 3)):
        np.testing.assert_array_equal(one.step(actions).obs, three.step(actions).obs)


def test_actions_are_clipped_before_physics_and_before_costs():
    near, far = (make_lanes("Hopper2d", 1, seed=0, options=FLOAT64) for _ in range(2))
    near.reset()
    far.reset()
    a, b = near.step(np.ones((1, 3))), far.step(np.full((1, 3), 7.0))
    np.testing.assert_array_equal(a.last_obs, b.last_obs)
    np.testing.assert_array_equal(a.reward, b.reward)
    assert b.reward[0, 1] == -4.5
    set_pose(near.simulator, 0, np.array([0.0, 1.25, 0, 0, 0, 0]), np.full(6, -50.0))
    assert (near.simulator.observe(slice(None))[0, 5:] == -10.0).all()  # so are observed velocities


def test_ant_contact_forces_are_gymnasiums_of_each_lane():
    env, forces = _gymnasium_env("Ant2d", use_contact_forces=True), slice(27, None)
    lanes = make_lanes("Ant2d", 2, seed=1, options=LaneOptions(dtype=np.float64, contact_forces=True))
    assert lanes.spec.obs_size == 111
    assert not lanes.reset()[:, forces].any()
    touched = np.zeros(2)
    for actions in np.random.default_rng(0).uniform(-1, 1, (40, 2, 8)):
        poses = _poses(lanes, env)
        step = lanes.step(actions)
        for lane in range(2):
            env.reset()
            env.set_state(poses[0][lane], poses[1][lane])
            np.testing.assert_allclose(step.last_obs[lane], env.step(actions[lane])[0], rtol=0, atol=1e-9)
        touched += step.last_obs[:, forces].any(axis=1)
    assert (touched > 5).all()
    before, after = lanes.obs, lanes.reset([1])
    assert not after[1, forces].any()
    np.testing.assert_array_equal(after[0], before[0])


@pytest.mark.parametrize(("domain", "options"), [("Hopper2d", FLOAT64), ("Ant2d", LaneOptions(contact_forces=True))])
def test_diverged_physics_is_an_error_with_lane_and_step_and_leaves_no_log(
    domain, options, tmp_path, monkeypatch, capfd
):
    monkeypatch.chdir(tmp_path)
    lanes = make_lanes(domain, 4, 0, replace(options, autoreset=False, first_lane=10))
    lanes.reset()
    still = np.zeros((4, lanes.spec.action_size))
    lanes.step(still)
    lanes.running[0] = False  # so that rows of the simulator are not lane numbers
    nq, nv = lanes.simulator._nq, lanes.simulator._nv  # pyright: ignore
    set_pose(lanes.simulator, 2, lanes.state()["simulator/physics"][2, 1 : 1 + nq], np.full(nv, 1e9))
    before = lanes.state()
    with pytest.raises(
        FloatingPointError, match=rf"{domain}: the physics diverged .* in lane 12 at step 2 of episode 0"
    ):
        lanes.step(still)
    for name, value in lanes.state().items():
        np.testing.assert_array_equal(value, before[name], err_msg=name)
    lanes.reset([2])
    lanes.step(still)
    assert Body("half_cheetah.xml", 5, 1, 1, 0.1, True, None, None).model.nq == 9  # loading it would log, too
    log = mujoco.MjLogConfig.get()
    assert log.logto_file
    assert log.logto_console  # as it was
    assert list(tmp_path.iterdir()) == []
    assert not "".join(capfd.readouterr())
