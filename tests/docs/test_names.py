"""Functions, files, options and settings that the pages name exist."""

import ast
import importlib
import re
from functools import cache, reduce
from pathlib import Path

import pytest

from qpensieve.config import RunConfig
from qpensieve.methods import METHODS
from qpensieve.records.folder import FILES, FOLDERS, POLICY
from qpensieve.settings import RETIRED, flat
from tests.docs.pages import ROOT, all_pages, blocks

EQUATIONS = ROOT / "docs" / "architecture.md"
REFERENCES = [EQUATIONS, ROOT / "docs" / "jax.md"]
PATH = re.compile(r"^(?:[a-z_]+/)*[a-z_]+\.(?P<name>[A-Za-z_.]+)$")
DATA = (".json", ".jsonl", ".npz", ".png", ".toml", ".lock", ".log")
"""Endings of files that are no code."""
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
        if (folder / f"{module}.py").exists() or (folder / module / "__init__.py").exists():
            found = importlib.import_module(prefix + module.replace("/", "."))
            return reduce(lambda owner, part: getattr(owner, part, None), name.split("."), found) is not None
    return False


def columns(text: str) -> list[dict[str, str]]:
    """Return each row of each table of a page: heading -> cell."""
    cells = lambda line: [cell.strip() for cell in line.strip().strip("|").split(" | ")]
    found, heading = [], None
    for line in text.splitlines():
        if not line.startswith("|"):
            heading = None
        elif heading is None:
            heading = cells(line)
        elif not line.startswith("|--"):
            found.append(dict(zip(heading, cells(line), strict=False)))
    return found


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
        if " " not in span and (span.endswith(".py") or (PATH.match(span) and not span.endswith(DATA)))
    ]
    assert named
    assert [span for span in named if not exists(span)] == []


def test_the_table_of_the_run_folder_has_every_file():
    rows = [row["file"] for row in columns(EQUATIONS.read_text()) if "file" in row]
    named = {name.removesuffix("/") for row in rows for name in spans(row)}
    assert named == {*FILES, *FOLDERS, POLICY}


def test_settings_in_tables_exist():
    """Settings in tables are live, or are called retired and are."""
    configs = [RunConfig("DST2d", method.name, agent=method.config()) for method in METHODS.values()]
    live = {name for config in configs for name in flat(config)}
    tables = [(page.name, row) for page in all_pages() for row in columns(page.read_text())]
    cells = [(page, heading, cell) for page, row in tables for heading, cell in row.items()]
    gone = [(page, cell) for page, heading, cell in cells if "retired" in heading + cell and "setting" in heading]
    used = [(page, cell) for page, heading, cell in cells if heading == "setting" and "retired" not in cell]
    assert gone
    assert used
    assert [(page, name) for page, cell in used for name in spans(cell) if name not in live] == []
    assert [(page, name) for page, cell in gone for name in spans(cell) if name.islower() and name not in RETIRED] == []


@pytest.mark.parametrize("page", all_pages(), ids=lambda page: str(page.relative_to(ROOT)))
def test_options_exist(page: Path):
    if page.name in ("tried.md", "CHANGELOG.md", "recipe.md"):
        return  # they name settings that are gone
    known = settings_and_arguments()
    missing = {name for name in options(page) if not {n := name.replace("-", "_"), n.removeprefix("no_")} & known}
    assert missing == set()
