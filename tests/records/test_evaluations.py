"""Tests of the table of evaluations and its file."""

from pathlib import Path

import numpy as np
import pytest

from qpensieve.records import evaluations
from qpensieve.records.evaluations import Evaluations
from qpensieve.records.folder import EVALUATIONS

SHORT = np.array([[1.0, 0.0], [0.5, 0.5]])
CURVE = np.array([[0.1, 0.9]])
FULL = np.array([[1.0, 0.0], [0.5, 0.5], [0.0, 1.0]])
REFERENCE = np.array([0.0, -50.0])
SEEDS = 2


def block(rows: int, episodes: int, start: float = 0.0) -> np.ndarray:
    return start + np.arange(SEEDS * rows * episodes * 2, dtype=np.float64).reshape(SEEDS, rows, episodes, 2)


def small_table(reference: np.ndarray | None = REFERENCE) -> Evaluations:
    table = evaluations.empty(SEEDS, SHORT, CURVE, FULL, reference)
    for step in (100, 200, 300):
        table = evaluations.append_short(table, step, block(2, 2, step), block(1, 3, step))
    for step in (150, 300):
        table = evaluations.append_full(table, step, block(3, 4, step))
    return table


def assert_equal(table: Evaluations, other: Evaluations) -> None:
    for name, array in vars(table).items():
        np.testing.assert_array_equal(array, getattr(other, name), err_msg=name)


@pytest.mark.parametrize(("rows", "episodes"), [(2, 4), (3, 5)])
def test_returns_of_another_shape_are_refused(rows: int, episodes: int):
    with pytest.raises(ValueError, match=r"full returns must have shape .* \(2, 3, 4, 2\), got"):
        evaluations.append_full(small_table(), 400, block(rows, episodes))


def test_cut_drops_what_came_after_the_step():
    table = evaluations.cut(small_table(), 200)
    np.testing.assert_array_equal(table.short_steps, [100, 200])
    np.testing.assert_array_equal(table.full_steps, [150])
    assert table.short_returns.shape[0] == table.curve_returns.shape[0] == 2
    assert table.full_returns.shape[0] == 1


@pytest.mark.parametrize(("step", "steps"), [(100, [100, 150, 300]), (200, [150, 200, 300]), (400, [150, 300, 400])])
def test_a_full_evaluation_is_put_in_its_place_and_the_others_stay(step: int, steps: list[int]):
    table = evaluations.append_full(small_table(), step, block(3, 4, step))
    assert table.full_steps.tolist() == steps
    for row, at in enumerate(steps):
        np.testing.assert_array_equal(table.full_returns[row], block(3, 4, at))
    with pytest.raises(ValueError, match=f"there is a full evaluation at step {step} already"):
        evaluations.append_full(table, step, block(3, 4))


@pytest.mark.parametrize("reference", [REFERENCE, None])
def test_a_saved_table_loads_the_same_and_leaves_no_other_file(tmp_path: Path, reference: np.ndarray | None):
    path = tmp_path / EVALUATIONS
    evaluations.save(path, evaluations.cut(small_table(reference), 100))
    evaluations.save(path, small_table(reference))
    assert_equal(evaluations.load(path), small_table(reference))
    assert list(path.parent.iterdir()) == [path]


def test_a_missing_file_is_named(tmp_path: Path):
    path = tmp_path / "e.npz"
    with pytest.raises(FileNotFoundError, match=r"no evaluations at .*e\.npz: .* is not a run folder"):
        evaluations.load(path)
    (tmp_path / "config.json").touch()
    with pytest.raises(FileNotFoundError, match=f"has not been evaluated yet; 'qpensieve evaluate {tmp_path}'"):
        evaluations.load(path)
    (tmp_path / "metrics.jsonl").write_text('{"event": "train", "step": 1}\n{"event": "evaluation", "step": 1}\n')
    with pytest.raises(FileNotFoundError, match=f"though the log says .* put it back, or .*evaluate {tmp_path}'"):
        evaluations.load(path)


@pytest.mark.parametrize(
    "change",
    [
        {"short_steps": np.arange(2)},
        {"full_preferences": np.ones((3, 3)) / 3},
        {"curve_returns": np.zeros((3, 1, 1, 3, 2))},
        {"short_returns": np.zeros((3, 2))},
        {"reference": np.zeros(3)},
        {"full_steps": None},
    ],
    ids=lambda change: next(iter(change)),
)
def test_arrays_that_do_not_fit_each_other_are_refused(tmp_path: Path, change: dict):
    arrays = {name: array for name, array in (vars(small_table()) | change).items() if array is not None}
    np.savez(tmp_path / "e.npz", **arrays)
    with pytest.raises(ValueError, match="damaged"):
        evaluations.load(tmp_path / "e.npz")
