"""Policies that come with the package: for each a policy file and its card, a JSON file of the same name.

`tools/zoo.py` makes both. A card says how its policy was trained, what it reaches, and under which licence it is.
"""

from pathlib import Path
from typing import Any

from qpensieve.errors import MissingFileError
from qpensieve.records.files import read_object
from qpensieve.records.folder import ZOO

FOLDER = Path(__file__).parent
PREFIX = ZOO


def names() -> list[str]:
    """Return the names of all policies, such as `zoo:DST2d`."""
    return [name_of(file) for file in sorted(FOLDER.glob("*.npz"))]


def name_of(file: Path) -> str:
    return f"{PREFIX}{file.stem}"


def find(source: Path) -> Path:
    """Return the file of a name that begins with `PREFIX`; any other path is returned unchanged.

    Raises:
        FileNotFoundError: No policy has this name; the message lists the names.
    """
    name, known = str(source), names()
    if not name.startswith(PREFIX):
        return source
    if name not in known:
        raise MissingFileError(f"no policy comes with qpensieve as {name}; there are: {', '.join(known)}")
    return FOLDER / f"{name.removeprefix(PREFIX)}.npz"


def card_of(file: Path) -> dict[str, Any] | None:
    """Return the card of a policy file; None if the file did not come with the package."""
    return read_object(file.with_suffix(".json")) if file.parent == FOLDER else None
