"""Where results come from: every part is named, and the commit is that of this package or none."""

import json
import shutil
import subprocess
from pathlib import Path

import pytest

from qpensieve.records import provenance


def _git(folder: Path, *words: str) -> str:
    command = ["git", "-C", folder, "-c", "user.name=t", "-c", "user.email=t@t", "-c", "commit.gpgsign=false", *words]
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout.strip()


def test_the_description_is_json_and_names_versions_machine_and_cores(monkeypatch):
    monkeypatch.setattr("os.sched_getaffinity", lambda _: {0, 1, 2})
    found = json.loads(json.dumps(provenance.describe()))
    assert found["cores"] == 3
    assert found["packages"]["qpensieve"]
    assert found["packages"]["mujoco"]
    assert all(found[name] for name in ("python", "platform", "processor", "device"))


@pytest.mark.skipif(shutil.which("git") is None, reason="needs git")
def test_the_commit_is_that_of_a_checkout_of_this_package_alone(tmp_path, monkeypatch):
    monkeypatch.setenv("GIT_CONFIG_GLOBAL", str(tmp_path / "none"))
    package = tmp_path / "venv" / "provenance.py"
    package.parent.mkdir()
    package.write_text("")
    monkeypatch.setattr(provenance, "__file__", str(package))
    commit = lambda: provenance.describe()["commit"]
    assert commit() is None  # no repository at all

    _git(tmp_path, "init", "--quiet")
    (tmp_path / ".gitignore").write_text("venv/\n")
    _git(tmp_path, "add", ".gitignore")
    _git(tmp_path, "commit", "--quiet", "-m", "another project")
    assert commit() is None  # installed below a checkout of something else

    _git(tmp_path, "add", "--force", "venv/provenance.py")
    _git(tmp_path, "commit", "--quiet", "-m", "this package")
    assert commit() == _git(tmp_path, "rev-parse", "HEAD")
    package.write_text("changed")
    assert commit() == _git(tmp_path, "rev-parse", "HEAD") + "+"


def test_other_versions_and_machines_are_named_and_what_is_not_known_is_not():
    now = {"packages": {"jax": "2", "numpy": "1"}, "processor": "A", "device": "cpu"}
    before = {"packages": {"jax": "1", "numpy": "1"}, "processor": "B", "device": "cpu", "cores": 3}
    assert provenance.version_changes(before, now) == ["processor B, now A", "jax 1, now 2"]
    assert provenance.version_changes({"packages": {}}, now) == []
    assert provenance.version_changes({"packages": "all of them"}, now) == []
    assert provenance.version_changes(provenance.describe(), provenance.rounding()) == []
