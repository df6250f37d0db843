"""The command `qpensieve theory`, without the command line."""

import json

from qpensieve.theory import command


def test_the_command_draws_two_pictures_and_prints_the_broken_lines(tmp_path, capsys):
    command.theory(command.Settings(tmp_path, "random", preferences=5, iterations=4, states=4, actions=2))
    assert {path.name for path in tmp_path.iterdir()} == {"theory-gap.png", "theory-front.png", "theory.json"}
    shown = capsys.readouterr()
    for words in ("line 4 <= line 5, as printed", "line 5 <= line 6, as meant", "1.3466", "1.0199", "buffer 6"):
        assert words in shown.out
    assert "steps" in shown.err
    content = json.loads((tmp_path / "theory.json").read_text())
    assert content["settings"]["mdp"] == "random"
    assert content["provenance"]["packages"]["numpy"]


def test_the_study_writes_intervals_and_seeds(tmp_path, capsys, monkeypatch):
    exact = command.experiment.settings()[:1]
    monkeypatch.setattr(command.experiment, "settings", lambda: exact)
    command.run_study(tmp_path / "study.json", num_random=3, seed=1)
    content = json.loads((tmp_path / "study.json").read_text())
    assert content["settings"]["seed"] == 1
    assert all(row["minus low"] <= row["minus naive"] <= row["minus high"] for row in content["rows"])
    assert "full envelope" in capsys.readouterr().out
