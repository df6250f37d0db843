"""An experiment as data: a grid of runs, its size, and the run folders that it needs.

Every table and every figure is a grid. Rows are domains (or panels), columns are methods (or series); a place holds the
run that fills it. Runs that several places need are equal, so they are made once.

A run is a folder `NAME-s0-4`, of seeds 0 to 4. More seeds get another folder (`NAME-s5-6`), so that finished seeds stay
as they are. More steps continue in the same folder if the method allows it.
"""

import dataclasses
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from hashlib import sha256
from pathlib import Path
from typing import Annotated, Literal

from qpensieve import settings
from qpensieve.compatibility import is_bound_to_length
from qpensieve.config import RunConfig, check, default_config, override, spec_of, with_schedule
from qpensieve.envs import find_domain
from qpensieve.errors import UserError
from qpensieve.experiments.tasks import Task, iteration_of
from qpensieve.population.pgmorl import check_environment
from qpensieve.report.sheets import Printed
from qpensieve.settings import NONE, at_least

Place = tuple[str, str]
"""Row and column."""
LONGEST_NAME = 200
"""Most bytes of a run's name: file systems allow 255, and length and seeds are appended."""


@dataclass(frozen=True)
class Wanted:
    """A run that an artefact needs, before its seeds are numbered.

    Attributes:
        domain: A domain, a Gymnasium id, or module:factory.
        algo: Name of the method.
        settings: Changes to the preset as pairs of name and value, in the order of the run's name.
        steps: Environment steps of each seed. None: the preset's.
        preset: Preset of all other settings.
        seeds: Number of seeds. None: the number of the plan.
    """

    domain: str
    algo: str = "qpensieve"
    settings: tuple[tuple[str, object], ...] = ()
    steps: int | None = None
    preset: str = "paper"
    seeds: int | None = None

    def config(self) -> RunConfig:
        """Return the configuration, with the preset's seeds; its rules are not checked.

        Raises:
            ValueError: The method, the preset or a setting is unknown.
        """
        config = override(default_config(self.domain, self.algo, self.preset), dict(self.settings))
        return config if self.steps is None else dataclasses.replace(config, steps=self.steps)

    @property
    def name(self) -> str:
        """Name of the run's folders, different from those of all other runs of a plan."""
        length = [] if self.steps is None or not is_bound_to_length(self.config()) else [_count(self.steps)]
        of_preset = [] if self.preset == "paper" else [self.preset]
        changes = [f"{key}-{_plain(value)}" for key, value in self.settings]
        return _short("-".join([_plain(self.domain), self.algo, *of_preset, *changes, *length]))


@dataclass(frozen=True)
class PrintedTable:
    """The numbers of a table of the paper.

    Attributes:
        scores: Place -> score -> printed numbers.
        powers: Score -> row -> power of ten that it is printed in.
    """

    scores: dict[Place, dict[str, Printed]] = field(default_factory=dict)
    powers: dict[str, dict[str, int]] = field(default_factory=dict)


@dataclass(frozen=True)
class Artefact:
    """A table or figure.

    Attributes:
        name: Name on the command line.
        title: Content in one line.
        where: Place in the paper.
        show: Kind of table or figure: a name of `views.SHOWS`, or `settings`.
        cells: Place -> run; places without a run are shown as empty.
        metrics: Scores that a table shows.
        preferences: Preferences of curves, one panel each. Empty: the paper's for each domain.
        reference: Column with which others are compared (ED, probability of improvement). None: no comparison.
        printed: The numbers of the paper.
        notes: Notes for readers, such as why numbers are not comparable.
        critic: Whether L_critic is measured when a run is trained.
    """

    name: str
    title: str
    where: str
    show: str
    cells: Mapping[Place, Wanted] = field(default_factory=dict)
    metrics: tuple[str, ...] = ("HV", "UT")
    preferences: tuple[tuple[float, ...], ...] = ()
    reference: str | None = None
    printed: PrintedTable = field(default_factory=PrintedTable)
    notes: tuple[str, ...] = ()
    critic: bool = False

    @property
    def opening(self) -> str:
        """Place in the paper, as the first sentence of a caption."""
        return f"{self.where[:1].upper()}{self.where[1:]}."

    @property
    def rows(self) -> list[str]:
        return list(dict.fromkeys(row for row, _ in self.cells))

    @property
    def columns(self) -> list[str]:
        return list(dict.fromkeys(column for _, column in self.cells))


