"""Folders from others: no code of theirs runs unasked. Each input was found by trying to break the program."""

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any
from unittest.mock import MagicMock

import numpy as np
import pytest

import qpensieve
from qpensieve import cli
from qpensieve import config as configs
from qpensieve.config import default_config
from qpensieve.errors import UntrustedError
from qpensieve.records import checkpoint, files
from qpensieve.records.checkpoint import CheckpointError
from qpensieve.records.files import read_npz
from qpensieve.records.folder import CONFIG, LinkError
from qpensieve.train import run as runs
from qpensieve.train.session import Session
from tests.report.runs import dst_returns, make_run, make_table

EVIL = """
import pathlib
pathlib.Path(__file__).with_name("ran").touch()
def make():
    raise ValueError("sent.evil ran")
"""
CODE = ["sent.evil:make", "os:abort", "sent.evil:Hopper-v5", "sent.evil:", ":make", "os:path:join", "sent.evil:DST2d"]
PLAIN = ["DST2d", "qpensieve/Hopper2d-v0", "DeepSeaTreasure", "Hopper-v5", "mo-hopper-v5", "sent.evil", "../evil"]


def receive(folder: Path, domain: str) -> Path:
    """A run's folder as someone else might send it, with a module beside its configuration."""
    folder.mkdir(parents=True, exist_ok=True)
    content = configs.to_dict(default_config("DST2d", "qpensieve", "quick")) | {"domain": domain}
    (folder / CONFIG).write_text(json.dumps(content))
    (folder / "evil.py").write_text(EVIL)
    checkpoint.save(folder, 100, {}, {"config": content, "replay": None})
    return folder


