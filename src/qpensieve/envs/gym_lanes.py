"""Lanes of any Gymnasium environment with a vector reward."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import replace
from typing import Any

import gymnasium
import numpy as np
from gymnasium.spaces import Box, Discrete, MultiBinary, MultiDiscrete
from jaxtyping import Float64, Int

from qpensieve.envs import info_objectives
from qpensieve.envs.draw import working_platform
from qpensieve.envs.mujoco import quiet_mujoco
from qpensieve.envs.replayed import ReplayedSimulator
from qpensieve.envs.simulator import Simulator
from qpensieve.envs.sources import PICTURES, EnvFactory, EnvSource, name_of, needs_package, resolve
from qpensieve.envs.split_lanes import SplitSimulator
from qpensieve.errors import EnvError, UserError
from qpensieve.importing import place_of
from qpensieve.remote import can_be_sent
from qpensieve.types import ActionBox, EnvSpec, Indices

RESET = ("observation", "info")
STEP = ("observation", "reward", "terminated", "truncated", "info")
"""Values that `reset` and `step` of an environment return."""
MAX_OBSERVED = 20_000
"""Largest size of an observation."""
MO_OBJECTIVES: dict[str, tuple[tuple[str, ...], float | None]] = {
    "mo-hopper": (("velocity", "height", "energy"), -100.0),
    "mo-halfcheetah": (("velocity", "energy"), -100.0),
    "mo-walker2d": (("velocity", "energy"), -100.0),
    "mo-ant": (("x_velocity", "y_velocity", "energy"), -100.0),
    "mo-swimmer": (("velocity", "energy"), None),
    "mo-humanoid": (("velocity", "energy"), None),
    "mo-reacher": (("target_1", "target_2", "target_3", "target_4"), -50.0),
}
"""Beginning of an id of MO-Gymnasium -> its objectives, and the value of the reference point in each objective.

The names are from MO-Gymnasium's documentation. An environment with fewer objectives has the first names. The reference
points are from the examples of morl-baselines, or from experiments built on them; None: unknown.
"""


def make_simulator(
    source: EnvSource, num_lanes: int, num_workers: int = 0, first_lane: int = 0, is_drawn: bool = False
) -> Simulator:
    """Make the simulator of a foreign environment, in this process or spread over `num_workers` processes."""
    name, factory = name_of(source), resolve(source, is_drawn)
    if num_workers == 0:
        return GymSimulator(factory, num_lanes, name, first_lane)
    base = resolve(info_objectives.parts(source)[0]) if isinstance(source, str) else factory
    where = getattr(getattr(base, "func", base), "__module__", None)
    if where == "__main__" or not can_be_sent(factory):  # another process cannot import the script of this process
        raise UserError(
            f"{name}: the factory cannot be sent to worker processes; use a function at the top level of a module that "
            "can be imported (not of the script itself), or its name 'module:function'"
        )
    make = lambda num, first: (GymSimulator, (factory, num, name, first))
    return SplitSimulator(name, num_lanes, num_workers, make, first_lane)


class GymSimulator(ReplayedSimulator):
    """n environments of one factory, stepped one after the other.

    Args:
        factory: Makes an environment at every call.
        num_lanes: Number of environments.
        source_name: Name of the environment in messages and in the spec.
        first_lane: Number of the first lane in messages.
    """

    def __init__(self, factory: EnvFactory, num_lanes: int, source_name: str, first_lane: int = 0):
        self._closed, self.name, self._first_lane = False, source_name, first_lane
        self._envs = _make_envs(factory, num_lanes, source_name)
        try:
            spec = describe(self._envs[0], source_name)
        except BaseException as error:
            self.close()
            if isinstance(error, UserError | EnvError) or not isinstance(error, Exception):
                raise
            raise foreign_error(source_name, "when its spaces and metadata were read", error) from error
        super().__init__(spec, num_lanes)
        self._steps = [0] * num_lanes
        """Steps of each lane's episode."""

    def begin(
        self, lanes: Int[np.ndarray, " lanes"], seeds: Int[np.ndarray, " lanes"]
    ) -> Float64[np.ndarray, "lanes obs"]:
        found = np.empty((len(lanes), self.spec.obs_size))
        for row, (lane, seed) in enumerate(zip(lanes.tolist(), seeds.tolist(), strict=True)):
            with self._explained(lane, f"reset with seed {seed}"):
                obs, _ = _checked_parts("reset()", self._envs[lane].reset(seed=seed), RESET)
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
                obs, reward, terminated, truncated, _ = _checked_parts("step()", returned, STEP)
                table[row, :size] = self._encoded(obs)
                table[row, size:-2] = _floats("reward", reward, (num,))
                table[row, -2:] = bool(terminated), bool(truncated)
        return table

    def _encoded(self, obs: Any) -> Float64[np.ndarray, " obs"]:
        return self.spec.encoded(_floats("observation", obs, self.spec.obs_shape)[None])[0]

    @contextmanager
    def _explained(self, lane: int, moment: str) -> Iterator[None]:
        """Add the environment, the lane and the moment to an error."""
        try:
            yield
        except Exception as error:
            raise foreign_error(self.name, f"in lane {self._first_lane + lane} at {moment}", error) from error

    @property
    def render_fps(self) -> float | None:
        """Steps of a second in real time. None: the environment does not say."""
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
            except Exception as error:  # close the other environments too
                errors.append(error)
        if errors:
            raise foreign_error(self.name, "when it was closed", errors[0]) from errors[0]