def _count(steps: int) -> str:
    """Return a number of steps, shortened if that is exact: 1.5M for 1500000, but 1234567 for 1234567."""
    for size, letter in ((1_000_000, "M"), (1_000, "k")):
        if steps >= size and float(f"{steps / size:g}") * size == steps:
            return f"{steps / size:g}{letter}"
    return str(steps)


def _short(name: str) -> str:
    """Return the name; if it is longer than `LONGEST_NAME`, its beginning and a checksum of the whole."""
    whole = name.encode()
    if len(whole) <= LONGEST_NAME:
        return name
    mark = f"-{sha256(whole).hexdigest()[:12]}"
    return whole[: LONGEST_NAME - len(mark)].decode(errors="ignore") + mark


def shown(value: object) -> str:
    """Return a value of a setting in the words of a plan."""
    if value is None:
        return NONE
    return ",".join(map(str, value)) if isinstance(value, tuple | list) else str(value)


def _plain(value: object) -> str:
    """Return a value as part of a file name."""
    text = shown(value)
    return "".join(letter if letter.isalnum() or letter in "._,+" else "_" for letter in text)


ScaleName = Literal["paper", "short", "smoke"]
COUNTS = ("random_steps", "push_after", "push_period", "switch_after", "replay_capacity")
"""Settings that count steps or updates, which a shorter scale divides."""
SMALL_POPULATION: dict[str, object] = {"minibatches": 4, "warmup_iterations": 8, "generation_iterations": 4}
SMOKE: dict[str, object] = {
    "hidden": 16,
    "batch_size": 16,
    "width_factors": (1,),
    "bins": 3,
    "num_candidates": 3,
    "num_buffers": 10,
    "rollout_steps": 4,
    "epochs": 1,
    "warmup_iterations": 2,
    "generation_iterations": 1,
    "minibatches": 2,
    "fitness_episodes": 1,
    "eval_stride": 50,
    "full_eval_stride": 25,
    "full_eval_episodes": 1,
    "max_eval_steps": 20,
}
"""Tiny networks and small evaluations; a run takes the settings that it has."""
SMOKE_ITERATIONS = 3
"""Iterations of a population's shorter run; the longer one has twice as many."""


@dataclass(frozen=True)
class Scale:
    """A size of the whole plan.

    Attributes:
        seeds: Seeds of each run whose artefact names no number.
        divisor: Divisor of settings that count steps or updates.
        steps: Steps of runs with a replay.
    """

    seeds: int
    divisor: int
    steps: int


_TABLE: dict[ScaleName, Scale] = {
    "paper": Scale(5, 1, 1_500_000),
    "short": Scale(3, 10, 150_000),
    "smoke": Scale(2, 100, 400),
}


def scaled(config: RunConfig, name: ScaleName, steps: int | None = None) -> RunConfig:
    """Return a run of the paper's size in the size of a scale.

    Args:
        config: The run as in the paper.
        name: The scale.
        steps: Steps in place of 1 500 000; runs of other lengths change in proportion. None: the scale's.
    """
    scale, full = _TABLE[name], _TABLE["paper"].steps
    if name == "paper":
        return config if steps is None else replace(config, steps=_whole(config, steps * config.steps / full))
    goal = scale.steps if steps is None else steps
    if config.method.is_population:
        return _population(config, name, goal * config.steps / full, is_given=steps is not None)
    periods = {"eval_period": 10_000, "parameters_period": 10_000}
    if name == "smoke":
        periods = {"eval_period": 100, "parameters_period": 100, "log_period": 50}
    shared = {key: _whole(config, value) for key, value in periods.items()} | {"steps": _whole(config, goal)}
    usual = settings.flat(config)
    set_counts = [name for name in COUNTS if usual.get(name) is not None]  # the others follow the length of the run
    counts = {name: _whole(config, usual[name] / scale.divisor) for name in set_counts}
    if name == "smoke":
        counts |= dict.fromkeys(("random_steps", "push_after", "switch_after"), 100) | {"replay_capacity": 1_000}
        if "push_period" in counts:
            counts["push_period"] = _whole(config, usual["push_period"] / 10)
    return _change(config, shared | counts | (SMOKE if name == "smoke" else {}))


