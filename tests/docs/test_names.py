"""Functions, files and options that the pages name exist."""

import ast
import importlib
import re
from functools import cache
from pathlib import Path

import pytest

from tests.docs.pages import ROOT, all_pages, blocks

EQUATIONS = ROOT / "docs" / "architecture.md"
REFERENCES = [EQUATIONS, ROOT / "docs" / "jax.md"]
PATH = re.compile(r"^(?:[a-z_]+/)+[a-z_]+\.(?P<name>[A-Za-z_.]+)$")
OPTION = re.compile(r"(?<![\w-])--(?P<name>[a-z][a-z-]+)")
PROGRAMS = ("src", "tools", "benchmarks", "examples")
OF_ALL_PROGRAMS = {"help", "help_all", "version"}


def spans(text: str) -> list[str]:
    """Code spans outside fenced blocks."""
    return re.findall(r"`([^`\n]+)`", re.sub(r"^```.*?^```", "", text, flags=re.MULTILINE | re.DOTALL))


def exists(span: str) -> bool:
    """Whether `folder/file.py`, or `folder/module.name` of the package or the repository, exists."""
    homes = [ROOT / span, ROOT / "src" / "qpensieve" / span]
    if any(home.exists() for home in homes):
        return True
    module, _, name = span.partition(".")
    for prefix, folder in (("qpensieve.", ROOT / "src" / "qpensieve"), ("", ROOT)):
        if (folder / f"{module}.py").exists():
            return hasattr(importlib.import_module(prefix + module.replace("/", ".")), name)
    return False


@cache
def settings_and_arguments() -> frozenset[str]:
    """Names of all function arguments and annotated class fields, and of options that scripts add themselves."""
    names: set[str] = set(OF_ALL_PROGRAMS)
    for path in (path for folder in PROGRAMS for path in (ROOT / folder).rglob("*.py")):
        text = path.read_text()
        names |= {
            found["name"].replace("-", "_") for found in re.finditer(r"add_argument\(\s*\"--(?P<name>[a-z-]+)", text)
        }
        for node in ast.walk(ast.parse(text)):
            if isinstance(node, ast.arg):
                names.add(node.arg)
            elif isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name):
                names.add(node.target.id)
    return frozenset(names)


def options(page: Path) -> set[str]:
    """Options of qpensieve that a page names: in code spans that begin with one, and in commands."""
    text = page.read_text()
    commands = [line for block in blocks(text) for line in block.text.splitlines() if line.startswith("qpensieve ")]
    named = [span for span in spans(text) if span.startswith(("--", "qpensieve "))]
    return {found["name"] for line in commands + named for found in OPTION.finditer(line)}


@pytest.mark.parametrize("page", [page for page in REFERENCES if page.exists()], ids=lambda page: page.name)
def test_functions_and_files_exist(page: Path):
    named = [
        span
        for span in spans(page.read_text())
        if "/" in span and " " not in span and (span.endswith(".py") or PATH.match(span))
    ]
    assert named
    assert [span for span in named if not exists(span)] == []


@pytest.mark.parametrize("page", all_pages(), ids=lambda page: str(page.relative_to(ROOT)))
def test_options_exist(page: Path):
    if page.name in ("tried.md", "CHANGELOG.md", "recipe.md"):
        return  # they name settings that are gone
    known = settings_and_arguments()
    missing = {name for name in options(page) if not {n := name.replace("-", "_"), n.removeprefix("no_")} & known}
    assert missing == set()
