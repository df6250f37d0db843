"""Write the keyword arguments of agents, for editors and type checkers: python tools/keywords.py.

They are the fields of all settings classes. A test says when the file is out of date.
"""

import dataclasses
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from types import NoneType, UnionType
from typing import Any, Literal, Union, get_args, get_origin, get_type_hints

from qpensieve.config import RunConfig
from qpensieve.methods import METHODS

FILE = Path(__file__).resolve().parents[1] / "src" / "qpensieve" / "keywords.py"
HEAD = '''"""Settings as keyword arguments of agents. Written by tools/keywords.py: do not edit."""

from typing import Literal, TypedDict

from qpensieve.preferences import ArrayLike


class Keywords(TypedDict, total=False):
    """Every setting of a run or of a method. An agent refuses those that its method does not have."""

'''
ARGUMENTS = ("domain", "algo", "seeds", "agent")
"""Fields of a run that are no keywords: they have arguments of their own."""


def fields(kind: type) -> Iterator[tuple[str, Any]]:
    """Return name and type of every field, fields of parts included."""
    hints = get_type_hints(kind)
    for field in dataclasses.fields(kind):
        if dataclasses.is_dataclass(field.default_factory) and field.name not in ARGUMENTS:
            yield from fields(field.default_factory)
        elif field.name not in ARGUMENTS:
            yield field.name, hints[field.name]


def names_of(hint: Any) -> list[str]:
    """Return the types of a setting as Python text; lists may be arrays."""
    if get_origin(hint) in (Union, UnionType):
        return [name for one in get_args(hint) for name in names_of(one)]
    if get_origin(hint) is Literal:
        return [f"Literal[{', '.join(repr(value) for value in get_args(hint))}]"]
    return ["ArrayLike" if get_origin(hint) is tuple else "None" if hint is NoneType else hint.__name__]


def render() -> str:
    """Return the text of the file."""
    types: dict[str, dict[str, None]] = {}
    for kind in (RunConfig, *(method.config for method in METHODS.values())):
        for name, hint in fields(kind):
            types.setdefault(name, {}).update(dict.fromkeys(names_of(hint)))
    lines = [f"    {name}: {' | '.join(found)}" for name, found in types.items()]
    command = [sys.executable, "-m", "ruff", "format", "--stdin-filename", str(FILE), "-"]
    text = HEAD + "\n".join(lines) + "\n"
    return subprocess.run(command, input=text, capture_output=True, text=True, check=True).stdout


if __name__ == "__main__":
    FILE.write_text(render())
