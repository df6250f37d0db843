"""LunarLander as a batch of lanes: Gymnasium builds each world, this module flies all of them.

Box2D steps one world at a time; what surrounds it (engine powers, impulses, observation, rewards) is NumPy over lanes
with the same arithmetic, in the same order, as Gymnasium's continuous LunarLander, so both stay in lockstep.
A Box2D world cannot be read out exactly: a saved lane is its episode's seed and the actions so far, flown again.
"""

import math
import warnings
from typing import Any

import numpy as np
from jaxtyping import Bool, Float64, Int

from qpensieve.envs.base import Index, State, Streams
from qpensieve.envs.history import History, replay
from qpensieve.types import EnvSpec

with warnings.catch_warnings():
    # Box2D's extension module warns while it loads, and crashes the interpreter where warnings are errors.
    warnings.simplefilter("ignore")
    from gymnasium.envs.box2d import lunar_lander as gym_lander

FPS, SCALE = gym_lander.FPS, gym_lander.SCALE
HALF_WIDTH = gym_lander.VIEWPORT_W / SCALE / 2
HALF_HEIGHT = gym_lander.VIEWPORT_H / SCALE / 2
MAIN_OFFSET = gym_lander.MAIN_ENGINE_Y_LOCATION / SCALE
SIDE_LEVER = 17
"""Gymnasium's horizontal lever of the side engines, pixels; 14 was meant there, 17 is what it flies with."""
VELOCITY_ITERATIONS, POSITION_ITERATIONS = 180, 60
RESULT = 100.0
NOISE_BLOCK = 128
"""Engine dispersions are drawn this many steps at a time."""
READINGS = 10


