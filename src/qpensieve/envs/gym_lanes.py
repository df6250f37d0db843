"""Any Gymnasium environment with a vector reward and a continuous action box, run as lanes in this process.

The inner state of a foreign environment cannot be read. A saved lane is the seed of its episode and the actions so far;
`restore` plays them again. This is exact only if the environment is deterministic given its seed and its actions, and
it takes as long as the episodes did. `restore` warns if a lane does not end at its saved observation.
"""

import difflib
import importlib
import sys
import warnings
from collections.abc import Callable
from functools import partial
from types import ModuleType
from typing import Any, cast

import gymnasium
import numpy as np
from gymnasium.spaces import Box
from jaxtyping import Bool, Float64, Int

from qpensieve.envs.history import History, episode_seeds, replay
from qpensieve.envs.simulator import EnvError, Index, Simulator, State, Streams
from qpensieve.types import ActionBox, EnvSpec

EnvFactory = Callable[[], gymnasium.Env]
"""Makes a new environment at every call."""

EnvSource = str | EnvFactory
"""A factory, or the name of one: `module:factory`, a Gymnasium id, or `module:GymnasiumId-v0`."""


LOCAL = "<this process>:"
"""Begins the names of factories that cannot be imported."""
_LOCAL_FACTORIES: dict[str, EnvFactory] = {}


def name_for(source: Any) -> str:
    """A name that `resolve` finds `source` by: `module:name` if it can be imported, else one for this process alone."""
    if isinstance(source, str):
        return source
    factory = resolve(source)
    module, attribute = getattr(source, "__module__", None) or "", getattr(source, "__qualname__", "")
    if module != "__main__" and getattr(sys.modules.get(module), attribute, None) is source:
        return f"{module}:{attribute}"
    name, number = f"{LOCAL}{name_of(source)}", 1
    while _LOCAL_FACTORIES.setdefault(name, factory) is not factory:
        number += 1
        name = f"{LOCAL}{name_of(source)} ({number})"
    return name


def is_local(name: str) -> bool:
    """Whether only this process can make the environment of this name."""
    return name.startswith(LOCAL)


def resolve(source: Any) -> EnvFactory:
    """The factory for `source`, a function or a name; a factory made from a name can be pickled.

    Raises:
        ValueError: If `source` is neither.
    """
    if isinstance(source, gymnasium.Env):
        raise ValueError(f"{source} is one environment, but every lane needs its own: pass a function that makes one")
    if callable(source):
        return cast(EnvFactory, source)
    if not isinstance(source, str):
        raise ValueError(f"an environment must be a name or a function that makes one, got {source!r}")
    if source in _LOCAL_FACTORIES:
        return _LOCAL_FACTORIES[source]
    if _named_factory(source) is None:
        _check_registered(source)
    return partial(_make, source)


def name_of(source: EnvSource) -> str:
    """The name of `source` in messages and results."""
    if isinstance(source, str):
        return source.removeprefix(LOCAL)
    return getattr(getattr(source, "func", source), "__qualname__", repr(source))


def make_simulator(source: EnvSource, num_lanes: int, num_workers: int = 0, first_lane: int = 0) -> Simulator:
    """A `GymSimulator` of `source`, or a `WorkerSimulator` that spreads its lanes over `num_workers` processes."""
    # Imported here: workers hold GymSimulators, so their module imports this one.
    from qpensieve.envs.workers import WorkerSimulator

    if num_workers == 0:
        return GymSimulator(resolve(source), num_lanes, name_of(source), first_lane)
    return WorkerSimulator(resolve(source), num_lanes, num_workers, name_of(source), first_lane)


