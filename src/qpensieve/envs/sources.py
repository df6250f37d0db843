"""Names of environments: find the environment that a name means, and explain an unknown name."""

import difflib
import importlib
import inspect
import re
import sys
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from pathlib import Path
from types import ModuleType
from typing import Any, cast

import gymnasium

from qpensieve.envs import info_objectives
from qpensieve.envs.info_objectives import InfoObjectives
from qpensieve.errors import UserError
from qpensieve.gym_ids import GRIDS, NAMES
from qpensieve.importing import place_of, working_folder

EnvFactory = Callable[[], gymnasium.Env]
"""Makes a new environment at every call."""

EnvSource = str | EnvFactory
"""A factory, or a name: `module:factory`, a Gymnasium id, or `module:GymnasiumId-v0`, perhaps with objectives
(`NAME+reward_forward+reward_ctrl`)."""
PICTURES = "rgb_array"
"""Render mode of an environment that returns pictures."""
LOCAL = "<this process>:"
"""Beginning of the names of factories that cannot be imported."""
_LOCAL_FACTORIES: dict[str, EnvFactory] = {}

MO_IDS = re.compile(
    r"(mo-|deep-sea-treasure|minecart|four-room|resource-gathering|breakable-bottles|fishwood|fruit-tree|water-reservoir)"
)
"""Beginnings of the ids of MO-Gymnasium."""
INSTALL_MO = 'pip install "qpensieve[mo]"'
"""Command that installs MO-Gymnasium and the packages that its environments import."""
PACKAGES = {
    "Box2D": "box2d",
    "ale_py": "ale-py",
    "cv2": "opencv-python",
    "gym_super_mario_bros": "gym-super-mario-bros",
    "highway_env": "highway-env",
    "mo_gymnasium": "mo-gymnasium",
    "nes_py": "nes-py",
    "PIL": "pillow",
}
"""Module -> the package that holds it, where their names differ."""


def name_for(source: Any) -> str:
    """Return a name that `resolve` accepts: `module:name` if `source` can be imported, else a name for this process.

    Raises:
        ValueError: `source` is one environment, or neither a name nor a function.
    """
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
    """Return whether only this process can make the environment with this name."""
    return name.startswith(LOCAL)


def resolve(source: Any, is_drawn: bool = False) -> EnvFactory:
    """Return the factory of a function or a name. The factory of a name can be pickled.

    Args:
        source: The function or the name.
        is_drawn: Whether the environments have `render_mode="rgb_array"`, where `source` can make such ones.

    Raises:
        ValueError: `source` is neither a function nor a name, or no environment has this name.
    """
    if isinstance(source, gymnasium.Env):
        raise UserError(f"{source} is one environment, but every lane needs its own: pass a function that makes one")
    source = _LOCAL_FACTORIES.get(source, source) if isinstance(source, str) else source
    if callable(source):
        factory = cast(EnvFactory, source)
        return _drawn(factory) if is_drawn else factory
    if not isinstance(source, str):
        raise UserError(f"an environment must be a name or a function that makes one, got {source!r}")
    base, objectives = info_objectives.parts(source)
    if objectives:
        return partial(_make_with, resolve(base, is_drawn), objectives)
    if _named_factory(source) is None:
        _check_registered(source)
    return partial(_make, source, is_drawn)


def _drawn(factory: Callable[..., gymnasium.Env]) -> EnvFactory:
    """Return the factory of environments that draw themselves, if `factory` takes a render mode; else `factory`."""
    try:
        takes_mode = "render_mode" in inspect.signature(factory).parameters
    except (TypeError, ValueError):  # made in C, or with a signature that cannot be read
        takes_mode = False
    return partial(factory, render_mode=PICTURES) if takes_mode else factory


def name_of(source: EnvSource) -> str:
    """Return the name of `source` in messages and results."""
    if isinstance(source, str):
        return source.removeprefix(LOCAL)
    return getattr(getattr(source, "func", source), "__qualname__", repr(source))


def needs_package(error: BaseException) -> str | None:
    """Return what to install if an environment failed because a package is missing; None for other failures."""
    cause = error.__cause__ if isinstance(error, gymnasium.error.DependencyNotInstalled) else error
    if isinstance(cause, ModuleNotFoundError) and cause.name:
        module = cause.name.partition(".")[0]
        package = PACKAGES.get(module, module.replace("_", "-"))
        return f"it needs the Python module {module!r}, which is not installed: pip install {package}"
    if isinstance(error, gymnasium.error.DependencyNotInstalled):
        return f"it needs a package that is not installed: {error}"
    return None


