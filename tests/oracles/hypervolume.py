"""Exact hypervolume by slicing, in rational arithmetic."""

from collections.abc import Iterable
from fractions import Fraction

Box = tuple[Fraction, ...]


def hypervolume(points: Iterable[Iterable[float]], reference: Iterable[float]) -> float:
    """Volume of the union of the boxes from the reference up to each point; every objective is maximised."""
    sides = [tuple(Fraction(float(x)) - Fraction(float(r)) for x, r in zip(p, reference, strict=True)) for p in points]
    return float(_union_volume({box for box in sides if min(box) > 0}))


def _union_volume(boxes: set[Box]) -> Fraction:
    """Cut the union of boxes [0, box] across its last axis and add up the slices."""
    if not boxes:
        return Fraction(0)
    if len(next(iter(boxes))) == 1:
        return max(box[0] for box in boxes)
    volume, floor = Fraction(0), Fraction(0)
    for level in sorted({box[-1] for box in boxes}):
        volume += (level - floor) * _union_volume({box[:-1] for box in boxes if box[-1] >= level})
        floor = level
    return volume