def _population(config: RunConfig, name: ScaleName, goal: int | float, is_given: bool) -> RunConfig:
    if name == "short":
        config = _change(config, SMALL_POPULATION | {"rollout_steps": 64, "eval_period": 20_000})
        return _change(config, {"steps": round(goal), "parameters_period": 50_000})
    config = _change(config, SMOKE)
    length = iteration_of(config)
    is_long = config.steps > _TABLE["paper"].steps
    steps = round(goal) if is_given else length * SMOKE_ITERATIONS * (2 if is_long else 1)
    periods = {"eval_period": 2 * length, "parameters_period": 4 * length}
    return _change(config, {"steps": max(steps, length)} | periods)


def _change(config: RunConfig, changes: Mapping[str, object]) -> RunConfig:
    """Return the run with the changes whose settings it has."""
    known = settings.flat(config)
    return override(config, {name: value for name, value in changes.items() if name in known})


def _whole(config: RunConfig, steps: int | float) -> int:
    """Return the nearest number of steps in whole blocks, at least one block; of a population the nearest number."""
    if config.method.is_population:
        return max(1, round(steps))
    return max(1, round(steps / config.block)) * config.block


@dataclass(frozen=True)
class Size:
    """The size of the runs of a plan."""

    scale: ScaleName = "paper"
    """paper: as printed. short: a tenth of the steps, three seeds. smoke: tiny networks and a few hundred steps, to
    check in minutes on two cores that everything works."""
    seeds: Annotated[int | None, at_least(1)] = None
    """Seeds of each run, except for the 19 SACs, which are trained once. With more seeds than before, finished seeds
    stay and the others are added. Default: 5 (paper), 3 (short), 2 (smoke)."""
    steps: Annotated[int | None, at_least(1)] = None
    """Steps of runs that have 1 500 000 in the paper; runs of other lengths keep their ratio. With more steps than
    before, runs continue."""
    only: tuple[str, ...] = ()
    """Domains to keep, such as DST2d Hopper2d."""

    def config_of(self, wanted: Wanted) -> RunConfig:
        """Return the configuration of a run, with seeds from 0 on.

        Raises:
            ValueError: The run cannot run; the message says why.
        """
        seeds = wanted.seeds or self.seeds or _TABLE[self.scale].seeds
        config = replace(scaled(wanted.config(), self.scale, self.steps), seeds=seeds, first_seed=0)
        config = with_schedule(config)
        check(config)
        if config.method.is_population:
            check_environment(config.agent, config.steps, spec_of(config))
        return config


@dataclass(frozen=True)
class Plan:
    """The runs of some artefacts.

    Attributes:
        artefacts: Tables and figures, without the cells of domains that were left out.
        size: Size of the runs.
        tasks: Run folders, each once.
        tasks_of: Run -> its tasks.
        configs: Run -> its configuration, with seeds from 0 on.
    """

    artefacts: tuple[Artefact, ...]
    size: Size
    tasks: tuple[Task, ...]
    tasks_of: dict[Wanted, tuple[Task, ...]]
    configs: dict[Wanted, RunConfig]


