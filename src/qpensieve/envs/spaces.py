"""What is known of a foreign environment: its spaces and metadata as an `EnvSpec`, or why it cannot be used."""

from dataclasses import replace
from typing import Any

import gymnasium
import numpy as np
from gymnasium.spaces import Box, Discrete, MultiBinary, MultiDiscrete

from qpensieve.envs.sources import needs_package
from qpensieve.errors import EnvError, UserError
from qpensieve.importing import place_of
from qpensieve.types import ActionBox, EnvSpec, Indices

MAX_OBSERVED = 20_000
"""Most numbers of an observation."""


def describe(env: gymnasium.Env, source_name: str) -> EnvSpec:
    """What qpensieve needs to know of `env`, from its spaces and `metadata`; ValueError if it cannot be used.

    The number of objectives is the length of `reward_space` if there is one, else of the reward of one trial step.
    `metadata["objectives"]` names the objectives, `metadata["reference_point"]` sets the hypervolume's reference.
    """
    observations, actions = _observations(env, source_name), _actions(env, source_name)
    spec = EnvSpec(id=source_name, objectives=(), reference=None, max_steps=None, **observations, **actions)
    d = _num_objectives(env, spec)
    names, reference = _objective_names(env.metadata, d, source_name), _reference(env.metadata, d, source_name)
    return replace(spec, objectives=names, reference=reference)


def _observations(env: gymnasium.Env, source_name: str) -> dict[str, Any]:
    """The fields of the spec that say what is observed."""
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
    """The fields of the spec that say what is done."""
    space = getattr(env, "action_space", None)
    if isinstance(space, Discrete):
        return {"action_size": 1, "num_actions": int(space.n), "first_action": int(space.start)}
    box = _action_box(space, source_name)
    return {"action_size": len(box.low), "action_box": box}


def _action_box(space: Any, source_name: str) -> ActionBox:
    must = "action space must be a continuous Box with finite bounds, or Discrete"
    if not isinstance(space, Box) or not np.issubdtype(space.dtype, np.floating):
        raise UserError(f"{source_name}: {must}, got {space}")
    for name, bound in (("low", space.low.ravel()), ("high", space.high.ravel())):
        if not np.isfinite(bound).all():
            index = int(np.argmin(np.isfinite(bound)))
            raise UserError(f"{source_name}: {must}, got action_space.{name}[{index}] = {bound[index]}")
    if 0 in space.shape:
        raise UserError(f"{source_name}: {must}, got {space}, which holds no numbers")
    low, high = (tuple(bound.ravel().astype(np.float64).tolist()) for bound in (space.low, space.high))
    return ActionBox(low, high, space.shape, np.dtype(space.dtype).name)


def _num_objectives(env: gymnasium.Env, spec: EnvSpec) -> int:
    space = env.get_wrapper_attr("reward_space") if env.has_wrapper_attr("reward_space") else None
    shape = _trial_reward(env, spec).shape if space is None else space.shape
    if len(shape) == 1 and shape[0] > 0:
        return shape[0]
    found = f"shape {shape}" if shape else "a scalar"
    raise UserError(
        f"{spec.id}: the reward must be a vector, got {found}; let step() return a np.array of d numbers, "
        "one per objective, or use a version from mo-gymnasium"
    )


def _trial_reward(env: gymnasium.Env, spec: EnvSpec) -> np.ndarray:
    try:
        env.reset(seed=0)
        action = spec.one_of(spec.native_actions(np.zeros((1, spec.action_size))), 0)
        return np.asarray(env.step(action)[1])
    except Exception as error:
        raise foreign_error(spec.id, "in the trial step that counts its objectives", error) from error


def foreign_error(name: str, where: str, error: BaseException) -> EnvError:
    """What to raise where an environment failed: names it, what to install if that is the reason, and the line."""
    reason = needs_package(error) or f"{type(error).__name__}: {error}{place_of(error)}"
    return EnvError(f"{name}: the environment failed {where}: {reason}")


def _objective_names(metadata: dict[str, Any], d: int, source_name: str) -> tuple[str, ...]:
    """As `metadata` says; names that do not fit would be of other objectives than those one asks for."""
    given = metadata.get("objectives")
    if given is None:
        return tuple(f"objective {i + 1}" for i in range(d))
    names = () if isinstance(given, str) else tuple(map(str, given))
    if len(names) != d or len(set(names)) != d:
        raise UserError(f"{source_name}: metadata['objectives'] must be {d} different names, got {given!r}")
    return names


def _reference(metadata: dict[str, Any], d: int, source_name: str) -> tuple[float, ...] | None:
    point = metadata.get("reference_point")
    if point is not None and len(point) != d:
        raise UserError(f"{source_name}: metadata['reference_point'] must have {d} numbers, got {len(point)}")
    if point is not None and not np.isfinite(np.asarray(point, float)).all():
        raise UserError(f"{source_name}: metadata['reference_point'] must be finite, got {tuple(point)}")
    return None if point is None else tuple(map(float, point))
