"""LunarLander as lanes: Gymnasium builds each world, this module flies them.

A step computes lane by lane in plain Python, with the same operations in the same order as Gymnasium's continuous
LunarLander, so both have the same bits. Box2D steps one world at a time, and NumPy over all lanes took longer than the
physics.
"""

import math
import warnings
from typing import Any

import numpy as np
from gymnasium.error import DependencyNotInstalled
from jaxtyping import Float64, Int

from qpensieve.envs.replayed import ReplayedSimulator
from qpensieve.envs.scenery import PlaneScene, Points, Pose, Shape
from qpensieve.envs.simulator import allowed_threads
from qpensieve.envs.split_lanes import SplitSimulator
from qpensieve.errors import MissingPackageError
from qpensieve.types import EnvSpec

with warnings.catch_warnings():
    # Box2D's extension module warns while it loads; if warnings are errors, this crashes the interpreter.
    warnings.simplefilter("ignore")
    try:
        from gymnasium.envs.box2d import lunar_lander as gym_lander
    except DependencyNotInstalled as error:
        raise MissingPackageError(
            f"LunarLander needs Box2D and pygame ({error.__cause__ or error}): pip install box2d pygame, where wheels "
            "exist (neither for Python 3.14, nor Box2D for Linux on aarch64)"
        ) from error

FPS, SCALE = gym_lander.FPS, gym_lander.SCALE
HALF_WIDTH = gym_lander.VIEWPORT_W / SCALE / 2
HALF_HEIGHT = gym_lander.VIEWPORT_H / SCALE / 2
MAIN_POWER, SIDE_POWER = gym_lander.MAIN_ENGINE_POWER, gym_lander.SIDE_ENGINE_POWER
MAIN_OFFSET = gym_lander.MAIN_ENGINE_Y_LOCATION / SCALE
SIDE_LEVER = 17
"""Horizontal lever of the side engines, pixels: 17 in Gymnasium's code, where 14 seems to be meant."""
STEP_SECONDS, VELOCITY_ITERATIONS, POSITION_ITERATIONS = 1.0 / FPS, 180, 60
RESULT = 100.0
NOISE_BLOCK = 128
"""Steps for which the dispersion of the engines is drawn at once."""
MIN_LANES = 16
"""Least number of lanes for a process."""
FLAG_HEIGHT = 50 / SCALE
PUSH_SPEED = 3.0
"""Change of the lander's speed by a push."""
Flight = tuple[float | bool, ...]
"""Observation (8), reward (4, or 5 with time), terminated, truncated (always False: `Lanes` has the time limit)."""


class _Craft:
    """One world and its lander, with the numbers that the next step needs."""

    __slots__ = (
        *("_env", "_lander", "_left", "_right", "_push", "_step", "_pad_height", "engines"),
        *("_max_steps", "_time", "_noise", "_length", "_place", "_potential"),
    )

    def __init__(self, env: gym_lander.LunarLander, spec: EnvSpec):
        lander: Any = env.lander
        self._env, self._lander = env, lander
        self._left, self._right = env.legs
        self._push, self._step = lander.ApplyLinearImpulse, env.world.Step
        self._pad_height = env.helipad_y + gym_lander.LEG_DOWN / SCALE
        self._max_steps, self._time = spec.max_steps, (-1.0,) * (spec.num_objectives - 4)
        self._noise, self._length = _draw_noise(env), 0
        self.engines = (0.0, 0.0)
        """Power of the main engine and signed power of the side engines in the newest step, for pictures."""
        position = lander.position
        self._place = position.x, position.y, lander.angle
        self._potential = float(env.prev_shaping or 0.0)

    def fly(self, throttle: float, sideways: float) -> Flight:
        """Fire the engines, step the world and return the result; actions are within [-1, 1]."""
        away = abs(sideways)
        main = (throttle + 1.0) * 0.5 if throttle > 0.0 else 0.0
        side = away if away > 0.5 else 0.0
        self.engines = main, math.copysign(side, sideways)
        if main or side:
            self._fire(main, side, math.copysign(1.0, sideways))
        self._step(STEP_SECONDS, VELOCITY_ITERATIONS, POSITION_ITERATIONS)
        self._length += 1
        if self._length % NOISE_BLOCK == 0:
            self._noise = _draw_noise(self._env)
        obs = self.observe()
        is_awake, potential = self._lander.awake, _potential(obs)
        is_lost = self._env.game_over or abs(obs[0]) >= 1.0
        is_over = is_lost or not is_awake
        is_failed = is_lost or (not is_over and self._length == self._max_steps)
        result = RESULT if not is_awake else -RESULT if is_failed else 0.0
        # An engine that is off costs 0, not -0.
        reward = (potential - self._potential, result, 0.0 - main, 0.0 - side, *self._time)
        self._potential = potential
        return (*obs, *reward, is_over, False)

    def observe(self) -> Flight:
        """Return Gymnasium's eight numbers: position, velocity, angle, spin, legs on the ground."""
        lander = self._lander
        position, velocity, angle = lander.position, lander.linearVelocity, lander.angle
        x, y = position.x, position.y
        self._place = x, y, angle
        return (
            (x - HALF_WIDTH) / HALF_WIDTH,
            (y - self._pad_height) / HALF_HEIGHT,
            velocity.x * HALF_WIDTH / FPS,
            velocity.y * HALF_HEIGHT / FPS,
            angle,
            20.0 * lander.angularVelocity / FPS,
            self._left.ground_contact,
            self._right.ground_contact,
        )

    def _fire(self, main: float, side: float, side_sign: float) -> None:
        """Push the lander with the main and then the side engine: an impulse (x, y) at a point (x, y)."""
        x, y, angle = self._place
        along, across = self._noise[self._length % NOISE_BLOCK]
        sin, cos = math.sin(angle), math.cos(angle)
        if main:
            lever = MAIN_OFFSET + 2 * along
            ox, oy = sin * lever - cos * across, -cos * lever - sin * across
            self._push((-ox * MAIN_POWER * main, -oy * MAIN_POWER * main), (x + ox, y + oy), True)
        if side:
            lever = 3 * across + side_sign * gym_lander.SIDE_ENGINE_AWAY / SCALE
            ox, oy = sin * along - cos * lever, -cos * along - sin * lever
            place = x + ox - sin * SIDE_LEVER / SCALE, y + oy + cos * gym_lander.SIDE_ENGINE_HEIGHT / SCALE
            self._push((-ox * SIDE_POWER * side, -oy * SIDE_POWER * side), place, True)


