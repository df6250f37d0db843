"""How a benchmark shows its figures: a plain table, and a JSON file with the machine they come from."""

import json
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from qpensieve.records import provenance

Row = dict[str, Any]


def interleave(parts: Sequence[Callable[[], float]], repeats: int) -> list[list[float]]:
    """Run every part once per repeat, in turn, so that a slow minute of the machine hits all of them alike."""
    results: list[list[float]] = [[] for _ in parts]
    for _ in range(repeats):
        for values, part in zip(results, parts, strict=True):
            values.append(part())
    return results


def seconds(work: Callable[[], object]) -> float:
    start = time.perf_counter()
    work()
    return time.perf_counter() - start


def format_table(rows: Sequence[Row]) -> str:
    """Columns, one per key of the first row: words to the left, numbers to the right."""
    columns = [_column(key, [row[key] for row in rows]) for key in rows[0]]
    lines = ["  ".join(cells).rstrip() for cells in zip(*columns, strict=True)]
    return "\n".join([lines[0], "-" * max(map(len, lines)), *lines[1:]])


def write_json(path: Path, benchmark: str, rows: Sequence[Row], settings: dict[str, Any]) -> None:
    """The rows, the settings they were measured with, and the machine."""
    path.parent.mkdir(parents=True, exist_ok=True)
    content = {"benchmark": benchmark, "settings": settings, "rows": list(rows), "provenance": provenance.describe()}
    path.write_text(json.dumps(content, indent=2) + "\n")


def _column(name: str, values: Sequence[object]) -> list[str]:
    cells = [name, *map(_show, values)]
    width = max(map(len, cells))
    is_text = all(isinstance(value, str) for value in values)
    return [cell.ljust(width) if is_text else cell.rjust(width) for cell in cells]


def _show(value: object) -> str:
    if value is None:
        return "-"
    if isinstance(value, bool) or not isinstance(value, float):
        return str(value)
    return f"{value:,.0f}" if abs(value) >= 1000 else f"{value:.3g}"
