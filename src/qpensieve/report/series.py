"""What the figures of the report draw, from the runs of a cell: scores and returns over training, and fronts."""

from collections.abc import Sequence
from typing import Any

import numpy as np

from qpensieve.errors import UserError
from qpensieve.preferences import ArrayLike
from qpensieve.records.scores import SCORES, scores, summarize
from qpensieve.report.cells import Run, check_short_preferences
from qpensieve.report.paper_figures import Curve, Path2d

BySeed = dict[int, dict[int, Any]]
"""Step -> seed -> a number or a return vector."""
CLOSE = 1e-6
"""Largest distance of two preferences that are the same."""


def score_curve(runs: Sequence[Run], score: str = "hv") -> Curve | None:
    """A score of the short evaluations over training; None if no run has it.

    Args:
        runs: Runs of one method (`cells.read_runs`).
        score: Name of a score with one value per seed: `ut`, `hv`, `best_single`.

    Raises:
        ValueError: There is no such score, or runs played different preferences.
    """
    if score not in SCORES:
        raise UserError(f"score must be one of {', '.join(SCORES)}, got {score!r}")
    check_short_preferences(runs)
    found: BySeed = {}
    for run in runs:
        table = run.data.table
        rows = [(int(row["step"]), row[score]) for row in run.data.scored or ()]
        if not rows:
            each = [summarize(returns, table.short_preferences, table.reference) for returns in table.short_returns]
            rows = [(int(step), scores(one).get(score)) for step, one in zip(table.short_steps, each, strict=True)]
        for step, values in rows:
            if values is not None:
                _put(found, step, run.seeds, np.asarray(values, np.float64))
    return _curve(found, runs)


def preference_curve(runs: Sequence[Run], lam: ArrayLike) -> Curve | None:
    """The return weighed by a preference, over training under it; None if no evaluation played it."""
    weights = np.asarray(lam, np.float64)
    found = {step: {seed: r @ weights for seed, r in of.items()} for step, of in _returns(runs, weights).items()}
    return _curve(found, runs)


def preference_path(runs: Sequence[Run], lam: ArrayLike, steps: Sequence[int] | None = None) -> Path2d | None:
    """Mean return vectors over seeds under one preference, over training; None if no evaluation played it.

    Args:
        runs: Runs of one method.
        lam: The preference.
        steps: Steps to show; default: every multiple of 100 thousand, else all.
    """
    found = _complete(_returns(runs, np.asarray(lam, np.float64)))
    chosen = [step for step in found if step % 100_000 == 0] or list(found)
    chosen = chosen if steps is None else [step for step in found if step in set(steps)]
    if not chosen:
        return None
    means = np.array([np.mean(list(found[step].values()), axis=0) for step in chosen])
    return Path2d(np.array(chosen, np.int64), means)


def _returns(runs: Sequence[Run], lam: np.ndarray) -> BySeed:
    """Mean returns under a preference; curve evaluations have more episodes than short ones, full ones the most."""
    found: BySeed = {}
    for run in runs:
        table = run.data.table
        for steps, preferences, returns in (
            *_exported(run),
            (table.short_steps, table.short_preferences, table.short_returns),
            (table.short_steps, table.curve_preferences, table.curve_returns),
            (table.full_steps, table.full_preferences, table.full_returns),
        ):
            row = np.flatnonzero(np.abs(preferences - lam).max(axis=1) < CLOSE) if len(preferences) else []
            for step, of_step in zip(steps.tolist(), returns, strict=True) if len(row) else ():
                _put(found, step, run.seeds, of_step[:, row[0]].mean(axis=1))
    return found


def _exported(run: Run) -> list[tuple[np.ndarray, np.ndarray, np.ndarray]]:
    """Steps, preferences and returns that an exported file has beside its full evaluations."""
    rows = [row for row in run.data.scored or () if "mean_returns" in row]
    steps = np.array([row["step"] for row in rows], np.int64)
    returns = np.array([row["mean_returns"] for row in rows], np.float64)
    found = [(steps, run.data.table.full_preferences, returns[:, :, :, None])] if rows else []
    curves = run.data.exported_curves
    return found if curves is None else [*found, (curves.steps, curves.preferences, curves.returns[:, :, :, None])]


def _put(found: BySeed, step: int, seeds: Sequence[int], values: np.ndarray) -> None:
    found.setdefault(step, {}).update(zip(seeds, values, strict=True))


def _complete(found: BySeed) -> BySeed:
    """The steps that have as many seeds as any, in order: a mean over fewer would jump."""
    most = max(map(len, found.values()), default=0)
    return {step: found[step] for step in sorted(found) if len(found[step]) == most}


def _curve(found: BySeed, runs: Sequence[Run]) -> Curve | None:
    kept = _complete(found)
    if not kept:
        return None
    values = [[of[seed] for seed in sorted(of)] for of in kept.values()]
    return Curve(np.array(list(kept), np.int64), np.array(values, np.float64), max(run.goal for run in runs))
