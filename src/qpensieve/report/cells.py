"""Cells of a report from run folders or exported files: values per seed, and where they come from.

One cell may come from several runs with different seeds. The newest full evaluation counts; where there is none, the
newest short one, and the cell says so.
"""

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import combinations
from pathlib import Path
from typing import Any

import numpy as np
from jaxtyping import Float64

from qpensieve import metrics
from qpensieve.console import format_count
from qpensieve.envs.episodes import FULL_EPISODES
from qpensieve.envs.registry import find_domain
from qpensieve.preferences import test_table
from qpensieve.records import search as searches
from qpensieve.records.folder import CONFIG, EVALUATIONS, PROVENANCE, SEARCH
from qpensieve.records.reading import interpreting, read_object
from qpensieve.records.scores import summarize
from qpensieve.report import compare
from qpensieve.report.drawing import count
from qpensieve.report.run_data import RunData, read_run
from qpensieve.report.sheets import FULL, SHORT, Cell, Printed, Source, compares, seeds_in_words
from qpensieve.report.tables import format_point

UT, HV, ED = "UT", "HV", "ED"
"""Metrics of the paper's tables."""
ROUNDING = 1e-5
"""Relative difference of the same number in a run's folder and in its exported file."""

PerSeed = Float64[np.ndarray, " seed"]

ADDED: dict[str, Any] = {
    "max_critic_gradient": None,
    "temperature_per": "run",
    "target_entropy": -1.0,
    "target_entropy_end": None,
    "discount_end": None,
    "anneal_updates": None,
    "temperature_gain": 0.0,
    "bounded_targets": "off",
    "pessimism": 1.0,
    "weight_decay": 0.0,
    "acting_share": 0.0,
    **{"critic_blocks": 0, "critic_hidden": None},
    **{"learning_rate_end": None, "tau": None, "acts_with": "newest", "twin": False, "scale_obs": False},
    **{"num_candidates": None, "gap_factor": 0.0, "value_low": [], "value_high": []},
    **{"layer_norm": False, "loss_a": "squared", "priority_exponent": 1.0, "noise_for": "both"},
    "max_push_loss": None,
    "snapshot_margin": None,
    "over_critics": "max",
    "form": "all",
}
"""Settings of algorithms that runs of earlier versions lack -> what they did."""
OF_RUNS: dict[str, Any] = {
    **{"updates_per_step": 1, "target_steps": 1, "noise": "white", "random_noise": "white"},
    "noise_correlation": 0.8,
    **dict.fromkeys(("random_steps", "block", "replay_capacity")),
}
"""Settings of runs that change what is learned -> what runs of earlier versions did that lack them."""


@dataclass(frozen=True, eq=False)
class Run:
    """A run that has been read.

    Attributes:
        path: Its folder or exported file.
        data: Its evaluations.
        steps: Environment steps that were asked for.
        goal: Environment steps after which it is whole. A population ends with its last whole iteration.
        source: Where its numbers come from.
    """

    path: Path
    data: RunData
    steps: int
    goal: int
    source: Source

    @property
    def seeds(self) -> tuple[int, ...]:
        return self.source.seeds


@dataclass(frozen=True, eq=False)
class Evaluation:
    """One evaluation of one or several runs of a method, seeds in order.

    Attributes:
        domain: Domain.
        seeds: Seeds.
        step: Environment steps.
        goal: Environment steps of the whole run.
        protocol: `FULL`, `SHORT`, or what was played in their place.
        preferences: Test preferences.
        returns: Mean returns; None where an exported file has only scores.
        ut: Utility.
        hv: Hypervolume; None without a reference point.
        sources: The runs.
        notes: What was left out.
    """

    domain: str
    seeds: tuple[int, ...]
    step: int
    goal: int
    protocol: str
    preferences: Float64[np.ndarray, "p d"]
    returns: Float64[np.ndarray, "seed p d"] | None
    ut: PerSeed
    hv: PerSeed | None
    sources: tuple[Source, ...]
    notes: tuple[str, ...] = ()

    @property
    def cell(self) -> Cell:
        """Its cell: UT and, where there is a reference point, HV."""
        values = {UT: self.ut} | ({} if self.hv is None else {HV: self.hv})
        note = " ".join(self.notes)
        return Cell(values, self.seeds, self.step, self.goal, self.sources, note=note, protocol=self.protocol)


@dataclass(frozen=True)
class Wanted:
    """What a cell should hold, beside its runs.

    Attributes:
        step: Newest step that counts; None: any.
        goal: Steps of the whole run; None: as the runs' configuration says.
        reference_goal: Steps of a whole run of the method that ED is measured against; None: as many as of this cell.
        printed: Metric -> what the paper prints.
        note: What a reader must know of every number.
        notes: Metric -> the same of that metric.
        report: Folder of the report, to link from; None: runs are not linked.
    """

    step: int | None = None
    goal: int | None = None
    reference_goal: int | None = None
    printed: Mapping[str, Printed] = field(default_factory=dict)
    note: str = ""
    notes: Mapping[str, str] = field(default_factory=dict)
    report: Path | None = None