class LunarLanderSimulator:
    """n lanes of the continuous LunarLander; objectives are shaping, result, main and side power[, time]."""

    def __init__(self, spec: EnvSpec, num_lanes: int):
        self.spec = spec
        self._envs = [gym_lander.LunarLander(continuous=True) for _ in range(num_lanes)]
        self._history = History(num_lanes, spec.action_size)
        self._noise = np.zeros((num_lanes, NOISE_BLOCK, 2))
        self._readings = np.zeros((num_lanes, READINGS))
        self._pad_height = np.zeros(num_lanes)
        self._potential = np.zeros(num_lanes)
        self._lengths = np.zeros(num_lanes, np.int64)

    def reset(self, lanes: Int[np.ndarray, " lanes"], streams: Streams) -> None:
        for lane in lanes.tolist():
            self._start(lane, int(streams(lane).generate_state(1)[0]))

    def advance(
        self, lanes: Index, actions: Float64[np.ndarray, "lanes act"]
    ) -> tuple[Float64[np.ndarray, "lanes d"], Bool[np.ndarray, " lanes"], None]:
        numbers = np.arange(len(self._envs))[lanes]
        main, side = _engine_powers(actions)
        main_push, side_push = self._impulses(numbers, actions, main, side)
        self._fly(numbers.tolist(), actions.tolist(), main_push.tolist(), side_push.tolist())
        self._lengths[numbers] += 1
        self._refill_noise(numbers)
        return self._outcome(lanes, main, side)

    def observe(self, lanes: Index) -> Float64[np.ndarray, "lanes obs"]:
        x, y, vx, vy, angle, spin, left, right = self._readings[lanes, :8].T
        obs = np.empty((x.size, 8))
        obs[:, 0] = (x - HALF_WIDTH) / HALF_WIDTH
        obs[:, 1] = (y - self._pad_height[lanes]) / HALF_HEIGHT
        obs[:, 2] = vx * HALF_WIDTH / FPS
        obs[:, 3] = vy * HALF_HEIGHT / FPS
        obs[:, 4] = angle
        obs[:, 5] = 20.0 * spin / FPS
        obs[:, 6] = left
        obs[:, 7] = right
        return obs

    def state(self) -> State:
        return self._history.state()

    def restore(self, state: State) -> None:
        replay(state, self._start, self.advance)

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
        self._history.start(lane, seed)
        self._lengths[lane] = 0
        self._noise[lane] = env.np_random.uniform(-1.0, 1.0, (NOISE_BLOCK, 2)) / SCALE
        self._pad_height[lane] = env.helipad_y + gym_lander.LEG_DOWN / SCALE
        self._potential[lane] = env.prev_shaping
        self._readings[lane] = _read(env)

    def _impulses(
        self,
        lanes: Int[np.ndarray, " n"],
        actions: Float64[np.ndarray, "n act"],
        main: Float64[np.ndarray, " n"],
        side: Float64[np.ndarray, " n"],
    ) -> tuple[Float64[np.ndarray, "n 4"], Float64[np.ndarray, "n 4"]]:
        """Impulse (x, y) and its point of attack (x, y), for the main and for the side engine."""
        x, y, angles = self._readings[lanes, 0], self._readings[lanes, 1], self._readings[lanes, 4].tolist()
        sin, cos = np.array([math.sin(a) for a in angles]), np.array([math.cos(a) for a in angles])
        noise = self._noise[lanes, self._lengths[lanes] % NOISE_BLOCK]
        along, across = noise[:, 0], noise[:, 1]

        lever = MAIN_OFFSET + 2 * along
        ox, oy = sin * lever - cos * across, -cos * lever - sin * across
        power = gym_lander.MAIN_ENGINE_POWER
        main_push = np.stack([-ox * power * main, -oy * power * main, x + ox, y + oy], axis=1)

        lever = 3 * across + np.sign(actions[:, 1]) * gym_lander.SIDE_ENGINE_AWAY / SCALE
        ox, oy = sin * along - cos * lever, -cos * along - sin * lever
        power = gym_lander.SIDE_ENGINE_POWER
        attack_x = x + ox - sin * SIDE_LEVER / SCALE
        attack_y = y + oy + cos * gym_lander.SIDE_ENGINE_HEIGHT / SCALE
        side_push = np.stack([-ox * power * side, -oy * power * side, attack_x, attack_y], axis=1)
        main_push[main == 0.0, 0] = np.nan  # NaN marks an engine that is off
        side_push[side == 0.0, 0] = np.nan
        return main_push, side_push

    def _fly(
        self, lanes: list[int], actions: list[list[float]], main: list[list[float]], side: list[list[float]]
    ) -> None:
        """Apply the impulses, step each world, read the lander out. The only loop over lanes."""
        rows = []
        for lane, action, main_push, side_push in zip(lanes, actions, main, side, strict=True):
            env = self._envs[lane]
            lander: Any = env.lander
            for force_x, force_y, at_x, at_y in (main_push, side_push):
                if force_x == force_x:
                    lander.ApplyLinearImpulse((force_x, force_y), (at_x, at_y), True)
            env.world.Step(1.0 / FPS, VELOCITY_ITERATIONS, POSITION_ITERATIONS)
            self._history.append(lane, action)
            rows.append(_read(env))
        self._readings[lanes] = rows

    def _refill_noise(self, lanes: Int[np.ndarray, " n"]) -> None:
        for lane in lanes[self._lengths[lanes] % NOISE_BLOCK == 0].tolist():
            self._noise[lane] = self._envs[lane].np_random.uniform(-1.0, 1.0, (NOISE_BLOCK, 2)) / SCALE

    def _outcome(
        self, lanes: Index, main: Float64[np.ndarray, " n"], side: Float64[np.ndarray, " n"]
    ) -> tuple[Float64[np.ndarray, "n d"], Bool[np.ndarray, " n"], None]:
        obs = self.observe(lanes)
        awake, crashed = self._readings[lanes, 8] > 0, self._readings[lanes, 9] > 0
        potential = _potential(obs)
        lost = crashed | (np.abs(obs[:, 0]) >= 1.0)
        terminated = lost | ~awake
        out_of_time = ~terminated & (self._lengths[lanes] == self.spec.max_steps)
        reward = np.empty((len(obs), self.spec.num_objectives))
        reward[:, 0] = potential - self._potential[lanes]
        reward[:, 1] = np.where(~awake, RESULT, np.where(lost | out_of_time, -RESULT, 0.0))
        reward[:, 2] = -main
        reward[:, 3] = -side
        reward[:, 4:] = -1.0
        self._potential[lanes] = potential
        return reward, terminated, None


def _engine_powers(actions: Float64[np.ndarray, "n 2"]) -> tuple[Float64[np.ndarray, " n"], Float64[np.ndarray, " n"]]:
    """Main and side power as the engines apply them: 0, or between 0.5 and 1."""
    throttle, sideways = actions[:, 0], np.abs(actions[:, 1])
    main = np.where(throttle > 0.0, (np.clip(throttle, 0.0, 1.0) + 1.0) * 0.5, 0.0)
    side = np.where(sideways > 0.5, np.clip(sideways, 0.5, 1.0), 0.0)
    return main, side


def _potential(obs: Float64[np.ndarray, "n 8"]) -> Float64[np.ndarray, " n"]:
    """Gymnasium's shaping potential: near, slow, upright, legs on the ground."""
    x, y, vx, vy, angle, _, left, right = obs.T
    distance, speed = np.sqrt(x * x + y * y), np.sqrt(vx * vx + vy * vy)
    return -100 * distance - 100 * speed - 100 * np.abs(angle) + 10 * left + 10 * right


def _read(env: gym_lander.LunarLander) -> tuple[float | bool, ...]:
    """Position, velocity, angle, spin, legs on the ground, awake, crashed."""
    lander: Any = env.lander
    left, right = env.legs
    position, velocity = lander.position, lander.linearVelocity
    return (
        position.x,
        position.y,
        velocity.x,
        velocity.y,
        lander.angle,
        lander.angularVelocity,
        left.ground_contact,
        right.ground_contact,
        lander.awake,
        env.game_over,
    )
