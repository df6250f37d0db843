"""MuJoCo robots as lanes: `mujoco.rollout` computes the physics in C++ threads, NumPy the rest.

Model files, frame skip, reset noise, observations and health rules are those of Gymnasium's v4 environments. Factors
and order of objectives are those of the authors' code (deviation D1: the paper prints another control cost for
HalfCheetah2d).
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import cache, cached_property
from importlib import resources
from typing import NamedTuple

import mujoco
import numpy as np
from jaxtyping import Bool, Float64, Int
from mujoco import rollout

from qpensieve.envs.draw import draw_model
from qpensieve.envs.scenery import BodyScene, Geom, Pose, Shape
from qpensieve.envs.simulator import (
    DEFAULT_OPTIONS,
    Index,
    LaneOptions,
    SimulationDivergedError,
    State,
    Streams,
    allowed_threads,
)
from qpensieve.errors import UserError
from qpensieve.types import EnvSpec

FULL_PHYSICS = mujoco.mjtState.mjSTATE_FULLPHYSICS.value
CHUNKS_PER_THREAD = 4
"""Pieces of lanes for each thread. More pieces balance slow lanes, and each piece has a cost."""

PUSH_SPEED = 1.0
"""Change of the torso's speed by a push, m/s."""

HOPPER_START_HEIGHT = 1.25
"""z0 of Hopper3d: the height of hopper.xml's initial pose, metres."""

LANES_PER_THREAD = 4
"""Least number of lanes per thread, unless `num_threads` is set. Waking a thread takes as long as a few lanes."""

Posture = Float64[np.ndarray, "n posture"]
"""Positions, then velocities."""


ANY = (-np.inf, np.inf)
"""Bounds of a number that must only be finite."""


def healthy_inside(
    first: Sequence[tuple[float, float]], others: tuple[float, float], size: int
) -> Callable[[Posture], Bool[np.ndarray, " n"]]:
    """Return a function that tells whether all numbers of a posture lie between their bounds.

    Args:
        first: Bounds of the first numbers.
        others: Bounds of each other number.
        size: Number of numbers in a posture.
    """
    low, high = np.array([*first, *[others] * (size - len(first))]).T.copy()

    def is_healthy(posture: Posture) -> Bool[np.ndarray, " n"]:
        return np.logical_and.reduce((posture > low) & (posture < high), axis=1)

    return is_healthy


is_hopper_healthy = healthy_inside([ANY, (0.7, np.inf), (-0.2, 0.2)], (-100.0, 100.0), 12)
is_walker_healthy = healthy_inside([ANY, (0.8, 2.0), (-1.0, 1.0)], ANY, 18)
is_ant_healthy = healthy_inside([ANY, ANY, (np.nextafter(0.2, 0.0), np.nextafter(1.0, 2.0))], ANY, 29)
"""A posture begins with forward position, height and angle. Ant is also healthy at the bounds 0.2 and 1."""


@dataclass(frozen=True)
class Body:
    """One robot.

    Attributes:
        model_file: Name of the model among Gymnasium's assets.
        frame_skip: Simulator steps per control step.
        hidden_qpos: Number of leading positions (world coordinates) that the observation leaves out.
        height_index: Index of the torso's height in qpos.
        noise: Scale of the reset noise on positions (uniform) and velocities.
        normal_velocities: Velocity noise is normal instead of uniform.
        velocity_clip: Bound on observed velocities. None: they are not clipped.
        is_healthy: The episode terminates when this is False. None: it never terminates.
    """

    model_file: str
    frame_skip: int
    hidden_qpos: int
    height_index: int
    noise: float
    normal_velocities: bool
    velocity_clip: float | None
    is_healthy: Callable[[Posture], Bool[np.ndarray, " n"]] | None

    @cached_property
    def model(self) -> mujoco.MjModel:
        path = resources.files("gymnasium") / "envs" / "mujoco" / "assets" / self.model_file
        with quiet_mujoco():
            return mujoco.MjModel.from_xml_path(str(path))


HALF_CHEETAH = Body("half_cheetah.xml", 5, 1, 1, 0.1, True, None, None)
HOPPER = Body("hopper.xml", 4, 1, 1, 5e-3, False, 10.0, is_hopper_healthy)
WALKER = Body("walker2d.xml", 4, 1, 1, 5e-3, False, 10.0, is_walker_healthy)
ANT = Body("ant.xml", 5, 2, 2, 0.1, True, None, is_ant_healthy)


class quiet_mujoco:  # noqa: N801  # used like a function
    """Keep MuJoCo's notices and warnings from the console and from a log file in the working directory."""

    def __enter__(self) -> None:
        self._before = mujoco.MjLogConfig.get()
        mujoco.MjLogConfig.set(_quiet_config())

    def __exit__(self, *_: object) -> None:
        mujoco.MjLogConfig.set(self._before)


