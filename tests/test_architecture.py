"""Imports point one way (docs/architecture.md), and private names stay private."""

import ast
from pathlib import Path

import pytest

import qpensieve

ROOT = Path(qpensieve.__file__).parent
STAIR = (
    *(
        "errors",
        "machine",
        "gym_ids",
        "importing",
        "settings",
        "console",
        "remote",
    ),
    *("preferences", "keywords", "types", "metrics", "front", "records", "envs", "learning", "algos", "callbacks"),
    *("replay", "population", "methods", "config", "compatibility", "report", "theory", "train"),
    *("zoo", "deploy"),
    *("experiments", "watch", "api", "options", "commands", "cli", "__main__"),
)
"""Parts of the package in import order: a part may import the parts before it, and itself."""
WITH_PUBLIC_NAMES = ("cli", "watch")
"""Parts that may also import the package's public names."""
NAMED_TUPLE = {"_asdict", "_exit", "_fields", "_replace"}
"""Names that are public in spite of their underscore."""

FILES = sorted(path for path in ROOT.rglob("*.py") if path != ROOT / "__init__.py")
name_of = lambda path: str(path.relative_to(ROOT))


def part_of(path: Path) -> str:
    return path.relative_to(ROOT).parts[0].removesuffix(".py")


def imported_parts(path: Path) -> set[str]:
    """Parts of the package that a file imports, wherever in it; `qpensieve` itself counts as `__init__`."""
    names = set()
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.ImportFrom) and node.module:
            names |= {f"{node.module}.{alias.name}" for alias in node.names}
        elif isinstance(node, ast.Import):
            names |= {alias.name for alias in node.names}
    ours = [name.split(".") for name in names if name.split(".")[0] == "qpensieve"]
    return {parts[1] if len(parts) > 1 else "__init__" for parts in ours}


def test_every_part_is_on_the_stair():
    assert sorted({part_of(path) for path in FILES}) == sorted(STAIR)


@pytest.mark.parametrize("path", FILES, ids=name_of)
def test_a_file_imports_only_parts_before_its_own(path: Path):
    part = part_of(path)
    allowed = {*STAIR[: STAIR.index(part) + 1], *(("__init__",) if part in WITH_PUBLIC_NAMES else ())}
    assert imported_parts(path) <= allowed


@pytest.mark.parametrize("path", FILES, ids=name_of)
def test_a_private_name_stays_in_its_file(path: Path):
    tree = ast.parse(path.read_text())
    used = {node.attr: node.lineno for node in ast.walk(tree) if isinstance(node, ast.Attribute)}
    imports = [node for node in ast.walk(tree) if isinstance(node, ast.ImportFrom)]
    used |= {alias.name: node.lineno for node in imports for alias in node.names}
    foreign = {name: line for name, line in used.items() if is_private(name) and name not in defined(tree)}
    assert not foreign


def is_private(name: str) -> bool:
    return name.startswith("_") and not name.startswith("__") and name not in NAMED_TUPLE


def defined(tree: ast.Module) -> set[str]:
    """Names that a file gives to functions, classes, variables, fields and attributes."""
    names = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            names.add(node.name)
        elif isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
            names.add(node.id)
        elif isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Store):
            names.add(node.attr)
    return names


def test_only_the_factory_knows_both_trainers():
    knowing = [path for path in FILES if {"Trainer", "PopulationTrainer"} <= imported_names(path)]
    assert [name_of(path) for path in knowing] == ["train/loop.py"]


def imported_names(path: Path) -> set[str]:
    imports = [node for node in ast.walk(ast.parse(path.read_text())) if isinstance(node, ast.ImportFrom)]
    return {alias.name for node in imports for alias in node.names}
