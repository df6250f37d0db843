"""The command line: it lists, it measures, it explains itself."""

import json

import pytest

from qpensieve import cli
from qpensieve.envs import DOMAINS


def test_domains_lists_all_ten(capsys):
    cli.main(["domains"])
    out = capsys.readouterr().out
    assert all(name in out for name in DOMAINS)
    assert "(0.0, -4000.0)" in out


def test_bench_lanes_prints_a_table_and_writes_json(capsys, tmp_path):
    path = tmp_path / "figures" / "lanes.json"
    sizes = ["--lanes", "4", "--steps", "5", "--repeats", "2"]
    cli.main(["bench", "lanes", *sizes, "--json", str(path), "--domains", "DST2d", "Hopper2d", "LunarLander4d"])
    assert "share around physics" in capsys.readouterr().out
    content = json.loads(path.read_text())
    assert [row["domain"] for row in content["rows"]] == ["DST2d", "Hopper2d", "LunarLander4d"]
    assert content["rows"][0]["bare physics allows"] is None
    assert content["rows"][1]["ratio"] > 0
    assert content["provenance"]["packages"]["mujoco"]
    assert content["settings"]["lanes"] == 4


@pytest.mark.parametrize("words", [["--help"], ["bench", "--help"], ["bench", "lanes", "--help"]])
def test_help_explains(words: list[str], capsys):
    with pytest.raises(SystemExit):
        cli.main(words)
    assert "lanes" in capsys.readouterr().out or words == ["--help"]


def test_an_unknown_option_is_refused(capsys):
    with pytest.raises(SystemExit):
        cli.main(["bench", "lanes", "--lans", "4"])
    assert "--lanes" in capsys.readouterr().err