ANYTHING = Wanted()


def read_cell(paths: Sequence[Path], against: Sequence[Path] = (), wanted: Wanted = ANYTHING) -> Cell:
    """A cell from all runs of a method on a domain, in any order; a missing one where there is nothing yet.

    Args:
        paths: Run folders or exported files. Those that do not exist or were not evaluated yet are left out.
        against: The same of the method that ED is measured against. No ED without.
        wanted: Step, goal, printed numbers and notes.

    Raises:
        ValueError: If runs differ in domain, method or settings, or have different results for the same seed.
    """
    empty = Cell(None, goal=wanted.goal or 0, printed=wanted.printed, note=wanted.note, notes=wanted.notes)
    runs = read_runs(paths, wanted.report)
    found = evaluation(runs, wanted.step)
    if found is None:
        pending = "Started, not evaluated yet." if any(path.exists() for path in paths) else ""
        return replace(empty, note=_joined(wanted.note, pending))
    found = found if wanted.goal is None else replace(found, goal=wanted.goal)
    cell = found.cell
    values, notes = dict(cell.values or {}), dict(wanted.notes)
    if against:
        goal = wanted.reference_goal or wanted.goal or max(run.steps for run in runs)
        values[ED], about = dominance(found, _matching(found, read_runs(against), wanted.step, goal))
        notes[ED] = _joined(notes.get(ED, ""), about)
    note = _joined(wanted.note, cell.note)
    return replace(cell, values=values, printed=wanted.printed, note=note, notes=notes)


def read_runs(paths: Sequence[Path], report: Path | None = None) -> list[Run]:
    """The runs that exist and have been evaluated, by their seeds; equal seeds of equal runs are read once.

    Args:
        paths: Run folders or exported files, in any order.
        report: Folder of the report, to link from.

    Raises:
        ValueError: If they do not belong together.
    """
    there = [path for path in paths if path.is_file() or (path / EVALUATIONS).is_file()]
    runs = sorted((_read(path, report) for path in set(there)), key=lambda run: (run.seeds, *_rank(run)))
    for one, other in combinations(runs, 2):
        _check_pair(one, other)
    return runs


def evaluation(runs: Sequence[Run], step: int | None = None) -> Evaluation | None:
    """The newest full evaluation of the runs at or before a step, else the newest short one; None if there is none.

    Runs that are behind the furthest one are left out; a note names them.
    """
    each = [(run, _newest(run, step)) for run in runs]
    found = [(run, one) for run, one in each if one is not None]
    if not found:
        return None
    order = lambda one: (one.protocol != SHORT, one.step)
    best = max((one for _, one in found), key=order)
    used = [(run, one) for run, one in found if order(one) == order(best) and one.protocol == best.protocol]
    if best.protocol == SHORT:
        check_short_preferences([run for run, _ in used])
    behind = [(run, one) for run, one in each if (run, one) not in used]
    merged = _merge([one for _, one in sorted(used, key=lambda pair: _rank(pair[0]))])
    missing = [run for run, _ in behind if not set(run.seeds) <= set(merged.seeds)]
    return replace(merged, notes=tuple(f"Left out, being behind: {run.source.label}." for run in missing))


def dominance(ours: Evaluation, theirs: Evaluation | None) -> tuple[PerSeed, str]:
    """ED of each seed against the same seed of the other, on common preferences, NaN where it has none; and a note."""
    nothing = np.full(len(ours.seeds), np.nan)
    if theirs is None:
        return nothing, f"No ED: the reference has no {ours.protocol} at {format_count(ours.step)} steps."
    if ours.returns is None or theirs.returns is None:
        return nothing, "No ED: an exported file has no returns of the short protocol."
    shared = [seed for seed in ours.seeds if seed in theirs.seeds]
    if not shared:
        return nothing, "No ED: the reference has no run with the same seed."
    chosen = [_result(one, one.returns, shared) for one in (ours, theirs) if one.returns is not None]
    common = compare.on_common_preferences(chosen)
    values = dict(zip(shared, compare.dominance(*common).tolist(), strict=True))
    notes = [f"ED over {seeds_in_words(shared)} alone: the reference has no others."] * (len(shared) < len(ours.seeds))
    if len(common[0].preferences) < len(ours.preferences):
        notes.append(f"ED on the {len(common[0].preferences)} preferences that both were evaluated on.")
    return np.array([values.get(seed, np.nan) for seed in ours.seeds]), " ".join(notes)