@cache
def _quiet_config() -> mujoco.MjLogConfig:
    quiet = mujoco.MjLogConfig.get()
    quiet.logto_console = quiet.logto_file = False
    return quiet


class Motion(NamedTuple):
    """Result of a control step in each lane, from which rewards are computed. A named tuple: it is fast to make.

    Attributes:
        vx: Mean forward velocity over the control step, (x_after - x_before) / dt.
        z: Height of the torso after the step.
        action: Action as applied, clipped to [-1, 1].
    """

    vx: Float64[np.ndarray, " n"]
    z: Float64[np.ndarray, " n"]
    action: Float64[np.ndarray, "n act"]


RewardFunction = Callable[[Motion], Float64[np.ndarray, "n d"]]


def half_cheetah_2d(motion: Motion) -> Float64[np.ndarray, "n 2"]:
    return _columns(1.1 * motion.vx, -0.7 * _effort(motion.action))


def hopper_2d(motion: Motion) -> Float64[np.ndarray, "n 2"]:
    return _columns(motion.vx, -1.5 * _effort(motion.action))


def hopper_3d(motion: Motion) -> Float64[np.ndarray, "n 3"]:
    return _columns(motion.vx, 15.0 * (motion.z - HOPPER_START_HEIGHT), -1.5 * _effort(motion.action))


def hopper_5d(motion: Motion) -> Float64[np.ndarray, "n 5"]:
    """Return forward velocity, the cost of each joint, and 1 for every step, also the one on which the robot falls."""
    cost = -1.5 * np.square(motion.action)
    return _columns(motion.vx, cost[:, 0], cost[:, 1], cost[:, 2], np.ones_like(motion.vx))


def ant_2d(motion: Motion) -> Float64[np.ndarray, "n 2"]:
    return _columns(motion.vx, -0.5 * _effort(motion.action))


def ant_3d(motion: Motion) -> Float64[np.ndarray, "n 3"]:
    """Return forward velocity, 1 for every step (also for the one on which the robot falls), and the control cost."""
    return _columns(motion.vx, np.ones_like(motion.vx), -0.5 * _effort(motion.action))


def walker_2d(motion: Motion) -> Float64[np.ndarray, "n 2"]:
    return _columns(motion.vx, -_effort(motion.action))


def _effort(action: Float64[np.ndarray, "n act"]) -> Float64[np.ndarray, " n"]:
    return np.add.reduce(np.square(action), axis=1)  # faster than np.sum


def _columns(*values: Float64[np.ndarray, " n"]) -> Float64[np.ndarray, "n d"]:
    reward = np.empty((values[0].size, len(values)))
    for i, value in enumerate(values):
        reward[:, i] = value
    reward += 0.0  # no effort costs 0, not -0
    return reward


