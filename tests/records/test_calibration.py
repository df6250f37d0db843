"""What a calibration asks for, and its file."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from qpensieve.records import calibration
from qpensieve.records.calibration import Calibration
from qpensieve.records.files import FileError

LAM = np.array([[0.0, 1.0], [0.5, 0.5], [1.0, 0.0]])


def make(asks: list[list[int]], step: int = 100) -> Calibration:
    rows, seeds = np.array(asks), list(range(3, 3 + len(asks)))
    steps = np.full(len(asks), 700)
    return Calibration(step, seeds, LAM, rows, np.where(rows == np.arange(3), 0.0, 2.5), 98, steps)


class TestAsk:
    def test_ask_takes_the_entry_of_the_nearest_row_the_first_at_a_tie(self):
        known = make([[0, 2, 2], [1, 1, 1]])
        asked = known.ask(0, np.array([[0.1, 0.9], [0.25, 0.75], [0.3, 0.7], [0.6, 0.4], [0.9, 0.1]]))
        np.testing.assert_array_equal(asked, [[0.1, 0.9], [0.25, 0.75], [1.0, 0.0], [1.0, 0.0], [0.9, 0.1]])
        np.testing.assert_array_equal(known.ask(1, LAM), [[0.5, 0.5]] * 3)

    def test_ask_keeps_the_type_of_the_preferences(self):
        assert make([[0, 2, 2]]).ask(0, LAM.astype(np.float32)).dtype == np.float32

    def test_rows_of_a_table_are_those_to_ask_for(self):
        known, table = make([[0, 2, 2], [1, 1, 1]]), LAM[::-1].copy()
        rows = known.rows_of(table)
        assert rows is not None
        np.testing.assert_array_equal(rows, [[0, 0, 2], [1, 1, 1]])
        assert known.rows_of(LAM[:2].copy()) is None  # the first seed asks for the last row


class TestFile:
    def test_a_calibration_is_loaded_as_it_was_saved(self, tmp_path: Path):
        known = make([[0, 2, 2], [1, 1, 1]])
        calibration.save(tmp_path / "c.json", known)
        found = calibration.load(tmp_path / "c.json")
        assert found is not None
        assert found.to_dict() == known.to_dict()
        assert (found.step, found.seeds, found.episodes) == (100, [3, 4], 98)
        np.testing.assert_array_equal(found.gain, [[0.0, 2.5, 0.0], [2.5, 0.0, 2.5]])

    def test_no_calibration_is_loaded_without_a_file(self, tmp_path: Path):
        assert calibration.load(tmp_path / "c.json") is None

    def test_going_back_removes_what_is_later(self, tmp_path: Path):
        path = tmp_path / "c.json"
        calibration.cut(path, 0)
        calibration.save(path, make([[0, 2, 2]]))
        calibration.cut(path, 100)
        assert path.exists()
        calibration.cut(path, 99)
        assert not path.exists()
        path.write_text("{")
        calibration.cut(path, 0)
        assert path.exists()

    @pytest.mark.parametrize(
        ("name", "value"),
        [
            *[("format", 2), ("asks", [[0, 3, 0]]), ("asks", [[0, -1, 0]]), ("asks", [[0, 1]]), ("asks", "x")],
            *[("preferences", [[0.0, 1.0]]), ("preferences", [[0.5, None]] * 3), ("preferences", [0.5] * 3)],
            *[("seeds", [1, 2]), ("gain", []), ("environment_steps", [1, 2]), ("step", "x"), ("episodes", None)],
        ],
    )
    def test_a_calibration_that_does_not_fit_is_refused(self, name: str, value: Any, tmp_path: Path):
        path = tmp_path / "c.json"
        path.write_text(json.dumps(make([[0, 2, 2]]).to_dict() | {name: value}))
        with pytest.raises(FileError, match=r"c\.json"):
            calibration.load(path)

    def test_a_calibration_without_a_field_is_refused(self, tmp_path: Path):
        (tmp_path / "c.json").write_text(json.dumps({"format": 1}))
        with pytest.raises(FileError, match="seeds"):
            calibration.load(tmp_path / "c.json")