def hypervolume_note(domain: str) -> str:
    """Why the HV of a domain does not compare with the paper's; empty where it does, or the paper has none."""
    known = find_domain(domain)
    if known is None or not known.in_paper or known.is_hypervolume_comparable:
        return ""
    reference = metrics.REFERENCES[known.id]
    ours = f"Ours is {format_point(reference.point)}: {reference.source}."
    return f"HV does not compare with the paper's, which prints no reference point. {ours}"


def _matching(ours: Evaluation, others: Sequence[Run], step: int | None, goal: int) -> Evaluation | None:
    """The evaluation of the reference that ours is compared with: its end where both are whole, else the same step."""
    for one in (evaluation(others, step), evaluation(others, ours.step)):
        if one is None or (one.protocol == SHORT) != (ours.protocol == SHORT):
            continue
        # Full evaluations on different rows of the table compare on the rows that both have.
        theirs = replace(one, goal=goal, protocol=ours.protocol)
        if compares(ours.cell, theirs.cell):
            return one
    return None


def _result(one: Evaluation, returns: np.ndarray, seeds: Sequence[int]) -> compare.Result:
    """An evaluation as the comparison of runs takes it, with these seeds alone."""
    rows = np.array([one.seeds.index(seed) for seed in seeds])
    return compare.Result("", "", one.domain, one.step, one.preferences, returns[rows], None, one.step)


def _read(path: Path, report: Path | None) -> Run:
    data = read_run(path)
    content = read_object(path) if path.is_file() else {}
    record = path / PROVENANCE
    provenance = content.get("provenance") or (read_object(record) if record.is_file() else {})
    config_file = path if path.is_file() else path / CONFIG
    with interpreting(config_file, "a configuration"):
        first = int(data.config.get("first_seed", 0))
        steps = int(data.config["steps"])
        goal = _goal(data, steps, _num_tasks(path, content))
    seeds = tuple(range(first, first + data.table.num_seeds))
    source = Source(
        label=f"{data.domain} {data.algo}, {seeds_in_words(seeds)}",
        path="" if report is None else Path(os.path.relpath(path, report)).as_posix(),
        seeds=seeds,
        machine=machine_in_words(provenance),
        commit=str(provenance.get("commit") or "unknown"),
        config=dict(data.config),
        provenance=provenance,
    )
    return Run(path, data, steps, goal, source)


def machine_in_words(provenance: Mapping[str, Any]) -> str:
    """The machine that a run recorded: accelerator, cores, processor."""
    device, cores, processor = (provenance.get(name) for name in ("device", "cores", "processor"))
    parts = [device, f"{cores} core{'' if cores == 1 else 's'}" if cores else None, processor]
    return ", ".join(str(part) for part in parts if part) or "unknown machine"


def _num_tasks(path: Path, content: Mapping[str, Any]) -> int | None:
    """Tasks of a population; None for other methods."""
    if path.is_file():
        return content["search"]["tasks"] if "search" in content else None
    return searches.load(path / SEARCH).objs.shape[2] if (path / SEARCH).is_file() else None


def _goal(data: RunData, steps: int, num_tasks: int | None) -> int:
    """The step of the last block, or of a population's last whole iteration."""
    if num_tasks is None:
        return steps
    agent = data.config["agent"]
    per_task = agent["ppo"]["num_lanes"] * agent["ppo"]["rollout_steps"]
    iteration = per_task * (num_tasks if agent["stages"]["total"] == "shared" else 1)
    return steps - steps % iteration


def _newest(run: Run, step: int | None) -> Evaluation | None:
    table, scored = run.data.table, run.data.scored
    last = lambda steps: max((i for i, at in enumerate(steps) if step is None or at <= step), default=None)
    i = last(table.full_steps)
    if i is not None:
        returns = table.full_returns[i]
        return _scored(run, int(table.full_steps[i]), _protocol(run.data), table.full_preferences, returns)
    if not scored:
        i = last(table.short_steps)
        if i is None:
            return None
        return _scored(run, int(table.short_steps[i]), SHORT, table.short_preferences, table.short_returns[i])
    i = last([int(row["step"]) for row in scored])
    if i is None:
        return None
    ut, hv = (None if scored[i][name] is None else np.array(scored[i][name], np.float64) for name in ("ut", "hv"))
    if ut is None:
        raise ValueError(f"{run.path}: the short evaluation at step {scored[i]['step']} has no UT")
    return _evaluation(run, int(scored[i]["step"]), SHORT, (table.short_preferences, None), (ut, hv))


def _protocol(run: RunData) -> str:
    """The full protocol, or how many preferences or episodes were played in place of all."""
    table = run.table.full_preferences
    whole = test_table(table.shape[1])
    is_all = table.shape == whole.shape and np.allclose(table, whole)
    parts = [] if is_all else [count(len(table), "preference")]
    parts += [] if run.full_episodes == FULL_EPISODES else [count(run.full_episodes, "episode")]
    return ", ".join(parts) or FULL


