"""PGMORL: a population of PPO policies; each generation is trained where a model predicts the largest gain.

Paper: Xu et al., "Prediction-Guided Multi-Objective Reinforcement Learning for Continuous Robot Control" (ICML 2020).
Everything here is for one seed and runs on the host; `train/population.py` trains the members. Objectives are measured
from the reference point, not from the origin as in the authors' code, so they may be negative (deviation D24).
"""

from dataclasses import dataclass, field, replace
from typing import Annotated, Any

import jax
import numpy as np
from jaxtyping import Float64, Int64

from qpensieve.population import archive as archives
from qpensieve.population import cones as buffers
from qpensieve.population import prediction, task_selection
from qpensieve.population.archive import Archive
from qpensieve.population.ppo import PpoConfig
from qpensieve.population.prediction import Graph
from qpensieve.population.stages import StagesConfig, spacing
from qpensieve.settings import Rule, at_least

NUM_MODEL_PARAMETERS = 4
OWN = -1
"""Source of a task that continues with its own member."""
_POSITIVE_SPARSITY = Rule(
    "0 or more (a negative weight would reward gaps in the front; the paper's table prints it negative, for a "
    "criterion that adds it: take the positive number)",
    lambda value: value >= 0,
)


@dataclass(frozen=True)
class PgmorlConfig:
    """Settings of PGMORL."""

    num_buffers: Annotated[int, at_least(1)] = 100
    """Number of directions in objective space that the population is spread over; for three objectives or more, the
    nearest size of a grid of directions."""
    buffer_size: Annotated[int, at_least(1)] = 2
    """Number of policies kept in each direction: those farthest from the reference point."""
    num_candidates: Annotated[int, at_least(2)] = 7
    """Number of preferences that are predicted for every policy of the population."""
    sparsity_weight: Annotated[float, _POSITIVE_SPARSITY] = 1.0
    """Factor of the sparsity (gaps in the front), which is subtracted from the hypervolume when tasks are chosen."""
    stages: StagesConfig = field(default_factory=StagesConfig)
    """Warm-up and generations."""
    ppo: PpoConfig = field(default_factory=PpoConfig)
    """Training of each member."""


@dataclass(frozen=True, eq=False)
class Samples:
    """Members as they were at some iteration, with everything they need to continue training.

    Attributes:
        members: Their whole state; every leaf leads with the axis p.
        objs: Objectives they reached.
        node: Their node in the graph.
    """

    members: Any
    objs: Float64[np.ndarray, "p d"]
    node: Int64[np.ndarray, " p"]


@dataclass(frozen=True, eq=False)
class Search:
    """What one seed has found so far.

    Attributes:
        reference: Point that policies must exceed in every objective.
        archive: Non-dominated policies of every iteration.
        graph: How training under a preference changed the objectives, from node to node.
        samples: The population that tasks are chosen from.
    """

    reference: Float64[np.ndarray, " d"]
    archive: Archive
    graph: Graph
    samples: Samples

    @property
    def hypervolume(self) -> float:
        """Hypervolume of the archive."""
        return archives.hypervolume(self.archive, self.reference)


@dataclass(frozen=True, eq=False)
class Tasks:
    """What the tasks of the next generation start from.

    Attributes:
        source: Row of the samples, or `OWN`.
        lam: Preference to train under.
        predicted: Objectives predicted for the end of the generation; NaN where nothing was predicted.
        bounds_share: Share of the fitted models' parameters that stand at a bound.
    """

    source: Int64[np.ndarray, " n"]
    lam: Float64[np.ndarray, "n d"]
    predicted: Float64[np.ndarray, "n d"]
    bounds_share: float = 0.0


