"""`critic.json`: what is added stays, what is measured again is replaced, and nothing but numbers is read."""

import json
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import pytest

from qpensieve.records import critic_errors
from qpensieve.records.critic_errors import CriticErrors, CriticRow
from qpensieve.records.files import FileError
from qpensieve.records.folder import LinkError


def make_row(step: int = 100, lam: tuple[float, float] = (0.1, 0.9), error: float = 3.0, **changes: Any) -> CriticRow:
    """A row of two seeds."""
    both = [error, error + 2.0]
    per_seed: dict[str, Any] = dict.fromkeys(("error", "error_se", "noise", "rms", "value", "return_se"), both)
    per_seed |= dict.fromkeys(("scalar_bias", "scalar_bias_se", "rest", "ended"), both)
    per_seed |= {name: [[1.0, -2.0], [3.0, -4.0]] for name in ("bias", "bias_se", "twins")}
    row = CriticRow(step, list(lam), "policy", 64, 4, 0, **per_seed, horizon=[700, 800])
    return replace(row, **changes)


def make_errors(*rows: CriticRow, **changes: Any) -> CriticErrors:
    errors = CriticErrors("Hopper2d", "qpensieve", [0, 1], 0.99, ["forward", "control"], list(rows))
    return replace(errors, **changes)


def test_measurements_are_added_in_order_and_replaced_by_new_ones(tmp_path: Path):
    path = tmp_path / "critic.json"
    late, early = make_row(200), make_row(100)
    assert critic_errors.add(path, make_errors(late)) == make_errors(late)
    uniform = replace(late, actions="uniform")
    again = replace(late, seed=7, error=[9.0, 9.0])
    critic_errors.add(path, make_errors(early, uniform))
    critic_errors.add(path, make_errors(again))
    assert critic_errors.load(path) == make_errors(early, again, uniform)


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"error": [1.0]}, "error must have an entry for each of 2 seeds"),
        ({"error": [1.0, "x"]}, "error must be finite numbers, got"),
        ({"bias": [[1.0, None], [1.0, 2.0]]}, "bias must be finite numbers, got"),
        ({"noise": [1.0, float("nan")]}, "noise must be finite numbers, got"),
        ({"preference": "lam"}, "preference must be finite numbers"),
        ({"step": "soon"}, "invalid literal"),
    ],
)
def test_rows_that_are_not_right_are_refused(tmp_path: Path, changes: dict[str, Any], words: str):
    path = tmp_path / "critic.json"
    content = {"format": 1, **asdict(make_errors(make_row()))}
    content["rows"][0] |= changes
    path.write_text(json.dumps(content))
    with pytest.raises(FileError, match=f"critic.json as errors of critics.*{words}"):
        critic_errors.load(path)


def test_a_file_of_another_format_or_without_a_field_is_refused(tmp_path: Path):
    path = tmp_path / "critic.json"
    path.write_text(json.dumps({"format": 2}))
    with pytest.raises(FileError, match="its format must be 1, got 2"):
        critic_errors.load(path)
    path.write_text(json.dumps({"format": 1, "seeds": [0], "rows": [{"step": 1}]}))
    with pytest.raises(FileError, match="'actions' is missing"):
        critic_errors.load(path)


def test_nothing_is_written_through_a_link(tmp_path: Path):
    (tmp_path / "critic.json").symlink_to(tmp_path / "elsewhere")
    with pytest.raises(LinkError):
        critic_errors.add(tmp_path / "critic.json", make_errors(make_row()))
