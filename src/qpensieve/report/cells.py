"""Make cells and curves of a report from run folders and exported files.

One cell may come from several runs with different seeds. It holds the newest full evaluation, or else the newest short
one, and names its protocol.
"""

from collections.abc import Sequence
from dataclasses import replace
from itertools import combinations
from pathlib import Path
from typing import Any

import numpy as np
from jaxtyping import Float64, Int64

from qpensieve import metrics
from qpensieve.compatibility import LEARNING, settings_that_differ
from qpensieve.console import format_count, plural
from qpensieve.envs.base import FULL_EPISODES
from qpensieve.envs.registry import find_domain
from qpensieve.errors import UserError
from qpensieve.preferences import ArrayLike, test_table
from qpensieve.records.folder import EVALUATIONS
from qpensieve.records.scores import SCORES
from qpensieve.report.drawing import Curve
from qpensieve.report.paper_figures import Path2d
from qpensieve.report.results import Evaluation, RunResults, check_same_short_preferences, read_run, rounded
from qpensieve.report.sheets import FULL, SHORT, Cell, compares, seeds_in_words
from qpensieve.report.summary import format_point

ED = "ED"
"""The metric that compares with a second method."""
ROUNDING = 1e-5
"""Largest relative difference between the same number in a run's folder and in its exported file."""
SAME_ROW = 1e-9
"""Largest difference between preferences that count as the same row of a table."""
CLOSE = 1e-6
"""Largest difference between preferences that count as the same in a curve."""

PerSeed = Float64[np.ndarray, " seed"]
Preferences = Float64[np.ndarray, "_ d"]
BySeed = dict[int, dict[int, Any]]
"""Step -> seed -> a number or a return vector."""


def read_cell(
    paths: Sequence[Path], step: int | None = None, goal: int | None = None, report: Path | None = None
) -> Cell:
    """Read a cell from all runs of a method on a domain, in any order; without a result yet, return a missing cell.

    Args:
        paths: Run folders or exported files. Those that do not exist or were not evaluated yet are left out.
        step: Newest step to use. None: any.
        goal: Steps of the whole run. None: the number in the runs' configuration.
        report: Folder of the report, from which runs are linked. None: they are not linked.

    Raises:
        ValueError: Runs differ in domain, method or settings, or have different results for the same seed.
    """
    found = newest_cell(read_runs(paths, report), step)
    if found is None:
        return Cell(goal=goal or 0, note="Started, not evaluated yet." if any(map(Path.exists, paths)) else "")
    return found if goal is None else replace(found, goal=goal)


def with_dominance(cell: Cell, against: Sequence[Path], step: int | None = None, goal: int | None = None) -> Cell:
    """Return the cell with ED of each seed; NaN, with a note, for a seed that the other method lacks.

    Args:
        cell: A cell that was read from runs.
        against: Runs of the method that ED is measured against. Empty: the cell gets no ED.
        step: Newest step of these runs to use. None: any.
        goal: Steps of a whole run of that method. None: the cell's.
    """
    if cell.values is None or not against:
        return cell
    other = _matching(cell, read_runs(against), step, cell.goal if goal is None else goal)
    found: dict[int, float] = {}
    if other is None:
        note = f"No ED: the reference has no {cell.protocol} at {format_count(cell.step)} steps."
    elif cell.returns is None or other.returns is None:
        note = "No ED: an exported file has no returns of the short protocol."
    elif not (found := dominance_by_seed(cell, other)):
        note = "No ED: the reference has no run with the same seed."
    else:
        num = len(common_preferences([cell.preferences, other.preferences]))
        is_part, is_less = len(found) < len(cell.seeds), num < len(cell.preferences)
        alone = f"ED over {seeds_in_words(list(found))} alone: the reference has no others." if is_part else ""
        fewer = f"ED on the {num} preferences that both were evaluated on." if is_less else ""
        note = " ".join(filter(None, (alone, fewer)))
    values = np.array([found.get(seed, np.nan) for seed in cell.seeds])
    return replace(cell, values={**cell.values, ED: values}, notes={ED: note} if note else {})


