"""Folders from others: no code of theirs runs unasked. Each input was found by trying to break the program."""

import json
import sys
from pathlib import Path

import pytest

import qpensieve
from qpensieve import cli
from qpensieve import config as configs
from qpensieve.presets import default_config
from qpensieve.records import checkpoint
from qpensieve.records.folder import CONFIG, TRUSTED
from qpensieve.records.links import LinkError
from qpensieve.records.trust import UntrustedError
from qpensieve.train import run as runs
from tests.report.runs import dst_returns, make_run, make_table

EVIL = """
import pathlib
pathlib.Path(__file__).with_name("ran").touch()
def make():
    raise ValueError("sent.evil ran")
"""
CODE = ["sent.evil:make", "os:abort", "sent.evil:Hopper-v5", "sent.evil:", ":make", "os:path:join", "sent.evil:DST2d"]
PLAIN = ["DST2d", "qpensieve/Hopper2d-v0", "DeepSeaTreasure", "Hopper-v5", "mo-hopper-v5", "sent.evil", "../evil"]


def fail(capsys: pytest.CaptureFixture[str], *words: str) -> str:
    """What a command that has to fail says."""
    with pytest.raises(SystemExit) as end:
        cli.main(list(words))
    assert end.value.code == 1
    return capsys.readouterr().err


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
    def test_no_door_imports_the_code_of_a_received_folder(self, domain: str, sent: Path, capsys):
        receive(sent, domain)
        with pytest.raises(UntrustedError, match="would import the Python module"):
            qpensieve.load(sent)
        with pytest.raises(UntrustedError, match="would import the Python module"):
            runs.resume(sent, runs.Options(), lambda _: None)
        for command in ("evaluate", "resume"):
            said = fail(capsys, command, str(sent))
            assert f"would import the Python module {domain.partition(':')[0]!r}" in said
            assert "--trust" in said
            assert "Traceback" not in said
        assert not (sent / "ran").exists()

    @pytest.mark.parametrize("command", ["plot", "export", "compare"])
    def test_commands_that_only_read_import_nothing(self, command: str, sent: Path, capsys):
        receive(sent, "sent.evil:make")
        fail(capsys, command, str(sent), *(["--out", "x.json"] if command == "export" else []))
        assert not (sent / "ran").exists()

    @pytest.mark.parametrize("domain", PLAIN)
    def test_what_imports_nothing_needs_no_trust(self, domain: str, sent: Path):
        assert configs.load(receive(sent, domain) / CONFIG).domain == domain
        assert not (sent / TRUSTED).exists()

    def test_with_trust_it_is_imported_and_asked_no_more(self, sent: Path, capsys):
        receive(sent, "sent.evil:make")
        assert "sent.evil" in fail(capsys, "evaluate", str(sent), "--trust")
        assert (sent / "ran").exists()
        assert configs.load(sent / CONFIG).domain == "sent.evil:make"

    def test_ones_own_needs_none_until_it_is_edited(self, sent: Path):
        sent.mkdir()
        config = default_config("sent.evil:make", "qpensieve", "quick")
        configs.save(config, sent / CONFIG)
        assert configs.load(sent / CONFIG) == config
        text = (sent / CONFIG).read_text()
        (sent / CONFIG).write_text(text.replace("sent.evil", "sent.more"))
        with pytest.raises(UntrustedError, match=r"sent\.more"):
            configs.load(sent / CONFIG)
        (sent / CONFIG).write_text(text)
        assert configs.load(sent / CONFIG) == config

    def test_a_run_of_a_domain_of_ours_carries_no_mark(self, sent: Path):
        sent.mkdir()
        configs.save(default_config("DST2d"), sent / CONFIG)
        assert [path.name for path in sent.iterdir()] == [CONFIG]


class TestLinks:
    """What commands write into a received folder; each kind of file is in `tests/records/test_links.py`."""

    @pytest.mark.parametrize("name", ["run.lock", "checkpoints", "metrics.jsonl", "evaluations.npz"])
    @pytest.mark.parametrize("command", ["resume", "evaluate"])
    def test_a_run_with_a_link_is_refused_by_name(self, command: str, name: str, sent: Path, capsys):
        receive(sent, "DST2d")
        precious = sent.parent / "precious"
        if name == "checkpoints":
            (sent / name).rename(precious)
        else:
            precious.write_text("years of work")
        (sent / name).symlink_to(precious)
        before = sorted(precious.rglob("*")) if precious.is_dir() else precious.read_text()
        said = fail(capsys, command, str(sent))
        assert f"{sent / name} is a symbolic link to {precious}" in said
        assert before == (sorted(precious.rglob("*")) if precious.is_dir() else precious.read_text())

    def test_an_agent_is_not_saved_beside_a_link(self, sent: Path):
        sent.mkdir()
        (sent / "checkpoints").symlink_to(sent.parent)
        agent = object.__new__(qpensieve.Agent)
        with pytest.raises(LinkError, match="checkpoints is a symbolic link"):
            agent.save(sent)

    @pytest.mark.parametrize("name", ["front.png", "curves.png"])
    def test_a_picture_is_not_drawn_through_a_link(self, name: str, sent: Path, capsys):
        make_run(sent, make_table(dst_returns(), reference="DST2d"))
        (sent.parent / "precious").write_text("years of work")
        (sent / name).symlink_to("../precious")
        assert f"{sent / name} is a symbolic link to ../precious" in fail(capsys, "plot", str(sent))
        assert (sent.parent / "precious").read_text() == "years of work"
