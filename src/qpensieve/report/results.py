"""Read one run: its folder, or the JSON file that `qpensieve export` wrote of it."""

import json
import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
from jaxtyping import Float64

from qpensieve.console import plural
from qpensieve.envs.base import FULL_EPISODES
from qpensieve.envs.deep_sea import ExactFront
from qpensieve.envs.registry import Domain, find_domain
from qpensieve.errors import UserError, make_folder
from qpensieve.preferences import test_table
from qpensieve.records import calibration as calibrations
from qpensieve.records import critic_errors
from qpensieve.records import evaluations as tables
from qpensieve.records import search as searches
from qpensieve.records.calibration import Calibration
from qpensieve.records.critic_errors import CriticErrors
from qpensieve.records.evaluations import Evaluations
from qpensieve.records.files import interpreting, read_object, write_text
from qpensieve.records.folder import (
    CALIBRATION,
    CONFIG,
    CRITIC,
    EVALUATIONS,
    PROVENANCE,
    SEARCH,
    check_out,
    check_run,
)
from qpensieve.records.scores import SCORES, RunSummary, summarize
from qpensieve.records.search import SearchRecord
from qpensieve.report.sheets import Source, seeds_in_words

KIND = "a file that 'qpensieve export' wrote"
SHORT_STRIDE = 5
"""Stride of the short protocol in files from before the setting `eval_stride`."""
FEW = 4
"""An exported file holds the returns of the short protocol for at most this many preferences."""
DIGITS = 6
"""Significant digits in exported files."""


@dataclass(frozen=True, eq=False)
class Evaluation:
    """One evaluation of all seeds of a run.

    Attributes:
        step: Environment step.
        num_episodes: Episodes per preference.
        preferences: The preferences.
        reference: Reference point of the hypervolume.
        episodes: Returns of the episodes; an exported file holds their mean as one episode. None: it holds only scores.
        stored: Scores as the file holds them; None: they are computed from the returns.
        calibration: The calibration of these policies.
    """

    step: int
    num_episodes: int
    preferences: Float64[np.ndarray, "p d"]
    reference: Float64[np.ndarray, " d"] | None
    episodes: Float64[np.ndarray, "seed p e d"] | None
    stored: Mapping[str, object] | None = None
    calibration: Calibration | None = None

    @cached_property
    def returns(self) -> Float64[np.ndarray, "seed p d"] | None:
        """Returns as means over episodes; None if the file holds only scores."""
        return None if self.episodes is None else self.episodes.mean(axis=2)

    @cached_property
    def summary(self) -> RunSummary:
        """The scores, computed from the returns."""
        assert self.episodes is not None
        return summarize(self.episodes, self.preferences, self.reference, self.calibration)

    def score(self, name: str) -> np.ndarray | None:
        """Return the values per seed of one of `SCORES`; None if the evaluation lacks the score."""
        if self.stored is None:
            return getattr(self.summary, name)
        value = self.stored.get(name)
        return None if value is None else np.array(value, np.float64)


@dataclass(frozen=True, eq=False)
class History:
    """All evaluations of a run, by step; `curves` are those under the paper's curve preferences."""

    num_seeds: int
    reference: Float64[np.ndarray, " d"] | None
    full_preferences: Float64[np.ndarray, "p d"]
    short_preferences: Float64[np.ndarray, "s d"]
    full: tuple[Evaluation, ...]
    short: tuple[Evaluation, ...]
    curves: tuple[Evaluation, ...]

    @property
    def num_objectives(self) -> int:
        return self.full_preferences.shape[1]