def _make_envs(factory: EnvFactory, num_lanes: int, source_name: str) -> list[gymnasium.Env]:
    try:
        with quiet_mujoco():  # a notice of its compiler would come once for each lane of each evaluation
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


def _checked_parts(what: str, given: Any, names: tuple[str, ...]) -> Sequence[Any]:
    """Return what an environment's method returned, after checking the number of its values."""
    if isinstance(given, tuple | list) and len(given) == len(names):
        return given
    got = f"{len(given)} values" if isinstance(given, tuple | list) else f"a {type(given).__name__}"
    raise ValueError(f"{what} must return {len(names)} values ({', '.join(names)}), got {got}")


def _floats(what: str, values: Any, shape: tuple[int, ...] | None) -> Float64[np.ndarray, "..."]:
    floats = np.asarray(values, np.float64)
    if floats.shape != shape:
        raise ValueError(f"{what} must have shape {shape}, got {floats.shape}")
    return floats


def describe(env: gymnasium.Env, source_name: str) -> EnvSpec:
    """Return the spec of an environment, from its spaces and `metadata`.

    The number of objectives is the length of `reward_space`, or else of the reward of one trial step. The attribute
    `objectives`, or else `metadata["objectives"]`, names the objectives. `metadata["reference_point"]` is the reference
    point. `MO_OBJECTIVES` has both for robots of MO-Gymnasium.

    Raises:
        ValueError: The environment cannot be used; the message says why.
    """
    observations, actions = _observations(env, source_name), _actions(env, source_name)
    spec = EnvSpec(id=source_name, objectives=(), reference=None, max_steps=None, **observations, **actions)
    d = _num_objectives(env, spec)
    names, point = _known_objectives(env, d)
    given = _attribute(env, "objectives")
    if not isinstance(given, Sequence):
        given = env.metadata.get("objectives")
    if given is not None:
        names = () if isinstance(given, str) else tuple(given)
        if not all(isinstance(name, str) for name in names) or len(names) != d or len(set(names)) != d:
            raise UserError(f"{source_name}: objectives must be {d} different names, got {given!r}")
    point = env.metadata.get("reference_point", point)
    if point is not None:
        point = tuple(map(float, point))
        if len(point) != d or not np.isfinite(point).all():
            raise UserError(f"{source_name}: metadata['reference_point'] must be {d} finite numbers, got {point}")
    return replace(spec, objectives=names, reference=point)


def _known_objectives(env: gymnasium.Env, d: int) -> tuple[tuple[str, ...], tuple[float, ...] | None]:
    """Return the names and the reference point of an id of `MO_OBJECTIVES`; else numbers as names, and no point."""
    robot = "-".join(env.spec.id.split("-")[:2]) if env.spec else ""
    names, value = MO_OBJECTIVES.get(robot, ((), None))
    if d > len(names):
        return tuple(f"objective {i + 1}" for i in range(d)), None
    return names[:d], None if value is None else (value,) * d


