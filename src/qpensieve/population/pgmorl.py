"""PGMORL and PFA: the findings of one seed's search, and the tasks of its next generation.

Papers: Xu et al., "Prediction-Guided Multi-Objective Reinforcement Learning for Continuous Robot Control" (ICML 2020);
Parisi et al. (2014) for Pareto following (PFA), here as in the code of PGMORL's authors. Everything here is for one
seed and runs on the host; `train/population.py` trains the members. Objectives are measured from the reference point,
not from the origin as in the authors' code, so they may be negative (deviation D24).
"""

import math
from collections.abc import Mapping
from dataclasses import dataclass, field, fields, replace
from typing import Annotated, Any, Literal, NamedTuple

import jax
import numpy as np
from jaxtyping import Float64, Int64

from qpensieve.errors import UserError
from qpensieve.metrics import check_reference
from qpensieve.population import prediction
from qpensieve.population.members import Archive, empty_archive, survivors
from qpensieve.population.ppo import PpoConfig
from qpensieve.population.prediction import Graph
from qpensieve.preferences import das_dennis
from qpensieve.records.search import SearchRecord
from qpensieve.records.trees import arrays_to_tree, tree_to_arrays
from qpensieve.settings import Rule, at_least
from qpensieve.types import EnvSpec

NUM_MODEL_PARAMETERS = 4
OWN = -1
"""Source of a task that continues with its own member."""
MOST_OBJECTIVES = 5
"""PGMORL supports at most this many objectives."""
MANY_OBJECTIVES = 5
"""With this many objectives or more, the grid is coarser."""
_POSITIVE_SPARSITY = Rule(
    "0 or more (a negative weight would reward gaps in the front; the paper's table prints it negative, for a "
    "criterion that adds it: take the positive number)",
    lambda value: value >= 0,
)


@dataclass(frozen=True)
class StagesConfig:
    """When a population warms up and evolves."""

    divisions: Annotated[int | None, at_least(1)] = None
    """The preferences of the warm-up have entries that are multiples of 1 / divisions; each is a task. None: 4 (5, 15
    or 35 tasks for 2, 3 or 4 objectives), or 3 for five objectives or more (35 tasks for five)."""
    warmup_iterations: int = 80
    """PPO iterations of every task before the first generation; a multiple of generation_iterations."""
    generation_iterations: Annotated[int, at_least(1)] = 20
    """PPO iterations of every task in a generation."""
    total: Literal["shared", "per-task"] = "shared"
    """Whether all tasks together take `steps` environment steps, or each of them does."""
    fitness_episodes: Annotated[int, at_least(1)] = 4
    """Episodes that measure the objectives of a policy after every iteration, with its mean action; they do not count
    as training steps."""

    def conflicts(self) -> list[str]:
        """The warm-up must end with a sample: only then do its last policies enter the graph."""
        warmup, generation = self.warmup_iterations, self.generation_iterations
        if generation < 1 or (warmup >= 1 and warmup % generation == 0):
            return []
        nearest = max(1, round(warmup / generation)) * generation
        return [
            f"warmup_iterations must be a multiple of generation_iterations ({generation}), got {warmup}: "
            f"the warm-up's last policies would not enter the graph; the nearest is {nearest}"
        ]


@dataclass(frozen=True)
class PopulationConfig:
    """Settings that PGMORL and PFA share."""

    stages: StagesConfig = field(default_factory=StagesConfig)
    """Warm-up and generations."""
    ppo: PpoConfig = field(default_factory=PpoConfig)
    """Training of each member."""


@dataclass(frozen=True)
class PgmorlConfig(PopulationConfig):
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


@dataclass(frozen=True)
class PfaConfig(PopulationConfig):
    """Settings of PFA; two objectives only."""


class PaperRow(NamedTuple):
    """A row of the Q-Pensieve paper's table for PGMORL and PFA, and `fitness_episodes`, which this project chose."""

    steps: int
    warmup_iterations: int
    generation_iterations: int
    num_buffers: int
    sparsity_weight: float
    """Positive, because it is subtracted; the paper prints it negative (D26)."""
    fitness_episodes: int = 4
    """Episodes that measure a policy; 1 is enough if the environment is deterministic."""