@dataclass(frozen=True, eq=False)
class RunResults:
    """The results of one run. Evaluations, search and critic errors are read when they are first used.

    Attributes:
        path: Folder or exported file of the run.
        config: Configuration of the run, as written.
        provenance: Versions, machine and commit that made the run.
        exported: Content of the exported file. None: `path` is a folder.
        report: Folder of the report, from which the run is linked. None: it is not linked.
    """

    path: Path
    config: Mapping[str, Any]
    provenance: Mapping[str, Any]
    exported: Mapping[str, Any] | None = None
    report: Path | None = None

    @cached_property
    def source(self) -> Source:
        """Description of the run for notes and links of a report."""
        made = self.provenance
        cores = plural(made["cores"], "core") if made.get("cores") else ""
        machine = ", ".join(filter(None, (made.get("device"), cores, made.get("processor"))))
        return Source(
            label=f"{self.domain} {self.algo}, {seeds_in_words(self.seeds)}",
            path="" if self.report is None else Path(os.path.relpath(self.path, self.report)).as_posix(),
            seeds=self.seeds,
            machine=machine or "unknown machine",
            commit=str(made.get("commit") or "unknown"),
            config=dict(self.config),
            provenance=made,
        )

    @cached_property
    def history(self) -> History:
        """Evaluations of the run.

        Raises:
            FileNotFoundError: The run has not been evaluated yet.
            ValueError: The file is damaged.
        """
        if self.exported is None:
            table = tables.load(self.path / EVALUATIONS)
            return _history_of(table, self.first_seed, self.calibration)
        with interpreting(self.path, KIND):
            return _exported_history(self.path, self.config, self.exported)

    @cached_property
    def calibration(self) -> Calibration | None:
        """Calibration in the run folder; None without one, and for an exported file, whose scores include it."""
        return calibrations.load(self.path / CALIBRATION) if self.exported is None else None

    @cached_property
    def critic(self) -> CriticErrors | None:
        """Measured errors of the run's critics; None if they were not measured."""
        if self.exported is not None:
            content = self.exported.get("critic")
            return None if content is None else critic_errors.interpret(self.path, content)
        path = self.path / CRITIC
        return critic_errors.load(path) if path.is_file() else None

    @cached_property
    def record(self) -> SearchRecord | None:
        """Record of a population's search; None for other methods, and for an exported file, which has a summary."""
        path = self.path / SEARCH
        return searches.load(path) if self.exported is None and path.exists() else None

    @cached_property
    def search(self) -> Mapping[str, Any] | None:
        """The summary of a population's search; None for other methods."""
        if self.exported is not None:
            return self.exported.get("search")
        return None if self.record is None else summarize_search(self.record)

    def newest(self, step: int | None = None) -> Evaluation | None:
        """Return the newest full evaluation up to a step, else the newest short one; None if there is neither."""
        for evaluations in (self.history.full, self.history.short):
            up_to = [evaluation for evaluation in evaluations if step is None or evaluation.step <= step]
            if up_to:
                return max(up_to, key=lambda evaluation: evaluation.step)
        return None

    @property
    def lacks_returns(self) -> bool:
        """Whether the run was exported before its first full evaluation, so that the file holds no returns."""
        newest = self.newest()
        return newest is not None and newest.returns is None

    @property
    def first_seed(self) -> int:
        return int(self.config.get("first_seed", 0))

    @property
    def seeds(self) -> tuple[int, ...]:
        return tuple(range(self.first_seed, self.first_seed + self.history.num_seeds))

    @property
    def name(self) -> str:
        """Name of the run's folder or file."""
        return self.path.resolve().name.removesuffix(".json")

    @property
    def algo(self) -> str:
        return str(self.config.get("algo", "unknown algorithm"))

    @property
    def lanes_per_seed(self) -> int:
        """Number of environments that each seed steps; the steps of all of them count as samples."""
        return int(self.provenance.get("lanes_per_seed", 1))

    @property
    def goal(self) -> int:
        """Last step of the whole run; a population ends with its last whole iteration."""
        with interpreting(self.path, "a run of a report"):
            steps = int(self.config["steps"])
            if self.record is not None:
                num_tasks = self.record.objs.shape[2]
            elif self.search is not None:
                num_tasks = int(self.search["tasks"])
            else:
                return steps
            agent = self.config["agent"]
            per_task = agent["ppo"]["num_lanes"] * agent["ppo"]["rollout_steps"]
            return steps - steps % (per_task * (num_tasks if agent["stages"]["total"] == "shared" else 1))

    @cached_property
    def known(self) -> Domain | None:
        """The run's row in the table of domains; None for a foreign environment."""
        return find_domain(str(self.config.get("domain", "")))

    @property
    def domain(self) -> str:
        """Short name of a known domain, or the name of a foreign environment."""
        return str(self.config.get("domain", "unknown domain")) if self.known is None else self.known.id

    @property
    def exact(self) -> ExactFront | None:
        """The exact front, if the domain has one."""
        known = self.known
        return known.exact if known and len(known.objectives) == self.history.num_objectives else None

    @property
    def named_objectives(self) -> tuple[str, ...]:
        """Names of the objectives, as far as they are known."""
        if self.known is not None:
            return self.known.objectives
        names = self.provenance.get("objectives")
        return tuple(map(str, names if isinstance(names, list) else self.config.get("objectives", ())))

    @property
    def objectives(self) -> tuple[str, ...]:
        """A name for each objective."""
        return self._one_each(self.named_objectives)

    @property
    def labels(self) -> tuple[str, ...]:
        """Axis labels: the objectives, with units if they are known."""
        return self._one_each(self.known.labels if self.known else self.named_objectives)

    def _one_each(self, names: tuple[str, ...]) -> tuple[str, ...]:
        d = self.history.num_objectives
        return names if len(names) == d else tuple(f"objective {i + 1}" for i in range(d))

    def full_at(self, step: int | None = None) -> Evaluation:
        """Return the full evaluation at a step; None: the newest one.

        Raises:
            ValueError: There is no full evaluation, or none at this step.
        """
        found = {evaluation.step: evaluation for evaluation in self.history.full}
        if not found:
            which = self.path if self.exported is None else "RUN"
            raise UserError(f"{self.path} has no full evaluation yet: run 'qpensieve evaluate {which}'")
        if step is not None and step not in found:
            steps = ", ".join(map(str, sorted(found)))
            raise UserError(f"{self.path} has no full evaluation at step {step}; it has: {steps}")
        return found[max(found) if step is None else step]


