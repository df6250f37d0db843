"""Performance buffers of PGMORL: which samples stay in the population (Xu et al., 2020, and its authors' code).

The space above the reference is cut into cones, and each keeps the few samples farthest from the reference. With two
objectives the cones have equal angles. With more, a sample belongs to the nearest direction of a simplex grid.
"""

from math import comb

import numpy as np
from jaxtyping import Float64, Int64

from qpensieve.metrics.pareto import check_points
from qpensieve.preferences import das_dennis

MIN_HEIGHT = 1e-7
"""A sample is kept only if it is at least this far above the reference in every objective."""


def directions(num_objectives: int, num_buffers: int) -> Float64[np.ndarray, "B d"]:
    """Unit vectors along the simplex grid with the number of points nearest to `num_buffers`; at a tie the larger one.

    200 becomes 210 for three objectives (190 is as near), 400 becomes 364 for four and 330 for five.

    Raises:
        ValueError: If there are fewer than three objectives; with two, buffers are angles.
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
    """Number of the buffer of each point f = objs - reference; all entries must be positive.

    Two objectives: the angle to the second axis, arccos(f2 / |f|), in sectors of equal size. More: the direction with
    the greatest dot product; the first one at a tie.
    """
    if f.shape[1] > 2:
        return np.argmax(f @ directions(f.shape[1], num_buffers).T, axis=1)
    angle = np.arctan2(f[:, 0], f[:, 1])  # equals arccos, without its rounding near the axis
    return np.minimum(np.floor(angle / (np.pi / 2) * num_buffers), num_buffers - 1).astype(np.int64)


def survivors(
    objs: Float64[np.ndarray, "p d"], reference: Float64[np.ndarray, " d"], num_buffers: int, buffer_size: int
) -> Int64[np.ndarray, " s"]:
    """Rows of the samples that are kept: in each buffer the `buffer_size` farthest from the reference.

    Objectives are raw, old population first. The rows are ordered by buffer, then from far to near; at equal distance
    the earlier sample comes first. Samples with equal objectives are not merged: they were trained under different
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
