"""Compare runs, from run folders or exported files: a table on common preferences, and pictures."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
from jaxtyping import Float64

from qpensieve import metrics
from qpensieve.compatibility import settings_of
from qpensieve.console import format_count, format_spread, plural
from qpensieve.errors import UserError
from qpensieve.report import drawing
from qpensieve.report.aggregates import ALL_ROWS
from qpensieve.report.cells import ED, cell_of, cell_on, common_preferences, dominance_by_seed
from qpensieve.report.paper_figures import run_colours
from qpensieve.report.results import RunResults, check_same, labels, read_run
from qpensieve.report.sheets import Cell, Metric, Sheet, power_of, text_cell
from qpensieve.report.summary import about_no_volume, format_point
from qpensieve.report.text import TextCell, TextTable, listing, markdown, terminal
from qpensieve.settings import NONE

UT, HV = "UT", "HV"
SHOWN_ELSEWHERE = ("domain",)
"""Settings that are not listed as differences: compared runs have the same domain."""
REFERENCE = "mosac"
"""The method that ED is measured against."""
SEARCH_COLUMNS = ("iterations", "generations", "measuring steps per seed")


@dataclass(frozen=True, eq=False)
class Result:
    """A run of a comparison, at one full evaluation.

    Attributes:
        run: The run.
        played: The evaluation.
        reference: Reference point of the hypervolume.
    """

    run: RunResults
    played: Cell
    reference: Float64[np.ndarray, " d"] | None

    @property
    def returns(self) -> Float64[np.ndarray, "seed p d"]:
        assert self.played.returns is not None
        return self.played.returns

    def on(
        self, preferences: Float64[np.ndarray, "p d"], reference: Float64[np.ndarray, " d"] | None = None
    ) -> "Result":
        """Return the result on some of its preferences, with another reference point if `reference` is not None."""
        point = self.reference if reference is None else reference
        return Result(self.run, cell_on(self.played, preferences, point), point)

    @property
    def search(self) -> tuple[int, int, int] | None:
        """Iterations, generations and (estimated) measuring steps per seed up to its step; None without a search."""
        search = self.run.search
        if search is None:
            return None
        share = self.played.step / max(evaluation.step for evaluation in self.run.history.full)
        iterations = round(share * search["iterations"])
        generations = sum(end < iterations for end in search["generation_ends"])
        return iterations, generations, int(np.mean(search["fitness_steps_per_seed"]) * share)


def read(path: Path, step: int | None = None) -> Result:
    """Read the full evaluation at `step`, or the newest one, of a run folder or an exported file.

    Raises:
        ValueError: There is no such evaluation, or its arrays do not fit each other.
    """
    run = read_run(path)
    evaluation = run.full_at(step)
    return Result(run, cell_of(run, evaluation), evaluation.reference)


def on_common_preferences(results: Sequence[Result]) -> list[Result]:
    """Restrict results to the preferences that all of them were evaluated on."""
    check_same([result.run for result in results], "domain", lambda run: run.domain)
    common = common_preferences([result.played.preferences for result in results])
    if len(common) == 0:
        raise UserError("runs must share a test preference to be compared, got none in common")
    return [result.on(common) for result in results]


def measured_from(results: Sequence[Result], reference: Sequence[float] = ()) -> list[Result]:
    """Return the results with one reference point: `reference`, or else their own.

    Raises:
        ValueError: The point does not fit the objectives; or no point is given and the results have different ones.
    """
    if len(reference):
        point = metrics.check_reference(reference, results[0].returns.shape[2])
        return [result.on(result.played.preferences, point) for result in results]
    known = {tuple(result.reference.tolist()): result.run.name for result in results if result.reference is not None}
    if len(known) > 1:
        own = ", ".join(f"{name}: {format_point(point)}" for point, name in known.items())
        raise UserError(
            f"runs must have the same reference point for their HV to compare, got {own}; --reference sets one"
        )
    return list(results)


def hypervolumes(result: Result) -> str:
    """Return HV of every seed, mean and deviation, and its reference point as text."""
    volumes = result.played.scores.get(HV)
    if volumes is None or result.reference is None:
        raise UserError(f"{result.run.name} has no reference point to measure HV from")
    digits = drawing.decimals(float(np.abs(volumes).max()))
    std = float(volumes.std()) if len(volumes) > 1 else None
    spread = format_spread(float(volumes.mean()), std, lambda value: f"{value:.{digits}f}")
    text = f"HV from {format_point(result.reference)}: {spread}"
    return text if volumes.any() else f"{text}\n{about_no_volume(result.reference)}"


def format_comparison(results: Sequence[Result], for_people: bool = True) -> str:
    """Return the comparison as text: the table, warnings, and the settings that differ.

    Args:
        results: The runs, on common preferences.
        for_people: True: text for a terminal. False: Markdown.
    """
    show = terminal if for_people else markdown
    parts = [show(table(results)).strip()]
    if apart := settings(results):
        parts += ["Settings in which they differ:", show(listing("settings", "", "", apart)).strip()]
    return "\n\n".join(parts)


def sheet(results: Sequence[Result]) -> Sheet:
    """Return the sheet of a comparison: one row, and a column for each run.

    Differences are against the first run of MO-SAC, else against the first run.
    """
    names = labels([result.run for result in results])
    against = next((result for result in results if result.run.algo == REFERENCE), None)
    filled = {}
    for name, result in zip(names, results, strict=True):
        cell = result.played
        shares = {} if against is None or against is result else dominance(result, against)
        values = {**cell.scores, ED: np.array([shares.get(seed, np.nan) for seed in cell.seeds])}
        filled[ALL_ROWS, name] = replace(cell, values=values)
    reference = names[0 if against is None else results.index(against)]
    shown = dict.fromkeys(heading for cell in filled.values() for heading in cell.scores)
    largest = lambda name: max((abs(float(x)) for cell in filled.values() for x in cell.of(name).values()), default=0.0)
    made = [Metric(name, digits=drawing.decimals(largest(name))) for name in shown]
    return Sheet("comparison", "Comparison", "", [ALL_ROWS], names, made, filled, reference=reference)


def table(results: Sequence[Result]) -> TextTable:
    """Return a table with a line for each run: UT, HV and ED against MO-SAC; warnings of `unequal` follow it."""
    made = sheet(results)
    against = [name for name, result in zip(made.columns, results, strict=True) if result.run.algo == REFERENCE]
    titles = {metric.name: metric.name for metric in made.metrics}
    titles[ED] = f"ED against {'MO-SAC' if len(against) < 2 else against[0]}"
    first = [_first_columns(name, result, results) for name, result in zip(made.columns, results, strict=True)]
    scores = [[text_cell(made, ALL_ROWS, name, metric) for metric in made.metrics] for name in made.columns]
    rows = [
        [*map(TextCell, known.values()), *(replace(cell, link="", runs=()) for cell in views)]
        for known, views in zip(first, scores, strict=True)
    ]
    headings = [TextCell(titles[metric.name], power_of(made, ALL_ROWS, metric)).heading for metric in made.metrics]
    note = f"On {plural(len(results[0].played.preferences), 'preference')}."
    note += f" P(better) and difference: against {made.reference}." if len(results) > 1 else ""
    return TextTable("comparison", "", "", [*first[0], *headings], rows, below=[note, *unequal(results)])


def _first_columns(name: str, result: Result, results: Sequence[Result]) -> dict[str, str]:
    """Return heading -> text of the columns before the scores."""
    step, lanes = result.played.step, result.run.lanes_per_seed
    known = {"method": name, "steps": f"{step:,}", "environment steps per seed": f"{step * lanes:,}"}
    if any(result.search for result in results):
        known |= dict(zip(SEARCH_COLUMNS, map(str, result.search or "---"), strict=True))
    return known


def unequal(results: Sequence[Result]) -> list[str]:
    """Return a warning for each run that ends early, and if runs differ in the number of seeds or episodes."""
    said = []
    for result in results:
        step, goal = result.played.step, result.played.goal
        length = int(result.run.config["steps"]) if step == goal else step  # a population ends with a whole iteration
        episodes = plural(result.run.full_at(step).num_episodes, "episode")
        said.append((plural(len(result.played.seeds), "seed"), f"{format_count(length)} steps", f"{episodes} each"))
    apart = [i for i, parts in enumerate(zip(*said, strict=True)) if len(set(parts)) > 1]
    names = labels([result.run for result in results])
    sizes = [f"{name}: {', '.join(parts[i] for i in apart)}" for name, parts in zip(names, said, strict=True)]
    return [f"Careful, the runs are unequal. {'; '.join(sizes)}."] if apart else []


def settings(results: Sequence[Result]) -> list[dict[str, str]]:
    """Return a row for each setting in which runs differ, with a column for each run.

    A setting that a method does not have is no difference for the runs of this method.
    """
    names, flat = labels([result.run for result in results]), [settings_of(result.run.config) for result in results]
    known = {*SHOWN_ELSEWHERE, *(["algo"] if names == [result.run.algo for result in results] else [])}
    rows = []
    for setting in dict.fromkeys(name for values in flat for name in values if name not in known):
        texts = [_in_words(values[setting]) if setting in values else "-" for values in flat]
        has = {result.run.algo for result, values in zip(results, flat, strict=True) if setting in values}
        if len({text for result, text in zip(results, texts, strict=True) if result.run.algo in has}) > 1:
            rows.append({"setting": setting, **dict(zip(names, texts, strict=True))})
    return rows


def _in_words(value: object) -> str:
    words = ", ".join(map(str, value)) if isinstance(value, tuple) else value
    return NONE if words in (None, "") else str(words)


def dominance(result: Result, other: Result) -> dict[int, float]:
    """Return seed -> ED against the same seed of the other run: the share of preferences where the seed scores more.

    Seeds that only one run has are left out. If the runs share no seed, the first seeds are compared, then the second
    ones, and so on. Both runs must be on the same preferences (`on_common_preferences`).
    """
    found = dominance_by_seed(result.played, other.played)
    if found:
        return found
    num = min(len(result.played.seeds), len(other.played.seeds))
    seeds = result.played.seeds[:num]
    cut = lambda side: replace(side.played, seeds=seeds, returns=side.returns[:num])
    return dominance_by_seed(cut(result), cut(other))


def draw(results: Sequence[Result], out: Path) -> Path:
    """Draw UT of every seed with its ceiling, and mean return vectors where there are two objectives or more."""
    figure = drawing.new_figure(4.2)
    first, names = results[0], labels([result.run for result in results])
    lam = first.played.preferences
    left, *right = figure.subplots(1, min(lam.shape[1], 2), squeeze=False)[0]
    colours = run_colours(names, [result.run.algo for result in results])
    for number, (name, result, colour) in enumerate(zip(names, results, colours, strict=True)):
        ut = result.played.scores[UT]
        left.scatter(np.full(len(ut), number), ut, color=colour, s=26, alpha=0.8)
        left.hlines(ut.mean(), number - 0.3, number + 0.3, color=colour)
        for axes in right:
            points = result.returns.reshape(-1, lam.shape[1])
            axes.scatter(points[:, 0], points[:, 1], color=colour, s=14, alpha=0.6, label=name)
    left.set_xticks(range(len(results)), names, rotation=30, ha="right")
    left.set_title(f"UT on {plural(len(lam), 'preference')}, a dot per seed")
    exact = first.run.exact
    if exact and first.reference is not None:
        best = exact.ceilings(lam, first.reference).utility
        left.axhline(best, color=drawing.GREY, linestyle="--", linewidth=1, label="ceiling on these preferences")
    for axes in right:
        axes.set_title("mean returns, all seeds and preferences")
        named = next((result.run for result in results if result.run.named_objectives), first.run).objectives
        axes.set_xlabel(named[0])
        axes.set_ylabel(named[1])
        if exact:
            axes.plot(*exact.points.T, "x", color=drawing.GREY, label="exact front")
    drawing.legend_below(figure, drawing.entries_of([left, *right]), columns=4)
    return drawing.write_figure(figure, out)