def read_run(path: Path, report: Path | None = None) -> RunResults:
    """Read a run folder or an exported file; `report` is the folder of a report that links to it.

    Raises:
        FileNotFoundError: The path is neither a run folder nor a file.
        ValueError: A file is damaged.
    """
    if path.is_file() and path.suffix != ".npz":
        content = read_object(path)
        with interpreting(path, KIND):
            run = RunResults(path, content["config"], content.get("provenance") or {}, content, report)
            _check(run.config)
        return run
    check_run(path)
    config = read_object(path / CONFIG)
    with interpreting(path / CONFIG, "a configuration"):
        _check(config)
    provenance = path / PROVENANCE
    return RunResults(path, config, read_object(provenance) if provenance.is_file() else {}, None, report)


def check_same(runs: Sequence[RunResults], what: str, value: Callable[[RunResults], object]) -> None:
    """Raise ValueError if runs that are compared differ in a value."""
    for run in runs[1:]:
        first, other = value(runs[0]), value(run)
        if not np.array_equal(np.asarray(first), np.asarray(other)):
            got = f", {first} and {other}" if isinstance(first, str) else ""
            raise UserError(f"runs must have the same {what} to be compared: {runs[0].path} and {run.path} differ{got}")


def check_same_short_preferences(runs: Sequence[RunResults]) -> None:
    """Raise ValueError if short evaluations played different preferences: with more of them HV is larger."""
    check_same(runs, "preferences of the short protocol (eval_stride)", lambda run: run.history.short_preferences)


