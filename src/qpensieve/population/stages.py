"""What PGMORL and PFA share: warm-up tasks on a grid of preferences, then generations; and what counts as a step."""

import math
from dataclasses import dataclass
from typing import Annotated, Literal

import numpy as np
from jaxtyping import Float64

from qpensieve.errors import UserError
from qpensieve.metrics import check_reference
from qpensieve.preferences import das_dennis
from qpensieve.settings import at_least
from qpensieve.types import EnvSpec

MANY_OBJECTIVES = 5
"""With this many objectives or more, the grid is coarser."""


@dataclass(frozen=True)
class StagesConfig:
    """When a population warms up and evolves."""

    divisions: Annotated[int | None, at_least(1)] = None
    """The preferences of the warm-up have entries that are multiples of 1 / divisions; each is a task. None: 4 (5, 15
    or 35 tasks for 2, 3 or 4 objectives), or 3 for five objectives or more (35 tasks for five)."""
    warmup_iterations: int = 80
    """PPO iterations of every task before the first generation; a multiple of generation_iterations."""
    generation_iterations: Annotated[int, at_least(1)] = 20
    """PPO iterations of every task in a generation."""
    total: Literal["shared", "per-task"] = "shared"
    """Whether all tasks together take `steps` environment steps, or each of them does."""
    fitness_episodes: Annotated[int, at_least(1)] = 4
    """Episodes that measure the objectives of a policy after every iteration, with its mean action; they do not count
    as training steps."""

    def conflicts(self) -> list[str]:
        """The warm-up must end with a sample: only then do its last policies enter the graph."""
        warmup, generation = self.warmup_iterations, self.generation_iterations
        if generation < 1 or (warmup >= 1 and warmup % generation == 0):
            return []
        nearest = max(1, round(warmup / generation)) * generation
        return [
            f"warmup_iterations must be a multiple of generation_iterations ({generation}), got {warmup}: "
            f"the warm-up's last policies would not enter the graph; the nearest is {nearest}"
        ]


def spacing(cfg: StagesConfig, num_objectives: int) -> float:
    """Distance between neighbouring entries of the grid's preferences."""
    return 1.0 / (cfg.divisions or (3 if num_objectives >= MANY_OBJECTIVES else 4))


def num_tasks(cfg: StagesConfig, num_objectives: int) -> int:
    """How many preferences `warmup_preferences` has, without making them: a fine grid may have billions."""
    return math.comb(round(1.0 / spacing(cfg, num_objectives)) + num_objectives - 1, num_objectives - 1)


def warmup_preferences(cfg: StagesConfig, num_objectives: int) -> Float64[np.ndarray, "n d"]:
    """One preference per task."""
    return das_dennis(num_objectives, round(1.0 / spacing(cfg, num_objectives)))


def reference_of(spec: EnvSpec) -> Float64[np.ndarray, " d"]:
    """The point that policies must exceed; ValueError if there is none."""
    if spec.reference is None:
        raise UserError(
            f"reference must be given for {spec.id}, because PGMORL and PFA need one: "
            f"set it (--reference) to {spec.num_objectives} numbers that a useful policy exceeds"
        )
    return check_reference(spec.reference, spec.num_objectives)
