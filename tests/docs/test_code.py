"""The Python of the pages and the scripts in `examples` run, with short training, in a folder of their own."""

import re
import runpy
import shutil
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import qpensieve
from qpensieve import zoo
from qpensieve.deploy import write_loader
from qpensieve.methods import METHODS
from tests.docs.pages import ROOT, blocks

STEPS = 150
"""Long enough to learn a little."""
LEARN = re.compile(r"\.learn\(([\d_]+)")


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """The working folder of a reader: modules in it can be imported, and are forgotten afterwards."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(str(tmp_path))
    before = set(sys.modules)
    yield tmp_path
    for name in set(sys.modules) - before:
        if str(getattr(sys.modules[name], "__file__", "")).startswith((str(tmp_path), str(ROOT / "examples"))):
            del sys.modules[name]


def run_page(page: Path, folder: Path, steps: int | None = STEPS) -> dict[str, Any]:
    """Run the Python blocks of a page in order, as one program; blocks with a file name become that file.

    Every `learn` takes `steps` steps. None: as many as the page says.
    """
    names: dict[str, Any] = {"__name__": "__main__"}
    for block in blocks(page.read_text()):
        if block.language != "python":
            continue
        if block.file:
            (folder / block.file).write_text(block.text)
            continue
        text = block.text if steps is None else LEARN.sub(f".learn({steps}", block.text)
        code = "\n" * (block.line - 1) + text
        exec(compile(code, str(page), "exec"), names)
    return names


class TestPages:
    def test_readme(self, folder: Path):
        names = run_page(ROOT / "README.md", folder)
        assert names["agent"].num_steps == STEPS
        assert (folder / "my-agent" / "config.json").exists()

    @pytest.mark.slow
    def test_the_readmes_policy_obeys_the_preference(self, folder: Path):
        names = run_page(ROOT / "README.md", folder, steps=None)
        assert names["far"][0] > 10 * names["near"][0]  # more treasure
        assert names["far"][1] < 2 * names["near"][1]  # for more steps
        assert names["near"][1] > -4

    def test_the_readme_has_ten_lines_of_python(self):
        (block,) = [block for block in blocks((ROOT / "README.md").read_text()) if block.language == "python"]
        assert len([line for line in block.text.splitlines() if line.strip()]) == 10

    @pytest.mark.filterwarnings("ignore:no preference keeps all bounds")  # it trains for seconds here
    def test_tutorial(self, folder: Path):
        names = run_page(ROOT / "docs" / "tutorial.md", folder)
        assert names["chosen"].sum() == pytest.approx(1.0)
        assert names["total"][1] < 0  # it sailed

    def test_own_environments(self, folder: Path):
        names = run_page(ROOT / "docs" / "environments.md", folder)
        assert names["returns"].shape == (1, 3, 2, 2)
        assert names["cut"].index(True) == 9

    def test_deploy(self, folder: Path):
        shutil.copyfile(zoo.find(Path("zoo:DST2d")), folder / "policy.npz")
        write_loader(folder / "policy.npz")
        (block,) = [block for block in blocks((ROOT / "docs" / "deploy.md").read_text()) if block.language == "python"]
        assert len([line for line in block.text.splitlines() if line.strip()]) <= 20
        program = str(folder / str(block.file))
        run_page(ROOT / "docs" / "deploy.md", folder)
        sent = runpy.run_path(program)["sent"]
        assert len(sent) == 10
        assert all(np.array_equal(action, sent[0]) and np.abs(action).max() <= 1 for action in sent)

    def test_functions_and_a_method_from_outside(self, folder: Path, monkeypatch: pytest.MonkeyPatch):
        monkeypatch.setitem(METHODS, "mean-twin", METHODS.get("mean-twin"))  # it is gone afterwards
        del METHODS["mean-twin"]
        names = run_page(ROOT / "docs" / "jax.md", folder, steps=None)
        assert names["infos"]["critic_loss"].shape == (3,)
        assert names["values"].shape == (8,)
        assert names["agent"].config.agent.sac.tau == 0.01
        with qpensieve.load("mean-twin-agent") as loaded:
            assert loaded.algo == "mean-twin"


class TestExamples:
    def run(self, monkeypatch: pytest.MonkeyPatch, script: str, *words: str) -> None:
        monkeypatch.setattr(sys, "argv", [script, *words])
        runpy.run_path(str(ROOT / "examples" / script), run_name="__main__")

    def test_train_then_deploy(self, folder: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]):
        self.run(monkeypatch, "train_and_evaluate.py", "--steps", str(STEPS), "--out", "agent")
        assert "front of seed 0" in capsys.readouterr().out
        self.run(monkeypatch, "deploy.py", "agent", "--preference", "0.9", "0.1")
        assert "return of each objective" in capsys.readouterr().out

    @pytest.mark.slow
    def test_compare_methods(self, folder: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]):
        self.run(monkeypatch, "compare_methods.py", "--steps", str(STEPS), "--seeds", "2")
        assert "ED of QPensieve over MOSAC" in capsys.readouterr().out

    def test_own_environment(self, folder: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]):
        self.run(monkeypatch, "own_environment.py", "--steps", str(STEPS))
        assert capsys.readouterr().out.count("distance") == 5

    def test_every_script_is_listed(self):
        listed = (ROOT / "examples" / "README.md").read_text()
        assert [path.name for path in (ROOT / "examples").glob("*.py") if f"]({path.name})" not in listed] == []