PAPER: dict[str, PaperRow] = {
    "DST2d": PaperRow(1_500_000, 80, 20, 100, 1.0, fitness_episodes=1),
    "LunarLander4d": PaperRow(7_500_000, 40, 10, 400, 1e6),
    "LunarLander5d": PaperRow(7_500_000, 40, 10, 400, 1e6),
    "HalfCheetah2d": PaperRow(15_000_000, 80, 20, 100, 1.0),
    "Hopper2d": PaperRow(4_500_000, 200, 40, 100, 1.0),
    "Hopper3d": PaperRow(15_000_000, 200, 40, 200, 1e6),
    "Ant3d": PaperRow(15_000_000, 200, 40, 200, 1e6),
    "Hopper5d": PaperRow(7_500_000, 200, 40, 400, 1e6),
    "Ant2d": PaperRow(15_000_000, 200, 40, 100, 1.0),
    "Walker2d": PaperRow(4_500_000, 80, 20, 100, 1.0),
}
"""Domain id -> row of the paper's table."""
UNLISTED = PAPER["Hopper2d"]
"""Settings of domains that are not in the table."""
EVAL_PERIOD = 200_000
"""Steps between short evaluations; large, because runs of populations are long."""


def paper_settings(domain_id: str) -> Mapping[str, object]:
    """Return the paper's settings of PGMORL for a domain; for a domain that it lacks, those of `UNLISTED`."""
    return PAPER.get(domain_id, UNLISTED)._asdict() | {"eval_period": EVAL_PERIOD}


def pfa_paper_settings(domain_id: str) -> Mapping[str, object]:
    """Return the paper's settings of PFA for a domain: `paper_settings` without those that only PGMORL has."""
    changes = paper_settings(domain_id)
    return {name: value for name, value in changes.items() if name not in ("num_buffers", "sparsity_weight")}


def spacing(cfg: StagesConfig, num_objectives: int) -> float:
    """Return the distance between neighbouring entries of the grid's preferences."""
    return 1.0 / (cfg.divisions or (3 if num_objectives >= MANY_OBJECTIVES else 4))


def num_tasks(cfg: StagesConfig, num_objectives: int) -> int:
    """Return the number of `warmup_preferences` without making them: a fine grid may have billions."""
    return math.comb(round(1.0 / spacing(cfg, num_objectives)) + num_objectives - 1, num_objectives - 1)


def warmup_preferences(cfg: StagesConfig, num_objectives: int) -> Float64[np.ndarray, "n d"]:
    """Return one preference per task."""
    return das_dennis(num_objectives, round(1.0 / spacing(cfg, num_objectives)))


def reference_of(spec: EnvSpec) -> Float64[np.ndarray, " d"]:
    """Return the point that policies must exceed; ValueError for an environment without one."""
    if spec.reference is None:
        raise UserError(
            f"reference must be given for {spec.id}, because PGMORL and PFA need one: "
            f"set it (--reference) to {spec.num_objectives} numbers that a useful policy exceeds"
        )
    return check_reference(spec.reference, spec.num_objectives)


def iteration_steps(agent: PopulationConfig, num_tasks: int) -> int:
    """Return the steps of the budget that one iteration takes."""
    per_task = agent.ppo.num_lanes * agent.ppo.rollout_steps
    return per_task * (num_tasks if agent.stages.total == "shared" else 1)


def check_environment(agent: PopulationConfig, steps: int, spec: EnvSpec) -> None:
    """Refuse an environment that the search cannot handle, or a budget below one iteration.

    Raises:
        ValueError: The number of objectives or of steps does not fit; the message says what would work.
    """
    d = spec.num_objectives
    if isinstance(agent, PfaConfig) and d != 2:
        raise UserError(f"pfa needs two objectives, but {spec.id} has {d}: use --algo pgmorl")
    if not 2 <= d <= MOST_OBJECTIVES:
        raise UserError(
            f"pgmorl needs two to {MOST_OBJECTIVES} objectives, but {spec.id} has {d}: use another domain or algorithm"
        )
    tasks = num_tasks(agent.stages, d)
    needed = iteration_steps(agent, tasks)
    if steps < needed:
        raise UserError(
            f"steps must be at least {needed}, got {steps}: one iteration is {tasks} tasks x "
            f"{agent.ppo.num_lanes} lanes x {agent.ppo.rollout_steps} steps; raise steps, or lower rollout_steps"
        )


