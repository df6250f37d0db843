"""A run as one small JSON file that can be committed: configuration, machine, every score and mean return."""

import json
from pathlib import Path
from typing import Any

import numpy as np

from qpensieve.errors import make_folder
from qpensieve.records import calibration as calibrations
from qpensieve.records import evaluations as tables
from qpensieve.records import search as records
from qpensieve.records.atomic import write_text
from qpensieve.records.calibration import Calibration
from qpensieve.records.evaluations import Evaluations
from qpensieve.records.folder import CALIBRATION, CONFIG, CRITIC, EVALUATIONS, PROVENANCE, SEARCH, check_out
from qpensieve.records.reading import read_object
from qpensieve.records.scores import SCORES, RunSummary, summarize
from qpensieve.report.tables import summarize_search

FEW = 4
"""Up to this many preferences the short protocol's returns are written too: they are curves of single agents."""
DIGITS = 6
"""Significant digits of the numbers written."""


def export(folder: Path, out: Path) -> Path:
    """Write the run of `folder` to `out`; episodes are averaged to one return vector per seed and preference."""
    check_out(out, "run.json")
    content = _compact(_content(folder))
    make_folder(out.parent)
    write_text(out, content)
    return out


def _content(folder: Path) -> dict[str, Any]:
    table, known = tables.load(folder / EVALUATIONS), calibrations.load(folder / CALIBRATION)
    content = {
        "config": read_object(folder / CONFIG),
        "provenance": read_object(folder / PROVENANCE),
        "preferences": table.full_preferences.tolist(),
        "reference": None if table.reference is None else table.reference.tolist(),
        "short_protocol": [
            _scored(table, step, r, False)
            for step, r in zip(table.short_steps.tolist(), table.short_returns, strict=True)
        ],
        "full_protocol": [
            _scored(table, step, r, True, known if known is not None and known.step == step else None)
            for step, r in zip(table.full_steps.tolist(), table.full_returns, strict=True)
        ],
    }
    if len(table.curve_preferences) and len(table.short_steps):
        content["curves"] = _curves(table)
    if known is not None:
        content["calibration"] = known.to_dict()
    if (folder / CRITIC).is_file():
        content["critic"] = read_object(folder / CRITIC)
    if (folder / SEARCH).exists():
        content["search"] = summarize_search(records.load(folder / SEARCH))
    return content


def _curves(table: Evaluations) -> dict[str, Any]:
    """Returns under the paper's curve preferences: a row per short evaluation, [seed, preference, objective]."""
    returns = [_numbers(one) for one in table.curve_returns.mean(axis=3)]
    return {
        "preferences": table.curve_preferences.tolist(),
        "steps": table.short_steps.tolist(),
        "mean_returns": returns,
    }


def _scored(
    table: Evaluations, step: int, returns: np.ndarray, is_full: bool, calibration: Calibration | None = None
) -> dict[str, Any]:
    preferences = table.full_preferences if is_full else table.short_preferences
    summary = summarize(returns, preferences, table.reference, calibration)
    row = {"step": step, "episodes": returns.shape[2]} | _scores(summary)
    is_kept = is_full or len(preferences) <= FEW
    return row | ({"mean_returns": _numbers(returns.mean(axis=2))} if is_kept else {})


def _scores(summary: RunSummary) -> dict[str, Any]:
    return {name: _numbers(getattr(summary, name)) for name in SCORES}


def _numbers(values: np.ndarray | None) -> list[Any] | None:
    """Rounded; counts stay whole."""
    if values is None or values.dtype.kind == "i":
        return None if values is None else values.tolist()
    return rounded(values).tolist()


def rounded(values: np.ndarray) -> np.ndarray:
    """The numbers with `DIGITS` digits, as they are written."""
    return np.vectorize(lambda x: float(f"{x:.{DIGITS}g}"), otypes=[np.float64])(values)


def _compact(content: dict[str, Any]) -> str:
    """Indented at the top, one line per evaluation."""
    lines = []
    for name, value in content.items():
        is_list = isinstance(value, list) and value and isinstance(value[0], dict)
        text = "[\n    " + ",\n    ".join(json.dumps(row) for row in value) + "\n  ]" if is_list else json.dumps(value)
        lines.append(f"  {json.dumps(name)}: {text}")
    return "{\n" + ",\n".join(lines) + "\n}\n"
