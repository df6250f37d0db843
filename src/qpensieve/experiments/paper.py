"""The paper, read from `paper.toml`: tables and figures, their runs and printed numbers, and hyperparameters."""

import tomllib
from collections.abc import Callable, Sequence
from importlib import resources
from typing import Any

from qpensieve import settings
from qpensieve.config import default_config, spec_of
from qpensieve.console import Row
from qpensieve.experiments.plan import Artefact, PrintedTable, Wanted
from qpensieve.population.pgmorl import warmup_preferences
from qpensieve.report.text import TextTable, listing


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
    """Turn lists into tuples, at any depth."""
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

OURS_ALONE = ("num_preferences", "num_snapshots", "push_period", "push_after", "random_steps", "block")
"""Settings for which the paper prints no value."""


def q_pensieve_settings() -> TextTable:
    """Return the table of Q-Pensieve's hyperparameters."""
    ours = settings.flat(default_config("DST2d"))
    rows: list[Row] = []
    for name, known in SETTINGS.items():
        value = known["ours"] if "ours" in known else str(ours[known["setting"]])
        rows.append({"parameter": name, "paper": known["paper"], "ours": value, "same": _same(known["paper"], value)})
    notes = [f"Ours alone: {', '.join(f'{name} {ours[name]}' for name in OURS_ALONE)}."]
    return listing(
        "settings", "Hyperparameters of Q-Pensieve", "Appendix of the paper, and --preset paper.", rows, notes
    )


def population_settings() -> TextTable:
    """Return the table of PGMORL's and PFA's hyperparameters, by domain."""
    rows: list[Row] = []
    for domain, values in POPULATION_SETTINGS.items():
        config = default_config(domain, "pgmorl")
        ours = settings.flat(config)
        tasks = len(warmup_preferences(config.agent.stages, spec_of(config).num_objectives))
        names = ("warmup_iterations", "generation_iterations", "num_buffers", "buffer_size", "num_candidates")
        mine = (tasks, ours["steps"], *[ours[name] for name in names], -ours["sparsity_weight"])
        both = zip(POPULATION_COLUMNS, values, mine, strict=True)
        rows.append({"domain": domain} | {name: _both(paper, our) for name, paper, our in both})
    return listing(
        "settings-populations",
        "Hyperparameters of PGMORL and PFA",
        "The paper's, and ours in brackets where they differ. n: tasks; m_w, m_t: iterations of the stages.",
        rows,
        ["The weight of sparsity is subtracted in our code, so the setting is positive (deviation D26)."],
    )


def _both(paper: int | float, ours: int | float) -> str:
    return f"{paper:g}" if paper == ours else f"{paper:g} [{ours:g}]"


def _same(paper: str, ours: str) -> str:
    try:
        return "yes" if float(paper) == float(ours) else "no"
    except ValueError:
        return "yes" if paper == ours else "no"


LISTINGS: dict[str, Callable[[], TextTable]] = {
    "settings": q_pensieve_settings,
    "settings-populations": population_settings,
}
"""Name of an artefact without runs -> its table."""
