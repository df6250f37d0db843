"""Performance buffers of PGMORL: which samples stay in the population (Xu et al., 2020, and its authors' code).

The space above the reference is cut into cones, and each keeps the few samples that lie farthest out in it. Two
objectives: equal angles. More: the directions of a simplex grid, and a sample belongs to the one nearest in angle.
"""

from math import comb

import numpy as np
from jaxtyping import Float64, Int64

from qpensieve.metrics.pareto import check_points
from qpensieve.preferences import das_dennis

MIN_HEIGHT = 1e-7
"""Least height above the reference, in every objective, of a sample that may stay."""


def directions(num_objectives: int, num_buffers: int) -> Float64[np.ndarray, "B d"]:
    """Unit vectors along the simplex grid that has the number of points nearest to `num_buffers`, at a tie the larger.

    200 gives 210 for three objectives (190 is as near), 400 gives 364 for four and 330 for five.

    Raises:
        ValueError: If there are fewer than three objectives, whose buffers are no directions.
    """
    if num_objectives < 3:
        raise ValueError(f"directions are for 3 or more objectives, got {num_objectives}")
    count = lambda divisions: comb(divisions + num_objectives - 1, num_objectives - 1)
    divisions = 1
    while count(divisions + 1) - num_buffers <= num_buffers - count(divisions):
        divisions += 1
    grid = das_dennis(num_objectives, divisions)
    return grid / np.linalg.norm(grid, axis=1, keepdims=True)


def buffer_of(f: Float64[np.ndarray, "p d"], num_buffers: int) -> Int64[np.ndarray, " p"]:
    """Number of the buffer of each point; takes f = objs - reference, all positive.

    Two objectives: the angle to the second axis, arccos(f2 / |f|), in sectors of equal size. More: the direction with
    the greatest dot product, the first of several.
    """
    if f.shape[1] > 2:
        return np.argmax(f @ directions(f.shape[1], num_buffers).T, axis=1)
    angle = np.arctan2(f[:, 0], f[:, 1])  # that arccos, without its rounding near the axis
    return np.minimum(np.floor(angle / (np.pi / 2) * num_buffers), num_buffers - 1).astype(np.int64)


def survivors(
    objs: Float64[np.ndarray, "p d"], reference: Float64[np.ndarray, " d"], num_buffers: int, buffer_size: int
) -> Int64[np.ndarray, " s"]:
    """Rows of the samples that stay: in each buffer the `buffer_size` farthest from the reference.

    Takes raw objectives, old population first. The rows are ordered by buffer, then from far to near. At equal distance
    the earlier sample goes first. Samples with equal objectives are not merged: they were trained under different
    preferences and lead to different tasks.

    Raises:
        ValueError: If an objective is not finite.
    """
    f = check_points(objs, "objs") - reference
    inside = np.flatnonzero((f >= MIN_HEIGHT).all(axis=1))
    buffer = buffer_of(f[inside], num_buffers)
    order = np.lexsort((-np.linalg.norm(f[inside], axis=1), buffer))
    ranked = buffer[order]
    place = np.arange(len(ranked)) - np.searchsorted(ranked, ranked)
    return inside[order[place < buffer_size]]