def missing_package(env_id: str) -> str | None:
    """Register the ids of MO-Gymnasium. If it is not installed and the id looks like one, return what to install."""
    try:
        importlib.import_module("mo_gymnasium")
    except ModuleNotFoundError as error:
        if MO_IDS.match(env_id.lower()):
            return f"it looks like an id of MO-Gymnasium, which is not installed ({error}): {INSTALL_MO}"
    return None


def _named_factory(name: str) -> EnvFactory | None:
    """Return the callable that `module:factory` names, or None if `name` can only be a Gymnasium id."""
    module_name, colon, attribute = name.partition(":")
    if not colon:
        return None
    if not module_name or not attribute:
        raise UserError(f"an environment must be written module:factory or module:GymnasiumId-v0, got {name!r}")
    module = _import(module_name, name)
    factory: EnvFactory | None = getattr(module, attribute, None)
    return factory if callable(factory) else None


def _import(module_name: str, name: str) -> ModuleType:
    """Import the module of an environment; ValueError for any error of its code, an exit included."""
    try:
        with working_folder():
            return importlib.import_module(module_name)
    except (Exception, SystemExit) as error:
        kind = "" if isinstance(error, ImportError | TypeError) else f"{type(error).__name__}: "  # ".mine": a TypeError
        is_absent = isinstance(error, ModuleNotFoundError) and error.name in (module_name, module_name.split(".")[0])
        where = ""
        if is_absent and module_name.endswith(".py"):  # a common mistake
            where = f"; write a module without .py: {module_of(module_name)}:{name.partition(':')[2]}"
        elif is_absent:
            where = "; it must be installed, on PYTHONPATH or a file of the working folder"
        reason = f"cannot import module {module_name!r} of environment {name!r}: {kind}{error}{place_of(error)}{where}"
        raise UserError(reason) from error


def module_of(file: str) -> str:
    """Return the module name of a file below the working folder: my/house.py is my.house."""
    return ".".join(Path(file).with_suffix("").parts)


def _make(name: str, is_drawn: bool) -> gymnasium.Env:
    factory = _named_factory(name)
    if factory is not None:
        with working_folder():  # a factory may import modules of its folder
            return (_drawn(factory) if is_drawn else factory)()
    # The check fills the registry, which is empty in a new worker process.
    _check_registered(name)
    if is_drawn:
        with suppress(TypeError, gymnasium.error.Error):  # it has no such mode, or does not take one
            return gymnasium.make(name, render_mode=PICTURES, disable_env_checker=True)
    return gymnasium.make(name, disable_env_checker=True)


def _make_with(factory: EnvFactory, objectives: tuple[str, ...]) -> gymnasium.Env:
    return InfoObjectives(factory(), objectives)


def _check_registered(name: str) -> None:
    """Import the module that registers a Gymnasium id; ValueError if the id stays unknown."""
    module_name, _, env_id = name.rpartition(":")
    if module_name:
        _import(module_name, name)
    if not is_registered(env_id):
        error = unknown(name)  # this also registers the ids of MO-Gymnasium
        if not is_registered(env_id):
            raise error


def is_registered(env_id: str) -> bool:
    """Return whether an id is registered; the version may be left out."""
    return env_id in gymnasium.registry or any(known.rpartition("-v")[0] == env_id for known in gymnasium.registry)


def unknown(name: str) -> UserError:
    """Return the error for an unknown name, with the nearest names, or with what to write or install instead."""
    module_name, _, env_id = name.rpartition(":")
    if missing := missing_package(env_id):
        return UserError(f"unknown domain {name!r}: {missing}")
    if module_name:
        where = getattr(sys.modules.get(module_name), "__file__", None)
        factory = f"a factory in module {module_name!r}{f' ({where})' if where else ''}"
        return UserError(f"unknown domain {name!r}: {env_id!r} is not a registered Gymnasium id nor {factory}")
    if name.endswith(".py") or Path(f"{name}.py").is_file():
        module = module_of(name) if name.endswith(".py") else name
        return UserError(
            f"unknown domain {name!r}: it names a module alone; write {module}:NAME, with the class or function in it"
        )
    names = {key.lower(): key for key in (*NAMES, *GRIDS, *gymnasium.registry)}
    near = [names[key] for key in difflib.get_close_matches(name.lower(), names, n=4, cutoff=0.4)]
    near = [names[name.lower()]] if name.lower() in names else near
    hint = f"; did you mean {', '.join(near)}?" if near else "."
    return UserError(
        f"unknown domain {name!r}{hint} The ten domains: {', '.join(NAMES)}. "
        f"With discrete actions: {', '.join(GRIDS)}. "
        "A Gymnasium id works too, also as module:id, where importing the module registers the id; "
        "or module:factory, a function or class of a module (of the working folder too) that makes an environment."
    )
