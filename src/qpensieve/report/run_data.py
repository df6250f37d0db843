"""The data of a run for its pictures: the files of its folder, and what is known about its domain."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
from jaxtyping import Bool, Float64, Int64

from qpensieve.envs.deep_sea import ExactFront
from qpensieve.envs.episodes import FULL_EPISODES
from qpensieve.envs.registry import Domain, find_domain
from qpensieve.errors import MissingFileError, UserError
from qpensieve.preferences import test_table
from qpensieve.records import evaluations
from qpensieve.records import search as searches
from qpensieve.records.evaluations import Evaluations
from qpensieve.records.folder import CONFIG, EVALUATIONS, PROVENANCE, SEARCH, why_no_run
from qpensieve.records.reading import interpreting, read_object
from qpensieve.records.search import SearchRecord
from qpensieve.report import drawing

Points = Float64[np.ndarray, "n d"]
SHORT_EVERY = 5
"""The short protocol took every so many-th row of the test table before that was a setting (`eval_stride`)."""


@dataclass(frozen=True, eq=False)
class Curves:
    """Mean returns under the paper's curve preferences over training."""

    steps: Int64[np.ndarray, " t"]
    preferences: Float64[np.ndarray, "c d"]
    returns: Float64[np.ndarray, "t seed c d"]


@dataclass(frozen=True)
class RunData:
    """What a run folder holds."""

    folder: Path
    config: Mapping[str, Any]
    table: Evaluations
    scored: Sequence[Mapping[str, Any]] | None = None
    """Of an exported run, which leaves out the returns of the short protocol: its scores, one row per evaluation."""
    exported_curves: Curves | None = None
    """Of an exported run, if it has some."""
    named: tuple[str, ...] = ()
    """Names that a foreign environment gave its objectives when the run started; older runs have none."""

    @property
    def curves(self) -> Curves | None:
        """The curves; None before the first evaluation, or where an export of an earlier version has none."""
        table = self.table
        if self.scored is not None:
            return self.exported_curves
        if not len(table.short_steps):
            return None
        return Curves(table.short_steps, table.curve_preferences, table.curve_returns.mean(axis=3))

    @property
    def lacks_returns(self) -> bool:
        """Whether it was exported before its first full evaluation: a file holds no returns of short ones."""
        return bool(self.scored) and not len(self.table.full_steps)

    @property
    def full_episodes(self) -> int:
        """Episodes per preference of a full evaluation; an exported run holds their mean alone."""
        if self.scored is None:
            return self.table.full_returns.shape[3]
        return int(self.config.get("full_eval_episodes", FULL_EPISODES))

    @property
    def short_episodes(self) -> int:
        """The same of a short evaluation."""
        return int(self.scored[0]["episodes"]) if self.scored else self.table.short_returns.shape[3]

    @property
    def first_seed(self) -> int:
        return int(self.config.get("first_seed", 0))

    @property
    def algo(self) -> str:
        return str(self.config.get("algo", "unknown algorithm"))

    @cached_property
    def known(self) -> Domain | None:
        """Its row in the table of domains; None for an environment of someone else."""
        return find_domain(str(self.config.get("domain", "")))

    @property
    def domain(self) -> str:
        """Short name of a known domain, or the name of a foreign environment."""
        return str(self.config.get("domain", "unknown domain")) if self.known is None else self.known.id

    @property
    def exact(self) -> ExactFront | None:
        """The exact front, if the domain has one."""
        known = self.known
        return known.exact if known and len(known.objectives) == self.table.num_objectives else None

    @property
    def objectives(self) -> tuple[str, ...]:
        return self._names(self.known.objectives if self.known else self.named or self.config.get("objectives", ()))

    @property
    def labels(self) -> tuple[str, ...]:
        """Axis labels: the objectives, with units if they are obvious."""
        return self._names(self.known.labels if self.known else self.objectives)

    def _names(self, names: Sequence[Any]) -> tuple[str, ...]:
        """The names, or numbers if there is not one name per objective."""
        d = self.table.num_objectives
        return tuple(map(str, names)) if len(names) == d else tuple(f"objective {i + 1}" for i in range(d))


@dataclass(frozen=True)
class SearchData:
    """A run, and the record of its search."""

    run: RunData
    record: SearchRecord

    @property
    def d(self) -> int:
        return len(self.record.reference)

    @cached_property
    def ends(self) -> list[int]:
        return self.record.generation_ends()

    @property
    def stages(self) -> dict[str, Any]:
        """Settings of warm-up and generations."""
        return self.run.config.get("agent", {}).get("stages", {})

    @property
    def seed_names(self) -> list[str]:
        first = int(self.run.config.get("first_seed", 0))
        return [f"seed {first + i}" for i in range(self.record.num_seeds)]

    @property
    def is_whole(self) -> Bool[np.ndarray, " g"]:
        """Whether each generation ran to its full length, by the record and, if known, by the settings."""
        whole, length = self.record.reached()[1], self.stages.get("generation_iterations")
        return whole if length is None else whole & (np.diff(self.ends) == length)

    def measured(self, seed: int) -> Points:
        """The objectives that every policy of a seed reached."""
        return self.record.objs[1:, seed].reshape(-1, self.d)


