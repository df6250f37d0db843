"""The command `python -m benchmarks`: a table, a file, and errors in one sentence."""

import json
from pathlib import Path

import gymnasium
import pytest

from benchmarks import __main__ as command


@pytest.mark.lander
def test_prints_a_table_and_writes_json(capsys: pytest.CaptureFixture[str], tmp_path: Path):
    path = tmp_path / "figures" / "lanes.json"
    sizes = ["--lanes", "4", "--steps", "5", "--repeats", "2", "--domains", "DST2d", "Hopper2d", "LunarLander4d"]
    command.main(["lanes", *sizes, "--json", str(path)])
    assert "share" in capsys.readouterr().out
    content = json.loads(path.read_text())
    assert [row["domain"] for row in content["rows"]] == ["DST2d", "Hopper2d", "LunarLander4d"]
    assert content["rows"][0]["bare physics allows"] is None
    assert content["rows"][1]["ratio"] > 0
    assert content["provenance"]["packages"]["mujoco"]
    assert (content["benchmark"], content["settings"]["lanes"]) == ("lanes", 4)


@pytest.mark.parametrize("words", [["lane"], ["lanes", "--lans", "4"], ["collect", "--domains", "Ant2d"]])
def test_refuses_what_there_is_not(words: list[str]):
    with pytest.raises(SystemExit) as end:
        command.main(words)
    assert end.value.code


def test_lanes_names_what_to_install(monkeypatch: pytest.MonkeyPatch):
    def missing(*_: object, **__: object) -> None:
        raise gymnasium.error.DependencyNotInstalled("imageio")

    monkeypatch.setattr(gymnasium, "make", missing)
    with pytest.raises(SystemExit, match=r"Hopper-v4.*imageio.*pip install 'qpensieve\[dev\]'"):
        command.main(["lanes", "--domains", "Hopper2d"])
