"""The external Pareto archive of PGMORL and PFA: the non-dominated policies of every iteration of every task."""

from dataclasses import dataclass, fields

import numpy as np
from jaxtyping import Float32, Float64, Int64

from qpensieve import metrics
from qpensieve.errors import UserError
from qpensieve.metrics.pareto import check_points


@dataclass(frozen=True, eq=False)
class Archive:
    """Policies and the objectives they reached, one row each.

    Attributes:
        objs: Evaluated return vectors, raw (not shifted by a reference).
        policies: Flat parameters of each policy and its observation statistics.
        found_at: Iteration at which the policy was found.
        lam: Preference it was trained under.
    """

    objs: Float64[np.ndarray, "p d"]
    policies: Float32[np.ndarray, "p parameters"]
    found_at: Int64[np.ndarray, " p"]
    lam: Float64[np.ndarray, "p d"]


def empty(num_objectives: int, num_parameters: int) -> Archive:
    none = np.empty((0, num_objectives))
    return Archive(none, np.empty((0, num_parameters), np.float32), np.empty(0, np.int64), none)


def update(archive: Archive, new: Archive, reference: Float64[np.ndarray, " d"]) -> Archive:
    """The archive with the new policies, without those that are dominated or not above the reference in all objectives.

    Objectives are raw. Rows keep their order, old ones first; of policies with equal objectives the first is kept.

    Raises:
        ValueError: If an objective is not finite.
    """
    joined = [np.concatenate([getattr(part, field.name) for part in (archive, new)]) for field in fields(Archive)]
    objs = check_points(joined[0], "objs")
    above = np.flatnonzero((objs > reference).all(axis=1))
    kept = above[metrics.is_non_dominated(objs[above])]
    return Archive(*(rows[kept] for rows in joined))


def best(archive_objs: Float64[np.ndarray, "p d"], lam: Float64[np.ndarray, "rows d"]) -> Int64[np.ndarray, " rows"]:
    """Row of the archive with the greatest lam . objs for each preference; the first one at a tie.

    Objectives are raw; a shift would change nothing.

    Raises:
        ValueError: If the archive is empty.
    """
    if len(archive_objs) == 0:
        raise UserError("the archive is empty: no policy was above the reference point in every objective")
    return np.argmax(lam @ archive_objs.T, axis=1)


def hypervolume(archive: Archive, reference: Float64[np.ndarray, " d"]) -> float:
    """Hypervolume of the archive's raw objectives over the reference; 0 if it is empty."""
    return metrics.hypervolume(archive.objs, reference) if len(archive.objs) else 0.0
