"""The paper's two tables of hyperparameters, with those of our presets."""

from collections.abc import Callable
from typing import Any

from qpensieve import settings
from qpensieve.config import spec_of
from qpensieve.console import Row
from qpensieve.experiments import paper
from qpensieve.population.pgmorl import warmup_preferences
from qpensieve.presets import default_config
from qpensieve.report.text import TextTable, listing

OURS_ALONE = ("num_preferences", "num_snapshots", "push_period", "push_after", "random_steps", "block")


def q_pensieve_settings() -> TextTable:
    """Hyperparameters of Q-Pensieve."""
    ours = settings.flat(default_config("DST2d"))
    rows: list[Row] = []
    for name, known in paper.SETTINGS.items():
        value = known["ours"] if "ours" in known else str(ours[known["setting"]])
        rows.append({"parameter": name, "paper": known["paper"], "ours": value, "same": _same(known["paper"], value)})
    notes = [f"Ours alone: {', '.join(f'{name} {ours[name]}' for name in OURS_ALONE)}."]
    return listing(
        "settings", "Hyperparameters of Q-Pensieve", "Appendix of the paper, and --preset paper.", rows, notes
    )


def population_settings() -> TextTable:
    """Hyperparameters of PGMORL and PFA, by domain."""
    rows: list[Row] = []
    for domain, values in paper.POPULATION_SETTINGS.items():
        config = default_config(domain, "pgmorl")
        ours = settings.flat(config)
        tasks = len(warmup_preferences(config.agent.stages, spec_of(config).num_objectives))
        names = ("warmup_iterations", "generation_iterations", "num_buffers", "buffer_size", "num_candidates")
        mine = (tasks, ours["steps"], *[ours[name] for name in names], -ours["sparsity_weight"])
        both = zip(paper.POPULATION_COLUMNS, values, mine, strict=True)
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


LISTINGS: dict[str, Callable[[], Any]] = {
    "settings": q_pensieve_settings,
    "settings-populations": population_settings,
}
"""Name of an artefact without runs -> its table."""
