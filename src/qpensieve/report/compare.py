"""Methods side by side, from run folders or exported files: a table on common preferences, and a picture."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np
from jaxtyping import Float64

from qpensieve import metrics
from qpensieve.console import format_spread
from qpensieve.envs.registry import find_domain
from qpensieve.errors import UserError
from qpensieve.preferences import test_table
from qpensieve.records import search as searches
from qpensieve.records.folder import SEARCH
from qpensieve.records.reading import interpreting, read_object
from qpensieve.records.scores import SCORES, RunSummary, summarize
from qpensieve.report import drawing
from qpensieve.report.drawing import count
from qpensieve.report.export import rounded
from qpensieve.report.run_data import read_run
from qpensieve.report.tables import about_no_volume, format_point, lanes_per_seed, summarize_search

KIND = "an exported run"
SHOWN_ELSEWHERE = ("domain", "kernels")
"""Settings that are not among those in which results differ: they share the domain, and kernels have their column."""
REFERENCE = "mosac"
"""The method that ED is measured against."""


@dataclass(frozen=True, eq=False)
class Result:
    """Mean returns of one method at one step.

    Attributes:
        name: File and algorithm.
        algo: Algorithm.
        domain: Domain, by its short name if it is known.
        step: Environment steps of each agent.
        preferences: Rows of the table.
        returns: Mean over episodes.
        reference: Reference point of the hypervolume.
        samples: Environment steps of a seed, all its lanes together.
        search: Populations: iterations of every task, generations after the warm-up, and environment steps that
            measured policies, in addition to the training steps.
        kernels: Fused kernels that it was trained with: off, on or full.
        config: Its settings, as they were written.
        path: Where it was read from, without the ending.
        objectives: Their names; none where they are not known.
    """

    name: str
    algo: str
    domain: str
    step: int
    preferences: Float64[np.ndarray, "p d"]
    returns: Float64[np.ndarray, "seed p d"]
    reference: Float64[np.ndarray, " d"] | None
    samples: int
    search: tuple[int, int, int] | None = None
    kernels: str = "off"
    config: Mapping[str, Any] = field(default_factory=dict)
    path: Path = Path()
    objectives: tuple[str, ...] = ()

    @property
    def seeds(self) -> list[int]:
        """The numbers of its seeds."""
        first = int(self.config.get("first_seed", 0))
        return list(range(first, first + len(self.returns)))


def read(path: Path, step: int | None = None) -> Result:
    """The full evaluation at `step`, or the newest one, of a run folder or of an exported run.

    Raises:
        ValueError: If there is no such evaluation, or its arrays do not fit each other.
    """
    return _from_folder(path, step) if path.is_dir() else _from_export(path, step)


def _from_folder(path: Path, step: int | None) -> Result:
    run = read_run(path)
    table, steps = run.table, run.table.full_steps.tolist()
    chosen = _choose(path, steps, step)
    search = summarize_search(searches.load(path / SEARCH)) if (path / SEARCH).exists() else None
    return Result(
        path.name,
        run.algo,
        run.domain,
        chosen,
        table.full_preferences,
        table.full_returns[steps.index(chosen)].mean(axis=2),
        table.reference,
        chosen * lanes_per_seed(path),
        _search_at(search, chosen, steps[-1]),
        str(run.config.get("kernels", "off")),
        run.config,
        path.resolve(),
        run.objectives,
    )


def _from_export(path: Path, step: int | None) -> Result:
    content = read_object(path)
    with interpreting(path, KIND):
        rows = {int(row["step"]): row for row in content["full_protocol"]}
    row = rows[_choose(path, list(rows), step)]
    with interpreting(path, KIND):
        return _take_apart(path, content, row)


def _take_apart(path: Path, content: dict[str, Any], row: dict[str, Any]) -> Result:
    """One full evaluation of an exported run."""
    returns = np.array(row["mean_returns"], np.float64)
    preferences = np.array(content.get("preferences") or test_table(returns.shape[-1]), np.float64)
    expected = (len(returns), *preferences.shape)
    if returns.shape != expected or preferences.ndim != 2:
        raise UserError(f"{path}: returns must be [seed, preference, objective] {expected}, got {returns.shape}")
    reference = content["reference"]
    config = content["config"]
    known = find_domain(config["domain"])
    return Result(
        path.stem,
        str(config["algo"]),
        config["domain"] if known is None else known.id,
        row["step"],
        preferences,
        returns,
        None if reference is None else np.array(reference, np.float64),
        row["step"] * int(content["provenance"].get("lanes_per_seed", 1)),
        _search_at(content.get("search"), row["step"], content["full_protocol"][-1]["step"]),
        str(config.get("kernels", "off")),
        config,
        path.resolve().with_suffix(""),
    )


def _choose(path: Path, steps: list[int], step: int | None) -> int:
    """The step asked for, or the newest."""
    if not steps:
        which = path if path.is_dir() else "RUN"
        raise UserError(f"{path} has no full evaluation yet: run 'qpensieve evaluate {which}'")
    if step is not None and step not in steps:
        raise UserError(f"{path} has no full evaluation at step {step}; it has: {', '.join(map(str, sorted(steps)))}")
    return max(steps) if step is None else step


def _search_at(search: dict[str, Any] | None, step: int, last: int) -> tuple[int, int, int] | None:
    """Iterations and generations up to a step, and about how many steps per seed measured policies until then."""
    if search is None:
        return None
    iterations = round(step * search["iterations"] / last)
    generations = sum(end < iterations for end in search["generation_ends"])
    measuring = int(np.mean(search["fitness_steps_per_seed"]) * step / last)
    return iterations, generations, measuring


def on_common_preferences(results: Sequence[Result]) -> list[Result]:
    """The results on the preferences that all of them were evaluated on."""
    first, *others = results
    if {result.domain for result in results} != {first.domain}:
        raise UserError(f"runs must have the same domain to be compared, got {', '.join(r.domain for r in results)}")
    is_common = np.ones(len(first.preferences), bool)
    for result in others:
        is_common &= np.array([_find(lam, result.preferences) is not None for lam in first.preferences])
    common = first.preferences[is_common]
    if len(common) == 0:
        raise UserError("runs must share a test preference to be compared, got none in common")
    return [_on(result, common) for result in results]


def measured_from(results: Sequence[Result], reference: Sequence[float] = ()) -> list[Result]:
    """The results with one reference point: the one given, else the one that they have.

    Raises:
        ValueError: If it does not fit the objectives, or none is given and the results have different ones.
    """
    if len(reference):
        point = metrics.check_reference(reference, results[0].returns.shape[2])
        return [replace(result, reference=point) for result in results]
    known = {tuple(result.reference.tolist()): result.name for result in results if result.reference is not None}
    if len(known) > 1:
        own = ", ".join(f"{name}: {format_point(point)}" for point, name in known.items())
        raise UserError(
            f"runs must have the same reference point for their HV to compare, got {own}; --reference sets one"
        )
    return list(results)


def hypervolumes(result: Result) -> str:
    """HV of every seed, mean and std, and where it is measured from."""
    volumes = summarize(result.returns[:, :, None], result.preferences, result.reference).hv
    if volumes is None or result.reference is None:
        raise UserError(f"{result.name} has no reference point to measure HV from")
    text = f"HV from {format_point(result.reference)}: {_spread(volumes)}"
    return text if volumes.any() else f"{text}\n{about_no_volume(result.reference)}"


def _find(lam: Float64[np.ndarray, " d"], preferences: Float64[np.ndarray, "p d"]) -> int | None:
    found = np.flatnonzero(np.abs(preferences - lam).max(axis=1) < 1e-9)
    return int(found[0]) if len(found) else None


def _on(result: Result, preferences: Float64[np.ndarray, "p d"]) -> Result:
    rows = [_find(lam, result.preferences) for lam in preferences]
    return Result(**{**result.__dict__, "preferences": preferences, "returns": result.returns[:, np.array(rows)]})


def table(results: Sequence[Result]) -> list[dict[str, Any]]:
    """One row per method: UT, HV and ED against MO-SAC (same seeds), mean and std over seeds.

    Kernels have their own column if not all results were trained with the same. Of several results of MO-SAC the first
    is the one that ED is against, and is named.
    """
    rows = []
    is_mixed = len({result.kernels for result in results}) > 1
    against = next((result for result in results if result.algo == REFERENCE), None)
    has_search = any(result.search for result in results)
    names = labels(results)
    is_alone = [result.algo for result in results].count(REFERENCE) < 2
    heading = "ED against MO-SAC" if against is None or is_alone else f"ED against {names[results.index(against)]}"
    for name, result in zip(names, results, strict=True):
        scores = summarize(result.returns[:, :, None], result.preferences, result.reference)
        columns = ("iterations", "generations", "measuring steps per seed")
        search = dict(zip(columns, result.search or ("-",) * 3, strict=True))
        rows.append(
            {
                "method": name,
                "steps": result.step,
                "environment steps per seed": result.samples,
                **({"kernels": result.kernels} if is_mixed else {}),
                **(search if has_search else {}),
                "preferences": len(result.preferences),
                **_compared(scores),
                heading: _dominance(result, against),
            }
        )
    return rows


def _compared(summary: RunSummary) -> dict[str, str]:
    """Heading -> mean and std over seeds of the scores that compare methods."""
    chosen = {score.compared: getattr(summary, name) for name, score in SCORES.items() if score.compared}
    return {heading: "-" if values is None else _spread(values) for heading, values in chosen.items()}


def settings(
    results: Sequence[Result], complete: Callable[[dict[str, Any]], dict[str, Any]] = dict
) -> list[dict[str, str]]:
    """One row per setting in which results differ, one column per result; none where they do not differ.

    What no run of a method has is not its setting, and no difference.

    Args:
        results: Runs of one domain.
        complete: Fills in the settings that a configuration of an earlier version lacks.
    """
    names, flat = labels(results), [_flatten(complete(dict(result.config))) for result in results]
    known = {*SHOWN_ELSEWHERE, *(["algo"] if names == [result.algo for result in results] else [])}
    rows = []
    for setting in dict.fromkeys(name for one in flat for name in one if name not in known):
        texts = [one.get(setting, "-") for one in flat]
        has = {result.algo for result, one in zip(results, flat, strict=True) if setting in one}
        if len({text for result, text in zip(results, texts, strict=True) if result.algo in has}) > 1:
            rows.append({"setting": setting, **dict(zip(names, texts, strict=True))})
    return rows


def _flatten(config: Mapping[str, Any]) -> dict[str, str]:
    """Name -> value in words; the parts of a configuration share no name."""
    flat: dict[str, str] = {}
    for name, value in config.items():
        if isinstance(value, Mapping):
            flat |= _flatten(value)
        elif isinstance(value, list | tuple):
            flat[name] = ", ".join(map(str, value)) or "none"
        else:
            is_whole = isinstance(value, float) and value.is_integer()  # 1 and 1.0 are the same setting
            flat[name] = "none" if value is None else str(int(value) if is_whole else value)
    return flat


def labels(results: Sequence[Result]) -> list[str]:
    """The name of each result: its algorithm, or its file if several results have that algorithm.

    Files of one name are told apart by the folders around them.
    """
    algos, names = [result.algo for result in results], [result.name for result in results]
    found = [
        result.algo
        if algos.count(result.algo) == 1
        else (result.name if names.count(result.name) == 1 else _long_name(result, results))
        for result in results
    ]
    # A folder and its export beside it have one path: they are numbered.
    number = lambda i: "" if found.count(found[i]) == 1 else f" ({found[: i + 1].count(found[i])})"
    return [label + number(i) for i, label in enumerate(found)]


def _long_name(result: Result, results: Sequence[Result]) -> str:
    """As much of the end of its path as no other one has."""
    others = [other.path.parts for other in results if other.path != result.path]
    parts = result.path.parts
    needed = [num for num in range(1, len(parts)) if all(other[-num:] != parts[-num:] for other in others)]
    return "/".join(parts[-min(needed, default=1) :])


def _dominance(result: Result, against: Result | None) -> str:
    if against is None or against is result:
        return "-"
    shares = dominance(result, against)
    is_part = len(shares) < len(result.returns)
    return f"{_spread(shares)} ({count(len(shares), 'seed')})" if is_part else _spread(shares)


def dominance(result: Result, other: Result) -> Float64[np.ndarray, " seed"]:
    """ED of every seed against the same seed of the other: the share of preferences where it scores more.

    Seeds that only one of them has are left out; where they share none, the first is set against the first, and so on.

    Both must be on the same preferences (`on_common_preferences`). Returns count with the digits of exported files: a
    mean of ten times 23.7 is a little less than 23.7, and the same trip must not win against itself.
    """
    ours, theirs = (
        rounded(one.returns[rows]) for one, rows in zip((result, other), _pairs(result, other), strict=True)
    )
    return np.asarray(metrics.episodic_dominance(ours, theirs, result.preferences))


def _pairs(one: Result, other: Result) -> tuple[list[int], list[int]]:
    """Rows of both that are set against each other."""
    shared = [seed for seed in one.seeds if seed in other.seeds]
    if shared:
        return [one.seeds.index(seed) for seed in shared], [other.seeds.index(seed) for seed in shared]
    first = list(range(min(len(one.seeds), len(other.seeds))))
    return first, first


def _spread(values: np.ndarray) -> str:
    std = values.std() if len(values) > 1 else None
    size = np.abs(values).max()
    is_coarse = size >= 100 and not 0 < (std or 0) < 1  # 137 +- 0 would say that seeds agree
    digits = 0 if is_coarse else drawing.decimals(size)
    return format_spread(values.mean(), std, f"{{:.{digits}f}}".format)


def draw(results: Sequence[Result], out: Path) -> Path:
    """Draw UT of every seed with the ceiling, and the mean return vectors of each method; of one objective UT alone."""
    figure = drawing.new_figure(4.2)
    left, *right = figure.subplots(1, min(results[0].returns.shape[2], 2), squeeze=False)[0]
    for number, result in enumerate(results):
        colour = drawing.COLOURS[number % len(drawing.COLOURS)]
        ut = np.asarray(metrics.utility(result.returns, result.preferences))
        left.scatter(np.full(len(ut), number), ut, color=colour, s=26, alpha=0.8)
        left.hlines(ut.mean(), number - 0.3, number + 0.3, color=colour)
    left.set_xticks(range(len(results)), labels(results), rotation=30, ha="right")
    left.set_title(f"UT on {drawing.count(len(results[0].preferences), 'preference')}, a dot per seed")
    known = find_domain(results[0].domain)
    if known and known.exact and results[0].reference is not None:
        ceilings = known.exact.ceilings(results[0].preferences, results[0].reference)
        left.axhline(
            ceilings.utility, color=drawing.GREY, linestyle="--", linewidth=1, label="ceiling on these preferences"
        )
        left.legend(frameon=False, loc="upper left", bbox_to_anchor=(0.0, 0.96))
    for axes in right:
        _draw_returns(axes, results)
    return drawing.write_figure(figure, out)


def _draw_returns(axes: Any, results: Sequence[Result]) -> None:
    """Mean return vectors in the first two objectives."""
    for number, (name, result) in enumerate(zip(labels(results), results, strict=True)):
        points = result.returns.reshape(-1, result.returns.shape[2])
        colour = drawing.COLOURS[number % len(drawing.COLOURS)]
        axes.scatter(points[:, 0], points[:, 1], color=colour, s=14, alpha=0.6, label=name)
    axes.set_title("mean returns, all seeds and preferences")
    known = find_domain(results[0].domain)
    names = known.objectives if known else next((one.objectives for one in results if one.objectives), ())
    for set_label, i in ((axes.set_xlabel, 0), (axes.set_ylabel, 1)):
        set_label(names[i] if i < len(names) else f"objective {i + 1}")
    if known and known.exact and results[0].reference is not None:
        axes.plot(*known.exact.points.T, "x", color=drawing.GREY, label="exact front")
    axes.legend(frameon=False, fontsize=8)


def read_curves(path: Path) -> dict[str, Any]:
    """Scalarised returns [t, seed, p] under an agent's own preference, of a run of few preferences."""
    content = read_object(path)
    with interpreting(path, KIND):
        return _take_curves(path, content)


