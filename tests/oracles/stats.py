"""The statistics of Agarwal et al. (2021) in plain loops: run scores are lists [seed][task]."""

from collections.abc import Callable, Sequence

import numpy as np

Scores = Sequence[Sequence[float]]


def iqm(scores: Scores) -> float:
    """25 % trimmed mean of all run scores: a quarter of them, rounded down, is dropped at either end."""
    ordered = sorted(score for row in scores for score in row)
    cut = len(ordered) // 4
    kept = ordered[cut : len(ordered) - cut]
    return sum(kept) / len(kept)


def improvement(x: Scores, y: Scores) -> float:
    """Mann-Whitney U over the number of pairs, averaged over tasks."""
    num_tasks, total = len(x[0]), 0.0
    for task in range(num_tasks):
        u = 0.0
        for ours in x:
            for theirs in y:
                u += 1.0 if ours[task] > theirs[task] else 0.5 if ours[task] == theirs[task] else 0.0
        total += u / (len(x) * len(y))
    return total / num_tasks


def share_above(scores: Scores, tau: float) -> float:
    """Share of runs with a score greater than tau."""
    flat = [score for row in scores for score in row]
    return sum(1 for score in flat if score > tau) / len(flat)


def mean_gap(x: Scores, y: Scores) -> float:
    """Mean of the differences seed by seed and task by task."""
    gaps = [a - b for ours, theirs in zip(x, y, strict=True) for a, b in zip(ours, theirs, strict=True)]
    return sum(gaps) / len(gaps)


def paired_wins(x: Scores, y: Scores) -> float:
    """Share of pairs of the same seed and task that x wins, ties a half."""
    wins = 0.0
    for ours, theirs in zip(x, y, strict=True):
        for a, b in zip(ours, theirs, strict=True):
            wins += 1.0 if a > b else 0.5 if a == b else 0.0
    return wins / (len(x) * len(x[0]))


def draws(num_seeds: int, num_tasks: int, num_resamples: int, generator: np.random.Generator) -> list:
    """[resample][row][task] -> seed that is taken there."""
    return generator.integers(num_seeds, size=(num_resamples, num_seeds, num_tasks)).tolist()


def taken(scores: Scores, rows: Sequence[Sequence[int]]) -> list[list[float]]:
    """One stratified resample: of each task, the scores of the seeds drawn for it."""
    return [[scores[seed][task] for task, seed in enumerate(row)] for row in rows]


def percentile(values: Sequence[float], percent: float) -> float:
    """Linear interpolation between the two nearest order statistics."""
    ordered = sorted(values)
    at = percent / 100 * (len(ordered) - 1)
    below = int(at)
    above = min(below + 1, len(ordered) - 1)
    return ordered[below] + (at - below) * (ordered[above] - ordered[below])


def interval(values: Sequence[float], confidence: float) -> tuple[float, float]:
    tail = 50 * (1 - confidence)
    return percentile(values, tail), percentile(values, 100 - tail)


def resampled(
    statistic: Callable[..., float], sides: Sequence[Scores], num_resamples: int, seed: int, together: bool = False
) -> list[float]:
    """The statistic of every resample; `together`: all sides take the same draws, so that pairs stay pairs."""
    generator = np.random.default_rng(seed)
    per_side = [draws(len(side), len(side[0]), num_resamples, generator) for side in sides[: 1 if together else None]]
    if together:
        per_side *= len(sides)
    return [
        statistic(*(taken(side, rows[i]) for side, rows in zip(sides, per_side, strict=True)))
        for i in range(num_resamples)
    ]
