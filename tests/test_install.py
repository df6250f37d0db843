"""The README's installation in an empty environment runs all ten domains. Use without Box2D, pygame or fcntl."""

import os
import platform
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from qpensieve.envs import DOMAINS
from tests.docs.pages import ROOT, blocks

COPIED = ("src", "pyproject.toml", "README.md", "LICENSE")
HAS_WHEELS = sys.version_info < (3, 14) and (sys.platform != "linux" or platform.machine() != "aarch64")
"""Whether LunarLander's packages have wheels here: the markers of pyproject.toml."""
STEP_ALL = """
import numpy as np
import matplotlib
from qpensieve.envs import DOMAINS, make_lanes
from qpensieve.errors import MissingPackageError

for name, domain in DOMAINS.items():
    try:
        lanes = make_lanes(name, 2, 0)
        lanes.reset()
        step = lanes.step(np.zeros((2, domain.action_size)))
        assert step.reward.shape == (2, len(domain.objectives))
        print(name)
    except MissingPackageError as error:
        print(name, error)
"""
BLOCKER = """
import sys

class Blocker:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] == sys.argv[1]:
            raise ModuleNotFoundError(f"No module named {name!r}", name=name)

sys.meta_path.insert(0, Blocker())
"""
WITHOUT_LANDER = """
from qpensieve import cli
from qpensieve.envs import DOMAINS, make_lanes

print(*[name for name in DOMAINS if "LunarLander" not in name and make_lanes(name, 1, 0).reset().shape])
for more in ([], ["--seeds", "2", "--num-threads", "2"]):
    try:
        cli.main(["train", "LunarLander4d", "--preset", "quick", "--quiet", "--out", "runs", *more])
    except SystemExit as end:
        print("exit code", end.code)
"""
WITHOUT_FCNTL = """
from qpensieve import cli, envs, metrics

cli.main(["--help"])
cli.main(["train", "DST2d"])
"""


def install_command() -> str:
    """The README's words, with the comment behind them."""
    section = (ROOT / "README.md").read_text().partition("\n## Install\n")[2].partition("\n## ")[0]
    command = blocks(section)[0].text
    assert command.startswith("pip install ")
    return command


@pytest.mark.slow
def test_all_ten_domains_run_after_the_readmes_installation(tmp_path: Path):
    checkout, environment = tmp_path / "checkout", tmp_path / "environment"
    checkout.mkdir()
    for name in COPIED:
        copy = shutil.copytree if (ROOT / name).is_dir() else shutil.copy
        copy(ROOT / name, checkout / name)
    shutil.rmtree(checkout / "src" / "qpensieve.egg-info", ignore_errors=True)
    subprocess.run([sys.executable, "-m", "venv", environment], check=True)
    programs = environment / ("Scripts" if os.name == "nt" else "bin")
    kept = {name: value for name, value in os.environ.items() if not name.startswith(("PYTHON", "VIRTUAL_ENV"))}
    given = kept | {"PATH": f"{programs}{os.pathsep}{os.environ['PATH']}", "PIP_NO_COMPILE": "1"}
    run = lambda *words, **more: subprocess.run(*words, env=given, capture_output=True, text=True, check=False, **more)
    installed = run(install_command(), shell=True, cwd=checkout)
    assert installed.returncode == 0, installed.stdout + installed.stderr
    stepped = run([programs / "python", "-c", STEP_ALL], cwd=tmp_path)
    assert stepped.returncode == 0, stepped.stderr
    said = stepped.stdout.splitlines()
    runs = [name for name in DOMAINS if HAS_WHEELS or "LunarLander" not in name]
    assert [line for line in said if " " not in line] == runs
    assert all("LunarLander needs Box2D" in line for line in said if " " in line)
    version = run([programs / "qpensieve", "--version"], cwd=tmp_path)
    assert version.stdout.split() == [re.findall(r'^version = "(.*)"', (ROOT / "pyproject.toml").read_text(), re.M)[0]]
    (package,) = environment.rglob("site-packages/qpensieve")
    files = lambda folder: {path.relative_to(folder) for path in folder.rglob("*") if path.suffix not in ("", ".pyc")}
    assert files(package) == files(checkout / "src" / "qpensieve")


@pytest.mark.lander
def test_without_landers_packages_the_rest_works_and_one_sentence_says_so(tmp_path: Path):
    words = [sys.executable, "-c", BLOCKER + WITHOUT_LANDER, "Box2D"]
    done = subprocess.run(words, cwd=tmp_path, capture_output=True, text=True, check=False)
    run, *ends = done.stdout.splitlines()
    assert run.split() == [name for name in DOMAINS if "LunarLander" not in name]
    assert ends == ["exit code 1"] * 2, done.stderr
    assert "Traceback" not in done.stderr
    said = [line for line in done.stderr.splitlines() if "LunarLander needs" in line]
    assert len(said) == 2
    assert all("needs Box2D and pygame (No module named 'Box2D'" in line for line in said)
    assert all("pip install box2d pygame" in line for line in said)
    assert not any(tmp_path.iterdir())


def test_without_fcntl_as_on_windows_one_sentence_names_the_systems(tmp_path: Path):
    """Environments, metrics and the list of commands need no run folder and work."""
    words = [sys.executable, "-c", BLOCKER + WITHOUT_FCNTL, "fcntl"]
    done = subprocess.run(words, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout.partition(" ")[0]) == (1, "usage:")
    (said,) = done.stderr.splitlines()
    assert "qpensieve needs Linux, macOS or WSL" in said