def read_run(folder: Path) -> RunData:
    """The run of a folder, or of a file that `qpensieve export` wrote."""
    if folder.is_file():
        return _read_export(folder)
    path = folder / CONFIG
    if not path.is_file():
        raise MissingFileError(f"{folder} is not a run folder: {why_no_run(folder)}")
    config = read_object(path)
    with interpreting(path, "a configuration"):
        _check(config)
    return RunData(folder, config, evaluations.load(folder / EVALUATIONS), named=names_of(folder))


def names_of(folder: Path) -> tuple[str, ...]:
    """Names that the objectives of a run's environment had when it started; none where it is not said."""
    path = folder / PROVENANCE
    return _names_in(read_object(path)) if path.is_file() else ()


def _names_in(provenance: Any) -> tuple[str, ...]:
    names = provenance.get("objectives") if isinstance(provenance, dict) else None
    return tuple(map(str, names)) if isinstance(names, list) else ()


def _check(config: dict[str, Any]) -> None:
    """ValueError for values that no picture can be made of."""
    agent = config.get("agent", {})
    stages = agent.get("stages", {}) if isinstance(agent, dict) else None
    if not isinstance(stages, dict):
        raise UserError(f"agent must hold settings, got {agent!r}")
    counts = {"first_seed": config.get("first_seed", 0)}
    counts |= {name: stages.get(name, 0) for name in ("generation_iterations", "fitness_episodes")}
    for name, value in counts.items():
        if type(value) is not int:
            raise UserError(f"{name} must be a whole number, got {value!r}")
    if not isinstance(config.get("objectives", []), list):
        raise UserError(f"objectives must be a list, got {config['objectives']!r}")


def _read_export(path: Path) -> RunData:
    content = read_object(path)
    with interpreting(path, "a file that 'qpensieve export' wrote"):
        _check(content["config"])
        return _take_apart(path, content)


def _take_apart(path: Path, content: dict[str, Any]) -> RunData:
    config, full, short = content["config"], content["full_protocol"], content["short_protocol"]
    returns = [np.array(row["mean_returns"], np.float64) for row in full]
    lam = np.array(content.get("preferences") or test_table(returns[0].shape[-1]), np.float64)
    reference = content["reference"]
    # Agents of single preferences are evaluated on all of them.
    is_all = "preferences" in config["agent"]
    shown = lam if is_all else test_table(lam.shape[1])[:: int(config.get("eval_stride", SHORT_EVERY))]
    near = None if reference is None else np.array(reference, np.float64)
    seeds, d = int(config["seeds"]), lam.shape[1]
    table = evaluations.empty(seeds, shown, np.empty((0, d)), lam, near)
    for row, of_seeds in zip(full, returns, strict=True):
        if of_seeds.shape != (seeds, *lam.shape):
            raise UserError(f"{path}: returns must have the shape {(seeds, *lam.shape)}, got {of_seeds.shape}")
        table = evaluations.append_full(table, int(row["step"]), of_seeds[:, :, None])
    curves = _exported_curves(content.get("curves"), seeds)
    return RunData(path, config, table, short, curves, _names_in(content.get("provenance")))


def _exported_curves(content: dict[str, Any] | None, seeds: int) -> Curves | None:
    if content is None:
        return None
    preferences, steps = np.array(content["preferences"], np.float64), np.array(content["steps"], np.int64)
    returns = np.array(content["mean_returns"], np.float64).reshape(len(steps), seeds, *preferences.shape)
    return Curves(steps, preferences, returns)


def has_search(path: Path) -> bool:
    """Whether an exported run is of a population, whose search is not in the file."""
    return path.is_file() and "search" in read_object(path)


def read_search(folder: Path) -> SearchData:
    search = SearchData(read_run(folder), searches.load(folder / SEARCH))
    if search.record.num_iterations == 0:
        raise UserError(f"{folder} has no iteration yet; nothing to draw")
    return search


def short_note(*runs: RunData) -> str:
    """Description of the short protocol of runs that share its preferences, for the foot of a picture."""
    rows = drawing.count(len(runs[0].table.short_preferences), "preference")
    episodes = sorted({run.short_episodes for run in runs})
    played = " or ".join(map(str, episodes)) + (" episode" if episodes == [1] else " episodes")
    known = runs[0].known
    other = "the paper's table" if known is not None and known.in_paper else "the full protocol"
    return f"short protocol: {rows} x {played}; not comparable with {other}"


def measured_note(search: SearchData) -> str:
    """How the objectives of a search were measured, for the foot of a picture."""
    episodes = search.stages.get("fitness_episodes")
    how = "" if episodes is None else f": the mean of {drawing.count(episodes, 'episode')} of the mean action"
    return f"objectives as measured during the search{how}"
