"""The tables and figures of the paper, read from `paper.toml`: their runs, and the numbers that the paper prints."""

import tomllib
from collections.abc import Sequence
from importlib import resources
from typing import Any

from qpensieve.experiments.plan import Artefact, PrintedTable, Wanted


def _artefact(name: str, content: dict[str, Any]) -> Artefact:
    domains, runs, printed = (
        content.pop(key, default) for key, default in (("domains", []), ("runs", []), ("printed", None))
    )
    cells = {
        (domain, run["column"]): _wanted(domain, run)
        for domain in domains
        for run in runs
        if domain in run.get("of", domains)
    }
    fields = {key: _frozen(value) for key, value in content.items()}
    return Artefact(name, cells=cells, printed=PrintedTable() if printed is None else _printed(**printed), **fields)


def _wanted(domain: str, run: dict[str, Any]) -> Wanted:
    given = {key: value for key, value in run.items() if key not in ("column", "of")}
    if isinstance(given.get("steps"), dict):
        given["steps"] = given["steps"][domain]
    return Wanted(domain, **given | {"settings": _frozen(list(given.get("settings", {}).items()))})


def _frozen(value: Any) -> Any:
    """Lists as tuples, at any depth."""
    return tuple(map(_frozen, value)) if isinstance(value, list | tuple) else value


def _printed(columns: Sequence[str], rows: Sequence[Sequence[Any]]) -> PrintedTable:
    table = PrintedTable()
    for domain, score, power, *cells in rows:
        table.powers.setdefault(score, {})[domain] = power
        for column, cell in zip(columns, cells, strict=True):
            if cell:
                mean, std = (float(f"{number}e{power}") for number in cell)
                table.scores.setdefault((domain, column), {})[score] = (mean, std)
    return table


_CONTENT = tomllib.loads(resources.files("qpensieve.experiments").joinpath("paper.toml").read_text())
ARTEFACTS: dict[str, Artefact] = {name: _artefact(name, content) for name, content in _CONTENT["artefacts"].items()}
"""Name -> table or figure, in the order shown to people."""
SETTINGS: dict[str, dict[str, str]] = _CONTENT["q-pensieve"]
"""Hyperparameter of Q-Pensieve -> `paper`: its printed value; `setting` or `ours`: our setting, or our value."""
POPULATION_COLUMNS: list[str] = _CONTENT["populations"]["columns"]
POPULATION_SETTINGS: dict[str, list[float]] = _CONTENT["populations"]["rows"]
"""Domain -> hyperparameters of PGMORL and PFA."""
