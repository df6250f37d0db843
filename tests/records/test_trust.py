"""Whose configuration it is: this user's needs no flag, anyone else's and an edited one does."""

import json
import os
import stat
from pathlib import Path

import pytest

from qpensieve.records import trust
from qpensieve.records.folder import TRUSTED
from qpensieve.records.trust import UntrustedError

CONTENT = b'{"domain": "mine:make"}\n'


@pytest.fixture
def data(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The data folder of a user who has not used this program yet."""
    monkeypatch.setenv(trust.DATA_VARIABLE, str(tmp_path / "data"))
    return tmp_path / "data"


@pytest.fixture
def run(tmp_path: Path) -> Path:
    (tmp_path / "run").mkdir()
    return tmp_path / "run"


def test_what_was_recorded_is_known_and_nothing_else(data: Path, run: Path):
    assert not trust.is_recorded(run, CONTENT)
    assert not data.exists(), "asking makes no key"
    assert trust.record(run, CONTENT)
    assert trust.is_recorded(run, CONTENT)
    assert not trust.is_recorded(run, CONTENT.replace(b"mine", b"evil"))
    assert not trust.is_recorded(run, CONTENT + b" ")


def test_the_key_is_the_users_alone_and_made_once(data: Path, run: Path):
    trust.record(run, CONTENT)
    key = (data / trust.KEY).read_bytes()
    assert stat.S_IMODE((data / trust.KEY).stat().st_mode) == 0o600
    assert len(key) == trust.KEY_BYTES
    trust.record(run, b"another")
    assert (data / trust.KEY).read_bytes() == key
    assert [path.name for path in data.iterdir()] == [trust.KEY]
    assert key.hex() not in (run / TRUSTED).read_text()


def test_another_users_mark_is_not_ours(data: Path, run: Path):
    trust.record(run, CONTENT)
    (data / trust.KEY).unlink()
    trust.record(data, CONTENT)  # makes another key
    assert not trust.is_recorded(run, CONTENT)


@pytest.mark.parametrize(
    "content",
    [
        b"",
        b"{",
        b"[]",
        b"3",
        b"null",
        b'{"config_hmac_sha256": 3}',
        b'{"config_hmac_sha256": null}',
        b"\xff\xfe",
        b"[" * 900,
        b'{"config_hmac_sha256": ""}',
        '{"config_hmac_sha256": "\u00e9"}'.encode(),
        b'{"config_hmac_sha256": "' + b"0" * 64 + b'"}',
    ],
)
def test_a_forged_or_damaged_mark_is_none(content: bytes, data: Path, run: Path):
    trust.record(run, CONTENT)
    (run / TRUSTED).write_bytes(content)
    assert not trust.is_recorded(run, CONTENT)


@pytest.mark.parametrize("fault", ["readable", "short", "link", "folder"])
def test_a_key_that_others_may_know_counts_for_nothing(fault: str, data: Path, run: Path):
    trust.record(run, CONTENT)
    key = data / trust.KEY
    if fault == "readable":
        key.chmod(0o644)
    elif fault == "short":
        key.write_bytes(b"")
    else:
        key.rename(data / "real")
        key.symlink_to(data / "real") if fault == "link" else key.mkdir()
    assert not trust.is_recorded(run, CONTENT)
    assert not trust.record(run, CONTENT)


def test_without_a_data_folder_all_works_but_asks(run: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    (tmp_path / "file").touch()
    monkeypatch.setenv(trust.DATA_VARIABLE, str(tmp_path / "file" / "below"))
    assert not trust.record(run, CONTENT)
    with pytest.raises(UntrustedError, match="--trust"):
        trust.check(run / "config.json", CONTENT, "the Python module 'mine'", trust=False)
    trust.check(run / "config.json", CONTENT, "the Python module 'mine'", trust=True)


def test_a_refusal_says_what_would_be_imported_and_trust_is_remembered(data: Path, run: Path):
    with pytest.raises(UntrustedError, match=r"run/config.json would import the Python module 'mine'.*trust=True"):
        trust.check(run / "config.json", CONTENT, "the Python module 'mine'", trust=False)
    trust.check(run / "config.json", CONTENT, "the Python module 'mine'", trust=True)
    trust.check(run / "config.json", CONTENT, "the Python module 'mine'", trust=False)
    with pytest.raises(UntrustedError):
        trust.check(run / "config.json", CONTENT + b"\n", "the Python module 'mine'", trust=False)


@pytest.mark.parametrize(
    ("variables", "folder"),
    [
        ({trust.DATA_VARIABLE: "/a", "XDG_DATA_HOME": "/b", "HOME": "/c"}, "/a"),
        ({"XDG_DATA_HOME": "/b", "HOME": "/c"}, "/b/qpensieve"),
        ({"XDG_DATA_HOME": "b", "HOME": "/c"}, "/c/.local/share/qpensieve"),
        ({"HOME": "/c"}, "/c/.local/share/qpensieve"),
    ],
)
def test_where_the_key_is(variables: dict[str, str], folder: str, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr("sys.platform", "linux")
    for name in (trust.DATA_VARIABLE, "XDG_DATA_HOME", "HOME"):
        monkeypatch.delenv(name, raising=False)
    for name, value in variables.items():
        monkeypatch.setenv(name, value)
    assert str(trust.data_folder()) == folder


def test_the_mark_is_json_of_one_field(data: Path, run: Path):
    trust.record(run, CONTENT)
    assert list(json.loads((run / TRUSTED).read_text())) == ["config_hmac_sha256"]
    assert os.listdir(run) == [TRUSTED]
