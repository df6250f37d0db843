"""Whole episodes: one in every lane, played to its end or to a limit."""

import warnings
from collections.abc import Callable

import numpy as np
from jaxtyping import Float, Float64

from qpensieve.envs.base import Lanes

SHORT_EPISODES, FULL_EPISODES = 2, 10
"""Episodes per preference of periodic evaluations and of the full protocol."""
MAX_EVAL_STEPS = 10_000
"""Steps after which an evaluation no longer waits for the end of an episode; episodes of the ten domains have at most
2000."""


def play(
    lanes: Lanes,
    act: Callable[[Float[np.ndarray, "n obs"]], Float[np.ndarray, "n act"]],
    max_steps: int = MAX_EVAL_STEPS,
) -> Float64[np.ndarray, "n d"]:
    """Undiscounted return of the next episode of every lane; a return so far, with a warning, where it does not end.

    Args:
        lanes: Lanes that rest at the end of an episode (`autoreset=False`).
        act: Observations -> actions.
        max_steps: The limit.
    """
    obs, total = lanes.reset(), np.zeros((lanes.num_lanes, lanes.spec.num_objectives))
    for _ in range(max_steps):
        step = lanes.step(act(obs))
        total += step.reward
        obs = step.obs
        if not lanes.running.any():
            return total
    # The same words every time, so that Python shows them once.
    warnings.warn(
        f"{lanes.spec.id}: an episode of an evaluation did not end within {max_steps} steps, so its return so far "
        "counts; give the environment a time limit (gymnasium.wrappers.TimeLimit) or set max_eval_steps",
        stacklevel=2,
    )
    return total
