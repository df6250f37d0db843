"""The record of a search: its file, and what it says of archives and generations, on records made by hand."""

from dataclasses import fields, replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from qpensieve.records import search
from qpensieve.records.files import save_record
from qpensieve.records.search import SearchRecord
from qpensieve.report import results

REFERENCE = np.array([0.0, -10.0])
FIRST = [
    [[9.0, 9.0], [1.0, -1.0]],  # untrained: counts for nothing, however good
    [[1.0, -5.0], [-1.0, -1.0]],  # the second is not above the reference
    [[2.0, -6.0], [1.0, -6.0]],  # the second is dominated by (1, -5)
    [[3.0, -5.0], [0.0, -2.0]],  # the second is on the reference's edge; the first dominates (1, -5) and (2, -6)
    [[2.0, -4.0], [3.0, -5.0]],  # the second is there already
    [[1.0, -3.0], [2.0, -12.0]],  # the second is below the reference
]
"""Objectives of the first seed's two tasks: untrained, two iterations of warm-up, two of a generation, one more."""
GENERATION = [0, 0, 0, 1, 1, 2]
VOLUMES = [5.0, 1 * 5 + 1 * 4, 3 * 5, 3 * 5 + 2 * 1, 3 * 5 + 2 * 1 + 1 * 1]
"""Of the first seed's archive after every iteration, counted off by hand."""


def make_record(**changes: Any) -> SearchRecord:
    """Two seeds of two tasks; the second seed's objectives are twice as far from the reference as the first's."""
    first = np.array(FIRST)
    objs = np.stack([first, REFERENCE + 2 * (first - REFERENCE)], axis=1)
    lam = np.broadcast_to([0.25, 0.75], objs.shape).copy()
    starts = objs[[2, 4]]
    record = SearchRecord(
        reference=REFERENCE,
        objs=objs,
        lam=lam,
        generation=np.array(GENERATION),
        starts=starts,
        predicted=starts + 1.0,
        bounds_share=np.array([[0.1234, 0.5], [0.0, 1.0]]),
        fitness_steps=np.array([70, 90]),
        archive_objs=np.array([[3.0, -5.0], [2.0, -4.0], [1.0, -3.0], [6.0, 0.00004]]),
        archive_seed=np.array([0, 0, 0, 1]),
        archive_found_at=np.array([3, 4, 5, 3]),
        graph_objs=np.zeros((1, 2)),
        graph_lam=np.array([[0.6, 0.8]]),
        graph_parent=np.array([-1]),
        graph_seed=np.array([0]),
    )
    return replace(record, **changes)


def make_rows(rows: list[int], generation: list[int]) -> SearchRecord:
    """The record with these of its iterations, in these generations."""
    record = make_record()
    return replace(record, objs=record.objs[rows], lam=record.lam[rows], generation=np.array(generation))


class TestFile:
    def test_a_search_record_is_loaded_as_it_was_saved(self, tmp_path: Path):
        record = make_record(predicted=np.full((2, 2, 2, 2), np.nan))
        save_record(tmp_path / "search.npz", record)
        loaded = search.load(tmp_path / "search.npz")
        for field in fields(record):
            before, after = getattr(record, field.name), getattr(loaded, field.name)
            np.testing.assert_array_equal(before, after, err_msg=field.name)
            assert before.dtype == after.dtype

    def test_a_search_file_that_is_missing_or_damaged_is_named(self, tmp_path: Path):
        with pytest.raises(FileNotFoundError, match=r"search\.npz: only pgmorl and pfa"):
            search.load(tmp_path / "search.npz")
        np.savez(tmp_path / "search.npz", reference=REFERENCE)
        with pytest.raises(ValueError, match=r"search\.npz is damaged or holds no record"):
            search.load(tmp_path / "search.npz")


class TestArchive:
    @pytest.mark.parametrize(
        ("up_to", "expected"),
        [
            (0, []),
            (1, [(1, -5)]),
            (2, [(1, -5), (2, -6)]),
            (3, [(3, -5)]),
            (4, [(2, -4), (3, -5)]),
            (5, [(1, -3), (2, -4), (3, -5)]),
        ],
    )
    def test_the_archive_after_an_iteration_holds_what_no_policy_dominates(self, up_to: int, expected: list):
        archive = make_record().archive_of(0, up_to)
        assert archive.shape == (len(expected), 2)
        assert sorted(map(tuple, archive.tolist())) == expected

    def test_the_newest_archive_is_the_one_that_was_saved(self):
        np.testing.assert_array_equal(make_record().archive_of(0), [[3, -5], [2, -4], [1, -3]])
        np.testing.assert_array_equal(make_record().archive_of(1), [[6, 0.00004]])

    def test_the_archive_grows_in_hypervolume_as_counted_by_hand(self):
        record = make_record()
        assert [record.hypervolume_of(0, t) for t in range(6)] == pytest.approx([0.0, *VOLUMES])
        assert [record.hypervolume_of(1, t) for t in range(1, 6)] == pytest.approx([4 * v for v in VOLUMES])
        assert record.hypervolume_of(0) == pytest.approx(VOLUMES[-1])


class TestGenerations:
    def test_generations_are_counted_without_the_warm_up(self):
        record = make_record()
        assert (record.num_iterations, record.num_generations, record.num_seeds) == (5, 2, 2)

    def test_generations_end_at_their_last_iteration(self):
        assert make_record().generation_ends() == [2, 4, 5]
        assert make_rows([0, 1], [0, 0]).generation_ends() == [1]

    def test_before_the_first_iteration_no_generation_has_ended(self):
        record = make_rows([0], [0])
        assert record.num_iterations == 0
        assert record.generation_ends() == []
        reached, is_whole = record.reached()
        assert reached.shape == (0, 2, 2, 2)
        assert is_whole.shape == (0,)

    def test_generations_reach_what_their_last_iteration_measured(self):
        reached, is_whole = make_record().reached()
        np.testing.assert_array_equal(reached, make_record().objs[[4, 5]])
        assert is_whole.tolist() == [True, False]


def test_rows_are_added_to_a_record_that_starts_from_nothing():
    record = search.empty(REFERENCE, num_seeds=2, num_tasks=3)
    assert (record.num_iterations, record.num_generations, record.num_seeds) == (0, 0, 2)
    rows = np.arange(12.0).reshape(2, 3, 2)
    for generation in (0, 1):
        record = search.appended(record, objs=rows + generation, lam=-rows, generation=np.array(generation))
    np.testing.assert_array_equal(record.objs, [rows, rows + 1])
    np.testing.assert_array_equal(record.lam, [-rows, -rows])
    assert record.generation.tolist() == [0, 1]


def test_the_summary_tells_lengths_and_how_the_archive_grew():
    content = results.summarize_search(make_record())
    assert content == {
        "iterations": 5,
        "generations": 2,
        "generation_ends": [2, 4, 5],
        "tasks": 2,
        "fitness_steps_per_seed": [70, 90],
        "archive_size": [3, 1],
        "archive_hv": [[9.0, 17.0, 18.0], [36.0, 68.0, 72.0]],
        "archive": [[[3.0, -5.0], [2.0, -4.0], [1.0, -3.0]], [[6.0, 0.0]]],
        "bounds_share": [[0.123, 0.5], [0.0, 1.0]],
    }
