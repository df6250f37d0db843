"""The population and the choice of tasks, with members that are mere numbers; PFA's preferences; the warm-up's grid."""

from dataclasses import replace

import numpy as np
import pytest

from qpensieve import metrics
from qpensieve.population import pgmorl, prediction
from qpensieve.population.members import Archive
from qpensieve.population.pgmorl import OWN, PgmorlConfig, Samples, Search, StagesConfig
from qpensieve.types import EnvSpec

REFERENCE = np.array([0.0, -50.0])
CFG = PgmorlConfig(num_buffers=4, buffer_size=2)
GRID = np.array([[0.0, 1.0], [0.25, 0.75], [0.5, 0.5], [0.75, 0.25], [1.0, 0.0]])


def samples(objs: np.ndarray) -> Samples:
    """Members that carry their own objectives, so that a swapped row shows."""
    members = {"weights": objs.astype(np.float32) * 2, "count": np.arange(len(objs))}
    return Samples(members, objs, np.arange(len(objs)))


def empty() -> Search:
    return pgmorl.empty_search(REFERENCE, 3, samples(np.zeros((5, 2))).members)


def archived(search: Search, objs: np.ndarray) -> Search:
    num = len(objs)
    new = Archive(objs, np.zeros((num, 3), np.float32), np.arange(num), np.full((num, 2), 0.5))
    return replace(search, archive=search.archive.updated(new, search.reference))


def grown() -> Search:
    """Two rounds of five tasks: training under lam raises objective 1 by 10 lam_1, objective 2 by 10 lam_2."""
    search, parents = empty(), np.full(5, -1)
    objs = np.tile([20.0, -30.0], (5, 1))
    for _ in range(3):
        graph, parents = prediction.add_nodes(search.graph, GRID, objs, parents)
        search = replace(search, graph=graph)
        objs = objs + 10.0 * GRID
    reached = search.graph.objs[parents]
    search = archived(search, reached)
    return pgmorl.join(CFG, search, replace(samples(reached), node=parents))


def propose(search: Search, cfg: PgmorlConfig = CFG) -> pgmorl.Tasks:
    return pgmorl.propose(cfg, search, GRID, np.random.default_rng(0))


def pairs(tasks: pgmorl.Tasks) -> set[tuple[float, ...]]:
    return {(source, *lam) for source, lam in zip(tasks.source.tolist(), tasks.lam.round(5).tolist(), strict=True)}


def test_nodes_are_numbered_on_and_know_their_parents():
    search = grown()
    assert search.graph.parent.tolist() == [-1] * 5 + list(range(10))
    np.testing.assert_allclose(search.graph.delta[5:10], 10.0 * GRID)
    np.testing.assert_allclose(np.linalg.norm(search.graph.lam, axis=1), 1.0)


def test_the_population_keeps_the_farthest_whatever_the_order_and_members_stay_with_their_rows():
    objs = np.random.default_rng(0).uniform([-5.0, -60.0], [30.0, 0.0], (60, 2))
    at_once = pgmorl.join(CFG, empty(), samples(objs)).samples
    piecewise = empty()
    for part in np.array_split(np.random.default_rng(1).permutation(60), 7):
        piecewise = pgmorl.join(CFG, piecewise, samples(objs[part]))
    as_set = lambda rows: {tuple(row) for row in rows.tolist()}
    assert as_set(at_once.objs) == as_set(piecewise.samples.objs)
    assert 0 < len(at_once.objs) <= 8
    for kept in (at_once, piecewise.samples):
        np.testing.assert_array_equal(kept.members["weights"], kept.objs.astype(np.float32) * 2)
        assert (kept.objs > REFERENCE).all()


def test_tasks_follow_the_prediction():
    search = grown()
    tasks = propose(search)
    assert (tasks.source != OWN).all()
    np.testing.assert_allclose(tasks.lam.sum(axis=1), 1.0)
    # The model has seen what preferences change here: nothing falls, and most of what is predicted is near the truth.
    start = search.samples.objs[tasks.source]
    assert (tasks.predicted - start > -1.0).all()
    np.testing.assert_allclose(tasks.predicted - start, 10.0 * tasks.lam, atol=2.5)
    assert len(pairs(tasks)) == 5
    assert 0.0 <= tasks.bounds_share <= 1.0


