"""A population's search as named arrays, and back; sizes vary as archive, graph and population grow."""

from collections.abc import Mapping
from dataclasses import fields, replace
from typing import Any

import jax
import numpy as np
from jaxtyping import Float64

from qpensieve.population.members import Archive
from qpensieve.population.pgmorl import Samples, Search
from qpensieve.population.prediction import Graph
from qpensieve.records.search import SearchRecord
from qpensieve.records.trees import arrays_to_tree, tree_to_arrays

HISTORY = ("objs", "lam", "generation", "starts", "predicted", "bounds_share", "fitness_steps")
"""Fields of a record that the searches themselves do not hold."""


def to_arrays(search: Search, prefix: str) -> dict[str, np.ndarray]:
    """Archive, graph and population of one seed."""
    arrays = {f"{prefix}{part}/{name}": value for part in ("archive", "graph") for name, value in _named(search, part)}
    samples = search.samples
    arrays |= {f"{prefix}samples/objs": samples.objs, f"{prefix}samples/node": samples.node}
    return arrays | tree_to_arrays(samples.members, f"{prefix}samples/member")


def from_arrays(
    arrays: Mapping[str, np.ndarray], prefix: str, reference: Float64[np.ndarray, " d"], one: Any
) -> Search:
    """The search that `to_arrays` saved; `one` holds any members and shows the structure of a sample."""
    taken = lambda part, kind: kind(**{f.name: arrays[f"{prefix}{part}/{f.name}"] for f in fields(kind)})
    objs = arrays[f"{prefix}samples/objs"]
    like = jax.tree.map(lambda x: np.zeros((len(objs), *x.shape[1:]), x.dtype), one)
    members = arrays_to_tree(like, arrays, f"{prefix}samples/member")
    samples = Samples(members, objs, arrays[f"{prefix}samples/node"])
    return Search(reference, taken("archive", Archive), taken("graph", Graph), samples)


def record_to_arrays(record: SearchRecord, prefix: str) -> dict[str, np.ndarray]:
    """The history of a record."""
    return {f"{prefix}{name}": getattr(record, name) for name in HISTORY}


def record_from_arrays(arrays: Mapping[str, np.ndarray], prefix: str, like: SearchRecord) -> SearchRecord:
    """The record whose history `record_to_arrays` returned."""
    return replace(like, **{name: arrays[f"{prefix}{name}"] for name in HISTORY})


def complete(record: SearchRecord, searches: list[Search]) -> SearchRecord:
    """The record with the archives and graphs of all seeds."""
    numbers = lambda parts: np.repeat(np.arange(len(parts)), [len(part) for part in parts])
    together = lambda parts: np.concatenate(parts)
    found = [search.archive for search in searches]
    graphs = [search.graph for search in searches]
    return replace(
        record,
        archive_objs=together([archive.objs for archive in found]),
        archive_seed=numbers([archive.objs for archive in found]),
        archive_found_at=together([archive.found_at for archive in found]),
        graph_objs=together([graph.objs for graph in graphs]),
        graph_lam=together([graph.lam for graph in graphs]),
        graph_parent=together([graph.parent for graph in graphs]),
        graph_seed=numbers([graph.parent for graph in graphs]),
    )


def _named(search: Search, part: str) -> list[tuple[str, np.ndarray]]:
    value = getattr(search, part)
    return [(field.name, getattr(value, field.name)) for field in fields(value)]
