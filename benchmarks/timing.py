"""How benchmarks measure time."""

import time
from collections.abc import Callable, Sequence
from typing import Any

Row = dict[str, Any]
"""Heading -> value."""


def interleave(parts: Sequence[Callable[[], float]], repeats: int) -> list[list[float]]:
    """Run every part once per repeat, in turn, so that a slow moment of the machine affects all parts equally."""
    results: list[list[float]] = [[] for _ in parts]
    for _ in range(repeats):
        for values, part in zip(results, parts, strict=True):
            values.append(part())
    return results


def seconds(work: Callable[[], object]) -> float:
    start = time.perf_counter()
    work()
    return time.perf_counter() - start