def read_runs(paths: Sequence[Path], report: Path | None = None) -> list[RunResults]:
    """Read the runs that exist and have been evaluated, by their seeds.

    Args:
        paths: Run folders or exported files, in any order.
        report: Folder of the report, to link from.

    Raises:
        ValueError: They do not belong together.
    """
    there = [path for path in paths if path.is_file() or (path / EVALUATIONS).is_file()]
    runs = sorted((read_run(path, report) for path in set(there)), key=lambda run: (run.seeds, *_rank(run)))
    for first, other in combinations(runs, 2):
        _check_pair(first, other)
    return runs


def newest_cell(runs: Sequence[RunResults], step: int | None = None) -> Cell | None:
    """Return the newest full evaluation of the runs up to a step, else the newest short one; None if there is none.

    Runs that are behind the furthest run are left out, and a note names them.
    """
    cells = {run: cell_of(run, newest) for run in runs if (newest := run.newest(step)) is not None}
    if not cells:
        return None
    progress = lambda cell: (cell.protocol != SHORT, cell.step, cell.protocol)
    furthest = max(cells.values(), key=lambda cell: progress(cell)[:2])
    used = {run: cell for run, cell in cells.items() if progress(cell) == progress(furthest)}
    if furthest.protocol == SHORT:
        check_same_short_preferences(list(used))
    merged = _merge([used[run] for run in sorted(used, key=_rank)])
    behind = [run for run in runs if run not in used and not set(run.seeds) <= set(merged.seeds)]
    return replace(merged, note=" ".join(f"Left out, being behind: {run.source.label}." for run in behind))


def cell_of(run: RunResults, evaluation: Evaluation) -> Cell:
    """Return the cell of one evaluation of one run."""
    return Cell(
        _compared(evaluation),
        run.seeds,
        evaluation.step,
        run.goal,
        (run.source,),
        protocol=SHORT if evaluation in run.history.short else _protocol(evaluation),
        domain=run.domain,
        preferences=evaluation.preferences,
        returns=evaluation.returns,
    )


def cell_on(cell: Cell, preferences: Preferences, reference: Float64[np.ndarray, " d"] | None) -> Cell:
    """Return the cell on some of its preferences, with HV from a reference point; no HV if it is None."""
    returns = returns_on(cell, preferences)
    played = Evaluation(cell.step, 1, preferences, reference, returns[:, :, None])
    return replace(cell, values=_compared(played), protocol=FULL, preferences=preferences, returns=returns)


def returns_on(cell: Cell, preferences: Preferences) -> Float64[np.ndarray, "seed q d"]:
    """Return the mean returns of a cell under some of its preferences."""
    assert cell.returns is not None
    near = np.abs(cell.preferences - preferences[:, None]).max(axis=2) < SAME_ROW
    return cell.returns[:, near.argmax(axis=1)]


def common_preferences(tables: Sequence[Preferences]) -> Preferences:
    """Return the rows of the first table that all others have."""
    first, *others = tables
    is_common = np.ones(len(first), bool)
    for other in others:
        is_common &= (np.abs(other - first[:, None]).max(axis=2) < SAME_ROW).any(axis=1)
    return first[is_common]


def dominance_by_seed(ours: Cell, theirs: Cell) -> dict[int, float]:
    """Return seed -> ED of our run against the same seed of the other run, on the preferences that both played.

    Returns are rounded as in exported files. Otherwise the mean of ten returns of 23.7, which is a little less than
    23.7, would not tie with a single one.

    Raises:
        ValueError: The domains differ, or no preference is in both.
    """
    if ours.domain != theirs.domain:
        raise UserError(f"runs must have the same domain to be compared, got {ours.domain}, {theirs.domain}")
    common = common_preferences([ours.preferences, theirs.preferences])
    if len(common) == 0:
        raise UserError("runs must share a test preference to be compared, got none in common")
    shared = [seed for seed in ours.seeds if seed in theirs.seeds]
    if not shared:
        return {}
    a, b = (rounded(returns_on(cell, common)[[cell.seeds.index(seed) for seed in shared]]) for cell in (ours, theirs))
    return dict(zip(shared, np.asarray(metrics.episodic_dominance(a, b, common)).tolist(), strict=True))


