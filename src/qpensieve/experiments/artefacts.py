"""What an experiment is, as data: a grid of runs, and how it is shown.

Every table and every figure is a grid. Rows are domains (or panels), columns are methods (or series); a place holds the
run that fills it. Runs that several places need are equal, so they are made once.
"""

import dataclasses
from collections.abc import Mapping
from dataclasses import dataclass, field
from hashlib import sha256
from typing import Any, Literal

from qpensieve.config import RunConfig, override, scheduled
from qpensieve.experiments.printed import Place, PrintedTable
from qpensieve.presets import default_config
from qpensieve.settings import NONE

Show = Literal["scores", "critic", "fronts", "growth", "score-curves", "learning-curves", "single-curves", "settings"]
"""How an artefact is shown: tables of scores, of the critic's error or of settings; or one of the figures."""
FROM_SIZE_OF_RUN = ("pgmorl", "pfa", "envelope")
"""Methods whose schedule always depends on the length of the run."""

LONGEST_NAME = 200
"""Bytes of a run's name: file systems take 255, and length and seeds come behind it."""


def is_bound_to_length(config: RunConfig) -> bool:
    """Whether a schedule depends on the length of the run: a longer one is another run, not the same one continued."""
    planned = scheduled(config)
    is_planned = (planned.agent, planned.random_steps) != (config.agent, config.random_steps)
    return config.algo in FROM_SIZE_OF_RUN or is_planned


@dataclass(frozen=True)
class Wanted:
    """A run that an artefact needs, but for its seeds.

    Attributes:
        domain: A domain, a Gymnasium id, or module:factory.
        algo: Name of the method.
        settings: Changes to the preset, by name; pairs, in the order of the run's name.
        steps: Environment steps of each seed; None: as the preset says.
        preset: Where all other settings start from.
        seeds: Number of seeds; None: as the plan says.
    """

    domain: str
    algo: str = "qpensieve"
    settings: tuple[tuple[str, Any], ...] = ()
    steps: int | None = None
    preset: str = "paper"
    seeds: int | None = None

    def config(self) -> RunConfig:
        """The configuration, with the preset's seeds.

        Raises:
            ValueError: A setting is unknown, or its value cannot be.
        """
        config = override(default_config(self.domain, self.algo, self.preset), dict(self.settings))
        return config if self.steps is None else dataclasses.replace(config, steps=self.steps)

    @property
    def name(self) -> str:
        """A name for folders that tells it from all others of a plan."""
        length = [] if self.steps is None or not is_bound_to_length(self.config()) else [_count(self.steps)]
        of_preset = [] if self.preset == "paper" else [self.preset]
        changes = [f"{key}-{_plain(value)}" for key, value in self.settings]
        return _short("-".join([_plain(self.domain), self.algo, *of_preset, *changes, *length]))


@dataclass(frozen=True)
class Artefact:
    """A table or figure.

    Attributes:
        name: What the command line calls it.
        title: What it shows, in one line.
        where: Where the paper has it.
        show: How it is shown.
        cells: Place -> run; places without one are shown as empty.
        metrics: Scores that a table shows.
        preferences: Preferences of curves, one panel each; empty: those of the run's curves.
        reference: Column that others are compared with (ED, probability of improvement).
        printed: The numbers of the paper.
        notes: What readers must know, such as why numbers are not comparable.
        then: What is computed when a run has been trained, by name.
    """

    name: str
    title: str
    where: str
    show: Show
    cells: Mapping[Place, Wanted] = field(default_factory=dict)
    metrics: tuple[str, ...] = ("HV", "UT")
    preferences: tuple[tuple[float, ...], ...] = ()
    reference: str | None = None
    printed: PrintedTable = field(default_factory=PrintedTable)
    notes: tuple[str, ...] = ()
    then: tuple[str, ...] = ()

    @property
    def opening(self) -> str:
        """Where it stands in the paper, as the first sentence of a caption."""
        return f"{self.where[:1].upper()}{self.where[1:]}."

    @property
    def rows(self) -> list[str]:
        return list(dict.fromkeys(row for row, _ in self.cells))

    @property
    def columns(self) -> list[str]:
        return list(dict.fromkeys(column for _, column in self.cells))


def _count(steps: int) -> str:
    """1500000 as 1.5M."""
    for size, letter in ((1_000_000, "M"), (1_000, "k")):
        if steps >= size and float(f"{steps / size:g}") * size == steps:
            return f"{steps / size:g}{letter}"
    return str(steps)


def _short(name: str) -> str:
    """The name, or its beginning and a checksum of all of it, where a file system would refuse it."""
    whole = name.encode()
    if len(whole) <= LONGEST_NAME:
        return name
    mark = f"-{sha256(whole).hexdigest()[:12]}"
    return whole[: LONGEST_NAME - len(mark)].decode(errors="ignore") + mark


def shown(value: Any) -> str:
    """A value of a setting as people write it in a plan."""
    if value is None:
        return NONE
    return ",".join(map(str, value)) if isinstance(value, tuple | list) else str(value)


def _plain(value: Any) -> str:
    """A value as part of a file name."""
    text = shown(value)
    return "".join(letter if letter.isalnum() or letter in "._,+" else "_" for letter in text)
