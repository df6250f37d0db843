"""Pareto following (PFA) as in the code of PGMORL's authors: preferences that slide along the front under PPO.

Parisi et al. (2014) walk along the front by gradients of the policy. Here each task starts at a preference of the grid
and moves towards that of its right neighbour, one step per generation, always from its own last policy.
"""

from dataclasses import dataclass, field

import numpy as np
from jaxtyping import Float64

from qpensieve.population.ppo import PpoConfig
from qpensieve.population.stages import StagesConfig


@dataclass(frozen=True)
class PfaConfig:
    """Settings of PFA; two objectives only."""

    stages: StagesConfig = field(default_factory=StagesConfig)
    """Warm-up and generations."""
    ppo: PpoConfig = field(default_factory=PpoConfig)
    """Training of each member."""


def schedule(  # noqa: PLR0913
    iteration: int,
    warmup: int,
    per_generation: int,
    total: int,
    base: Float64[np.ndarray, " n"],
    spacing: float,
) -> Float64[np.ndarray, "n 2"]:
    """Preferences of all tasks for the generation that starts at an iteration, counted over the whole run.

    The share of the way to the next preference of the grid is the one at the end of the generation: (iteration +
    per_generation - warmup) / (total - warmup), between 0 and 1. A run that is all warm-up stays at `base`.

    Args:
        iteration: First iteration of the generation.
        warmup: Iterations before the first generation.
        per_generation: Iterations of a generation.
        total: Iterations of the run.
        base: First component of each task's preference during warm-up.
        spacing: Distance between neighbours in `base`.
    """
    share = 0.0 if total <= warmup else np.clip((iteration + per_generation - warmup) / (total - warmup), 0.0, 1.0)
    first = np.clip(base + share * spacing, 0.0, 1.0)
    return np.stack([first, 1.0 - first], axis=1)