def describe(env: gymnasium.Env, source_name: str) -> EnvSpec:
    """What qpensieve needs to know of `env`, from its spaces and `metadata`; ValueError if it cannot be used.

    The number of objectives is the length of `reward_space` if there is one, else of the reward of one trial step.
    `metadata["objectives"]` names the objectives, `metadata["reference_point"]` sets the hypervolume's reference.
    """
    observations = getattr(env, "observation_space", None)
    if not isinstance(observations, Box):
        raise ValueError(
            f"{source_name}: observation space must be a Box, got {observations}; "
            "wrap the environment in gymnasium.wrappers.FlattenObservation"
        )
    box = _action_box(env, source_name)
    d = _num_objectives(env, box, source_name)
    return EnvSpec(
        id=source_name,
        obs_size=int(np.prod(observations.shape)),
        action_size=len(box.low),
        objectives=_objective_names(env.metadata, d),
        reference=_reference(env.metadata, d, source_name),
        max_steps=None,
        action_box=box,
        obs_shape=observations.shape,
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
            self._obs_shape = self._envs[0].observation_space.shape
        except BaseException as error:
            self.close()
            if isinstance(error, ValueError | EnvError) or not isinstance(error, Exception):
                raise
            raise _foreign_error(source_name, "in what it says of itself", error) from error
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
            reward[row], terminated[row], truncated[row] = self._step(lane, native[row])
            self._history.append(np.array([lane]), actions[row : row + 1])
        return reward, terminated, truncated

    def observe(self, lanes: Index) -> Float64[np.ndarray, "lanes obs"]:
        return self._obs[lanes].copy()

    def state(self) -> State:
        return self._history.state() | {"observations": self._obs.copy()}

    def restore(self, state: State) -> None:
        """Play the saved episodes again, up to where they were."""
        self.replay(state)
        warn_if_different(self._name, self._first_lane, state["observations"], self._obs)

    def replay(self, state: State) -> None:
        """Like `restore`, but without comparing the outcome with the saved observations."""
        replay(state, self.start, self.advance)

    def render(self, lane: int) -> np.ndarray:
        env = self._envs[lane]
        if env.render_mode != "rgb_array":
            how = 'use a factory that makes it with render_mode="rgb_array"'
            raise RuntimeError(f"{self._name}: cannot draw, the environment has render_mode={env.render_mode!r}; {how}")
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
            raise _foreign_error(self._name, "when it was closed", errors[0]) from errors[0]

    def _start(self, lane: int, seed: int) -> None:
        try:
            obs, _ = self._envs[lane].reset(seed=seed)
            self._obs[lane] = _floats("observation", obs, self._obs_shape).ravel()
        except Exception as error:
            where = f"in lane {self._first_lane + lane} at reset with seed {seed}"
            raise _foreign_error(self._name, where, error) from error
        self._history.start(lane, seed)

    def _step(self, lane: int, action: np.ndarray) -> tuple[Float64[np.ndarray, " d"], bool, bool]:
        try:
            obs, reward, terminated, truncated, _ = self._envs[lane].step(action)
            self._obs[lane] = _floats("observation", obs, self._obs_shape).ravel()
            return _floats("reward", reward, (self.spec.num_objectives,)), bool(terminated), bool(truncated)
        except Exception as error:
            where = f"in lane {self._first_lane + lane} at step {self._history.lengths[lane] + 1}"
            raise _foreign_error(self._name, where, error) from error


def warn_if_different(
    name: str, first_lane: int, saved: Float64[np.ndarray, "n obs"], replayed: Float64[np.ndarray, "n obs"]
) -> None:
    """Warn if replayed lanes differ from the saved ones; NaN marks lanes that had not started."""
    differs = ((saved != replayed) & ~np.isnan(saved)).any(axis=1)
    if differs.any():
        lane = first_lane + int(np.argmax(differs))
        what = f"{name}: lane {lane} was not restored to its saved observation"
        why = "the environment is not deterministic given its seed and actions, so the run does not continue exactly"
        warnings.warn(f"{what}: {why}", stacklevel=3)


def _named_factory(name: str) -> EnvFactory | None:
    """The callable that `module:factory` names, or None if `name` can only be a Gymnasium id."""
    module_name, colon, attribute = name.partition(":")
    if not colon:
        return None
    if not module_name or not attribute:
        raise ValueError(f"an environment must be written module:factory or module:GymnasiumId-v0, got {name!r}")
    module = _import(module_name, name)
    factory: EnvFactory | None = getattr(module, attribute, None)
    return factory if callable(factory) else None


def _import(module_name: str, name: str) -> ModuleType:
    """The module of an environment; ValueError names both, whatever its code raises (a script may even exit)."""
    try:
        return importlib.import_module(module_name)
    except (Exception, SystemExit) as error:
        kind = "" if isinstance(error, ImportError | TypeError) else f"{type(error).__name__}: "  # ".mine": a TypeError
        raise ValueError(f"cannot import module {module_name!r} of environment {name!r}: {kind}{error}") from error


def _make(name: str) -> gymnasium.Env:
    factory = _named_factory(name)
    if factory is not None:
        return factory()
    # A worker process begins with an empty registry, so the check that fills it comes first.
    _check_registered(name)
    return gymnasium.make(name, disable_env_checker=True)


def _check_registered(name: str) -> None:
    """Fill Gymnasium's registry as far as needed to know `name`; ValueError if it stays unknown."""
    module_name, _, env_id = name.rpartition(":")
    if module_name:
        _import(module_name, name)
    if _is_registered(env_id):
        return
    hint = ""
    try:
        importlib.import_module("mo_gymnasium")
    except ModuleNotFoundError as error:
        hint = f"; for the ids of MO-Gymnasium, pip install mo-gymnasium ({error})"
    if _is_registered(env_id):
        return
    nearest = difflib.get_close_matches(env_id, list(gymnasium.registry))
    meant = f"; did you mean {', '.join(nearest)}?" if nearest else ""
    factory = f" nor a factory in module {module_name!r}" if module_name else ""
    raise ValueError(f"unknown environment {name!r}: {env_id!r} is not a registered Gymnasium id{factory}{meant}{hint}")


def _is_registered(env_id: str) -> bool:
    """True for a registered id, also one without its version."""
    return env_id in gymnasium.registry or any(known.rpartition("-v")[0] == env_id for known in gymnasium.registry)


def _make_envs(factory: EnvFactory, num_lanes: int, source_name: str) -> list[gymnasium.Env]:
    if num_lanes < 1:
        raise ValueError(f"num_lanes must be at least 1, got {num_lanes}")
    try:
        envs = [factory() for _ in range(num_lanes)]
    except (Exception, SystemExit) as error:
        raise _foreign_error(source_name, "when it was made", error) from error
    for env in envs:
        if not isinstance(env, gymnasium.Env):
            raise ValueError(f"{source_name}: the factory returned a {type(env).__qualname__}, not a gymnasium.Env")
    if len({id(env.unwrapped) for env in envs}) < num_lanes:
        raise ValueError(
            f"{source_name}: the factory returned the same environment twice; it must make a new one per call"
        )
    return envs


def _action_box(env: gymnasium.Env, source_name: str) -> ActionBox:
    space = getattr(env, "action_space", None)
    must = "action space must be a continuous Box with finite bounds"
    if not isinstance(space, Box) or not np.issubdtype(space.dtype, np.floating):
        raise ValueError(f"{source_name}: {must}, got {space}")
    for name, bound in (("low", space.low.ravel()), ("high", space.high.ravel())):
        if not np.isfinite(bound).all():
            index = int(np.argmin(np.isfinite(bound)))
            raise ValueError(f"{source_name}: {must}, got action_space.{name}[{index}] = {bound[index]}")
    if 0 in space.shape:
        raise ValueError(f"{source_name}: {must}, got {space}, which holds no numbers")
    low, high = (tuple(bound.ravel().astype(np.float64).tolist()) for bound in (space.low, space.high))
    return ActionBox(low, high, space.shape, np.dtype(space.dtype).name)


def _num_objectives(env: gymnasium.Env, box: ActionBox, source_name: str) -> int:
    space = env.get_wrapper_attr("reward_space") if env.has_wrapper_attr("reward_space") else None
    shape = _trial_reward(env, box, source_name).shape if space is None else space.shape
    if len(shape) == 1 and shape[0] > 0:
        return shape[0]
    found = f"shape {shape}" if shape else "a scalar"
    raise ValueError(
        f"{source_name}: the reward must be a vector, got {found}; let step() return a np.array of d numbers, "
        "one per objective, or use a version from mo-gymnasium"
    )


def _trial_reward(env: gymnasium.Env, box: ActionBox, source_name: str) -> np.ndarray:
    try:
        env.reset(seed=0)
        return np.asarray(env.step(box.rescale(np.zeros((1, len(box.low))))[0])[1])
    except Exception as error:
        raise _foreign_error(source_name, "in the trial step that counts its objectives", error) from error


def _foreign_error(name: str, where: str, error: BaseException) -> EnvError:
    return EnvError(f"{name}: the environment failed {where}: {type(error).__name__}: {error}")


def _floats(what: str, values: Any, shape: tuple[int, ...] | None) -> Float64[np.ndarray, "..."]:
    floats = np.asarray(values, np.float64)
    if floats.shape != shape:
        raise ValueError(f"{what} must have shape {shape}, got {floats.shape}")
    return floats


def _objective_names(metadata: dict[str, Any], d: int) -> tuple[str, ...]:
    names = metadata.get("objectives", ())
    return tuple(map(str, names)) if len(names) == d else tuple(f"objective {i + 1}" for i in range(d))


def _reference(metadata: dict[str, Any], d: int, source_name: str) -> tuple[float, ...] | None:
    point = metadata.get("reference_point")
    if point is not None and len(point) != d:
        raise ValueError(f"{source_name}: metadata['reference_point'] must have {d} numbers, got {len(point)}")
    return None if point is None else tuple(map(float, point))
