"""Evaluation on a preference table in large batches of lanes: returns [seed, preference, episode, objective]."""

from contextlib import closing
from dataclasses import dataclass

import numpy as np
from jaxtyping import Float64

from qpensieve.envs import EnvSource, LaneOptions, find_domain, make_lanes
from qpensieve.envs.base import MAX_EVAL_STEPS, play
from qpensieve.learning.predictor import Act
from qpensieve.learning.streams import Purpose, derived_seed
from qpensieve.preferences import test_table

_CURVES = {
    2: [(0.1, 0.9), (0.5, 0.5), (0.9, 0.1)],
    3: [(1 / 3, 1 / 3, 1 / 3), (0.1, 0.1, 0.8), (0.1, 0.8, 0.1), (0.8, 0.1, 0.1)],
    4: [(0.25,) * 4, *[tuple(0.85 if i == j else 0.05 for i in range(4)) for j in range(4)]],
}


LANES_AT_ONCE = 256
"""Most foreign environments that an evaluation makes at once, unless one preference needs more. Each is a whole
simulator, of 1 MiB for mo-hopper-v5; lanes of built-in domains are small."""
MANY = 4
"""All own preferences are drawn as curves if there are at most this many."""


@dataclass(frozen=True, eq=False)
class Protocols:
    """Preferences of the three kinds of evaluation."""

    short: Float64[np.ndarray, "p d"]
    curve: Float64[np.ndarray, "c d"]
    full: Float64[np.ndarray, "p_full d"]


def protocols(
    num_objectives: int, own: Float64[np.ndarray, "p d"] | None = None, stride: int = 5, full_stride: int = 1
) -> Protocols:
    """Return the preferences to evaluate on.

    Args:
        num_objectives: Selects the test table.
        own: Preferences that have their own agent each, which replace the table. None: one agent serves all.
        stride: Short evaluations play every `stride`-th row of the table.
        full_stride: Full evaluations play every `full_stride`-th row of the table.
    """
    curve = curve_preferences(num_objectives)
    if own is None:
        table = np.array(test_table(num_objectives))
        return Protocols(table[::stride], curve, table[::full_stride])
    is_own = np.array([np.isclose(lam, own).all(axis=1).any() for lam in curve], bool)
    return Protocols(own, own if len(own) <= MANY else curve[is_own], own)


def curve_preferences(num_objectives: int) -> Float64[np.ndarray, "c d"]:
    """Return the preferences of the paper's learning curves; no rows if the paper has no curve for `num_objectives`."""
    rows = _CURVES.get(num_objectives, [])
    return np.array(rows, np.float64).reshape(len(rows), num_objectives)


def foreign_lanes(domain: EnvSource, num_seeds: int, episodes: int) -> int:
    """Return the most foreign environments that an evaluation makes at once; 0 for a built-in domain."""
    is_built_in = isinstance(domain, str) and find_domain(domain) is not None
    of_a_preference = num_seeds * episodes
    return 0 if is_built_in else max(1, LANES_AT_ONCE // of_a_preference) * of_a_preference


def evaluate(  # noqa: PLR0913
    domain: EnvSource,
    seeds: list[int],
    act: Act,
    preferences: Float64[np.ndarray, "p d"],
    episodes: int,
    max_steps: int = MAX_EVAL_STEPS,
    num_threads: int | None = None,
    first_row: int = 0,
) -> Float64[np.ndarray, "seed p e d"]:
    """Play deterministic policies and return undiscounted returns; each (seed, preference, episode) has its own lane.

    Start states depend on seed, row, episode and number of episodes alone: those of a protocol are always the same.

    Args:
        domain: The environment.
        seeds: Seeds whose policies play.
        act: The policies of all seeds.
        preferences: Preferences to play under.
        episodes: Episodes per preference.
        max_steps: Steps after which an episode is cut.
        num_threads: Threads that share the lanes. None: as many as help.
        first_row: Number, in the whole table, of the first row of `preferences`.
    """
    rows, first = len(preferences) * episodes, first_row * episodes
    numbers = range(first, first + rows)
    lane_seeds = [derived_seed(seed, Purpose.EVALUATION, row) for seed in seeds for row in numbers]
    options = LaneOptions(autoreset=False, num_threads=num_threads)
    shape = (len(seeds), rows)
    lam = np.tile(np.repeat(preferences.astype(np.float32), episodes, axis=0), (len(seeds), 1, 1))
    one_row_each = lambda obs: np.asarray(act(obs.reshape(*shape, -1), lam)).reshape(len(lane_seeds), -1)
    with closing(make_lanes(domain, len(lane_seeds), lane_seeds, options)) as lanes:
        returns = play(lanes, one_row_each, max_steps)
    return returns.reshape(len(seeds), len(preferences), episodes, preferences.shape[1])
