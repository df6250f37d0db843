"""The numbers that the paper prints, from `paper.toml`. Reports show them next to ours."""

import tomllib
from collections.abc import Mapping
from dataclasses import dataclass, field
from importlib import resources

Place = tuple[str, str]
"""Row and column."""
Printed = tuple[float, float | None]
"""Mean and standard deviation."""


@dataclass(frozen=True)
class PrintedTable:
    """A table of the paper.

    Attributes:
        columns: Its columns.
        scores: Place -> score -> printed numbers.
        powers: Score -> row -> power of ten that it is printed in.
    """

    columns: tuple[str, ...] = ()
    scores: Mapping[Place, Mapping[str, Printed]] = field(default_factory=dict)
    powers: Mapping[str, Mapping[str, int]] = field(default_factory=dict)


def _table(columns: list[str], rows: list[list]) -> PrintedTable:
    scores: dict[Place, dict[str, Printed]] = {}
    powers: dict[str, dict[str, int]] = {}
    for domain, score, power, *cells in rows:
        powers.setdefault(score, {})[domain] = power
        for column, cell in zip(columns, cells, strict=True):
            if cell:
                mean, std = (float(f"{number}e{power}") for number in cell)
                scores.setdefault((domain, column), {})[score] = (mean, std)
    return PrintedTable(tuple(columns), scores, powers)


_CONTENT = tomllib.loads(resources.files("qpensieve.experiments").joinpath("paper.toml").read_text())
TABLES = {name: _table(**table) for name, table in _CONTENT["tables"].items()}
"""Name of an artefact -> its table."""
CRITIC_PREFERENCES: tuple[tuple[float, ...], ...] = tuple(map(tuple, _CONTENT["critic"]["preferences"]))
"""Preferences of the tables of L_critic."""
SETTINGS: dict[str, str] = _CONTENT["settings"]["q-pensieve"]
"""Hyperparameters of Q-Pensieve."""
POPULATION_COLUMNS: list[str] = _CONTENT["settings"]["populations"]["columns"]
POPULATION_SETTINGS: dict[str, list[float]] = _CONTENT["settings"]["populations"]["rows"]
"""Domain -> hyperparameters of PGMORL and PFA."""