class MujocoSimulator:
    """n lanes of one body.

    Args:
        spec: The domain; `obs_size` is without contact forces.
        body: The robot.
        reward: Motion -> reward vectors.
        num_lanes: Number of lanes.
        options: The simulator uses `num_threads` and `contact_forces`.
    """

    def __init__(
        self,
        spec: EnvSpec,
        body: Body,
        reward: RewardFunction,
        num_lanes: int,
        options: LaneOptions = DEFAULT_OPTIONS,
    ):
        self._body, self._reward = body, reward
        self._model = model = body.model
        self._nq, self._nv = model.nq, model.nv
        self._posture = slice(1, 1 + model.nq + model.nv)
        """Columns of the posture in a state; the clock comes first."""
        self._dt, self._clock_tolerance = model.opt.timestep * body.frame_skip, 0.5 * model.opt.timestep
        self._state = np.zeros((num_lanes, mujoco.mj_stateSize(model, FULL_PHYSICS)))
        self._passed = self._state[:1]
        """States of the first lane during its newest step, the present one last."""
        self._start = mujoco.MjData(model).qpos.copy()
        self._workers = _Workers(model, body.frame_skip, num_lanes, options.num_threads)
        self._posing: mujoco.MjData | None = None
        self._forces = _ContactForces(model, num_lanes) if options.contact_forces else None
        self.spec = replace(spec, obs_size=spec.obs_size + self._forces.size) if self._forces else spec

    def reset(self, lanes: Int[np.ndarray, " lanes"], streams: Streams) -> None:
        body, nq, nv = self._body, self._nq, self._nv
        for lane in lanes:
            generator = np.random.Generator(np.random.PCG64(streams(int(lane))))
            num_uniform = nq if body.normal_velocities else nq + nv
            state = self._state[lane]
            state[0] = 0.0
            state[1 : 1 + num_uniform] = generator.uniform(-body.noise, body.noise, num_uniform)
            state[1 : 1 + nq] += self._start
            if body.normal_velocities:
                state[1 + nq : 1 + nq + nv] = body.noise * generator.standard_normal(nv)
        self._passed = self._state[:1]
        if self._forces:
            self._forces.clear(lanes)

    def advance(
        self, lanes: Index, actions: Float64[np.ndarray, "lanes act"]
    ) -> tuple[Float64[np.ndarray, "lanes d"], Bool[np.ndarray, " lanes"], None]:
        before = self._state[lanes]
        # Divergence, which MuJoCo would log, is raised as an error below. The log is silenced for the rollout only,
        # because other code of this process may need it; that takes 2 us.
        with quiet_mujoco():
            trajectory = self._workers.run(before, actions)
            after = trajectory[:, -1]
            moved = after[:, :2] - before[:, :2]  # clock and forward position
            self._check_advanced(lanes, moved[:, 0])
            if self._forces:
                before_last = trajectory[:, -2] if self._body.frame_skip > 1 else before
                self._forces.update(lanes, before_last, actions)
        self._state[lanes], self._passed = after, trajectory[0]
        posture = after[:, self._posture]
        reward = self._reward(Motion(moved[:, 1] / self._dt, posture[:, self._body.height_index], actions))
        if self._body.is_healthy is None:
            return reward, np.zeros(len(reward), bool), None
        return reward, ~self._body.is_healthy(posture), None

    def observe(self, lanes: Index) -> Float64[np.ndarray, "lanes obs"]:
        """Return positions without world coordinates, velocities (clipped at `velocity_clip`), and contact forces."""
        body, posture = self._body, self._state[lanes][:, self._posture]
        obs = posture[:, body.hidden_qpos :].copy()
        if body.velocity_clip is not None:
            velocities = obs[:, self._nq - body.hidden_qpos :]
            np.maximum(velocities, -body.velocity_clip, out=velocities)  # np.clip takes twice as long
            np.minimum(velocities, body.velocity_clip, out=velocities)
        return np.concatenate([obs, self._forces.observe(lanes)], axis=1) if self._forces else obs

    def state(self) -> State:
        """Return the physics state (and contact forces) of every lane; the layout is MuJoCo's full-physics vector."""
        forces = {"contact_forces": self._forces.values.copy()} if self._forces else {}
        return {"physics": self._state.copy()} | forces

    def restore(self, state: State) -> None:
        if state["physics"].shape != self._state.shape:
            raise UserError(
                f"{self.spec.id}: saved physics must have shape {self._state.shape}, got {state['physics'].shape}"
            )
        self._state = state["physics"].copy()
        self._passed = self._state[:1]
        if self._forces:
            self._forces.values = state["contact_forces"].copy()

    def run_physics(
        self, state: Float64[np.ndarray, "n state"], actions: Float64[np.ndarray, "n act"]
    ) -> Float64[np.ndarray, "n substeps state"]:
        """Make one control step from given physics states, without rewards, for benchmarks."""
        return self._workers.run(state, actions)

    def scene(self) -> BodyScene:
        """Return all geoms of the model."""
        model = self._model
        kind = lambda number: mujoco.mjtGeom(number).name.removeprefix("mjGEOM_").lower()
        rows = zip(model.geom_type, model.geom_size.tolist(), model.geom_rgba.tolist(), model.geom_bodyid, strict=True)
        return BodyScene(
            tuple(
                Geom(model.geom(i).name, kind(type_), tuple(size), tuple(rgba), int(body))
                for i, (type_, size, rgba, body) in enumerate(rows)
            )
        )

    def ground(self) -> tuple[Shape, ...]:
        """Return no shapes: the floor is one of the geoms."""
        return ()

    @property
    def moments(self) -> int:
        """Number of substeps in the newest step."""
        return len(self._passed)

    def pose(self, moment: int = -1) -> Pose:
        model, data = self._model, self._posing or mujoco.MjData(self._model)
        self._posing = data
        mujoco.mj_setState(model, data, self._passed[moment], FULL_PHYSICS)
        mujoco.mj_kinematics(model, data)
        mujoco.mj_comPos(model, data)
        geoms = np.empty((model.ngeom, 7))
        geoms[:, :3] = data.geom_xpos
        for turn, matrix in zip(geoms[:, 3:], data.geom_xmat, strict=True):
            mujoco.mju_mat2Quat(turn, matrix)
        return np.concatenate([data.subtree_com[1], geoms.ravel()])

    def push(self, generator: np.random.Generator) -> None:
        """Knock the torso sideways: an impulse at its centre, spread over the joints as the mass matrix says."""
        model, data = self._model, mujoco.MjData(self._model)
        mujoco.mj_setState(model, data, self._state[0], FULL_PHYSICS)
        mujoco.mj_forward(model, data)
        jacobian = np.zeros((3, self._nv))
        mujoco.mj_jacBodyCom(model, data, jacobian, None, 1)
        angle = generator.uniform(0.0, 2.0 * np.pi)
        is_planar = not jacobian[1].any()  # then only forward and back remain
        direction = np.array([np.sign(np.cos(angle)), 0.0] if is_planar else [np.cos(angle), np.sin(angle)])
        along = (direction @ jacobian[:2])[None]
        change = np.zeros_like(along)
        mujoco.mj_solveM(model, data, change, along)
        change *= PUSH_SPEED / float(along[0] @ change[0])
        self._state[0, 1 + self._nq : 1 + self._nq + self._nv] += change[0]

    def render(self, lane: int) -> np.ndarray:
        return draw_model(self._model, self._state[lane], FULL_PHYSICS)

    def close(self) -> None:
        self._workers.close()

    def _check_advanced(self, lanes: Index, seconds: Float64[np.ndarray, " n"]) -> None:
        """Raise if the physics diverged. MuJoCo then resets the lane and its clock, so too little time has passed."""
        late = seconds - self._dt
        if np.vdot(late, late) <= self._clock_tolerance**2:  # one fast call: no lane is late
            return
        diverged = np.abs(late) > self._clock_tolerance
        if diverged.any():
            lane = int(np.arange(len(self._state))[lanes][np.argmax(diverged)])
            raise SimulationDivergedError(
                lane, "the physics diverged (a position, velocity or acceleration is NaN or huge)"
            )