def empty_search(reference: Float64[np.ndarray, " d"], num_parameters: int, member: Any) -> Search:
    """The search before anything is found.

    Args:
        reference: Point that policies must exceed in every objective.
        num_parameters: Numbers that the archive keeps of a policy.
        member: Any members, for the shapes of their leaves; leaves lead with an axis of members.
    """
    d = len(reference)
    none = Samples(jax.tree.map(lambda x: np.asarray(x)[:0], member), np.zeros((0, d)), np.zeros(0, np.int64))
    return Search(reference, archives.empty(d, num_parameters), prediction.empty_graph(d), none)


def add_nodes(
    graph: Graph,
    lam: Float64[np.ndarray, "n d"],
    objs: Float64[np.ndarray, "n d"],
    parents: Int64[np.ndarray, " n"],
) -> tuple[Graph, Int64[np.ndarray, " n"]]:
    """The graph with a node for every task, and their numbers."""
    first = len(graph.parent)
    for row, reached, parent in zip(lam, objs, parents.tolist(), strict=True):
        graph = prediction.add_node(graph, row, reached, parent)
    return graph, np.arange(first, first + len(objs))


def join(cfg: PgmorlConfig, search: Search, new: Samples) -> Search:
    """The search with new samples in the population, as far as its buffers keep them."""
    both = lambda a, b: np.concatenate([np.asarray(a), np.asarray(b)])
    old = search.samples
    objs, node = both(old.objs, new.objs), both(old.node, new.node)
    kept = buffers.survivors(objs, search.reference, cfg.num_buffers, cfg.buffer_size)
    members = jax.tree.map(lambda a, b: both(a, b)[kept], old.members, new.members)
    return replace(search, samples=Samples(members, objs[kept], node[kept]))


def propose(cfg: PgmorlConfig, search: Search, lam: Float64[np.ndarray, "n d"], stream: np.random.Generator) -> Tasks:
    """Tasks of the next generation.

    If the population has fewer candidates than tasks (or is empty, because no policy exceeds the reference point yet),
    the other tasks continue with their own member and preference.

    Args:
        cfg: Settings.
        search: What was found so far.
        lam: Preferences of the tasks that just ended.
        stream: Source of random candidates, with three objectives or more.
    """
    num_tasks, d = lam.shape
    tasks = Tasks(np.full(num_tasks, OWN), lam.copy(), np.full((num_tasks, d), np.nan))
    source, lams, predicted, bounds_share = _candidates(cfg, search, stream)
    if len(source) == 0:
        return tasks
    front = search.archive.objs
    chosen = task_selection.select(front, predicted, num_tasks, search.reference, cfg.sparsity_weight)
    tasks.source[: len(chosen)], tasks.lam[: len(chosen)] = source[chosen], lams[chosen]
    tasks.predicted[: len(chosen)] = predicted[chosen]
    return replace(tasks, bounds_share=bounds_share)


def _candidates(
    cfg: PgmorlConfig, search: Search, stream: np.random.Generator
) -> tuple[Int64[np.ndarray, " c"], Float64[np.ndarray, "c d"], Float64[np.ndarray, "c d"], float]:
    """Sample, preference and predicted objectives of every pair considered, and the share of parameters at a bound."""
    graph, samples, d = search.graph, search.samples, len(search.reference)
    sources, lams, predicted, bounds = [], [np.zeros((0, d))], [np.zeros((0, d))], []
    for row, (objs, node) in enumerate(zip(samples.objs, samples.node.tolist(), strict=True)):
        tried = graph.lam[graph.parent == node]
        tries = task_selection.candidate_lams(
            graph.lam[node], tried, num_lams=cfg.num_candidates, spacing=spacing(cfg.stages, d), generator=stream
        )
        guess = prediction.predict(graph, objs, tries, search.reference)
        sources += [row] * len(tries)
        lams.append(tries)
        predicted.append(objs + guess.delta)
        if guess.num_edges:
            bounds.append(guess.num_bounds / (NUM_MODEL_PARAMETERS * d))
    share = float(np.mean(bounds)) if bounds else 0.0
    return np.array(sources, np.int64), np.concatenate(lams), np.concatenate(predicted), share
