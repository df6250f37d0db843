"""From artefacts to runs: which run folders are needed, with those there already counted in.

A run is a folder `NAME-s0-4`, of seeds 0 to 4. More seeds are another folder (`NAME-s5-6`), so that what is done stays
done; more steps go on in the same folder, where the method allows it.
"""

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from qpensieve.config import RunConfig, check, resolve, scheduled, spec_of
from qpensieve.envs import find_domain
from qpensieve.errors import UserError
from qpensieve.experiments.artefacts import Artefact, Wanted, is_bound_to_length
from qpensieve.experiments.scales import ScaleName, scale_of, scaled
from qpensieve.experiments.tasks import Task
from qpensieve.population.plan import check_environment


@dataclass(frozen=True)
class Size:
    """How large the runs of a plan are made.

    Attributes:
        scale: paper, short or smoke.
        seeds: Seeds of each run; None: as the scale says.
        steps: Steps of a run that has 1 500 000 in the paper; None: as the scale says.
        only: Domains to keep; empty: all.
    """

    scale: ScaleName = "paper"
    seeds: int | None = None
    steps: int | None = None
    only: tuple[str, ...] = ()

    def __post_init__(self):
        for name, value in (("seeds", self.seeds), ("steps", self.steps)):
            if value is not None and value < 1:
                raise UserError(f"{name} must be at least 1, got {value}")
        scale_of(self.scale)

    def seeds_of(self, wanted: Wanted) -> int:
        return wanted.seeds or self.seeds or scale_of(self.scale).seeds

    def config_of(self, wanted: Wanted) -> RunConfig:
        """The configuration of a run, with seeds from 0 on.

        Raises:
            ValueError: It cannot run; says why.
        """
        config = replace(scaled(wanted.config(), self.scale, self.steps), seeds=self.seeds_of(wanted), first_seed=0)
        config = scheduled(config)
        check(resolve(replace(config, kernels="off")))
        if config.method.is_population:
            check_environment(config.agent, config.steps, spec_of(config))
        return config


@dataclass(frozen=True)
class Plan:
    """The runs of some artefacts.

    Attributes:
        artefacts: What is to be shown, without the cells of domains that were left out.
        size: How large.
        tasks: Its run folders, each once.
        folders: Run -> names of its folders.
    """

    artefacts: tuple[Artefact, ...]
    size: Size
    tasks: tuple[Task, ...]
    folders: dict[Wanted, tuple[str, ...]]


def make_plan(artefacts: Sequence[Artefact], size: Size, root: Path) -> Plan:
    """The plan of some artefacts, in a folder that may hold a part of it.

    Raises:
        ValueError: A domain to keep is in none of them, or a run cannot run.
    """
    kept = tuple(_only(artefact, size.only) for artefact in artefacts)
    _check_only(artefacts, size.only)
    then: dict[Wanted, set[str]] = {}
    for artefact in kept:
        for wanted in artefact.cells.values():
            then.setdefault(wanted, set()).update(artefact.then)
    tasks, folders = [], {}
    for wanted, names in then.items():
        parts = _parts(wanted, size, root, tuple(sorted(names)))
        folders[wanted] = tuple(task.name for task in parts)
        tasks += parts
    return Plan(kept, size, tuple(tasks), folders)


def find_artefacts(names: Iterable[str], known: dict[str, Artefact]) -> list[Artefact]:
    """The artefacts of some names; all of them for none.

    Raises:
        ValueError: There is no such name; lists those there are.
    """
    asked = list(dict.fromkeys(names)) or list(known)
    wrong = [name for name in asked if name not in known]
    if wrong:
        raise UserError(f"unknown table or figure {wrong[0]!r}: use {', '.join(known)}")
    return [known[name] for name in asked]


def missing_seeds(wanted: range, there: Iterable[range]) -> list[range]:
    """The seeds that are not there yet, in as few ranges as possible."""
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


def _parts(wanted: Wanted, size: Size, root: Path, then: tuple[str, ...]) -> list[Task]:
    """The folders of one run: those there, and one for each range of seeds that is missing."""
    config = size.config_of(wanted)
    name, asked = _name(wanted, size, config), range(config.seeds)
    there = [part for part in _there(root, name) if set(part) & set(asked)]
    parts = sorted([*there, *missing_seeds(asked, there)], key=lambda part: part.start)
    return [Task(_folder(name, part), replace(config, first_seed=part.start, seeds=len(part)), then) for part in parts]


def _name(wanted: Wanted, size: Size, config: RunConfig) -> str:
    """The run's name; with the length that was asked for, where another length is another run."""
    usual = scaled(wanted.config(), size.scale).steps
    is_another = config.steps != usual and is_bound_to_length(wanted.config())
    return f"{wanted.name}-{config.steps}" if is_another else wanted.name


def _folder(name: str, seeds: range) -> str:
    return f"{name}-s{seeds.start}-{seeds.stop - 1}"


def _there(root: Path, name: str) -> list[range]:
    """Ranges of seeds that the folder of runs holds of one run."""
    found = []
    for path in sorted(root.glob("*")) if root.is_dir() else []:
        match = re.fullmatch(re.escape(name) + r"-s(\d+)-(\d+)", path.name)
        if match and path.is_dir():
            found.append(range(int(match[1]), int(match[2]) + 1))
    return found


def _only(artefact: Artefact, domains: tuple[str, ...]) -> Artefact:
    if not domains:
        return artefact
    return replace(artefact, cells={place: w for place, w in artefact.cells.items() if _short(w.domain) in domains})


def _check_only(artefacts: Sequence[Artefact], domains: tuple[str, ...]) -> None:
    there = list(dict.fromkeys(_short(w.domain) for artefact in artefacts for w in artefact.cells.values()))
    wrong = [domain for domain in domains if domain not in there]
    if wrong:
        raise UserError(
            f"no run of {wrong[0]!r} in these tables and figures: they have {', '.join(there) or 'no runs'}"
        )


def _short(domain: str) -> str:
    known = find_domain(domain)
    return domain if known is None else known.id
