"""LunarLander as a batch of lanes: Gymnasium builds each world, this module flies all of them.

Box2D steps one world at a time. Everything else (engine powers, impulses, observation, rewards) is NumPy over lanes,
with the same arithmetic in the same order as Gymnasium's continuous LunarLander, so both stay equal bit for bit.
A Box2D world cannot be read exactly. A saved lane is the seed of its episode and the actions so far, flown again.
"""

import math
import warnings
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from jaxtyping import Bool, Float64, Int

from qpensieve.envs.history import History, episode_seeds, replay
from qpensieve.envs.simulator import Index, State, Streams
from qpensieve.host_types import EnvSpec

with warnings.catch_warnings():
    # Box2D's extension module warns while it loads; if warnings are errors, this crashes the interpreter.
    warnings.simplefilter("ignore")
    from gymnasium.envs.box2d import lunar_lander as gym_lander

FPS, SCALE = gym_lander.FPS, gym_lander.SCALE
HALF_WIDTH = gym_lander.VIEWPORT_W / SCALE / 2
HALF_HEIGHT = gym_lander.VIEWPORT_H / SCALE / 2
MAIN_OFFSET = gym_lander.MAIN_ENGINE_Y_LOCATION / SCALE
SIDE_LEVER = 17
"""Gymnasium's horizontal lever of the side engines, pixels; Gymnasium intends 14 but uses 17."""
STEP_SECONDS, VELOCITY_ITERATIONS, POSITION_ITERATIONS = 1.0 / FPS, 180, 60
RESULT = 100.0
NOISE_BLOCK = 128
"""Engine dispersions are drawn this many steps at a time."""
READINGS = 10


@dataclass(slots=True)
class _Craft:
    """The parts of one world that a step needs, looked up once per episode."""

    env: gym_lander.LunarLander
    lander: Any
    left: Any
    right: Any
    push: Callable[..., None]
    step: Callable[..., None]

    @classmethod
    def of(cls, env: gym_lander.LunarLander) -> "_Craft":
        lander: Any = env.lander
        return cls(env, lander, env.legs[0], env.legs[1], lander.ApplyLinearImpulse, env.world.Step)