def hypervolume_note(domain: str) -> str:
    """Say why HV of a domain cannot be compared with the paper's; empty if it can, or the domain is not the paper's."""
    known = find_domain(domain)
    if known is None or not known.in_paper or known.is_hypervolume_comparable:
        return ""
    reference = metrics.REFERENCES[known.id]
    ours = f"Ours is {format_point(reference.point)}: {reference.source}."
    return f"HV does not compare with the paper's, which prints no reference point. {ours}"


def score_curve(runs: Sequence[RunResults], score: str = "hv") -> Curve | None:
    """Return a score of the short evaluations over training; None if no run has it.

    Args:
        runs: Runs of one method (`read_runs`).
        score: Name of a score with one value per seed: `ut`, `hv`, `best_single`.

    Raises:
        ValueError: The runs played different preferences.
    """
    check_same_short_preferences(runs)
    found: BySeed = {}
    for run in runs:
        for evaluation in run.history.short:
            if (values := evaluation.score(score)) is not None:
                _put(found, evaluation.step, run.seeds, values)
    return _curve(found, runs)


def preference_curve(runs: Sequence[RunResults], lam: ArrayLike) -> Curve | None:
    """Return lam . return under a preference over training; None if no evaluation played the preference."""
    weights = np.asarray(lam, np.float64)
    found = {step: {seed: r @ weights for seed, r in of.items()} for step, of in _returns(runs, weights).items()}
    return _curve(found, runs)


def preference_path(runs: Sequence[RunResults], lam: ArrayLike, num: int) -> Path2d | None:
    """Return mean return vectors over seeds under one preference; None if no evaluation played the preference.

    The steps are those nearest to the ends of `num` equal parts of the run.
    """
    found = _complete(_returns(runs, np.asarray(lam, np.float64)))
    if not found:
        return None
    steps, goal = np.array(list(found)), max(run.goal for run in runs)
    ends = [end for end in goal * np.arange(1, num + 1) / num if end <= steps[-1]]
    shown = sorted({int(steps[np.abs(steps - end).argmin()]) for end in ends})
    means = [np.mean(list(found[step].values()), axis=0) for step in shown]
    return Path2d(np.array(shown, np.int64), np.array(means)) if shown else None


def _matching(ours: Cell, others: Sequence[RunResults], step: int | None, goal: int) -> Cell | None:
    """Find the reference's evaluation to compare with: the newest if it is comparable, else one up to the same step."""
    for cell in (newest_cell(others, step), newest_cell(others, ours.step)):
        if cell is None or (cell.protocol == SHORT) != (ours.protocol == SHORT):
            continue
        # Full evaluations on different rows of the table compare on the rows that both have.
        if compares(ours, replace(cell, goal=goal, protocol=ours.protocol)):
            return cell
    return None


def _protocol(evaluation: Evaluation) -> str:
    """Return `full protocol`, or the number of preferences or episodes that were played instead."""
    whole = test_table(evaluation.preferences.shape[1])
    is_all = evaluation.preferences.shape == whole.shape and np.allclose(evaluation.preferences, whole)
    parts = [] if is_all else [plural(len(evaluation.preferences), "preference")]
    parts += [] if evaluation.num_episodes == FULL_EPISODES else [plural(evaluation.num_episodes, "episode")]
    return ", ".join(parts) or FULL