def labels(runs: Sequence[RunResults]) -> list[str]:
    """Return the name of each run in a table or legend: its algorithm, or its file if several runs have that algorithm.

    Files with equal names get the folders in which they differ.
    """
    algos, names = [run.algo for run in runs], [run.name for run in runs]
    whole = [run.path.resolve().with_name(run.name).parts for run in runs]
    found = []
    for run, parts in zip(runs, whole, strict=True):
        others = [other for other in whole if other != parts]
        apart = lambda num, parts=parts, others=others: all(other[-num:] != parts[-num:] for other in others)
        num = 1 if names.count(run.name) == 1 else next(filter(apart, range(1, len(parts))), 1)
        found.append(run.algo if algos.count(run.algo) == 1 else "/".join(parts[-num:]))
    # A folder and the export next to it have one path: they are numbered.
    number = lambda i: "" if found.count(found[i]) == 1 else f" ({found[: i + 1].count(found[i])})"
    return [label + number(i) for i, label in enumerate(found)]


def export(folder: Path, out: Path) -> Path:
    """Write the run of `folder` to one small JSON file; episodes are averaged per seed and preference."""
    check_out(out, "run.json")
    run = read_run(folder)
    history, curves = run.history, run.history.curves
    has_returns = len(history.short_preferences) <= FEW
    content: dict[str, object] = {
        "config": run.config,
        "provenance": run.provenance,
        "preferences": history.full_preferences.tolist(),
        "reference": None if history.reference is None else history.reference.tolist(),
        "short_protocol": [_row(evaluation, has_returns) for evaluation in history.short],
        "full_protocol": [_row(evaluation, has_returns=True) for evaluation in history.full],
    }
    if curves:
        content["curves"] = {
            "preferences": curves[0].preferences.tolist(),
            "steps": [evaluation.step for evaluation in curves],
            "mean_returns": [_numbers(evaluation.returns) for evaluation in curves],
        }
    if run.calibration is not None:
        content["calibration"] = run.calibration.to_dict()
    if run.critic is not None:
        content["critic"] = {"format": critic_errors.FORMAT, **asdict(run.critic)}
    if run.search is not None:
        content["search"] = run.search
    make_folder(out.parent)
    write_text(out, _compact(content))
    return out


def rounded(values: np.ndarray) -> np.ndarray:
    """Round to `DIGITS` significant digits, as exported files hold them."""
    return np.vectorize(lambda x: float(f"{x:.{DIGITS}g}"), otypes=[np.float64])(values)


def summarize_search(record: SearchRecord) -> dict[str, object]:
    """Summarize a population's search: its length, and the growth of the archive over generations."""
    seeds, ends = range(record.num_seeds), record.generation_ends()
    return {
        "iterations": record.num_iterations,
        "generations": record.num_generations,
        "generation_ends": ends,
        "tasks": record.objs.shape[2],
        "fitness_steps_per_seed": record.fitness_steps.tolist(),
        "archive_size": [len(record.archive_of(i)) for i in seeds],
        "archive_hv": [[round(record.hypervolume_of(i, end), 4) for end in ends] for i in seeds],
        "archive": [np.round(record.archive_of(i), 4).tolist() for i in seeds],
        "bounds_share": np.round(record.bounds_share, 3).tolist(),
    }


def _check(config: Mapping[str, object]) -> None:
    """Raise ValueError for values that no report can use."""
    agent = config.get("agent", {})
    stages = agent.get("stages", {}) if isinstance(agent, dict) else None
    if not isinstance(stages, dict):
        raise UserError(f"agent must hold settings, got {agent!r}")
    counts = {"first_seed": config.get("first_seed", 0), "seeds": config.get("seeds", 1)}
    counts |= {name: stages.get(name, 0) for name in ("generation_iterations", "fitness_episodes")}
    for name, value in counts.items():
        if type(value) is not int:
            raise UserError(f"{name} must be a whole number, got {value!r}")
    if not isinstance(config.get("objectives", []), list):
        raise UserError(f"objectives must be a list, got {config['objectives']!r}")