class LunarLanderSimulator:
    """n lanes of the continuous LunarLander; objectives are shaping, result, main and side power[, time]."""

    def __init__(self, spec: EnvSpec, num_lanes: int):
        self.spec = spec
        self._envs = [gym_lander.LunarLander(continuous=True) for _ in range(num_lanes)]
        self._crafts: list[_Craft | None] = [None] * num_lanes
        self._history = History(num_lanes, spec.action_size)
        self._noise = np.zeros((num_lanes, NOISE_BLOCK, 2))
        self._readings = np.zeros((num_lanes, READINGS))
        self._obs = np.zeros((num_lanes, spec.obs_size))
        self._pad_height = np.zeros(num_lanes)
        self._potential = np.zeros(num_lanes)

    def reset(self, lanes: Int[np.ndarray, " lanes"], streams: Streams) -> None:
        self.start(lanes, episode_seeds(lanes, streams))

    def start(self, lanes: Int[np.ndarray, " lanes"], seeds: Int[np.ndarray, " lanes"]) -> None:
        """Start an episode in each of `lanes`, from the seed given."""
        for lane, seed in zip(lanes.tolist(), seeds.tolist(), strict=True):
            self._start(lane, seed)

    def advance(
        self, lanes: Index, actions: Float64[np.ndarray, "lanes act"]
    ) -> tuple[Float64[np.ndarray, "lanes d"], Bool[np.ndarray, " lanes"], None]:
        numbers = np.arange(len(self._envs))[lanes]
        main, side = _engine_powers(actions)
        pushes = self._impulses(numbers, actions, main, side).tolist()
        crafts = self._crafts if isinstance(lanes, slice) else [self._crafts[lane] for lane in numbers]
        flights = zip(crafts, pushes, main.tolist(), side.tolist(), strict=True)
        self._readings[lanes] = np.array([_fly(*flight) for flight in flights]).reshape(-1, READINGS)
        self._history.append(numbers, actions)
        self._refill_noise(numbers)
        self._obs[lanes] = self._observation(lanes)
        return self._outcome(lanes, main, side)

    def observe(self, lanes: Index) -> Float64[np.ndarray, "lanes obs"]:
        return self._obs[lanes].copy()

    def state(self) -> State:
        return self._history.state()

    def restore(self, state: State) -> None:
        replay(state, self.start, self.advance)

    def render(self, lane: int) -> np.ndarray:
        env = self._envs[lane]
        env.render_mode = "rgb_array"
        try:
            picture = env.render()
        finally:
            env.render_mode = None
        assert isinstance(picture, np.ndarray)
        return picture

    def close(self) -> None:
        for env in self._envs:
            env.close()

    def _start(self, lane: int, seed: int) -> None:
        env = self._envs[lane]
        env.reset(seed=seed)
        self._crafts[lane] = craft = _Craft.of(env)
        self._history.start(lane, seed)
        self._noise[lane] = env.np_random.uniform(-1.0, 1.0, (NOISE_BLOCK, 2)) / SCALE
        self._pad_height[lane] = env.helipad_y + gym_lander.LEG_DOWN / SCALE
        self._potential[lane] = env.prev_shaping
        self._readings[lane] = _read(craft)
        self._obs[lane] = self._observation(np.array([lane]))[0]

    def _observation(self, lanes: Index) -> Float64[np.ndarray, "lanes obs"]:
        """Gymnasium's eight numbers: position, velocity, angle, spin, legs on the ground."""
        obs = self._readings[lanes, :8].copy()
        obs[:, 0] = (obs[:, 0] - HALF_WIDTH) / HALF_WIDTH
        obs[:, 1] = (obs[:, 1] - self._pad_height[lanes]) / HALF_HEIGHT
        obs[:, 2] = obs[:, 2] * HALF_WIDTH / FPS
        obs[:, 3] = obs[:, 3] * HALF_HEIGHT / FPS
        obs[:, 5] = 20.0 * obs[:, 5] / FPS
        return obs

    def _impulses(
        self,
        lanes: Int[np.ndarray, " n"],
        actions: Float64[np.ndarray, "n act"],
        main: Float64[np.ndarray, " n"],
        side: Float64[np.ndarray, " n"],
    ) -> Float64[np.ndarray, "n 8"]:
        """Impulse (x, y) and its point of attack (x, y), of the main and then of the side engine."""
        x, y, angles = self._readings[lanes, 0], self._readings[lanes, 1], self._readings[lanes, 4].tolist()
        # The math module's sine, not NumPy's: they differ in the last bit, and every bit must be equal.
        sin, cos = np.array([math.sin(a) for a in angles]), np.array([math.cos(a) for a in angles])
        noise = self._noise[lanes, self._history.lengths[lanes] % NOISE_BLOCK]
        along, across = noise[:, 0], noise[:, 1]
        push = np.empty((len(lanes), 8))

        lever = MAIN_OFFSET + 2 * along
        ox, oy = sin * lever - cos * across, -cos * lever - sin * across
        power = gym_lander.MAIN_ENGINE_POWER
        push[:, 0], push[:, 1] = -ox * power * main, -oy * power * main
        push[:, 2], push[:, 3] = x + ox, y + oy

        lever = 3 * across + np.sign(actions[:, 1]) * gym_lander.SIDE_ENGINE_AWAY / SCALE
        ox, oy = sin * along - cos * lever, -cos * along - sin * lever
        power = gym_lander.SIDE_ENGINE_POWER
        push[:, 4], push[:, 5] = -ox * power * side, -oy * power * side
        push[:, 6] = x + ox - sin * SIDE_LEVER / SCALE
        push[:, 7] = y + oy + cos * gym_lander.SIDE_ENGINE_HEIGHT / SCALE
        return push

    def _refill_noise(self, lanes: Int[np.ndarray, " n"]) -> None:
        for lane in lanes[self._history.lengths[lanes] % NOISE_BLOCK == 0].tolist():
            self._noise[lane] = self._envs[lane].np_random.uniform(-1.0, 1.0, (NOISE_BLOCK, 2)) / SCALE

    def _outcome(
        self, lanes: Index, main: Float64[np.ndarray, " n"], side: Float64[np.ndarray, " n"]
    ) -> tuple[Float64[np.ndarray, "n d"], Bool[np.ndarray, " n"], None]:
        obs = self._obs[lanes]
        awake, crashed = self._readings[lanes, 8] > 0, self._readings[lanes, 9] > 0
        potential = _potential(obs)
        lost = crashed | (np.abs(obs[:, 0]) >= 1.0)
        terminated = lost | ~awake
        out_of_time = ~terminated & (self._history.lengths[lanes] == self.spec.max_steps)
        reward = np.empty((len(obs), self.spec.num_objectives))
        reward[:, 0] = potential - self._potential[lanes]
        reward[:, 1] = np.where(~awake, RESULT, np.where(lost | out_of_time, -RESULT, 0.0))
        reward[:, 2] = 0.0 - main  # an engine that is off costs 0, not -0
        reward[:, 3] = 0.0 - side
        reward[:, 4:] = -1.0
        self._potential[lanes] = potential
        return reward, terminated, None


def _engine_powers(actions: Float64[np.ndarray, "n 2"]) -> tuple[Float64[np.ndarray, " n"], Float64[np.ndarray, " n"]]:
    """Main and side power as the engines apply them: 0, or between 0.5 and 1. Actions are within [-1, 1]."""
    throttle, sideways = actions[:, 0], np.abs(actions[:, 1])
    return np.where(throttle > 0.0, (throttle + 1.0) * 0.5, 0.0), np.where(sideways > 0.5, sideways, 0.0)


def _potential(obs: Float64[np.ndarray, "n 8"]) -> Float64[np.ndarray, " n"]:
    """Gymnasium's shaping potential: near, slow, upright, legs on the ground."""
    x, y, vx, vy, angle, _, left, right = obs.T
    distance, speed = np.sqrt(x * x + y * y), np.sqrt(vx * vx + vy * vy)
    return -100 * distance - 100 * speed - 100 * np.abs(angle) + 10 * left + 10 * right


def _fly(craft: _Craft | None, push: list[float], main: float, side: float) -> tuple[float | bool, ...]:
    """Apply the impulses of the engines that are on, step the world, and return what `_read` returns."""
    assert craft is not None
    if main:
        craft.push((push[0], push[1]), (push[2], push[3]), True)
    if side:
        craft.push((push[4], push[5]), (push[6], push[7]), True)
    craft.step(STEP_SECONDS, VELOCITY_ITERATIONS, POSITION_ITERATIONS)
    return _read(craft)


def _read(craft: _Craft) -> tuple[float | bool, ...]:
    """Position, velocity, angle, spin, legs on the ground, awake, crashed."""
    lander = craft.lander
    position, velocity = lander.position, lander.linearVelocity
    return (
        position.x,
        position.y,
        velocity.x,
        velocity.y,
        lander.angle,
        lander.angularVelocity,
        craft.left.ground_contact,
        craft.right.ground_contact,
        lander.awake,
        craft.env.game_over,
    )