def _scored(run: Run, step: int, protocol: str, preferences: np.ndarray, returns: np.ndarray) -> Evaluation:
    scores = summarize(returns, preferences, run.data.table.reference)
    return _evaluation(run, step, protocol, (preferences, returns.mean(axis=2)), (scores.ut, scores.hv))


def _evaluation(
    run: Run,
    step: int,
    protocol: str,
    played: tuple[np.ndarray, np.ndarray | None],
    scores: tuple[np.ndarray, np.ndarray | None],
) -> Evaluation:
    where = (run.data.domain, run.seeds, step, run.goal, protocol)
    return Evaluation(*where, *played, *scores, sources=(run.source,))


def _merge(each: Sequence[Evaluation]) -> Evaluation:
    """One evaluation of all seeds; of a seed that several have, the first."""
    owner = {seed: (one, i) for one in reversed(each) for i, seed in enumerate(one.seeds)}
    seeds = tuple(sorted(owner))
    take = lambda name: np.stack([getattr(owner[seed][0], name)[owner[seed][1]] for seed in seeds])
    has = lambda name: all(getattr(one, name) is not None for one in each)
    used = [one for one in each if any(owner[seed][0] is one for seed in seeds)]
    sources = tuple(source for one in sorted(used, key=lambda one: one.seeds) for source in one.sources)
    returns, hv = (take(name) if has(name) else None for name in ("returns", "hv"))
    goal = max(one.goal for one in each)
    return replace(each[0], seeds=seeds, goal=goal, returns=returns, ut=take("ut"), hv=hv, sources=sources)


def _check_pair(one: Run, other: Run) -> None:
    """ValueError where two runs cannot stand in the same cell."""
    for name, ours, theirs in (
        ("domain", one.data.domain, other.data.domain),
        ("method", one.data.algo, other.data.algo),
        *((name, *(run.data.config.get(name, value) for run in (one, other))) for name, value in OF_RUNS.items()),
        ("settings (agent)", *_shared(one.data.config.get("agent"), other.data.config.get("agent"))),
        ("test preferences", one.data.table.full_preferences.tolist(), other.data.table.full_preferences.tolist()),
        ("reference point", _point(one), _point(other)),
    ):
        if ours != theirs:
            raise ValueError(f"runs of one cell must have the same {name}: {one.path} and {other.path} differ")
    for seed in sorted(set(one.seeds) & set(other.seeds)):
        _check_overlap(one, other, seed)


def check_short_preferences(runs: Sequence[Run]) -> None:
    """ValueError where short evaluations played different preferences: more of them reach a larger HV."""
    for run in runs[1:]:
        if not np.array_equal(run.data.table.short_preferences, runs[0].data.table.short_preferences):
            raise ValueError(
                f"short evaluations must have the same preferences (eval_stride) to stand together: {runs[0].path} and "
                f"{run.path} differ"
            )


def _shared(ours: Any, theirs: Any) -> tuple[Any, Any]:
    """Two parts of configurations without the settings that only one of them has, being of another version.

    Settings that were added with a value which changes nothing count as that value where they are missing.
    """
    if not isinstance(ours, dict) or not isinstance(theirs, dict):
        return ours, theirs
    added = {name: value for name, value in ADDED.items() if name in ours or name in theirs}
    ours, theirs = added | ours, added | theirs
    pairs = {name: _shared(ours[name], theirs[name]) for name in ours if name in theirs}
    return {name: one for name, (one, _) in pairs.items()}, {name: other for name, (_, other) in pairs.items()}


def _check_overlap(one: Run, other: Run, seed: int) -> None:
    """ValueError where a seed has different full evaluations at the same step."""
    ours, theirs = one.data.table, other.data.table
    i, j = one.seeds.index(seed), other.seeds.index(seed)
    for step in set(ours.full_steps.tolist()) & set(theirs.full_steps.tolist()):
        a = ours.full_returns[ours.full_steps.tolist().index(step), i].mean(axis=1)
        b = theirs.full_returns[theirs.full_steps.tolist().index(step), j].mean(axis=1)
        if not np.allclose(a, b, rtol=ROUNDING, atol=ROUNDING):
            raise ValueError(
                f"seed {seed} has different results at step {step} in {one.path} and {other.path}: remove one of them"
            )


def _point(run: Run) -> list[float] | None:
    reference = run.data.table.reference
    return None if reference is None else reference.tolist()


def _rank(run: Run) -> tuple[bool, str]:
    """Of the same seed in several runs the folder counts before the exported file, which is rounded."""
    return run.path.is_file(), str(run.path)


def _joined(*sentences: str) -> str:
    return " ".join(sentence for sentence in sentences if sentence)