def _attribute(env: gymnasium.Env, name: str) -> Any:
    """Return an attribute of the environment or of one of its wrappers; None if there is none."""
    return env.get_wrapper_attr(name) if env.has_wrapper_attr(name) else None


def _observations(env: gymnasium.Env, source_name: str) -> dict[str, Any]:
    """Return the fields of the spec that describe observations."""
    space = getattr(env, "observation_space", None)
    indices = None
    if isinstance(space, Discrete):
        indices = Indices((int(space.n),), (int(space.start),))
    elif isinstance(space, MultiDiscrete):
        indices = Indices(tuple(map(int, space.nvec.ravel())), tuple(map(int, space.start.ravel())))
    elif not isinstance(space, Box | MultiBinary):
        raise UserError(
            f"{source_name}: observation space must be a Box, Discrete, MultiDiscrete or MultiBinary, got {space}; "
            "wrap the environment in gymnasium.wrappers.FlattenObservation"
        )
    shape = tuple(space.shape or ())
    size = int(np.prod(shape)) if indices is None else sum(indices.counts)
    if size > MAX_OBSERVED:
        seen = f"{size:,} numbers (shape {shape})" if indices is None else f"{size:,} values"
        raise UserError(
            f"{source_name}: an observation must have at most {MAX_OBSERVED:,} numbers, got {seen}: the networks here "
            "are dense and do not suit images or so many states; wrap the environment to observe a few features"
        )
    return {"obs_size": size, "obs_shape": shape, "obs_indices": indices}


def _actions(env: gymnasium.Env, source_name: str) -> dict[str, Any]:
    """Return the fields of the spec that describe actions."""
    space = getattr(env, "action_space", None)
    if isinstance(space, Discrete):
        return {"action_size": 1, "num_actions": int(space.n), "first_action": int(space.start)}
    must = f"{source_name}: action space must be a continuous Box with finite bounds, or Discrete"
    if not isinstance(space, Box) or not np.issubdtype(space.dtype, np.floating):
        raise UserError(f"{must}, got {space}")
    if 0 in space.shape:
        raise UserError(f"{must}, got {space}, which holds no numbers")
    low, high = (tuple(bound.ravel().astype(np.float64).tolist()) for bound in (space.low, space.high))
    for name, bound in (("low", low), ("high", high)):
        if not np.isfinite(bound).all():
            index = int(np.argmin(np.isfinite(bound)))
            raise UserError(f"{must}, got action_space.{name}[{index}] = {bound[index]}")
    box = ActionBox(low, high, space.shape, np.dtype(space.dtype).name)
    return {"action_size": len(low), "action_box": box}


def _num_objectives(env: gymnasium.Env, spec: EnvSpec) -> int:
    space, there = _attribute(env, "reward_space"), list[str]()
    if space is None:
        _, reward, _, _, info = _trial_step(env, spec)
        shape, there = np.asarray(reward).shape, info_objectives.numbers(info)
    else:
        shape = space.shape
    if len(shape) == 1 and shape[0] > 0:
        return shape[0]
    found = f"shape {shape}" if shape else "a scalar"
    terms = f"name numbers of its info as --objectives ({', '.join(there)}), " if there else ""
    raise UserError(
        f"{spec.id}: the reward must be a vector, got {found}; {terms}let step() return a np.array of d numbers, "
        "one per objective, or use a version from mo-gymnasium"
    )


def _trial_step(env: gymnasium.Env, spec: EnvSpec) -> Sequence[Any]:
    try:
        env.reset(seed=0)
        action = spec.one_of(spec.native_actions(np.zeros((1, spec.action_size))), 0)
        return _checked_parts("step()", env.step(action), STEP)
    except UserError as error:
        raise UserError(f"{spec.id}: {error}") from error
    except Exception as error:
        raise foreign_error(spec.id, "in the trial step that counts its objectives", error) from error


def foreign_error(name: str, where: str, error: BaseException) -> EnvError:
    """Return the error of a failed environment: its name, and the package to install or the line that raised."""
    reason = needs_package(error) or f"{type(error).__name__}: {error}{place_of(error)}"
    return EnvError(f"{name}: the environment failed {where}: {reason}")
