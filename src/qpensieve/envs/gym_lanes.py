"""Any Gymnasium environment with a vector reward, run as lanes in this process.

The inner state of a foreign environment cannot be read. A saved lane is the seed of its episode and the actions so far;
`restore` plays them again. This is exact only if the environment is deterministic given its seed and its actions, and
it takes as long as the episodes did. `restore` warns if a lane does not end at its saved observation.
"""

from collections.abc import Sequence
from contextlib import nullcontext
from typing import Any

import gymnasium
import numpy as np
from jaxtyping import Bool, Float64, Int

from qpensieve.envs.history import OBSERVATIONS, History, episode_seeds, replay, warn_if_different
from qpensieve.envs.opengl import working_platform
from qpensieve.envs.simulator import Index, Simulator, State, Streams
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


class GymSimulator:
    """n environments of one factory, stepped one after the other.

    `source_name` is its name in messages and in the spec. Messages count lanes from `first_lane`.
    """

    def __init__(self, factory: EnvFactory, num_lanes: int, source_name: str, first_lane: int = 0):
        self._name, self._first_lane = source_name, first_lane
        self._closed = False
        self._envs = _make_envs(factory, num_lanes, source_name)
        try:
            self.spec = describe(self._envs[0], source_name)
        except BaseException as error:
            self.close()
            if isinstance(error, UserError | EnvError) or not isinstance(error, Exception):
                raise
            raise foreign_error(source_name, "in what it says of itself", error) from error
        self._history = History(num_lanes, self.spec.action_size)
        self._obs = np.full((num_lanes, self.spec.obs_size), np.nan)

    def reset(self, lanes: Int[np.ndarray, " lanes"], streams: Streams) -> None:
        self.start(lanes, episode_seeds(lanes, streams))

    def start(self, lanes: Int[np.ndarray, " lanes"], seeds: Int[np.ndarray, " lanes"]) -> None:
        """Start an episode in each of `lanes`, from the seeds given."""
        for lane, seed in zip(lanes.tolist(), seeds.tolist(), strict=True):
            self._start(lane, seed)

    def advance(
        self, lanes: Index, actions: Float64[np.ndarray, "lanes act"]
    ) -> tuple[Float64[np.ndarray, "lanes d"], Bool[np.ndarray, " lanes"], Bool[np.ndarray, " lanes"]]:
        numbers = np.arange(len(self._envs))[lanes].tolist()
        reward = np.empty((len(numbers), self.spec.num_objectives))
        terminated, truncated = np.empty((2, len(numbers)), bool)
        native = self.spec.native_actions(actions)
        for row, lane in enumerate(numbers):
            reward[row], terminated[row], truncated[row] = self._step(lane, self.spec.one_of(native, row))
            self._history.append(np.array([lane]), actions[row : row + 1])
        return reward, terminated, truncated

    def observe(self, lanes: Index) -> Float64[np.ndarray, "lanes obs"]:
        return self._obs[lanes].copy()

    def state(self) -> State:
        return self._history.state() | {OBSERVATIONS: self._obs.copy()}

    def restore(self, state: State) -> None:
        """Play the saved episodes again, up to where they were."""
        replay(state, self.start, self.advance)
        warn_if_different(self._name, self._first_lane, state[OBSERVATIONS], self._obs)

    @property
    def render_fps(self) -> float | None:
        """Steps of a second in real time, where the environment says."""
        fps = (self._envs[0].metadata or {}).get("render_fps")
        return float(fps) if isinstance(fps, int | float) and 0.1 <= fps <= 1000 else None

    def render(self, lane: int) -> np.ndarray:
        env = self._envs[lane]
        if env.render_mode != PICTURES:
            how = 'use a factory that makes it with render_mode="rgb_array"'
            raise RuntimeError(f"{self._name}: the environment has render_mode={env.render_mode!r}; {how}")
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
            raise foreign_error(self._name, "when it was closed", errors[0]) from errors[0]

    def _start(self, lane: int, seed: int) -> None:
        try:
            obs, _ = _parts("reset()", self._envs[lane].reset(seed=seed), RESET)
            self._obs[lane] = self.spec.encoded(_floats("observation", obs, self.spec.obs_shape)[None])[0]
        except Exception as error:
            where = f"in lane {self._first_lane + lane} at reset with seed {seed}"
            raise foreign_error(self._name, where, error) from error
        self._history.start(lane, seed)

    def _step(self, lane: int, action: np.ndarray | np.int64) -> tuple[Float64[np.ndarray, " d"], bool, bool]:
        try:
            obs, reward, terminated, truncated, _ = _parts("step()", self._envs[lane].step(action), STEP)
            self._obs[lane] = self.spec.encoded(_floats("observation", obs, self.spec.obs_shape)[None])[0]
            return _floats("reward", reward, (self.spec.num_objectives,)), bool(terminated), bool(truncated)
        except Exception as error:
            where = f"in lane {self._first_lane + lane} at step {self._history.lengths[lane] + 1} of its episode"
            raise foreign_error(self._name, where, error) from error


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
