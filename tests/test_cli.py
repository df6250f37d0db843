"""The command line: it lists, it measures, it explains itself."""

import json
import subprocess
import sys

import pytest

from qpensieve import cli
from qpensieve.envs import DOMAINS


def test_domains_lists_all_ten(capsys):
    cli.main(["domains"])
    out = capsys.readouterr().out
    assert all(name in out for name in DOMAINS)
    assert "(0.0, -4000.0)" in out


def test_domains_lists_those_with_indices_below_the_ten_and_says_who_takes_them(capsys):
    cli.main(["domains"])
    *table, remark = capsys.readouterr().out.splitlines()
    assert [line.split()[0] for line in table[2:]] == [*DOMAINS, "DeepSeaTreasure"]
    assert "DeepSeaTreasure is not one of the ten: its action is an index below 4" in remark
    assert "only --algo envelope" in remark


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


@pytest.mark.parametrize(
    ("words", "named"),
    [
        (["--help"], ["one policy for every trade-off", "domains", "List the ten domains", "bench", "version"]),
        (["bench", "--help"], ["qpensieve bench", "lanes", "Time lanes of environments"]),
        (["bench", "lanes", "--help"], ["--repeats", "the median is shown", "--json", "Also write the figures"]),
    ],
)
def test_help_names_commands_and_options_and_says_what_they_do(words: list[str], named: list[str], capsys):
    with pytest.raises(SystemExit) as end:
        cli.main(words)
    assert end.value.code == 0
    out = " ".join(word for word in capsys.readouterr().out.split() if word != "│")  # undo tyro's boxes and line breaks
    assert [text for text in named if text not in out] == []


def test_bench_lanes_says_what_to_install_where_imageio_is_missing():
    script = (
        "import sys\n"
        "sys.modules['imageio'] = None\n"
        "from qpensieve import cli\n"
        "cli.main(['bench', 'lanes', '--domains', 'Hopper2d'])\n"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, timeout=60)
    assert done.returncode == 1
    assert "Hopper-v4" in done.stderr
    assert "imageio" in done.stderr
    assert "pip install 'qpensieve[dev]'" in done.stderr
    assert "Traceback" not in done.stderr


def test_an_unknown_option_is_refused(capsys):
    with pytest.raises(SystemExit):
        cli.main(["bench", "lanes", "--lans", "4"])
    assert "--lanes" in capsys.readouterr().err