def test_tasks_without_a_candidate_continue():
    """An empty population; then one sample with one preference left to try, for five tasks."""
    tasks = propose(empty())
    assert (tasks.source == OWN).all()
    np.testing.assert_array_equal(tasks.lam, GRID)
    assert np.isnan(tasks.predicted).all()
    search = grown()
    some = search.samples
    few = Samples({name: value[:1] for name, value in some.members.items()}, some.objs[:1], some.node[:1])
    tasks = propose(replace(search, samples=few), PgmorlConfig(num_candidates=1))
    assert (tasks.source == [0, OWN, OWN, OWN, OWN]).all()
    np.testing.assert_array_equal(tasks.lam[1:], GRID[1:])


def test_gaps_in_the_front_count_against_it():
    """A front with a gap: with a large weight, and only with the right sign, a task is sent into it."""
    search = archived(grown(), np.array([[2.0, -2.0], [60.0, -45.0]]))
    filled, open_ = (propose(search, replace(CFG, sparsity_weight=weight)) for weight in (1e6, -1e6))
    spread = lambda tasks: metrics.sparsity(np.concatenate([search.archive.objs, tasks.predicted]))
    assert spread(filled) < spread(open_)


def test_a_preference_is_not_tried_twice_from_the_same_policy():
    search = grown()
    first = propose(search)
    nodes = search.samples.node[first.source]
    graph, _ = prediction.add_nodes(search.graph, first.lam, first.predicted, nodes)
    assert not pairs(first) & pairs(propose(replace(search, graph=graph)))


# PFA


BASE = GRID[:, 0]


def _slide(iteration: int, total: int, warmup: int = 80, base: np.ndarray = BASE) -> np.ndarray:
    stages = StagesConfig(warmup_iterations=warmup, generation_iterations=20)
    return pgmorl.sliding_preferences(stages, iteration, total, base)


@pytest.mark.parametrize(
    ("iteration", "first"),
    [
        (80, [0.0175, 0.2675, 0.5175, 0.7675, 1.0]),
        (100, [0.0350, 0.2850, 0.5350, 0.7850, 1.0]),
        (340, [0.2448, 0.4948, 0.7448, 0.9948, 1.0]),
        (360, [0.25, 0.5, 0.75, 1.0, 1.0]),
    ],
)
def test_the_worked_example(iteration: int, first: list[float]):
    """366 iterations, 80 of them warm-up, 20 a generation: the first share is 20 / 286, the 15th and last is 1."""
    lam = _slide(iteration, 366)
    np.testing.assert_allclose(lam[:, 0], first, atol=5e-5)
    np.testing.assert_allclose(lam.sum(axis=1), 1.0, rtol=1e-15)
    shuffled = np.array([3, 0, 4, 1, 2])
    np.testing.assert_array_equal(_slide(iteration, 366, base=BASE[shuffled]), lam[shuffled])


@pytest.mark.parametrize(("iteration", "total"), [(80, 80), (80, 36), (0, 36), (0, 366), (60, 366)])
def test_warm_up_has_the_preferences_of_the_grid(iteration: int, total: int):
    """Also where the whole run is warm-up, whose length would be divided by otherwise."""
    np.testing.assert_array_equal(_slide(iteration, total), GRID)


# The warm-up's grid and the reference


@pytest.mark.parametrize(("d", "num_tasks", "gap"), [(2, 5, 1 / 4), (3, 15, 1 / 4), (4, 35, 1 / 4), (5, 35, 1 / 3)])
def test_there_are_as_many_tasks_as_in_the_papers_table(d: int, num_tasks: int, gap: float):
    grid = pgmorl.warmup_preferences(StagesConfig(), d)
    assert len(np.unique(grid, axis=0)) == len(grid) == pgmorl.num_tasks(StagesConfig(), d) == num_tasks
    np.testing.assert_allclose(grid.sum(axis=1), 1.0)
    assert pgmorl.spacing(StagesConfig(), d) == gap
    np.testing.assert_allclose(np.round(grid / gap), grid / gap, atol=1e-9)


def test_policies_must_exceed_a_point_that_someone_sets():
    spec = lambda d, reference: EnvSpec("Somewhere", 3, 1, tuple("abcde"[:d]), reference, 100)
    np.testing.assert_array_equal(pgmorl.reference_of(spec(2, (0.0, -50.0))), [0.0, -50.0])
    with pytest.raises(ValueError, match=r"reference must be given for Somewhere, .* \(--reference\) to 3 numbers"):
        pgmorl.reference_of(spec(3, None))
