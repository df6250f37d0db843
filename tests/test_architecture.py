"""Imports point one way (docs/architecture.md), private names stay private, and no function grows too long."""

import ast
from graphlib import TopologicalSorter
from pathlib import Path

import pytest

import qpensieve

ROOT = Path(qpensieve.__file__).parent
LAYERS: dict[str, set[str]] = {
    "errors": set(),
    "machine": set(),
    "compiler": {"machine"},
    "gym_ids": set(),
    "importing": set(),
    "pages": set(),
    "programs": set(),
    "settings": set(),
    "console": set(),
    "preferences": set(),
    "host_types": {"preferences"},
    "types": {"host_types", "preferences"},
    "metrics": {"preferences"},
    "front": {"console", "metrics", "preferences"},
    "records": {"compiler", "machine", "metrics"},
    "callbacks": {"importing", "records"},
    "envs": {"gym_ids", "host_types", "importing", "machine", "metrics", "preferences", "programs"},
    "learning": {"host_types", "machine", "preferences"},
    "replay": {"host_types", "records", "types"},
    "algos": {"learning", "preferences", "settings", "types"},
    "population": {"compiler", "envs", "learning", "metrics", "preferences", "records", "settings", "types"},
    "methods": {"algos", "compiler", "machine", "population", "settings", "types"},
    "config": {"algos", "envs", "methods", "records", "settings", "types"},
    "manual": {"config", "methods", "pages", "settings"},
    "presets": {"algos", "config", "envs", "methods"},
    "train": {
        *("callbacks", "compiler", "config", "console", "envs", "host_types", "learning", "machine", "methods"),
        *("metrics", "population", "preferences", "programs", "records", "replay", "types"),
    },
    "deploy": {"config", "learning", "records", "train", "types"},
    "report": {"console", "envs", "metrics", "preferences", "records"},
    "experiments": {
        *("config", "console", "envs", "machine", "pages", "population", "preferences", "presets", "records", "report"),
        *("settings", "train"),
    },
    "watch": {"console", "envs", "learning", "population", "preferences", "records", "train"},
    "theory": {"console", "envs", "metrics", "preferences", "records", "report"},
    "api": {
        *("callbacks", "config", "console", "deploy", "envs", "front", "preferences", "presets", "records", "report"),
        "train",
    },
    "bench": {
        *("algos", "compiler", "config", "console", "envs", "learning", "machine", "methods", "population"),
        *("presets", "replay", "settings", "train", "types"),
    },
    "cli": {
        *("bench", "callbacks", "config", "console", "deploy", "envs", "experiments", "manual", "pages", "presets"),
        *("records", "report", "settings", "theory", "train", "watch"),
    },
    "start": {"cli", "pages"},
    "__main__": {"start"},
}
"""Part of the package -> parts that it may import; it may always import itself. `__init__` may import any."""
EVERYWHERE = {"errors"}
"""Parts that all others may import."""
LONGEST_FUNCTION = 45
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


def test_every_part_has_a_layer():
    assert {part_of(path) for path in FILES} == LAYERS.keys()


@pytest.mark.parametrize("path", FILES, ids=name_of)
def test_a_file_imports_what_its_part_may(path: Path):
    part = part_of(path)
    allowed = (
        LAYERS[part] | EVERYWHERE | {part} | ({"__init__"} if part in ("cli", "bench", "start", "watch") else set())
    )
    assert imported_parts(path) <= allowed


def test_layers_hold_no_cycle_and_nothing_that_is_not_used():
    TopologicalSorter(LAYERS).prepare()  # raises on a cycle
    used: dict[str, set[str]] = {part: set() for part in LAYERS}
    for path in FILES:
        used[part_of(path)] |= imported_parts(path) - {part_of(path), "__init__"} - EVERYWHERE
    assert used == LAYERS


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


@pytest.mark.parametrize("path", FILES, ids=name_of)
def test_no_function_is_long(path: Path):
    nodes = ast.walk(ast.parse(path.read_text()))
    functions = [node for node in nodes if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)]
    long = {f.name: f.end_lineno - f.lineno + 1 for f in functions if f.end_lineno}
    assert {name: lines for name, lines in long.items() if lines >= LONGEST_FUNCTION} == {}


def test_only_the_factory_knows_both_trainers():
    knowing = [path for path in FILES if {"Trainer", "PopulationTrainer"} <= imported_names(path)]
    assert [name_of(path) for path in knowing] == ["train/sessions.py"]


def imported_names(path: Path) -> set[str]:
    imports = [node for node in ast.walk(ast.parse(path.read_text())) if isinstance(node, ast.ImportFrom)]
    return {alias.name for node in imports for alias in node.names}