def _history_of(table: Evaluations, first_seed: int, known: Calibration | None) -> History:
    seeds = list(range(first_seed, first_seed + table.num_seeds))
    of_step = lambda step: known if known is not None and (known.step, known.seeds) == (step, seeds) else None
    make = lambda steps, returns, lam: tuple(
        Evaluation(step, episodes.shape[2], lam, table.reference, episodes, calibration=of_step(step))
        for step, episodes in zip(steps.tolist(), returns, strict=True)
    )
    return History(
        table.num_seeds,
        table.reference,
        table.full_preferences,
        table.short_preferences,
        make(table.full_steps, table.full_returns, table.full_preferences),
        make(table.short_steps, table.short_returns, table.short_preferences),
        make(table.short_steps, table.curve_returns, table.curve_preferences) if len(table.curve_preferences) else (),
    )


def _exported_history(path: Path, config: Mapping[str, Any], content: Mapping[str, Any]) -> History:
    full, short = content["full_protocol"], content["short_protocol"]
    lam = np.array(content.get("preferences") or test_table(np.shape(full[0]["mean_returns"])[-1]), np.float64)
    point = None if content["reference"] is None else np.array(content["reference"], np.float64)
    # Agents of single preferences are evaluated on all of them.
    is_all = "preferences" in config.get("agent", {})
    stride = int(config.get("eval_stride", SHORT_STRIDE))
    shown = lam if is_all else test_table(lam.shape[1])[::stride]
    num_seeds = len(full[0]["mean_returns"]) if full else int(config["seeds"])
    num_full = int(config.get("full_eval_episodes", FULL_EPISODES))
    make = lambda row, lam, num, stored: Evaluation(
        int(row["step"]), num, lam, point, _mean_returns(path, row, (num_seeds, *lam.shape)), stored
    )
    for row in short:
        if row.get("ut") is None and "mean_returns" not in row:
            raise UserError(f"{path}: the short evaluation at step {row['step']} has no UT")
    return History(
        num_seeds,
        point,
        lam,
        shown,
        tuple(make(row, lam, int(row.get("episodes", num_full)), None) for row in full),
        tuple(make(row, shown, int(row.get("episodes", 1)), row if "ut" in row else None) for row in short),
        _exported_curves(content.get("curves"), num_seeds),
    )


def _mean_returns(path: Path, row: Mapping[str, object], shape: tuple[int, ...]) -> np.ndarray | None:
    """Return the mean returns of an exported evaluation as one episode [seed, p, 1, d]; None if it has only scores."""
    if "mean_returns" not in row:
        return None
    returns = np.array(row["mean_returns"], np.float64)
    if returns.shape != shape:
        raise UserError(f"{path}: returns must be [seed, preference, objective] {shape}, got {returns.shape}")
    return returns[:, :, None]


def _exported_curves(content: Mapping[str, Any] | None, seeds: int) -> tuple[Evaluation, ...]:
    if content is None:
        return ()
    preferences, steps = np.array(content["preferences"], np.float64), content["steps"]
    returns = np.array(content["mean_returns"], np.float64).reshape(len(steps), seeds, len(preferences), 1, -1)
    return tuple(Evaluation(int(step), 1, preferences, None, mean) for step, mean in zip(steps, returns, strict=True))


def _row(evaluation: Evaluation, has_returns: bool) -> Mapping[str, object]:
    scores = {name: _numbers(evaluation.score(name)) for name in SCORES}
    returns = {"mean_returns": _numbers(evaluation.returns)} if has_returns else {}
    return {"step": evaluation.step, "episodes": evaluation.num_episodes, **scores, **returns}


def _numbers(values: np.ndarray | None) -> list[object] | None:
    """Return rounded numbers, with counts left whole; None for None."""
    if values is None or values.dtype.kind == "i":
        return None if values is None else values.tolist()
    return rounded(values).tolist()


def _compact(content: Mapping[str, Any]) -> str:
    """Return the content as JSON: top fields on lines of their own, and one line per evaluation."""
    lines = []
    for name, value in content.items():
        is_list = isinstance(value, list) and value and isinstance(value[0], dict)
        text = "[\n    " + ",\n    ".join(json.dumps(row) for row in value) + "\n  ]" if is_list else json.dumps(value)
        lines.append(f"  {json.dumps(name)}: {text}")
    return "{\n" + ",\n".join(lines) + "\n}\n"
