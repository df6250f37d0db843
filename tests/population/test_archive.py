"""The archive against the double loop, hand-computed fronts and volumes, and objectives below zero."""

from dataclasses import fields
from typing import Any

import numpy as np
import pytest

from qpensieve.population import archive as archives
from qpensieve.population.archive import Archive
from tests.oracles import pareto as oracle

DST = np.array([0.0, -50.0])
DST_FRONT = [[0.7, -2], [8.2, -3], [11.5, -4], [15.1, -5], [16.1, -6], [20.3, -8], [22.4, -10], [23.7, -11]]


def _found(objs: Any, first: int = 0) -> Archive:
    """Policies with these objectives; all their other fields tell which row they were."""
    objs = np.asarray(objs, np.float64)
    rows = first + np.arange(len(objs))
    return Archive(objs, np.stack([rows, -rows], axis=1).astype(np.float32), rows, np.stack([rows] * 2, 1) / 100.0)


def _assert_rows(archive: Archive, rows: list[int]) -> None:
    assert archive.found_at.tolist() == rows
    np.testing.assert_array_equal(archive.policies[:, 0], rows)
    np.testing.assert_array_equal(archive.policies[:, 1], -np.array(rows))
    np.testing.assert_array_equal(archive.lam[:, 0], np.array(rows) / 100.0)


def test_an_empty_archive_has_the_shapes_of_a_full_one():
    archive = archives.empty(3, 7)
    assert [getattr(archive, field.name).shape for field in fields(archive)] == [(0, 3), (0, 7), (0,), (0, 3)]
    assert archives.hypervolume(archive, np.zeros(3)) == 0.0


def test_the_non_dominated_stay_in_the_order_they_came():
    first = archives.update(archives.empty(2, 2), _found([[3, 1], [1, 3], [0.5, 0.5]]), np.zeros(2))
    _assert_rows(first, [0, 1])
    second = archives.update(first, _found([[2, 2], [1, 4], [2, 1]], first=10), np.zeros(2))
    _assert_rows(second, [0, 10, 11])
    np.testing.assert_array_equal(second.objs, [[3, 1], [2, 2], [1, 4]])


def test_of_equal_objectives_the_earlier_policy_stays():
    old = archives.update(archives.empty(2, 2), _found([[1, 2], [1, 2], [2, 1]]), np.zeros(2))
    _assert_rows(archives.update(old, _found([[2, 1], [1, 2]], first=10), np.zeros(2)), [0, 2])


def test_only_what_is_above_the_reference_in_every_objective_enters():
    new = _found([[5, -50], [0, -10], [5, -50.5], [-1, -10], [1e-9, -49.999]])
    _assert_rows(archives.update(archives.empty(2, 2), new, DST), [4])


def test_objectives_below_zero_fill_the_archive_above_their_reference():
    """Measured from the origin, time penalties and control costs would leave it empty (trap 1)."""
    new = _found(DST_FRONT)
    archive = archives.update(archives.empty(2, 2), new, DST)
    np.testing.assert_array_equal(archive.objs, new.objs)
    assert archives.hypervolume(archive, DST) == pytest.approx(1055.0, abs=1e-9)
    assert len(archives.update(archives.empty(2, 2), new, np.zeros(2)).objs) == 0


def test_volumes_that_common_routines_get_wrong():
    """A reference that is not negated with the points gives 0, dominated points left in give 10."""
    archive = archives.update(archives.empty(2, 2), _found([[3, -5], [5, -20]]), DST)
    assert archives.hypervolume(archive, DST) == pytest.approx(195.0)
    raw = _found([[1, 5], [2, 1], [3, 4]])
    assert archives.hypervolume(raw, np.zeros(2)) == pytest.approx(13.0)
    archive = archives.update(archives.empty(2, 2), raw, np.zeros(2))
    _assert_rows(archive, [0, 2])
    assert archives.hypervolume(archive, np.zeros(2)) == pytest.approx(13.0)


@pytest.mark.parametrize("d", [2, 3, 5])
def test_generations_of_updates_keep_what_the_double_loop_keeps_of_all_and_the_volume_never_falls(d: int):
    rng = np.random.default_rng(d)
    reference, volume = np.full(d, -2.0), 0.0
    archive, seen = archives.empty(d, 1), []
    for generation in range(8):
        objs = rng.integers(-3, 3, size=(9, d)).astype(np.float64) * 0.5
        at = 9 * generation + np.arange(9)
        archive = archives.update(archive, Archive(objs, at[:, None].astype(np.float32), at, objs + 7.0), reference)
        seen += objs.tolist()
        inside = [i for i, point in enumerate(seen) if min(point) > -2.0]
        mask = oracle.is_non_dominated([seen[i] for i in inside])
        assert archive.found_at.tolist() == [i for i, kept in zip(inside, mask, strict=True) if kept]
        np.testing.assert_array_equal(archive.objs, np.array(seen)[archive.found_at])
        np.testing.assert_array_equal(archive.lam, archive.objs + 7.0)
        np.testing.assert_array_equal(archive.policies[:, 0], archive.found_at)
        assert archives.hypervolume(archive, reference) >= volume - 1e-9
        volume = archives.hypervolume(archive, reference)
    assert volume > 0.0


@pytest.mark.parametrize("bad", [np.nan, np.inf])
def test_objectives_that_are_not_finite_are_refused(bad: float):
    with pytest.raises(ValueError, match=r"objs must be finite, row 1"):
        archives.update(archives.empty(2, 2), _found([[1, 2], [bad, 1]]), np.zeros(2))


def test_the_best_policy_of_a_preference_by_hand():
    """(23.7, -11) wins from a treasure weight of 0.4688 on, (0.7, -2) below 0.1176."""
    objs = np.array(DST_FRONT)
    lam = np.array([[first, 1.0 - first] for first in (0.0, 0.11, 0.12, 0.46, 0.47, 1.0)])
    assert archives.best(objs, lam).tolist() == [0, 0, 1, 5, 7, 7]


def test_of_equally_good_policies_the_first_is_the_best():
    objs = np.array([[0.0, 1.0], [2.0, 0.0], [0.0, 2.0], [2.0, 0.0]])
    assert archives.best(objs, np.array([[0.5, 0.5], [1.0, 0.0]])).tolist() == [1, 1]


def test_an_empty_archive_has_no_best_policy():
    with pytest.raises(ValueError, match="the archive is empty"):
        archives.best(np.empty((0, 2)), np.array([[0.5, 0.5]]))
