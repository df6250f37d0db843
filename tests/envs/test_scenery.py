"""What simulators say of their looks agrees with their state."""

import mujoco
import numpy as np
import pytest

from qpensieve.envs import LaneOptions, Lanes, make_lanes
from qpensieve.envs.deep_sea import VALUES
from qpensieve.envs.gym_lanes import GymSimulator
from qpensieve.envs.mujoco import ANT, FULL_PHYSICS, HALF_CHEETAH, HOPPER, PUSH_SPEED, Body, MujocoSimulator
from qpensieve.envs.scenery import BodyScene, PlaneScene, Pushable, Scenic
from qpensieve.envs.sources import resolve
from tests.watch import foreign

NAMES = ("Hopper2d", "HalfCheetah2d", "Walker2d", "Ant3d", "LunarLander5d", "DST2d", "DeepSeaTreasure")


def one_lane(name: str, is_drawn: bool = False) -> Lanes:
    lanes = make_lanes(name, 1, 3, LaneOptions(autoreset=False, num_threads=1, is_drawn=is_drawn))
    lanes.reset()
    return lanes


def act(lanes: Lanes, seed: int = 0) -> None:
    size = lanes.spec.action_size
    index = np.ones((1, 1)) if lanes.spec.num_actions else None
    lanes.step(np.random.default_rng(seed).uniform(-1, 1, (1, size)) if index is None else index)


@pytest.mark.parametrize("name", NAMES)
def test_a_pose_has_the_numbers_that_its_scene_announces(name: str):
    lanes = one_lane(name)
    simulator = lanes.simulator
    assert isinstance(simulator, Scenic)
    scene = simulator.scene()
    size = 3 + 7 * len(scene.geoms) if isinstance(scene, BodyScene) else 3 * len(scene.parts) + len(scene.signals)
    assert (simulator.moments, simulator.pose().shape) == (1, (size,))
    start = simulator.pose()
    act(lanes)
    assert simulator.pose().shape == (size,)
    assert (simulator.pose() != start).any()
    lanes.close()


def test_a_robots_pose_is_that_of_mujoco_at_every_substep():
    lanes = one_lane("HalfCheetah2d")
    simulator = lanes.simulator
    assert isinstance(simulator, MujocoSimulator)
    before = simulator.state()["physics"]
    act(lanes)
    data, actions = mujoco.MjData(HALF_CHEETAH.model), np.random.default_rng(0).uniform(-1, 1, (1, 6))
    assert simulator.moments == HALF_CHEETAH.frame_skip == 5
    for moment, state in enumerate(simulator.run_physics(before, actions)[0].copy()):
        mujoco.mj_setState(HALF_CHEETAH.model, data, state, FULL_PHYSICS)
        mujoco.mj_forward(HALF_CHEETAH.model, data)
        act_again = simulator.pose(moment)
        assert act_again[:3] == pytest.approx(data.subtree_com[1])
        geoms = act_again[3:].reshape(-1, 7)
        assert geoms[:, :3] == pytest.approx(data.geom_xpos)
        turned = np.empty(9)
        mujoco.mju_quat2Mat(turned, geoms[2, 3:])
        assert turned == pytest.approx(data.geom_xmat[2], abs=1e-6)


@pytest.mark.parametrize(("name", "body"), [("Hopper2d", HOPPER), ("Ant3d", ANT)])
def test_a_push_is_so_fast_at_the_torso_and_leaves_the_pose(name: str, body: Body):
    lanes = one_lane(name)
    simulator = lanes.simulator
    assert isinstance(simulator, MujocoSimulator)
    act(lanes)
    poses = [simulator.pose(moment) for moment in range(simulator.moments)]
    before = simulator.state()["physics"][0]
    simulator.push(np.random.default_rng(0))
    after = simulator.state()["physics"][0]
    assert [*map(tuple, poses)] == [tuple(simulator.pose(moment)) for moment in range(simulator.moments)]
    model = body.model
    speeds = []
    for state in (before, after):
        data = mujoco.MjData(model)
        mujoco.mj_setState(model, data, state, FULL_PHYSICS)
        mujoco.mj_forward(model, data)
        speed = np.zeros(6)
        mujoco.mj_objectVelocity(model, data, mujoco.mjtObj.mjOBJ_BODY, 1, speed, 0)
        speeds.append(speed[3:5])
    change = np.linalg.norm(speeds[1] - speeds[0])
    assert change == pytest.approx(PUSH_SPEED, rel=0.05)
    act(lanes)  # and physics goes on


@pytest.mark.lander
def test_a_lander_has_its_terrain_engines_and_push():
    lanes = one_lane("LunarLander5d")
    simulator = lanes.simulator
    assert isinstance(simulator, Scenic)
    assert isinstance(simulator, Pushable)
    first = simulator.ground()
    assert [shape.role for shape in first] == ["terrain", "pad", "flag", "flag"]
    assert len(first[0].points) > 10
    lanes.step(np.array([[1.0, -1.0]]))
    assert simulator.pose()[-2:].tolist() == [1.0, -1.0]  # both engines, the side one to the left
    velocity = lanes.obs[0, 2:4]
    simulator.push(np.random.default_rng(0))
    lanes.step(np.zeros((1, 2)))
    assert np.linalg.norm(lanes.obs[0, 2:4] - velocity) > 0.1
    lanes.reset()
    assert simulator.ground()[0] != first[0]
    assert simulator.pose()[-2:].tolist() == [0, 0]
    lanes.close()


@pytest.mark.parametrize(("name", "shape", "offset"), [("DST2d", "disc", 0.0), ("DeepSeaTreasure", "polygon", 0.5)])
def test_the_sea_shows_its_treasures_where_they_are(name: str, shape: str, offset: float):
    lanes = one_lane(name)
    simulator = lanes.simulator
    assert isinstance(simulator, Scenic)
    assert isinstance(scene := simulator.scene(), PlaneScene)
    assert scene.y_down
    found = [each for each in simulator.ground() if each.role == "treasure"]
    assert {each.shape for each in found} == {shape}
    assert sorted(each.value or 0 for each in found) == sorted(VALUES)
    lanes.step(np.array([[0.25, 0.75]]) if name == "DST2d" else np.array([[3]]))
    row, column = lanes.obs[0]  # rows go down, columns to the right
    assert simulator.pose().tolist() == pytest.approx([column + offset, row + offset, 0.0])


def test_environments_of_others_draw_themselves_where_they_can():
    assert resolve(foreign.Fragile, is_drawn=True)().render_mode == "rgb_array"
    assert resolve("tests.watch.foreign:Fragile", is_drawn=True)().render_mode == "rgb_array"
    assert resolve("tests.watch.foreign:Blind", is_drawn=True)().render_mode is None
    lanes = one_lane("tests.watch.foreign:Fragile", is_drawn=True)
    assert lanes.render().shape == (4, 6, 3)
    assert isinstance(lanes.simulator, GymSimulator)
    assert lanes.simulator.render_fps == 50
    lanes.close()
    plain = one_lane("tests.watch.foreign:Fragile")
    with pytest.raises(RuntimeError, match="render_mode"):
        plain.render()
    plain.close()