def _corners(body: Any) -> Points:
    """Return the outline of a body in its own coordinates."""
    return tuple((float(x), float(y)) for x, y in body.fixtures[0].shape.vertices)


def _draw_noise(env: gym_lander.LunarLander) -> list[list[float]]:
    """Draw the dispersion of the engines, along and across the lander, for `NOISE_BLOCK` steps."""
    return (env.np_random.uniform(-1.0, 1.0, (NOISE_BLOCK, 2)) / SCALE).tolist()


def _potential(obs: Flight) -> float:
    """Return Gymnasium's shaping potential: near, slow, upright, legs on the ground."""
    x, y, vx, vy, angle, _, left, right = obs
    distance, speed = math.sqrt(x * x + y * y), math.sqrt(vx * vx + vy * vy)
    return -100 * distance - 100 * speed - 100 * abs(angle) + 10 * left + 10 * right


def make_lander(spec: EnvSpec, num_lanes: int, num_processes: int | None) -> "LunarLanderSimulator | SplitSimulator":
    """Return the simulator of `num_lanes` lanes, in at most `num_processes` processes (None: one per core).

    Each process has at least `MIN_LANES` lanes, unless there is only one process.

    Box2D holds Python's lock while it steps, so threads do not help.
    """
    num = max(1, min(allowed_threads(num_processes), num_lanes // MIN_LANES))
    if num == 1:
        return LunarLanderSimulator(spec, num_lanes)
    make = lambda num, first: (LunarLanderSimulator, (spec, num))
    return SplitSimulator(spec.id, num_lanes, num, make, is_first_here=True)


class LunarLanderSimulator(ReplayedSimulator):
    """n lanes of the continuous LunarLander; objectives are shaping, result, main and side power[, time]."""

    moments = 1

    def __init__(self, spec: EnvSpec, num_lanes: int):
        super().__init__(spec, num_lanes)
        self._envs = [gym_lander.LunarLander(continuous=True) for _ in range(num_lanes)]
        self._crafts: dict[int, _Craft] = {}

    def begin(
        self, lanes: Int[np.ndarray, " lanes"], seeds: Int[np.ndarray, " lanes"]
    ) -> Float64[np.ndarray, "lanes obs"]:
        for lane, seed in zip(lanes.tolist(), seeds.tolist(), strict=True):
            self._envs[lane].reset(seed=seed)
            self._crafts[lane] = _Craft(self._envs[lane], self.spec)
        return np.array([self._crafts[lane].observe() for lane in lanes.tolist()], np.float64)

    def play(
        self, lanes: Int[np.ndarray, " lanes"], actions: Float64[np.ndarray, "lanes act"]
    ) -> Float64[np.ndarray, "lanes columns"]:
        crafts = [self._crafts[lane] for lane in lanes.tolist()]
        return np.array(
            [craft.fly(*action) for craft, action in zip(crafts, actions.tolist(), strict=True)], np.float64
        )

    def scene(self) -> PlaneScene:
        """Return the lander and its legs, which every episode has."""
        if not self._crafts:  # bodies are made at a reset
            self._envs[0].reset(seed=0)
        env = self._envs[0]
        names = ("lander", "left leg", "right leg")
        parts = [
            Shape("polygon", "lander" if name == "lander" else "leg", _corners(body), name=name)
            for name, body in zip(names, (env.lander, *env.legs), strict=True)
        ]
        return PlaneScene((0.0, 0.0, 2 * HALF_WIDTH, 2 * HALF_HEIGHT), False, tuple(parts), ("main", "side"))

    def ground(self) -> tuple[Shape, ...]:
        """Return the terrain, the pad and the flags of this episode."""
        env: Any = self._envs[0]
        left, right, height = env.helipad_x1, env.helipad_x2, env.helipad_y
        tops = [(float(x), float(y)) for polygon in env.sky_polys for x, y in polygon[:2]]
        terrain = Shape("polygon", "terrain", ((0.0, 0.0), *tops, (2 * HALF_WIDTH, 0.0)))
        pad = Shape("line", "pad", ((left, height), (right, height)))
        flags = [Shape("line", "flag", ((x, height), (x, height + FLAG_HEIGHT))) for x in (left, right)]
        return (terrain, pad, *flags)

    def pose(self, moment: int = -1) -> Pose:
        del moment
        env: Any = self._envs[0]
        places = [(body.position.x, body.position.y, body.angle) for body in (env.lander, *env.legs)]
        return np.array([*(number for place in places for number in place), *self._crafts[0].engines])

    def push(self, generator: np.random.Generator) -> None:
        """Knock the lander sideways."""
        lander: Any = self._envs[0].lander
        angle = generator.uniform(0.0, 2.0 * math.pi)
        impulse = PUSH_SPEED * lander.mass * math.cos(angle), PUSH_SPEED * lander.mass * math.sin(angle)
        lander.ApplyLinearImpulse(impulse, lander.worldCenter, True)

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
