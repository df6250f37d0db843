"""A run as one small JSON file."""

import json

import numpy as np
import pytest

from qpensieve import cli
from qpensieve.records import evaluations as tables
from qpensieve.records.folder import EVALUATIONS

LAM = np.array([[0.0, 1.0], [0.5, 0.5], [1.0, 0.0]])


def _make_run(folder):
    returns = np.zeros((2, 3, 4, 2))
    returns[1, :, :, 0] = [[1, 2, 3, 4], [5, 5, 5, 5], [8, 8, 8, 8]]
    table = tables.empty(2, LAM, np.zeros((0, 2)), LAM, np.array([-1.0, -1.0]))
    table = tables.append_short(table, 100, returns[:, :, :2], np.zeros((2, 0, 2, 2)))
    tables.save(folder / EVALUATIONS, tables.append_full(table, 200, returns))
    (folder / "config.json").write_text(json.dumps({"domain": "DST2d"}))
    (folder / "environment.json").write_text(json.dumps({"device": "cpu"}))


def test_a_folder_in_place_of_the_file_is_named(tmp_path, capsys):
    _make_run(tmp_path)
    with pytest.raises(SystemExit):
        cli.main(["export", str(tmp_path), "--out", str(tmp_path)])
    assert f"out must be a file such as run.json, but {tmp_path} is a folder" in capsys.readouterr().err


def test_a_run_is_not_exported_over_itself(tmp_path, capsys):
    _make_run(tmp_path)
    before = (tmp_path / "config.json").read_text()
    with pytest.raises(SystemExit):
        cli.main(["export", str(tmp_path), "--out", str(tmp_path / "config.json")])
    assert "config.json is part of a run: choose another file, such as run.json" in capsys.readouterr().err
    assert (tmp_path / "config.json").read_text() == before


def test_scores_and_mean_returns_of_every_evaluation_are_written(tmp_path, capsys):
    _make_run(tmp_path)
    cli.main(["export", str(tmp_path), "--out", str(tmp_path / "deep" / "run.json")])
    content = json.loads((tmp_path / "deep" / "run.json").read_text())
    assert str(tmp_path / "deep" / "run.json") in capsys.readouterr().out
    assert content["config"] == {"domain": "DST2d"}
    assert content["provenance"] == {"device": "cpu"}
    assert [row["step"] for row in content["short_protocol"]] == [100]
    (full,) = content["full_protocol"]
    assert (full["step"], full["episodes"]) == (200, 4)
    assert full["mean_returns"][1] == [[2.5, 0.0], [5.0, 0.0], [8.0, 0.0]]
    np.testing.assert_allclose(full["ut"], [0.0, (0.5 * 5 + 8) / 3], rtol=1e-5)
    # Of few preferences, as here, the short protocol's returns are kept: they are curves of single agents.
    assert np.shape(content["short_protocol"][0]["mean_returns"]) == (2, 3, 2)