@pytest.fixture
def sent(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Where modules are found, and a received folder `sent` would be one."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(tmp_path)
    for name in ("sent", "sent.evil"):
        monkeypatch.delitem(sys.modules, name, raising=False)
    return tmp_path / "sent"


class TestTrust:
    @pytest.mark.parametrize("domain", CODE)
    def test_no_door_imports_the_code_of_a_received_folder(self, domain: str, sent: Path, fail: Any):
        receive(sent, domain)
        with pytest.raises(UntrustedError, match="would import the Python module"):
            qpensieve.load(sent)
        with pytest.raises(UntrustedError, match="would import the Python module"):
            runs.resume(sent, runs.Options(), lambda _: None)
        for command in ("evaluate", "resume", "export-policy"):
            said = fail(command, sent)
            assert f"would import the Python module {domain.partition(':')[0]!r}" in said
            assert "--trust" in said
        assert not (sent / "ran").exists()

    def test_commands_that_only_read_import_nothing(self, sent: Path, fail: Any):
        receive(sent, "sent.evil:make")
        for words in (["plot"], ["compare"], ["export", "--out", "x.json"]):
            fail(words[0], sent, *words[1:])
        assert not (sent / "ran").exists()

    @pytest.mark.parametrize("domain", PLAIN)
    def test_what_imports_nothing_needs_no_trust(self, domain: str, sent: Path):
        assert configs.load(receive(sent, domain) / CONFIG).domain == domain

    def test_trusted_code_is_imported(self, sent: Path, fail: Any):
        """Of a folder of one's own, too."""
        receive(sent, "sent.evil:make")
        assert configs.load(sent / CONFIG, trust=True).domain == "sent.evil:make"
        assert "sent.evil" in fail("evaluate", sent, "--trust")
        assert (sent / "ran").exists()

    def test_a_configuration_that_changes_while_a_run_is_opened_is_not_read_again(
        self, sent: Path, monkeypatch: pytest.MonkeyPatch
    ):
        """To write a longer run's length, the file was read a second time and trusted as it was then."""
        receive(sent, "DST2d")
        evil = (sent / CONFIG).read_text().replace('"DST2d"', '"sent.evil:make"')
        session = MagicMock(lanes_per_seed=1, step=0)
        session.spec.objectives = ["treasure", "time"]
        run = MagicMock(spec=runs.Run, folder=sent, session=session, files=MagicMock())

        def opened(path: Path, config: Any, options: Any) -> Any:
            (sent / CONFIG).write_text(evil)
            run.config = config
            return run

        monkeypatch.setattr(runs, "Run", opened)
        runs.resume(sent, runs.Options(), lambda _: None, start_over=True, steps=100_000)
        run.files.held.close()
        assert configs.load(sent / CONFIG).domain == "DST2d"
        assert configs.load(sent / CONFIG).steps == 100_000


class TestLinks:
    """What commands write into a received folder; each kind of file is in `tests/records/test_folder.py`."""

    @pytest.mark.parametrize("name", ["run.lock", "checkpoints", "metrics.jsonl", "evaluations.npz"])
    @pytest.mark.parametrize("command", ["resume", "evaluate"])
    def test_a_run_with_a_link_is_refused_by_name(self, command: str, name: str, sent: Path, fail: Any):
        receive(sent, "DST2d")
        precious = sent.parent / "precious"
        if name == "checkpoints":
            (sent / name).rename(precious)
        else:
            precious.write_text("years of work")
        (sent / name).symlink_to(precious)
        before = sorted(precious.rglob("*")) if precious.is_dir() else precious.read_text()
        said = fail(command, sent)
        assert f"{sent / name} is a symbolic link to {precious}" in said
        assert before == (sorted(precious.rglob("*")) if precious.is_dir() else precious.read_text())

    def test_an_agent_is_not_saved_beside_a_link(self, sent: Path):
        sent.mkdir()
        (sent / "checkpoints").symlink_to(sent.parent)
        agent = object.__new__(qpensieve.Agent)
        agent.session = MagicMock(spec=Session, config=default_config("DST2d"), step=0)
        agent.calibration = None
        with pytest.raises(LinkError, match="checkpoints is a symbolic link"):
            agent.save(sent)

    def test_a_picture_is_not_drawn_through_a_link(self, sent: Path, fail: Any):
        make_run(sent, make_table(dst_returns(), reference="DST2d"))
        (sent.parent / "precious").write_text("years of work")
        (sent / "front.png").symlink_to("../precious")
        assert f"{sent / 'front.png'} is a symbolic link to ../precious" in fail("plot", sent)
        assert (sent.parent / "precious").read_text() == "years of work"


DEEP = "[" * 100_000
JSON = ["", "{", "[]", "3", "null", '"text"', DEEP, '{"a":' * 50_000, "\x00\x01", "NaN", "{}", "9" * 5000]
"""What may stand in a file in the place of a JSON object; `{}` lacks every field."""

WRONG: list[dict[str, Any]] = [
    {"seeds": "five"},
    {"seeds": -1},
    {"domain": 5},
    {"domain": ["os:abort"]},
    {"algo": []},
    {"agent": 5},
    {"agent": {"sac": 5}},
    {"agent": {"sac": {"hidden": "wide"}}},
    {"agent": {"sac": {"hidden": -1}}},
    {"steps": 1e400},
    {"num_threads": {}},
]
"""Settings of a configuration that are not what they should be."""
CHANGE_AND_LOAD = """
path = pathlib.Path(sys.argv[1])
values = json.loads(path.read_text())
for change in json.loads(sys.argv[2]):
    path.write_text(json.dumps(values | change))
    try:
        print("accepted", change, config.load(path))
    except ValueError as error:
        print(error)
"""


def write_export(path: Path, **changes: object) -> Path:
    """An exported run of two seeds and two preferences, with fields changed; `...` takes one away."""
    row = {"step": 100, "mean_returns": [[[1.0, 2.0], [3.0, 4.0]]] * 2}
    content = {
        "config": {"domain": "DST2d", "algo": "mosac"},
        "provenance": {},
        "preferences": [[0.0, 1.0], [1.0, 0.0]],
        "reference": [0.0, -50.0],
        "full_protocol": [row],
        "short_protocol": [row],
    }
    path.write_text(json.dumps({name: v for name, v in (content | changes).items() if v is not ...}))
    return path


class TestErrors:
    """Few lines that name the file or the environment."""

    @pytest.mark.parametrize("content", JSON)
    def test_a_broken_configuration_is_named(self, content: str, sent: Path, fail: Any):
        make_run(sent, make_table(dst_returns(), reference="DST2d"))
        receive(sent, "DST2d")
        (sent / CONFIG).write_text(content)
        for words in (["resume"], ["evaluate"], ["plot"], ["export", "--out", "x.json"]):
            if content != "{}" or words[0] in ("resume", "evaluate"):  # what pictures need of it is optional
                assert str(sent / CONFIG) in fail(words[0], sent, *words[1:])
        with pytest.raises(ValueError, match=CONFIG):
            qpensieve.load(sent)

    def test_a_setting_of_another_type_is_named_with_its_file(self, sent: Path):
        """In a process of its own: with annotations checked, as the tests are, such a setting does not come as far."""
        receive(sent, "DST2d")
        script = "import json, pathlib, sys\nfrom qpensieve import config\n" + CHANGE_AND_LOAD
        command = [sys.executable, "-c", script, str(sent / CONFIG), json.dumps(WRONG)]
        source = os.environ | {"PYTHONPATH": str(Path(qpensieve.__file__).parents[1])}
        done = subprocess.run(command, capture_output=True, text=True, timeout=120, env=source)
        assert done.stderr == ""
        said = done.stdout.splitlines()
        assert len(said) >= len(WRONG)
        assert sum(f"cannot read {sent / CONFIG} as a configuration: " in line for line in said) == len(WRONG)

    @pytest.mark.parametrize("content", [content for content in JSON if content != "{}"])
    def test_a_broken_provenance_or_export_is_named(self, content: str, sent: Path, fail: Any):
        make_run(sent, make_table(dst_returns(), reference="DST2d"))
        (sent / "environment.json").write_text(content)
        (sent / "x.json").write_text(content)
        assert str(sent / "environment.json") in fail("export", sent, "--out", sent / "y.json")
        for words in ([], ["--curves"]):
            assert str(sent / "x.json") in fail("compare", sent / "x.json", *words)

    @pytest.mark.parametrize(
        "changes",
        [
            {"config": ...},
            {"config": {"domain": 5, "algo": "x"}},
            {"full_protocol": ...},
            {"full_protocol": [5]},
            {"full_protocol": [{"step": "x"}]},
            {"full_protocol": [{"step": 1, "mean_returns": 5}]},
            {"full_protocol": [{"step": 1, "mean_returns": [[[1], [2, 3]]]}]},
            {"preferences": 5},
            {"reference": "x"},
            {"provenance": ...},
            {"provenance": {"lanes_per_seed": "x"}},
            {"search": 5},
        ],
    )
    def test_a_field_of_an_export_that_is_missing_or_wrong_is_named(self, changes: dict, sent: Path, fail: Any):
        sent.mkdir()
        path = write_export(sent / "x.json", **changes)
        assert str(path) in fail("compare", path)

    @pytest.mark.parametrize("content", [*JSON, '{"checksum": 3}'])
    def test_a_broken_checkpoint_is_named(self, content: str, sent: Path):
        receive(sent, "DST2d")
        path = sent / "checkpoints" / "step_000000100"
        (path / "meta.json").write_text(content)
        with pytest.raises(CheckpointError, match=str(path)):
            checkpoint.load_latest(sent, lambda _: None)

    @pytest.mark.parametrize(
        "rows",
        ["{", "[]", DEEP, '{"event": "train", "step": "x"}', '{"event": "train", "step": 5, "temperature": "hot"}'],
    )
    @pytest.mark.usefixtures("unrendered")
    def test_a_broken_log_leaves_its_rows_out_of_the_pictures(self, rows: str, sent: Path, capsys):
        make_run(sent, make_table(dst_returns(), reference="DST2d"), [])
        (sent / "metrics.jsonl").write_text(rows + "\n")
        cli.main(["plot", str(sent)])
        assert "curves.png" in capsys.readouterr().out

    @pytest.mark.parametrize(
        "body",
        [
            "def make(:",
            "1 / 0",
            "import missing_module_of_someone",
            "raise SystemExit(3)",
            "def make(): raise KeyError('x')",
            "def make(): return make()",
            "def make(): return 5",
            "\0",
            "import gymnasium\ndef make(): return gymnasium.Env()",
        ],
    )
    def test_code_that_fails_is_named_with_its_environment(self, body: str, sent: Path, fail: Any):
        sent.mkdir()
        (sent / "evil.py").write_text(body)
        assert "sent.evil" in fail("train", "sent.evil:make", "--preset", "quick", "--out", sent / "runs")
        assert not (sent / "runs").exists()


class TestSizes:
    """Files of a received folder that unpack to more than they may; each kind is in `tests/records/test_npz.py`."""

    def test_evaluations_that_unpack_to_gigabytes_are_refused_unread(
        self, sent: Path, monkeypatch: pytest.MonkeyPatch, fail: Any
    ):
        make_run(sent, make_table(dst_returns(), reference="DST2d"))
        with np.load(sent / "evaluations.npz") as file:
            arrays = dict(file)
        t = 2000
        arrays |= {"short_steps": np.arange(t), "short_returns": np.zeros((t, 3, 20, 2, 2))}
        arrays["curve_returns"] = np.zeros((t, 3, 0, 2, 2))
        np.savez_compressed(sent / "evaluations.npz", allow_pickle=True, **arrays)
        monkeypatch.setattr(files, "LIMIT", 1 << 20)
        said = fail("plot", sent)
        assert "evaluations.npz is damaged" in said
        assert "1,048,576 is the most" in said

    def test_a_checkpoint_that_was_compressed_is_refused(self, sent: Path):
        sent.mkdir()
        folder = checkpoint.save(sent, 100, {"state.w": np.zeros(100_000)}, {})
        np.savez_compressed(folder / "arrays.npz", allow_pickle=True, **{"state.w": np.zeros(100_000)})
        with pytest.raises(ValueError, match="would take 800,000 bytes"):
            read_npz(folder / "arrays.npz")