def _take_curves(path: Path, content: dict[str, Any]) -> dict[str, Any]:
    rows = content["short_protocol"]
    if not rows or "mean_returns" not in rows[0]:
        raise UserError(
            f"{path} holds no curves of single preferences: export a run of sac or hybrid-sac with few preferences"
        )
    preferences = np.array(content["preferences"])
    returns = np.array([row["mean_returns"] for row in rows])
    return {
        "algo": content["config"]["algo"],
        "preferences": preferences,
        "steps": np.array([row["step"] for row in rows]),
        "values": np.einsum("tspd,pd->tsp", returns, preferences),
    }


def draw_single_curves(paths: Sequence[Path], out: Path) -> Path:
    """A panel per preference: every seed thin, the mean thick, one colour per file."""
    if folders := [path for path in paths if path.is_dir()]:
        one = folders[0]
        raise UserError(
            f"curves are drawn of exported files, got the folder {one}: 'qpensieve export {one} --out FILE'"
        )
    curves = [read_curves(path) for path in paths]
    shared = curves[0]["preferences"]
    if any(not np.array_equal(shared, curve["preferences"]) for curve in curves):
        raise UserError("all files must have the same preferences to be drawn together")
    figure = drawing.new_figure(3.6)
    panels = np.atleast_1d(figure.subplots(1, len(shared), sharex=True))
    for i, (axes, lam) in enumerate(zip(panels, shared, strict=True)):
        for number, curve in enumerate(curves):
            colour = drawing.COLOURS[number % len(drawing.COLOURS)]
            steps, values = curve["steps"] / 1000, curve["values"][:, :, i]
            axes.plot(steps, values, color=colour, linewidth=0.5, alpha=0.5)
            axes.plot(steps, values.mean(axis=1), color=colour, label=curve["algo"])
        axes.set_title("lam = " + ", ".join(f"{x:g}" for x in lam))
        axes.set_xlabel("environment steps of each learner (thousands)")
    panels[0].set_ylabel("lam . return")
    panels[0].legend(frameon=False)
    return drawing.write_figure(figure, out)