def make_plan(artefacts: Sequence[Artefact], size: Size, root: Path) -> Plan:
    """Make the plan of some artefacts, in a folder that may hold some of the runs.

    Raises:
        ValueError: The size breaks a rule, no artefact has a domain to keep, or a run cannot run.
    """
    for problem in settings.problems(size):
        raise UserError(problem)
    kept = _on_domains(artefacts, size.only)
    measured: dict[Wanted, bool] = {}
    for artefact in kept:
        for wanted in artefact.cells.values():
            measured[wanted] = measured.get(wanted, False) or artefact.critic
    configs = {wanted: size.config_of(wanted) for wanted in measured}
    tasks_of = {wanted: _parts(wanted, size, configs[wanted], root, critic) for wanted, critic in measured.items()}
    return Plan(kept, size, tuple(task for tasks in tasks_of.values() for task in tasks), tasks_of, configs)


def find_artefacts(names: Iterable[str], known: dict[str, Artefact]) -> list[Artefact]:
    """Return the artefacts of some names; all artefacts if there are no names.

    Raises:
        ValueError: A name is unknown; the message lists the known ones.
    """
    asked = list(dict.fromkeys(names)) or list(known)
    wrong = [name for name in asked if name not in known]
    if wrong:
        raise UserError(f"unknown table or figure {wrong[0]!r}: use {', '.join(known)}")
    return [known[name] for name in asked]


def missing_seeds(wanted: range, there: Iterable[range]) -> list[range]:
    """Return the wanted seeds that are not there, in as few ranges as possible."""
    held = {seed for part in there for seed in part}
    found: list[range] = []
    for seed in wanted:
        if seed in held:
            continue
        if found and found[-1].stop == seed:
            found[-1] = range(found[-1].start, seed + 1)
        else:
            found.append(range(seed, seed + 1))
    return found


def _parts(wanted: Wanted, size: Size, config: RunConfig, root: Path, critic: bool) -> tuple[Task, ...]:
    """Return the tasks of one run: its existing folders, and a new one for each missing range of seeds."""
    name, asked = _name(wanted, size, config), range(config.seeds)
    there = [part for part in _there(root, name) if set(part) & set(asked)]
    parts = sorted([*there, *missing_seeds(asked, there)], key=lambda part: part.start)
    own = lambda part: replace(config, first_seed=part.start, seeds=len(part))
    return tuple(Task(root / f"{name}-s{part.start}-{part.stop - 1}", own(part), critic) for part in parts)


def _name(wanted: Wanted, size: Size, config: RunConfig) -> str:
    """Return the run's name. Another length than usual is part of it if a longer run could not continue this run."""
    usual = scaled(wanted.config(), size.scale).steps
    is_another = config.steps != usual and is_bound_to_length(wanted.config())
    return f"{wanted.name}-{config.steps}" if is_another else wanted.name


def _there(root: Path, name: str) -> list[range]:
    """Return the ranges of seeds of one run that the folder of runs holds."""
    found = []
    for path in sorted(root.glob("*")) if root.is_dir() else []:
        match = re.fullmatch(re.escape(name) + r"-s(\d+)-(\d+)", path.name)
        if match and path.is_dir():
            found.append(range(int(match[1]), int(match[2]) + 1))
    return found


def _on_domains(artefacts: Sequence[Artefact], domains: tuple[str, ...]) -> tuple[Artefact, ...]:
    """Return the artefacts with their cells of some domains; all cells if no domain is given.

    Raises:
        ValueError: No run is on one of the domains.
    """
    there = list(dict.fromkeys(_id_of(run.domain) for artefact in artefacts for run in artefact.cells.values()))
    wrong = [domain for domain in domains if domain not in there]
    if wrong:
        raise UserError(
            f"--only: no run is on the domain {wrong[0]!r} in these tables and figures; their domains: "
            f"{', '.join(there) or 'none'}"
        )
    is_kept = lambda run: not domains or _id_of(run.domain) in domains
    cells = [{place: run for place, run in artefact.cells.items() if is_kept(run)} for artefact in artefacts]
    return tuple(replace(artefact, cells=kept) for artefact, kept in zip(artefacts, cells, strict=True))


def _id_of(domain: str) -> str:
    known = find_domain(domain)
    return domain if known is None else known.id