def _merge(cells: Sequence[Cell]) -> Cell:
    """Join cells of different seeds; a seed that several cells have is taken from the first of them."""
    owner = {seed: (cell, i) for cell in reversed(cells) for i, seed in enumerate(cell.seeds)}
    seeds = tuple(sorted(owner))
    take = lambda of: np.stack([of(owner[seed][0])[owner[seed][1]] for seed in seeds])
    shared = [name for name in cells[0].scores if all(name in cell.scores for cell in cells)]
    values = {name: take(lambda cell, name=name: cell.scores[name]) for name in shared}
    returns = take(lambda cell: cell.returns) if all(cell.returns is not None for cell in cells) else None
    used = [cell for cell in cells if any(owner[seed][0] is cell for seed in seeds)]
    sources = tuple(source for cell in sorted(used, key=lambda cell: cell.seeds) for source in cell.sources)
    goal = max(cell.goal for cell in cells)
    return replace(cells[0], seeds=seeds, goal=goal, returns=returns, values=values, sources=sources)


def _compared(evaluation: Evaluation) -> dict[str, PerSeed]:
    """Return the scores that compare methods, by their headings."""
    found = {score.compared: evaluation.score(name) for name, score in SCORES.items() if score.compared}
    return {heading: values for heading, values in found.items() if values is not None}


def _check_pair(first: RunResults, other: RunResults) -> None:
    """Raise ValueError if two runs cannot be in the same cell, or have different results for the same seed."""
    found = [difference.name for difference in settings_that_differ(first.config, other.config, {LEARNING})]
    if first.history.full_preferences.tolist() != other.history.full_preferences.tolist():
        found.append("test preferences")
    points = [[] if run.history.reference is None else run.history.reference for run in (first, other)]
    if not np.array_equal(points[0], points[1]):
        found.append("reference point")
    if found:
        raise UserError(f"runs of one cell must have the same {found[0]}: {first.path} and {other.path} differ")
    theirs = {evaluated.step: evaluated.returns for evaluated in other.history.full}
    both = [(evaluated.step, evaluated.returns, theirs.get(evaluated.step)) for evaluated in first.history.full]
    for seed in sorted(set(first.seeds) & set(other.seeds)):
        i, j = first.seeds.index(seed), other.seeds.index(seed)
        for step, a, b in both:
            if a is not None and b is not None and not np.allclose(a[i], b[j], rtol=ROUNDING, atol=ROUNDING):
                raise UserError(
                    f"seed {seed} has different results at step {step} in {first.path} and {other.path}: remove one of "
                    "them"
                )


def _rank(run: RunResults) -> tuple[bool, str]:
    """Return a sort key that puts a folder before an exported file, which is rounded."""
    return run.path.is_file(), str(run.path)


def _returns(runs: Sequence[RunResults], lam: np.ndarray) -> BySeed:
    """Return mean returns under a preference; of one step a full evaluation counts before curve and short ones."""
    found: BySeed = {}
    for run in runs:
        for evaluation in (*run.history.short, *run.history.curves, *run.history.full):
            row = np.flatnonzero(np.abs(evaluation.preferences - lam).max(axis=1) < CLOSE)
            if len(row) and evaluation.returns is not None:
                _put(found, evaluation.step, run.seeds, evaluation.returns[:, row[0]])
    return found


def _put(found: BySeed, step: int, seeds: Sequence[int], values: np.ndarray) -> None:
    found.setdefault(step, {}).update(zip(seeds, values, strict=True))


def _complete(found: BySeed) -> BySeed:
    """Keep the steps that have the largest number of seeds, in ascending order: a mean over fewer seeds would jump."""
    most = max(map(len, found.values()), default=0)
    return {step: found[step] for step in sorted(found) if len(found[step]) == most}


def _curve(found: BySeed, runs: Sequence[RunResults]) -> Curve | None:
    kept = _complete(found)
    if not kept:
        return None
    values = [[of[seed] for seed in sorted(of)] for of in kept.values()]
    steps: Int64[np.ndarray, " t"] = np.array(list(kept), np.int64)
    return Curve(steps, np.array(values, np.float64), max(run.goal for run in runs))