class _Workers:
    """A thread pool that runs one control step of any number of lanes. Its buffers are reused."""

    def __init__(self, model: mujoco.MjModel, frame_skip: int, num_lanes: int, num_threads: int | None):
        useful = num_lanes if num_threads else max(1, num_lanes // LANES_PER_THREAD)
        threads = min(allowed_threads(num_threads), useful)
        pool_size = threads if threads > 1 else 0  # 0: run on the calling thread
        self._pool = rollout.Rollout(nthread=pool_size)
        self._data = [mujoco.MjData(model) for _ in range(max(1, pool_size))]
        self._models = [model] * num_lanes
        self._num_chunks = threads * CHUNKS_PER_THREAD
        self._control = np.empty((num_lanes, frame_skip, model.nu))
        self._trajectory = np.empty((num_lanes, frame_skip, mujoco.mj_stateSize(model, FULL_PHYSICS)))
        self._sensors = np.empty((num_lanes, frame_skip, model.nsensordata))

    def run(
        self, state: Float64[np.ndarray, "n state"], actions: Float64[np.ndarray, "n act"]
    ) -> Float64[np.ndarray, "n substeps state"]:
        """Return the states after each substep, in an array that the next call overwrites."""
        n, substeps = len(state), self._control.shape[1]
        control, trajectory, sensors = self._control[:n], self._trajectory[:n], self._sensors[:n]
        control[:] = actions[:, None, :]
        self._pool.rollout(
            self._models[:n],
            self._data,
            state,
            control,
            skip_checks=True,
            nstep=substeps,
            state=trajectory,
            sensordata=sensors,
            chunk_size=-(-n // self._num_chunks),
        )
        return trajectory

    def close(self) -> None:
        if self._pool.rollout_ is not None:
            self._pool.close()


class _ContactForces:
    """External contact forces, clipped to [-1, 1], six for every body of the model.

    The rollout does not return the forces, so the last substep is repeated lane by lane. As in Gymnasium's v4
    environments, the forces belong to the state before that substep, and are zero at a reset.
    """

    def __init__(self, model: mujoco.MjModel, num_lanes: int):
        self._model, self._data = model, mujoco.MjData(model)
        self.size = 6 * model.nbody
        self.values = np.zeros((num_lanes, self.size))

    def clear(self, lanes: Int[np.ndarray, " lanes"]) -> None:
        self.values[lanes] = 0.0

    def observe(self, lanes: Index) -> Float64[np.ndarray, "lanes forces"]:
        return self.values[lanes]

    def update(
        self, lanes: Index, before_last: Float64[np.ndarray, "lanes state"], actions: Float64[np.ndarray, "lanes act"]
    ) -> None:
        numbers = np.arange(len(self.values))[lanes]
        for lane, state, action in zip(numbers, before_last, actions, strict=True):
            mujoco.mj_setState(self._model, self._data, state, FULL_PHYSICS)
            self._data.qacc_warmstart[:] = 0.0
            self._data.ctrl[:] = action
            mujoco.mj_step(self._model, self._data)
            mujoco.mj_rnePostConstraint(self._model, self._data)
            self.values[lane] = np.clip(self._data.cfrc_ext.ravel(), -1.0, 1.0)
