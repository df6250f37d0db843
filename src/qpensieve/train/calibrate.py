"""Calibration: for each preference, find the row of the test table that the policy should be given instead.

The policy asked for a preference need not be the best one for it. So rows of the test table are played, the best row is
chosen for each preference, and the choice is confirmed on other episodes.
"""

from collections.abc import Callable
from contextlib import closing
from dataclasses import dataclass, field
from multiprocessing.pool import ThreadPool
from pathlib import Path
from typing import Any

import numpy as np
from jaxtyping import Float, Float32, Float64, Int64

from qpensieve.config import RunConfig
from qpensieve.console import DONE, Progress, Workload
from qpensieve.envs import LaneOptions, make_lanes
from qpensieve.envs.base import play
from qpensieve.errors import UserError
from qpensieve.learning.streams import Purpose, derived_seed
from qpensieve.machine import available_cores
from qpensieve.records import calibration as files
from qpensieve.records import folder
from qpensieve.records.calibration import Calibration
from qpensieve.records.files import check_can_write
from qpensieve.records.folder import lock
from qpensieve.train.evaluate import LANES_AT_ONCE, foreign_lanes, protocols
from qpensieve.train.saved import SavedPolicies, finish_save
from qpensieve.train.session import environment_errors

EPISODES = 100
"""Episodes of each seed that a calibration plays, at most."""
LEAST = 24
"""Least number of episodes: fewer cannot both choose and confirm."""
KEPT = 8
"""The search halves the rows until this many are left."""
PLAYING = "playing"
"""Phase that the progress line shows."""

Pairs = Int64[np.ndarray, "pair 2"]
"""Index of a seed in the run, and number of a row."""
Act = Callable[[int, Float32[np.ndarray, "n obs"], Float32[np.ndarray, "n d"]], Float32[np.ndarray, "n act"]]
"""(index of a seed, observations, preferences) -> deterministic actions of its policy."""
PlayPairs = Callable[[Pairs, int], Float64[np.ndarray, "pair e d"]]
"""Pairs and a number of episodes -> returns of that many new episodes of each pair."""