@dataclass(frozen=True, eq=False)
class Samples:
    """Copies of members at some iteration, with everything that they need to continue training.

    Attributes:
        members: The whole state of the members; every leaf leads with the axis p.
        objs: Objectives of each member.
        node: Number of each member's node in the graph.
    """

    members: Any
    objs: Float64[np.ndarray, "p d"]
    node: Int64[np.ndarray, " p"]


@dataclass(frozen=True, eq=False)
class Search:
    """Findings of one seed so far.

    Attributes:
        reference: Point that policies must exceed in every objective.
        archive: Non-dominated policies of every iteration.
        graph: Measured policies as nodes, and as edges the training that led from one to the next.
        samples: The population from which tasks are chosen.
    """

    reference: Float64[np.ndarray, " d"]
    archive: Archive
    graph: Graph
    samples: Samples

    @property
    def hypervolume(self) -> float:
        """Hypervolume of the archive."""
        return self.archive.hypervolume(self.reference)


@dataclass(frozen=True, eq=False)
class Tasks:
    """Starting points of the next generation's tasks.

    Attributes:
        source: Row of the samples that the task starts from; `OWN`: the task's own member.
        lam: Preference to train under.
        predicted: Objectives predicted for the end of the generation; NaN without a prediction.
        bounds_share: Share of the fitted models' parameters that are at a bound.
    """

    source: Int64[np.ndarray, " n"]
    lam: Float64[np.ndarray, "n d"]
    predicted: Float64[np.ndarray, "n d"]
    bounds_share: float = 0.0


def empty_search(reference: Float64[np.ndarray, " d"], num_parameters: int, member: Any) -> Search:
    """Return a search without findings.

    Args:
        reference: Point that policies must exceed in every objective.
        num_parameters: Numbers that the archive keeps of a policy.
        member: Any members, for the shapes of their leaves; leaves lead with an axis of members.
    """
    d = len(reference)
    none = Samples(jax.tree.map(lambda x: np.asarray(x)[:0], member), np.zeros((0, d)), np.zeros(0, np.int64))
    return Search(reference, empty_archive(d, num_parameters), prediction.empty_graph(d), none)


def join(cfg: PgmorlConfig, search: Search, new: Samples) -> Search:
    """Return the search with new samples in the population, from which the buffers then drop the worst."""
    both = lambda a, b: np.concatenate([np.asarray(a), np.asarray(b)])
    old = search.samples
    objs, node = both(old.objs, new.objs), both(old.node, new.node)
    kept = survivors(objs, search.reference, cfg.num_buffers, cfg.buffer_size)
    members = jax.tree.map(lambda a, b: both(a, b)[kept], old.members, new.members)
    return replace(search, samples=Samples(members, objs[kept], node[kept]))


def propose(cfg: PgmorlConfig, search: Search, lam: Float64[np.ndarray, "n d"], stream: np.random.Generator) -> Tasks:
    """Propose the tasks of PGMORL's next generation.

    If the population has fewer candidates than tasks (or is empty, because no policy exceeds the reference point yet),
    the other tasks continue with their own member and preference.

    Args:
        cfg: Settings.
        search: Findings so far.
        lam: Preferences of the tasks that just ended.
        stream: Source of random candidates, with three objectives or more.
    """
    tasks = Tasks(np.full(len(lam), OWN), lam.copy(), np.full(lam.shape, np.nan))
    source, lams, predicted, bounds_share = _candidates(cfg, search, stream)
    if len(source) == 0:
        return tasks
    chosen = prediction.select(search.archive.objs, predicted, len(lam), search.reference, cfg.sparsity_weight)
    tasks.source[: len(chosen)], tasks.lam[: len(chosen)] = source[chosen], lams[chosen]
    tasks.predicted[: len(chosen)] = predicted[chosen]
    return replace(tasks, bounds_share=bounds_share)


