"""The population and the choice of tasks, with members that are mere numbers."""

from dataclasses import replace

import numpy as np
import pytest

from qpensieve import metrics
from qpensieve.population import archive, pgmorl
from qpensieve.population.archive import Archive
from qpensieve.population.pgmorl import OWN, PgmorlConfig, Samples, Search

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
    return replace(search, archive=archive.update(search.archive, new, search.reference))


def grown() -> Search:
    """Two rounds of five tasks: training under lam raises objective 1 by 10 lam_1, objective 2 by 10 lam_2."""
    search, parents = empty(), np.full(5, -1)
    objs = np.tile([20.0, -30.0], (5, 1))
    for _ in range(3):
        graph, parents = pgmorl.add_nodes(search.graph, GRID, objs, parents)
        search = replace(search, graph=graph)
        objs = objs + 10.0 * GRID
    reached = search.graph.objs[parents]
    search = archived(search, reached)
    return pgmorl.join(CFG, search, replace(samples(reached), node=parents))


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


def test_negative_objectives_are_kept():
    """From the origin, where time costs, nothing would be."""
    kept = pgmorl.join(CFG, empty(), samples(np.array([[8.2, -3.0], [23.7, -11.0]]))).samples
    assert len(kept.objs) == 2


def test_tasks_follow_the_prediction():
    search = grown()
    tasks = pgmorl.propose(CFG, search, GRID, np.random.default_rng(0))
    assert (tasks.source != OWN).all()
    assert np.isfinite(tasks.predicted).all()
    np.testing.assert_allclose(tasks.lam.sum(axis=1), 1.0)
    # The model has seen what preferences change here: nothing falls, and most of what is predicted is near the truth.
    start = search.samples.objs[tasks.source]
    assert (tasks.predicted - start > -1.0).all()
    np.testing.assert_allclose(tasks.predicted - start, 10.0 * tasks.lam, atol=2.5)
    pairs = {(source, *lam) for source, lam in zip(tasks.source.tolist(), tasks.lam.round(6).tolist(), strict=True)}
    assert len(pairs) == 5
    assert 0.0 <= tasks.bounds_share <= 1.0


def test_an_empty_population_lets_every_task_go_on():
    tasks = pgmorl.propose(CFG, empty(), GRID, np.random.default_rng(0))
    assert (tasks.source == OWN).all()
    np.testing.assert_array_equal(tasks.lam, GRID)
    assert np.isnan(tasks.predicted).all()


def test_tasks_without_a_candidate_go_on():
    """One sample with one preference left to try, five tasks."""
    search = grown()
    few = Samples(
        {name: value[:1] for name, value in search.samples.members.items()},
        search.samples.objs[:1],
        search.samples.node[:1],
    )
    tasks = pgmorl.propose(PgmorlConfig(num_candidates=1), replace(search, samples=few), GRID, np.random.default_rng(0))
    assert (tasks.source == [0, OWN, OWN, OWN, OWN]).all()
    np.testing.assert_array_equal(tasks.lam[1:], GRID[1:])


def test_gaps_in_the_front_count_against_it():
    """A front with a gap: with a large weight, and only with the right sign, a task is sent into it."""
    search = archived(grown(), np.array([[2.0, -2.0], [60.0, -45.0]]))
    stream = np.random.default_rng(0)
    filled, open_ = (
        pgmorl.propose(replace(CFG, sparsity_weight=weight), search, GRID, stream) for weight in (1e6, -1e6)
    )
    spread = lambda tasks: metrics.sparsity(np.concatenate([search.archive.objs, tasks.predicted]))
    assert spread(filled) < spread(open_)


def test_a_preference_is_not_tried_twice_from_the_same_policy():
    search, stream = grown(), np.random.default_rng(0)
    first = pgmorl.propose(CFG, search, GRID, stream)
    nodes = search.samples.node[first.source]
    graph, _ = pgmorl.add_nodes(search.graph, first.lam, first.predicted, nodes)
    again = pgmorl.propose(CFG, replace(search, graph=graph), GRID, stream)
    pairs = lambda tasks: {
        (source, *lam) for source, lam in zip(tasks.source.tolist(), tasks.lam.round(5).tolist(), strict=True)
    }
    assert not pairs(first) & pairs(again)


def test_the_archives_volume_is_measured_from_the_reference():
    assert empty().hypervolume == 0.0
    assert archived(empty(), np.array([[10.0, -40.0]])).hypervolume == pytest.approx(100.0)