def num_rows(table_rows: int, episodes: int) -> int:
    """Return how many rows `episodes` can compare: a quarter of them, at least `KEPT`, at most `table_rows`."""
    return min(table_rows, max(episodes // 4, KEPT))


def spread_rows(table_rows: int, num: int) -> Int64[np.ndarray, " num"]:
    """Return `num` row numbers spread evenly over the table, both ends included."""
    return np.unique(np.linspace(0, table_rows - 1, num).round().astype(np.int64))


def choose(
    play_pairs: PlayPairs, lam: Float64[np.ndarray, "m d"], num_seeds: int, episodes: int
) -> tuple[Int64[np.ndarray, "seed m"], Float64[np.ndarray, "seed m"]]:
    """Choose for each row of `lam` the row to ask for, and confirm the choice on other episodes.

    1. All rows are played; the half that together serves the preferences best is played again, and so on until `KEPT`
       rows are left. For each preference the row with the largest weighted mean return is chosen.
    2. All rows and the chosen rows are played in new episodes. Preferences with the same choice are a group. A group
       keeps its choice where the mean gain over asking for the preference itself exceeds its standard error.

    Args:
        play_pairs: Plays episodes.
        lam: The preferences, which are also the rows to choose from.
        num_seeds: Number of seeds.
        episodes: Episodes of each seed, at most.

    Returns:
        For each row the number of the row to ask for, and the confirmed gain; 0 where a row asks for itself.
    """
    chosen, spent = _search(play_pairs, lam, num_seeds, episodes)
    rows, used = np.arange(len(lam)), [np.unique(one) for one in chosen]
    own = max(1, (episodes - spent) // 2 // len(lam))
    more = max(1, (episodes - spent - own * len(lam)) // max(map(len, used)))
    of_own = np.split(play_pairs(_pairs([rows] * num_seeds), own), num_seeds)
    of_used = np.split(play_pairs(_pairs(used), more), np.cumsum([len(one) for one in used])[:-1])
    further = [dict(zip(one.tolist(), played, strict=True)) for one, played in zip(used, of_used, strict=True)]
    found = [_confirm(lam, *one) for one in zip(chosen, of_own, further, strict=True)]
    return np.stack([asks for asks, _ in found]), np.stack([gain for _, gain in found])


def _search(
    play_pairs: PlayPairs, lam: Float64[np.ndarray, "m d"], num_seeds: int, episodes: int
) -> tuple[list[Int64[np.ndarray, " m"]], int]:
    """Find the row that seems best for each preference; returns rows per seed and the episodes played per seed."""
    each, spent = max(1, episodes // (4 * len(lam))), 0
    total, count = np.zeros((num_seeds, *lam.shape)), np.zeros((num_seeds, len(lam), 1))
    kept = [np.arange(len(lam))] * num_seeds
    while True:
        pairs = _pairs(kept)
        total[tuple(pairs.T)] += play_pairs(pairs, each).sum(axis=1)
        count[tuple(pairs.T)] += each
        spent += each * len(kept[0])
        worth = [lam @ (total[seed, rows] / count[seed, rows]).T for seed, rows in enumerate(kept)]
        if len(kept[0]) <= KEPT:
            return [rows[values.argmax(axis=1)] for rows, values in zip(kept, worth, strict=True)], spent
        num = max(KEPT, -(-len(kept[0]) // 2))
        kept = [rows[_cover(values, num)] for rows, values in zip(kept, worth, strict=True)]


def _pairs(rows: list[Int64[np.ndarray, " rows"]]) -> Pairs:
    return np.concatenate([np.stack([np.full(len(one), seed), one], axis=1) for seed, one in enumerate(rows)])


def _cover(worth: Float64[np.ndarray, "m rows"], num: int) -> Int64[np.ndarray, " num"]:
    """Choose rows one by one, so that the mean of the best value under each preference is largest.

    Once further rows add nothing, the rows that are left are covered in the same way: noise may have hidden the best.
    """
    kept, best = np.zeros(worth.shape[1], bool), np.full(len(worth), -np.inf)
    while kept.sum() < num:
        reached = np.where(kept, -np.inf, np.maximum(worth, best[:, None]).mean(axis=0))
        row = reached.argmax()
        if reached[row] <= best.mean():
            best[:] = -np.inf
        else:
            kept[row], best = True, np.maximum(best, worth[:, row])
    return np.flatnonzero(kept)


def _confirm(
    lam: Float64[np.ndarray, "m d"],
    chosen: Int64[np.ndarray, " m"],
    own: Float64[np.ndarray, "m e d"],
    more: dict[int, Float64[np.ndarray, "more d"]],
) -> tuple[Int64[np.ndarray, " m"], Float64[np.ndarray, " m"]]:
    """Return the choices that new episodes confirm, and their gains.

    Args:
        lam: The preferences.
        chosen: The row chosen for each.
        own: New episodes of each row.
        more: Chosen row -> further new episodes of it.
    """
    asks, gain = np.arange(len(lam)), np.zeros(len(lam))
    for row, further in more.items():
        group = np.flatnonzero((chosen == row) & (chosen != asks))
        episodes = np.concatenate([own[row], further])
        gains = lam[group] @ episodes.mean(axis=0) - np.einsum("ped,pd->ep", own[group], lam[group])
        if gains.size < 2:  # a single episode confirms nothing
            continue
        error = np.hypot(_standard_error(gains.ravel()), _standard_error(episodes @ lam[group].mean(axis=0)))
        if gains.mean() > error:
            asks[group], gain[group] = row, gains.mean()
    return asks, gain


def _standard_error(values: Float64[np.ndarray, " n"]) -> float:
    return float(values.std(ddof=1)) / len(values) ** 0.5


@dataclass(eq=False)
class Episodes:
    """Plays episodes of a run's policies under rows of a table; each episode of a seed and row has its own start state.

    Attributes:
        config: The run.
        act: The policies of all seeds.
        preferences: Rows of the table.
        numbers: Their numbers in the whole table; start states depend on seed, number and episode alone.
        progress: The progress line, which counts episodes.
    """

    config: RunConfig
    act: Act
    preferences: Float64[np.ndarray, "m d"]
    numbers: Int64[np.ndarray, " m"]
    progress: Progress
    played: Int64[np.ndarray, "seed m"] = field(init=False)
    steps: Int64[np.ndarray, " seed"] = field(init=False)
    done: int = field(init=False, default=0)

    def __post_init__(self) -> None:
        self.played = np.zeros((self.config.seeds, len(self.preferences)), np.int64)
        self.steps = np.zeros(self.config.seeds, np.int64)

    def play(self, pairs: Pairs, episodes: int) -> Float64[np.ndarray, "pair e d"]:
        """Play new episodes of each pair of seed and row; returns their returns."""
        jobs = pairs.repeat(episodes, axis=0)
        first = self.played[tuple(pairs.T)]
        numbers = (first[:, None] + np.arange(episodes)).ravel()
        self.played[tuple(pairs.T)] += episodes
        most = LANES_AT_ONCE if foreign_lanes(self.config.domain, 1, 1) else len(jobs)
        parts = [slice(start, start + most) for start in range(0, len(jobs), most)]
        returns = np.concatenate([self._play_part(jobs[part], numbers[part]) for part in parts])
        return returns.reshape(len(pairs), episodes, -1)

    def _play_part(self, jobs: Pairs, numbers: Int64[np.ndarray, " n"]) -> Float64[np.ndarray, "n d"]:
        config, seeds = self.config, self.config.seed_list
        streams = [
            derived_seed(seeds[seed], Purpose.CALIBRATION, int(self.numbers[row]), episode)
            for (seed, row), episode in zip(jobs.tolist(), numbers.tolist(), strict=True)
        ]
        lam = self.preferences[jobs[:, 1]].astype(np.float32)
        lanes = make_lanes(config.domain, len(jobs), streams, LaneOptions(autoreset=False))

        def act(obs: Float[np.ndarray, "n obs"]) -> Float[np.ndarray, "n act"]:
            """Return deterministic actions of the lanes that run; counts their steps."""
            groups = [np.flatnonzero(lanes.running & (jobs[:, 0] == seed)) for seed in range(len(seeds))]
            self.steps += [len(group) for group in groups]
            busy = [seed for seed, group in enumerate(groups) if len(group)]
            actions = np.zeros((len(obs), lanes.spec.action_size), np.float32)
            one = lambda seed: self.act(seed, obs[groups[seed]].astype(np.float32), lam[groups[seed]])
            for seed, acted in zip(busy, pool.map(one, busy), strict=True):
                actions[groups[seed]] = acted
            self.progress.show(self.done + int((~lanes.running).sum()))
            return actions

        with closing(lanes), ThreadPool(min(available_cores(), len(seeds))) as pool:
            returns = play(lanes, act, config.max_eval_steps)
        self.done += len(jobs)
        self.progress.show(self.done)
        return returns


def calibrate(  # noqa: PLR0913 (policies, whose they are, and how much to play)
    config: RunConfig,
    act: Act,
    step: int,
    own: Float64[np.ndarray, "p d"] | None,
    num_objectives: int,
    episodes: Any = EPISODES,
    quiet: bool = True,
) -> Calibration:
    """Calibrate the policies of all seeds of a run.

    Args:
        config: The run.
        act: Its policies.
        step: Their environment step.
        own: Preferences that have their own agent each, which replace the table. None: one agent of a seed serves all.
        num_objectives: Selects the test table.
        episodes: Episodes of each seed, at most.
        quiet: No progress line.

    Raises:
        ValueError: There are fewer than `LEAST` episodes or 2 preferences, or the policies are an archive, which needs
            no calibration.
        EnvFailedError: The environment failed.
    """
    if config.method.is_population:
        raise UserError(f"{config.algo} needs no calibration: it answers each preference by the best of its archive")
    if isinstance(episodes, bool) or not isinstance(episodes, int | np.integer) or episodes < LEAST:
        raise UserError(f"episodes must be a whole number of at least {LEAST}, got {episodes!r}")
    table = protocols(num_objectives, own).full
    numbers = spread_rows(len(table), num_rows(len(table), int(episodes)))
    if len(numbers) < 2:
        raise UserError("a calibration needs at least 2 preferences to choose from, got 1")
    total = int(episodes) * config.seeds
    progress = Progress(total, 0, quiet=quiet, workload=Workload(unit="episodes"))
    progress.enter(PLAYING)
    player = Episodes(config, act, table[numbers], numbers, progress)
    try:
        with environment_errors(f"in the calibration at step {step}"):
            asks, gain = choose(player.play, table[numbers], config.seeds, int(episodes))
        progress.enter(DONE)
    finally:
        progress.end()
    each = int(player.played.sum(axis=1).max())
    return Calibration(step, config.seed_list, table[numbers], asks, gain, each, player.steps)


def calibrate_run(
    source: Path, episodes: int, trust: bool, say: Callable[[str], None], quiet: bool
) -> tuple[Calibration, Path]:
    """Calibrate the newest policies of a run or saved agent; returns the calibration and the file it was written to."""
    finish_save(source)
    folder.check_run(source)
    out = source / folder.CALIBRATION
    check_can_write(out)
    with closing(lock(source)) as held:
        saved = SavedPolicies(source, trust)
        policies, step = saved.newest(say)
        config, num = saved.config, saved.spec.num_objectives
        found = calibrate(config, policies.act, step, saved.own_preferences, num, episodes, quiet)
        held.check()
        files.save(out, found)
    return found, out