def _candidates(
    cfg: PgmorlConfig, search: Search, stream: np.random.Generator
) -> tuple[Int64[np.ndarray, " c"], Float64[np.ndarray, "c d"], Float64[np.ndarray, "c d"], float]:
    """Return sample, preference and predicted objectives of each candidate, and the share of parameters at a bound."""
    graph, samples, d = search.graph, search.samples, len(search.reference)
    sources, lams, predicted, bounds = [], [np.zeros((0, d))], [np.zeros((0, d))], []
    for row, (objs, node) in enumerate(zip(samples.objs, samples.node.tolist(), strict=True)):
        tried = graph.lam[graph.parent == node]
        tries = prediction.candidate_lams(
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


def sliding_preferences(
    cfg: StagesConfig, iteration: int, total: int, base: Float64[np.ndarray, " n"]
) -> Float64[np.ndarray, "n 2"]:
    """Return the preferences of PFA's tasks for the generation that starts at an iteration, counted over the whole run.

    Each task starts at a preference of the grid and moves towards that of its right neighbour, always from its own last
    policy. The share of the way is the one at the end of the generation: (iteration + generation - warm-up) / (total -
    warm-up), between 0 and 1. A run that is all warm-up stays at `base`.

    Args:
        cfg: Lengths of warm-up and generations; the distance between neighbours.
        iteration: First iteration of the generation.
        total: Iterations of the run.
        base: First component of each task's preference during warm-up.
    """
    warmup, per_generation = cfg.warmup_iterations, cfg.generation_iterations
    share = 0.0 if total <= warmup else np.clip((iteration + per_generation - warmup) / (total - warmup), 0.0, 1.0)
    first = np.clip(base + share * spacing(cfg, 2), 0.0, 1.0)
    return np.stack([first, 1.0 - first], axis=1)


HISTORY = ("objs", "lam", "generation", "starts", "predicted", "bounds_share", "fitness_steps")
"""Fields of a record that the searches themselves do not hold."""


def search_to_arrays(search: Search, prefix: str) -> dict[str, np.ndarray]:
    """Return archive, graph and population of one seed as named arrays."""
    samples = search.samples
    parts = {"archive": vars(search.archive), "graph": vars(search.graph)}
    parts["samples"] = {"objs": samples.objs, "node": samples.node}
    arrays = {f"{prefix}{part}/{name}": value for part, named in parts.items() for name, value in named.items()}
    return arrays | tree_to_arrays(samples.members, f"{prefix}samples/member")


def search_from_arrays(
    arrays: Mapping[str, np.ndarray], prefix: str, reference: Float64[np.ndarray, " d"], one: Any
) -> Search:
    """Return the search that `search_to_arrays` saved; `one` holds any members, for the structure of a sample."""
    taken = lambda part, kind: kind(**{f.name: arrays[f"{prefix}{part}/{f.name}"] for f in fields(kind)})
    objs = arrays[f"{prefix}samples/objs"]
    like = jax.tree.map(lambda x: np.zeros((len(objs), *x.shape[1:]), x.dtype), one)
    members = arrays_to_tree(like, arrays, f"{prefix}samples/member")
    samples = Samples(members, objs, arrays[f"{prefix}samples/node"])
    return Search(reference, taken("archive", Archive), taken("graph", Graph), samples)


def record_to_arrays(record: SearchRecord, prefix: str) -> dict[str, np.ndarray]:
    """Return the history of a record as named arrays."""
    return {f"{prefix}{name}": getattr(record, name) for name in HISTORY}


def record_from_arrays(arrays: Mapping[str, np.ndarray], prefix: str, like: SearchRecord) -> SearchRecord:
    """Return the record `like` with the history that `record_to_arrays` returned."""
    return replace(like, **{name: arrays[f"{prefix}{name}"] for name in HISTORY})


def complete(record: SearchRecord, searches: list[Search]) -> SearchRecord:
    """Return the record with the archives and graphs of all seeds."""
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
