"""Errors of the critics of a run (L_critic) and their file `critic.json`, to which measurements are added."""

from contextlib import suppress
from dataclasses import asdict, dataclass, fields, replace
from pathlib import Path
from typing import Any

import numpy as np

from qpensieve.records.files import FileError, interpreting, read_object, write_json
from qpensieve.records.folder import refuse_link

FORMAT = 1
"""Version of the file's layout."""


@dataclass(frozen=True)
class CriticRow:
    """A measurement at one step under one preference; lists have an entry for each seed.

    The norms are over the objectives that the critic has (sac and hybrid-sac: the one sum lam . r).
    `metrics.critic.CriticError` explains `error` to `twins`.

    Attributes:
        step: Environment step of the parameters.
        preference: The preference.
        actions: How the actions of the pairs were drawn: policy or uniform.
        pairs: Number of pairs (s, a) per seed.
        rollouts: Returns per pair.
        seed: Seed of the measurement.
        horizon: Steps that were played after each pair, unless an episode terminated before.
        rest: Most that steps after the horizon could add, as a share of `value`.
        ended: Share of rollouts that terminated within the horizon.
    """

    step: int
    preference: list[float]
    actions: str
    pairs: int
    rollouts: int
    seed: int
    error: list[float]
    error_se: list[float]
    noise: list[float]
    rms: list[float]
    value: list[float]
    return_se: list[float]
    bias: list[list[float]]
    bias_se: list[list[float]]
    scalar_bias: list[float]
    scalar_bias_se: list[float]
    twins: list[list[float]]
    horizon: list[int]
    rest: list[float]
    ended: list[float]


@dataclass(frozen=True)
class CriticErrors:
    """All measurements of a run.

    Attributes:
        domain: The domain.
        algo: The method.
        seeds: The seeds of the run.
        discount: The discount of the critics.
        objectives: Names of the objectives that the critics value; `lam . r` for a critic of the weighted sum.
        rows: The measurements.
    """

    domain: str
    algo: str
    seeds: list[int]
    discount: float
    objectives: list[str]
    rows: list[CriticRow]


def add(path: Path, new: CriticErrors) -> CriticErrors:
    """Add measurements to a file, which may not exist yet; return all measurements in it, in order of their steps.

    A measurement replaces the earlier one of the same step, preference and kind of actions.
    """
    refuse_link(path)
    known = load(path).rows if path.exists() else []
    rows = {(row.step, tuple(row.preference), row.actions): row for row in [*known, *new.rows]}
    joined = replace(new, rows=[rows[key] for key in sorted(rows)])
    write_json(path, {"format": FORMAT, **asdict(joined)})
    return joined


def cut(path: Path, step: int) -> None:
    """Remove measurements after `step`, because the run goes back to `step`; a file that cannot be read stays."""
    with suppress(FileError, FileNotFoundError):
        known = load(path)
        kept = [row for row in known.rows if row.step <= step]
        if len(kept) < len(known.rows):
            write_json(path, {"format": FORMAT, **asdict(replace(known, rows=kept))})


def load(path: Path) -> CriticErrors:
    """Return the measurements in a file; FileError (a ValueError) if it holds something else or is missing."""
    return interpret(path, read_object(path))


def interpret(path: Path, content: dict[str, Any]) -> CriticErrors:
    """Return the measurements in the content of a file or in an exported run; FileError for other content."""
    with interpreting(path, "errors of critics"):
        if content["format"] != FORMAT:
            raise ValueError(f"its format must be {FORMAT}, got {content['format']!r}")
        seeds = [int(seed) for seed in content["seeds"]]
        rows = [_row(row, len(seeds)) for row in content["rows"]]
        names = [str(name) for name in content["objectives"]]
        domain, algo = str(content["domain"]), str(content["algo"])
        return CriticErrors(domain, algo, seeds, float(content["discount"]), names, rows)


_SINGLE = {"step": int, "actions": str, "pairs": int, "rollouts": int, "seed": int}
"""Fields of a row that are one value each; all others are lists of numbers."""


def _row(content: dict[str, Any], num_seeds: int) -> CriticRow:
    single = {name: kind(content[name]) for name, kind in _SINGLE.items()}
    lists = {field.name: content[field.name] for field in fields(CriticRow) if field.name not in _SINGLE}
    for name, values in lists.items():
        numbers = np.array(values)
        if numbers.dtype.kind not in "if" or not np.isfinite(numbers).all():
            raise ValueError(f"{name} must be finite numbers, got {values!r}")
        if not isinstance(values, list) or (name != "preference" and len(values) != num_seeds):
            raise ValueError(f"{name} must have an entry for each of {num_seeds} seeds, got {values!r}")
    return CriticRow(**single, **lists)
