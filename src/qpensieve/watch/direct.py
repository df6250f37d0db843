"""From what was asked for to what is played: the script of a film, every wish checked."""

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from jaxtyping import Float64

from qpensieve.errors import UserError
from qpensieve.preferences import parse_preference
from qpensieve.train.evaluate import curve_preferences
from qpensieve.train.saved import SavedPolicies
from qpensieve.watch.film import Script
from qpensieve.watch.world import World, start_of

MOST_FPS, MOST_SECONDS, WIDTHS, MOST_PANELS = 60.0, 600.0, (80.0, 1920.0), 12
USUAL_FPS = 25.0


@dataclass(frozen=True)
class Wish:
    """What a user asks of a film; None: as usual."""

    preferences: tuple[str, ...] = ()
    seed: int | None = None
    at: int | None = None
    seconds: float = 10.0
    steps: int | None = None
    fps: float | None = None
    width: int = 240


def script_of(saved: SavedPolicies, wish: Wish, warn: Callable[[str], None] = lambda message: None) -> Script:
    """The film that is asked for.

    Args:
        saved: Whose policies act.
        wish: What is asked for.
        warn: Is told of newer policies that cannot be read.

    Raises:
        ValueError: There is no such seed or step, or a wish is out of bounds; names it.
        CheckpointError: The run has no policies.
    """
    world = World(saved.config.domain)
    dt = world.dt
    world.close()
    fps = min(USUAL_FPS, 1.0 / dt) if wish.fps is None else wish.fps
    seconds = wish.seconds if wish.steps is None else wish.steps * dt
    seed = saved.config.first_seed if wish.seed is None else wish.seed
    _check("fps", fps, (0.1, MOST_FPS))
    if wish.steps is None:
        _check("seconds", seconds, (dt, MOST_SECONDS))
    else:
        _check("steps", float(wish.steps), (1.0, MOST_SECONDS / dt))
    _check("width", float(wish.width), WIDTHS)
    row = saved.row_of(seed)
    preferences = _preferences(wish.preferences, saved.spec.num_objectives)
    policy = saved.newest(warn)[0] if wish.at is None else saved.predictor(wish.at)
    limit = saved.config.max_eval_steps
    return Script(saved.config.domain, policy, row, seed, preferences, seconds, fps, wish.width, limit)


def _preferences(words: tuple[str, ...], num_objectives: int) -> Float64[np.ndarray, "p d"]:
    if len(words) > MOST_PANELS:
        raise UserError(f"preference may be given at most {MOST_PANELS} times, a panel each; got {len(words)}")
    if words:
        return np.stack([parse_preference(word, num_objectives) for word in words])
    usual = curve_preferences(num_objectives)
    return usual if len(usual) else start_of(num_objectives)[None]


def _check(name: str, value: float, bounds: tuple[float, float]) -> None:
    low, high = bounds
    if not low <= value <= high:  # also for NaN
        raise UserError(f"{name} must be from {low:g} to {high:g}, got {value:g}")
