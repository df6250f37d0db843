"""The commands `qpensieve paper` and `qpensieve sweep`, from the words to the files."""

import html
import os
import sys
from dataclasses import replace
from pathlib import Path

import jax
import pytest

from qpensieve.cli import main
from qpensieve.config import override
from qpensieve.experiments import commands, tasks
from qpensieve.experiments.local import Local
from qpensieve.records.files import write_json
from tests.experiments.test_schedule import Pretended
from tests.experiments.test_views import write_results

SWEEP = """
[run]
preset = "quick"
seeds = 1
steps = 200
random_steps = 100
hidden = 16
batch_size = 16
eval_period = 100
parameters_period = 100
eval_stride = 50
full_eval_stride = 50
full_eval_episodes = 1
push_after = 50
push_period = 50
updates_per_step = 1
[grid]
domain = ["DST2d"]
num_snapshots = [0, 2]
"""


def run(*words: str) -> None:
    main(list(words))


def test_list_plan_and_status_name_runs_and_costs(capsys: pytest.CaptureFixture[str], tmp_path: Path):
    run("paper", "list")
    text = capsys.readouterr().out
    assert "push-interval" in text
    assert "79 runs in all" in text
    words = ("envelope", "--only", "DST2d", "--out", str(tmp_path))
    run("paper", "plan", *words)
    text = capsys.readouterr().out
    for part in ("DST2d-envelope-s0-4", "2 runs in", "on 64 H200s"):
        assert part in text
    run("paper", "status", *words)
    assert "0 of 2 done" in capsys.readouterr().out


def test_a_folder_of_other_settings_is_not_done_and_never_run_into(capsys: pytest.CaptureFixture[str], tmp_path: Path):
    words = ("growth", "--scale", "smoke", "--only", "Hopper2d", "--out", str(tmp_path))
    planned = commands.Choice("smoke", only=("Hopper2d",), names=("growth",), out=tmp_path).plan()
    for task in planned.tasks:
        other = override(task.config, {"learning_rate": 0.5}) if task is planned.tasks[0] else task.config
        tasks.prepare(replace(task, config=other))
        write_json(task.folder / "summary.json", {"step": task.config.steps})
    name, num = planned.tasks[0].name, len(planned.tasks)
    before = {path: path.read_bytes() for path in tmp_path.rglob("*.json")}
    counts = {"status": f"{num - 1} of {num} done  1 with other settings\n", "plan": f"{num - 1} of them done."}
    for command, count in counts.items():
        run("paper", command, *words)
        text = capsys.readouterr().out
        assert count in text
        assert f"{name} holds a run with other settings (learning_rate was 0.5, is 0.0003): " in text
    with pytest.raises(SystemExit):
        run("paper", "run", *words)
    assert "holds a run with other settings: learning_rate was 0.5" in capsys.readouterr().err
    assert {path: path.read_bytes() for path in tmp_path.rglob("*.json")} == before


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ("plan table7", "unknown table or figure 'table7': use table1"),
        ("plan --only Pong", "no run is on the domain 'Pong'"),
        ("plan --seeds 0", "seeds must be at least 1, got 0"),
        ("report envelope --only DST2d --results nowhere", "nowhere does not exist"),
        ("report --out nowhere", "nowhere does not exist: no run was made there yet; --out names another"),
        ("status --out nowhere", "nowhere does not exist: no run was made there yet"),
        ("rnu", "did you mean 'qpensieve paper run'"),
        ("run envelope --only DST2d --at-once -1", "at-once must be at least 1, got -1"),
        ("run envelope --only DST2d --job-gpus 2", "job-gpus must be from 0 to 1, got 2"),
        ("plan table1 --only DST2d --steps 2000", "steps must be at least"),
    ],
)
def test_mistakes_are_named(
    words: str, message: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
):
    monkeypatch.chdir(tmp_path)  # a report that is written after all goes nowhere else
    with pytest.raises(SystemExit) as ended:
        run("paper", *words.split())
    assert ended.value.code == 1
    assert message in capsys.readouterr().err


@pytest.mark.parametrize("given", [None, "--xla_of_the_user=1"])
def test_quick_compiling_of_tiny_runs_ends_with_them(
    given: str | None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
):
    """Left behind, it would give later runs of this process, and what they start, other bits."""
    seen: list[str] = []

    def fail(*_: object) -> None:
        seen.append(os.environ["XLA_FLAGS"])
        raise ValueError("no room")

    monkeypatch.delenv("XLA_FLAGS", raising=False)
    if given:
        monkeypatch.setenv("XLA_FLAGS", given)
    monkeypatch.setattr(commands, "train_all", fail)
    with pytest.raises(SystemExit):
        run("paper", "run", "growth", "--scale", "smoke", "--out", str(tmp_path))
    assert "no room" in capsys.readouterr().err
    assert seen[0].removeprefix(f"{given} ").startswith("--xla_backend_optimization_level=0")
    assert os.environ.get("XLA_FLAGS") == given
    seen.clear()
    monkeypatch.setattr(jax, "__version_info__", (9, 0, 0))  # a version that may not know the flags, and would end
    with pytest.raises(SystemExit):
        run("paper", "run", "growth", "--scale", "smoke", "--out", str(tmp_path))
    assert seen == [given or ""]


@pytest.mark.parametrize("is_trained", [False, pytest.param(True, marks=pytest.mark.slow)])
def test_runs_of_a_domain_from_the_command_to_the_page(
    is_trained: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
):
    if not is_trained:
        monkeypatch.setattr(commands.Where, "engine", lambda *_: Pretended(99, write_results))
    words = ("table1", "envelope", "settings", "--scale", "smoke", "--only", "DST2d", "--out", str(tmp_path))
    run("paper", "run", *words)
    page = Path(capsys.readouterr().out.strip())
    assert "at the scale 'smoke'" in html.unescape(page.read_text())
    tables = [path.read_text() for path in (page.parent / "tables").glob("*.md")]
    assert len(tables) >= 3
    assert not any("missing" in table for table in tables)
    run("paper", "status", *words)
    assert "8 of 8 done" in capsys.readouterr().out


@pytest.mark.slow
def test_a_sweep_is_planned_run_and_reported(tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    plan = tmp_path / "mine.toml"
    plan.write_text(SWEEP)
    run("sweep", str(plan), "--out", str(tmp_path / "runs"), "--quiet")
    page = Path(capsys.readouterr().out.strip())
    assert "num_snapshots 2" in page.read_text()
    assert "Scale:" not in page.read_text()  # it has none of the paper's


def test_a_run_that_fails_is_named_with_its_log_and_others_go_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
):
    plan, program = tmp_path / "mine.toml", tmp_path / "worker.py"
    plan.write_text(SWEEP)
    program.write_text("import sys; sys.exit('the disk is on fire')")
    words = (sys.executable, "-I", "-S", str(program))
    monkeypatch.setattr(commands.Where, "engine", lambda where, root: Local(where.at_once, program=words))
    with pytest.raises(SystemExit) as ended:
        run("sweep", str(plan), "--out", str(tmp_path / "runs"), "--quiet", "--tries", "2")
    assert ended.value.code == 1
    told = capsys.readouterr().err
    assert "2 of 2 runs have failed" in told
    assert "2 tries brought it no further; the last ended with exit code 1: the disk is on fire" in told
