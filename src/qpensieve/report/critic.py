"""L_critic as tables: of one run, and by steps next to the paper's numbers."""

import tomllib
from collections.abc import Sequence
from functools import partial
from importlib import resources

import numpy as np

from qpensieve.console import Row, format_number, format_spread, format_table, plural
from qpensieve.records.critic_errors import CriticErrors, CriticRow

three_digits = partial(format_number, digits=3)
_CONTENT = tomllib.loads(resources.files("qpensieve.report").joinpath("critic.toml").read_text())
PAPER_STEPS: tuple[int, ...] = tuple(_CONTENT["steps"])
"""Steps of the paper's tables."""
PAPER: dict[str, dict[tuple[float, ...], list[float]]] = {
    domain: {tuple(lam): values for lam, *values in rows} for domain, rows in _CONTENT["domains"].items()
}
"""Domain -> preference -> the paper's L_critic at each of its steps, mean over five seeds."""


def paper_value(domain: str, preference: Sequence[float], step: int) -> float | None:
    """Return the paper's L_critic; None if the paper has no number for these arguments."""
    table = PAPER.get(domain, {})
    found = next((values for lam, values in table.items() if np.allclose(lam, preference)), None)
    return None if found is None or step not in PAPER_STEPS else found[PAPER_STEPS.index(step)]


def format_errors(errors: CriticErrors) -> str:
    """Format the measurements of a run for a terminal, and explain the columns."""
    rows = rows_of(errors)
    first = ("step", "preference")
    width = max(len(str(row["step"])) for row in rows)
    # One column, because a wide table is broken and only its first column is repeated.
    keyed = [
        {"step, preference": f"{row['step']:>{width}}, {row['preference']}"}
        | {name: value for name, value in row.items() if name not in first}
        for row in rows
    ]
    lines = [
        format_table(keyed, show=three_digits),
        f"Means over {plural(len(errors.seeds), 'seed')}; after +- the standard error over pairs (s, a).",
        "noise: what L_critic of an exact critic would be; rms: without the noise; |Q|: mean norm of the returns;",
        "bias: Q less the return, above 0 where the critic overestimates.",
    ]
    return "\n".join(lines)


def rows_of(errors: CriticErrors) -> Sequence[Row]:
    """Return the measurements of a run as rows of a table: means over seeds."""
    is_mixed = len({row.actions for row in errors.rows}) > 1
    rows = [_row_of(row, errors.objectives, is_mixed) for row in errors.rows]
    papers = [paper_value(errors.domain, row.preference, row.step) for row in errors.rows]
    if any(value is not None for value in papers):
        rows = [{**row, "paper": "-" if value is None else value} for row, value in zip(rows, papers, strict=True)]
    return rows


def _row_of(row: CriticRow, objectives: Sequence[str], is_mixed: bool) -> Row:
    mean = lambda values: float(np.mean(values))
    spread = lambda values, se: format_spread(mean(values), _pooled(se), three_digits)
    bias, bias_se = np.array(row.bias), np.array(row.bias_se)
    biases = {f"bias {name}": spread(bias[:, i], bias_se[:, i]) for i, name in enumerate(objectives)}
    return {
        "step": f"{row.step:,}",
        "preference": ",".join(f"{x:g}" for x in row.preference),
        **({"actions": row.actions} if is_mixed else {}),
        "L_critic": spread(row.error, row.error_se),
        "noise": mean(row.noise),
        "rms": mean(row.rms),
        "|Q|": mean(row.value),
        "L / |Q|": f"{mean(row.error) / mean(row.value):.0%}" if mean(row.value) > 0 else "-",
        **({} if len(objectives) == 1 else {"bias lam . Q": spread(row.scalar_bias, row.scalar_bias_se)}),
        **biases,
    }


def _pooled(standard_errors: Sequence[float] | np.ndarray) -> float:
    """Return the standard error of the mean over seeds from the standard error of each seed."""
    return float(np.sqrt(np.square(standard_errors).sum()) / len(standard_errors))
