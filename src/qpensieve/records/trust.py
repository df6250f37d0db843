"""Whose configuration it is: a folder from someone else may name code to import, and that is asked about first.

A run or agent of this user carries `trusted.json`: a keyed hash (HMAC-SHA256) of the bytes of `config.json`. The key
is in the user's own data folder and never leaves it. So a folder of another machine or person, and an edited one, ask.
"""

import contextlib
import hashlib
import hmac
import json
import os
import secrets
import stat
import sys
from pathlib import Path

from qpensieve.errors import ShownError
from qpensieve.records.atomic import TEMPORARY, write_json
from qpensieve.records.folder import TRUSTED

DATA_VARIABLE = "QPENSIEVE_DATA"
"""Environment variable that names the user's data folder."""
KEY = "key"
"""File of the secret key in the user's data folder."""
KEY_BYTES = 32
PURPOSE = b"qpensieve config.json 1\n"
"""Goes before what is hashed, so that the hash stands for nothing else."""


class UntrustedError(ShownError, RuntimeError):
    """A folder would import code and nobody has said that it may; the message says which and how to allow it."""


def check(config: Path, content: bytes, code: str, trust: bool) -> None:
    """Refuse a configuration that imports `code`, unless this user made it, or trusts it now.

    Args:
        config: The file of the configuration.
        content: Its bytes.
        code: What would be imported.
        trust: The user says that it may be; remembered for these bytes, where the folder can be written.

    Raises:
        UntrustedError: It is not known.
    """
    if trust:
        record(config.parent, content)
    elif not is_recorded(config.parent, content):
        raise UntrustedError(
            f"{config} would import {code}: code that you may not know. The folder was made on another machine or by "
            "someone else, or its configuration was changed. Where you know that code, allow it: --trust on the "
            "command line, trust=True in Python"
        )


def record(folder: Path, content: bytes) -> bool:
    """Write that this user knows a configuration; False where the folder or the user's own cannot be written."""
    key = _key(make=True)
    if key is None:
        return False
    try:
        write_json(folder / TRUSTED, {"config_hmac_sha256": _hash(key, content)})
    except OSError:
        return False
    return True


def is_recorded(folder: Path, content: bytes) -> bool:
    """Whether `record` was called for this content, by this user on this machine."""
    key, path = _key(make=False), folder / TRUSTED
    if key is None or not path.is_file():
        return False
    try:
        with path.open("rb") as file:
            found = json.loads(file.read(1000))["config_hmac_sha256"]
        return hmac.compare_digest(found.encode(), _hash(key, content).encode())
    except (OSError, ValueError, KeyError, TypeError, AttributeError, RecursionError):
        return False  # nothing that `record` wrote


def data_folder() -> Path | None:
    """The user's own folder for this program; None where there is no home."""
    named = os.environ.get(DATA_VARIABLE)
    if named:
        return Path(named)
    shared = os.environ.get("XDG_DATA_HOME", "")
    if os.path.isabs(shared):  # others are to be ignored, says the XDG specification
        return Path(shared) / "qpensieve"
    try:
        home = Path.home()
    except RuntimeError:
        return None
    return home / ("Library/Application Support" if sys.platform == "darwin" else ".local/share") / "qpensieve"


def _hash(key: bytes, content: bytes) -> str:
    return hmac.new(key, PURPOSE + content, hashlib.sha256).hexdigest()


def _key(make: bool) -> bytes | None:
    """The user's secret key, made on first use; None where there is none that only this user can know."""
    folder = data_folder()
    if folder is None:
        return None
    try:
        if make and not (folder / KEY).exists():
            _make_key(folder)
        return _read_key(folder / KEY)
    except OSError:
        return None


def _read_key(path: Path) -> bytes | None:
    with open(os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK), "rb") as file:
        about = os.fstat(file.fileno())
        is_private = stat.S_ISREG(about.st_mode) and about.st_uid == os.getuid() and not about.st_mode & 0o077
        key = file.read(KEY_BYTES + 1) if is_private else b""
    return key if len(key) == KEY_BYTES else None


def _make_key(folder: Path) -> None:
    """Write a new key, whole, unless another process was faster."""
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    temporary = folder / f"{TEMPORARY}{KEY}-{secrets.token_hex(8)}"
    with open(os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "wb") as file:
        file.write(secrets.token_bytes(KEY_BYTES))
        file.flush()
        os.fsync(file.fileno())
    try:
        with contextlib.suppress(FileExistsError):
            os.link(temporary, folder / KEY)  # a rename would replace the other's key
    finally:
        temporary.unlink()
