"""The record of a population's search, `search.npz`.

It holds the objectives of every task after every iteration, the predictions, the archives and the optimisation graphs.
"""

from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
from jaxtyping import Bool, Float64, Int64

from qpensieve import metrics
from qpensieve.errors import MissingFileError, UserError
from qpensieve.records.files import empty_record, load_record


@dataclass(frozen=True, eq=False)
class SearchRecord:
    """The history of a population's search, for all seeds.

    Attributes:
        reference: Point that policies must exceed in every objective.
        objs: Objectives of every task's policy; row 0 before training, row t after iteration t.
        lam: Preferences that the policies of `objs` were trained under.
        generation: Generation of each row; 0 is the warm-up.
        starts: Objectives that each generation's tasks started from, from the first generation on.
        predicted: Objectives predicted for each generation's tasks; NaN without a prediction.
        bounds_share: Share of the fitted models' parameters that were at a bound, per generation.
        fitness_steps: Environment steps that measured objectives, per seed; they are not training steps.
        archive_objs: Archives of all seeds, one after the other.
        archive_seed: Seed of each row of the archives, counted from 0.
        archive_found_at: Iteration that found each row of the archives.
        graph_objs: Nodes of all seeds' graphs, one after the other.
        graph_lam: Preference that led to the node, with length 1.
        graph_parent: Number of the parent in the graph of its seed; -1: none.
        graph_seed: Seed of each node, counted from 0.
    """

    reference: Float64[np.ndarray, " d"]
    objs: Float64[np.ndarray, "t seed n d"]
    lam: Float64[np.ndarray, "t seed n d"]
    generation: Int64[np.ndarray, " t"]
    starts: Float64[np.ndarray, "g seed n d"]
    predicted: Float64[np.ndarray, "g seed n d"]
    bounds_share: Float64[np.ndarray, "g seed"]
    fitness_steps: Int64[np.ndarray, " seed"]
    archive_objs: Float64[np.ndarray, "p d"]
    archive_seed: Int64[np.ndarray, " p"]
    archive_found_at: Int64[np.ndarray, " p"]
    graph_objs: Float64[np.ndarray, "v d"]
    graph_lam: Float64[np.ndarray, "v d"]
    graph_parent: Int64[np.ndarray, " v"]
    graph_seed: Int64[np.ndarray, " v"]

    @property
    def num_iterations(self) -> int:
        """PPO iterations of every task."""
        return max(0, len(self.objs) - 1)

    @property
    def num_generations(self) -> int:
        """Number of generations begun after the warm-up; the budget may cut the last one short."""
        return int(self.generation.max(initial=0))

    @property
    def num_seeds(self) -> int:
        return len(self.fitness_steps)

    def archive_of(self, seed: int, up_to: int | None = None) -> Float64[np.ndarray, "p d"]:
        """Return the archive's objectives of one seed (counted from 0), now or as it was after iteration `up_to`."""
        if up_to is None:
            return self.archive_objs[self.archive_seed == seed]
        points = self.objs[1 : up_to + 1, seed].reshape(-1, self.objs.shape[3])
        above = points[(points > self.reference).all(axis=1)]
        return metrics.non_dominated(above) if len(above) else above

    def hypervolume_of(self, seed: int, up_to: int | None = None) -> float:
        """Return the hypervolume of `archive_of`; 0 if it is empty."""
        points = self.archive_of(seed, up_to)
        return metrics.hypervolume(points, self.reference) if len(points) else 0.0

    def generation_ends(self) -> list[int]:
        """Return the last iteration of the warm-up and of every generation so far."""
        last = {int(g): t for t, g in enumerate(self.generation)}
        return [t for t in last.values() if t > 0]

    def reached(self) -> tuple[Float64[np.ndarray, "g seed n d"], Bool[np.ndarray, " g"]]:
        """Return the objectives at the end of each generation after the warm-up, and whether it had its full length."""
        ends = self.generation_ends()[1:]
        lengths = np.diff([0, *self.generation_ends()])[1:]
        is_whole = lengths == (lengths.max() if len(lengths) else 0)
        return self.objs[np.array(ends, np.int64)], is_whole


def load(path: Path) -> SearchRecord:
    """Read the record that `files.save_record` wrote.

    Raises:
        FileNotFoundError: There is no such file.
        ValueError: The file cannot be read, or an array is missing.
    """
    if not path.is_file():
        raise MissingFileError(f"no record of a search at {path}: only pgmorl and pfa write one")
    try:
        return load_record(path, SearchRecord)
    except (ValueError, OSError) as error:
        raise UserError(f"{path} is damaged or holds no record of a search: {error}") from error


def empty(reference: Float64[np.ndarray, " d"], num_seeds: int, num_tasks: int) -> SearchRecord:
    """Return the record of a search that has not begun."""
    made = empty_record(SearchRecord, seed=num_seeds, n=num_tasks, d=len(reference))
    return replace(made, reference=reference)


def appended(record: SearchRecord, **rows: np.ndarray) -> SearchRecord:
    """Return the record with one more row at the end of each of the named arrays."""
    return replace(record, **{name: np.concatenate([getattr(record, name), row[None]]) for name, row in rows.items()})
