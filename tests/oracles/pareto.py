"""Pareto dominance by a double loop."""

from collections.abc import Sequence


def dominates(p: Sequence[float], q: Sequence[float]) -> bool:
    """Whether p is at least as good as q everywhere and better somewhere; every objective is maximised."""
    return all(x >= y for x, y in zip(p, q, strict=True)) and any(x > y for x, y in zip(p, q, strict=True))


def is_non_dominated(points: Sequence[Sequence[float]]) -> list[bool]:
    """Per point, whether none dominates it and none equal to it came before."""
    rows = [tuple(point) for point in points]
    return [not any(dominates(q, p) for q in rows) and p not in rows[:i] for i, p in enumerate(rows)]
