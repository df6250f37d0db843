"""Any Gymnasium environment with a vector reward, run as lanes in this process."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager, nullcontext
from typing import Any

import gymnasium
import numpy as np
from jaxtyping import Float64, Int

from qpensieve.envs.opengl import working_platform
from qpensieve.envs.replayed import ReplayedSimulator
from qpensieve.envs.simulator import Simulator
from qpensieve.envs.sources import PICTURES, EnvFactory, EnvSource, drawable, name_of, resolve
from qpensieve.envs.spaces import describe, foreign_error
from qpensieve.envs.split_lanes import SplitSimulator
from qpensieve.errors import EnvError, UserError
from qpensieve.remote import can_be_sent

RESET = ("observation", "info")
STEP = ("observation", "reward", "terminated", "truncated", "info")
"""What an environment returns."""


def make_simulator(
    source: EnvSource, num_lanes: int, num_workers: int = 0, first_lane: int = 0, is_drawn: bool = False
) -> Simulator:
    """A `GymSimulator` of `source`, or a `SplitSimulator` that spreads its lanes over `num_workers` processes."""
    name = name_of(source)
    if num_workers == 0:
        factory = drawable(source) if is_drawn else resolve(source)
        return GymSimulator(factory, num_lanes, name, first_lane)
    if num_workers < 1 or num_lanes < 1:
        raise ValueError(f"need at least one worker and one lane, got {num_workers} and {num_lanes}")
    factory = resolve(source)
    _check_can_be_sent(factory, name)
    make = lambda num, first: (GymSimulator, (factory, num, name, first))
    return SplitSimulator(name, num_lanes, num_workers, make, first_lane)


def _check_can_be_sent(factory: EnvFactory, name: str) -> None:
    """Refuse a factory that another process cannot find; it does not know the script of this one."""
    where = getattr(getattr(factory, "func", factory), "__module__", None)
    if where == "__main__" or not can_be_sent(factory):
        raise UserError(
            f"{name}: the factory cannot be sent to worker processes; use a function at the top level of a module that "
            "can be imported (not of the script itself), or its name 'module:function'"
        )


class GymSimulator(ReplayedSimulator):
    """n environments of one factory, stepped one after the other.

    `source_name` is its name in messages and in the spec. Messages count lanes from `first_lane`.
    """

    def __init__(self, factory: EnvFactory, num_lanes: int, source_name: str, first_lane: int = 0):
        self._closed, self.name = False, source_name
        self._envs = _make_envs(factory, num_lanes, source_name)
        try:
            spec = describe(self._envs[0], source_name)
        except BaseException as error:
            self.close()
            if isinstance(error, UserError | EnvError) or not isinstance(error, Exception):
                raise
            raise foreign_error(source_name, "in what it says of itself", error) from error
        super().__init__(source_name, spec, num_lanes, first_lane)
        self._steps = [0] * num_lanes
        """Steps of each lane's episode."""

    def begin(
        self, lanes: Int[np.ndarray, " lanes"], seeds: Int[np.ndarray, " lanes"]
    ) -> Float64[np.ndarray, "lanes obs"]:
        found = np.empty((len(lanes), self.spec.obs_size))
        for row, (lane, seed) in enumerate(zip(lanes.tolist(), seeds.tolist(), strict=True)):
            with self._explained(lane, f"reset with seed {seed}"):
                obs, _ = _parts("reset()", self._envs[lane].reset(seed=seed), RESET)
                found[row] = self._encoded(obs)
            self._steps[lane] = 0
        return found

    def play(
        self, lanes: Int[np.ndarray, " lanes"], actions: Float64[np.ndarray, "lanes act"]
    ) -> Float64[np.ndarray, "lanes columns"]:
        size, num = self.spec.obs_size, self.spec.num_objectives
        table, native = np.empty((len(lanes), size + num + 2)), self.spec.native_actions(actions)
        for row, lane in enumerate(lanes.tolist()):
            self._steps[lane] += 1
            with self._explained(lane, f"step {self._steps[lane]} of its episode"):
                returned = self._envs[lane].step(self.spec.one_of(native, row))
                obs, reward, terminated, truncated, _ = _parts("step()", returned, STEP)
                table[row, :size] = self._encoded(obs)
                table[row, size:-2] = _floats("reward", reward, (num,))
                table[row, -2:] = bool(terminated), bool(truncated)
        return table

    def _encoded(self, obs: Any) -> Float64[np.ndarray, " obs"]:
        return self.spec.encoded(_floats("observation", obs, self.spec.obs_shape)[None])[0]

    @contextmanager
    def _explained(self, lane: int, moment: str) -> Iterator[None]:
        """Name environment, lane and moment in an error."""
        try:
            yield
        except Exception as error:
            raise foreign_error(self.name, f"in lane {self.first_lane + lane} at {moment}", error) from error

    @property
    def render_fps(self) -> float | None:
        """Steps of a second in real time, where the environment says."""
        fps = (self._envs[0].metadata or {}).get("render_fps")
        return float(fps) if isinstance(fps, int | float) and 0.1 <= fps <= 1000 else None

    def render(self, lane: int) -> np.ndarray:
        env = self._envs[lane]
        if env.render_mode != PICTURES:
            how = 'use a factory that makes it with render_mode="rgb_array"'
            raise RuntimeError(f"{self.name}: the environment has render_mode={env.render_mode!r}; {how}")
        is_mujoco = hasattr(env.unwrapped, "mujoco_renderer")
        with working_platform() if is_mujoco else nullcontext():
            return np.asarray(env.render())

    def close(self) -> None:
        if self._closed:
            return
        self._closed = True
        errors: list[Exception] = []
        for env in self._envs:
            try:
                env.close()
            except Exception as error:  # the others are closed all the same
                errors.append(error)
        if errors:
            raise foreign_error(self.name, "when it was closed", errors[0]) from errors[0]


def _make_envs(factory: EnvFactory, num_lanes: int, source_name: str) -> list[gymnasium.Env]:
    if num_lanes < 1:
        raise ValueError(f"num_lanes must be at least 1, got {num_lanes}")
    try:
        envs = [factory() for _ in range(num_lanes)]
    except (Exception, SystemExit) as error:
        raise foreign_error(source_name, "when it was made", error) from error
    for env in envs:
        if not isinstance(env, gymnasium.Env):
            raise UserError(f"{source_name}: the factory returned a {type(env).__qualname__}, not a gymnasium.Env")
    if len({id(env.unwrapped) for env in envs}) < num_lanes:
        raise EnvError(
            f"{source_name}: the factory returned the same environment twice; it must make a new one per call"
        )
    return envs


def _parts(what: str, given: Any, names: tuple[str, ...]) -> Sequence[Any]:
    """What a method returned, if it is as many parts as Gymnasium asks for; older versions of it asked for fewer."""
    if isinstance(given, tuple | list) and len(given) == len(names):
        return given
    got = f"{len(given)} values" if isinstance(given, tuple | list) else f"a {type(given).__name__}"
    raise ValueError(f"{what} must return {len(names)} values ({', '.join(names)}), got {got}")


def _floats(what: str, values: Any, shape: tuple[int, ...] | None) -> Float64[np.ndarray, "..."]:
    floats = np.asarray(values, np.float64)
    if floats.shape != shape:
        raise ValueError(f"{what} must have shape {shape}, got {floats.shape}")
    return floats
