"""Imports point one way (docs/architecture.md), and what must not run at import does not."""

import ast
from pathlib import Path

import pytest

import qpensieve

ROOT = Path(qpensieve.__file__).parent
FORBIDDEN = {
    "metrics": {"envs", "algos", "train", "api", "cli", "bench"},
    "envs": {"algos", "train", "api", "cli", "bench"},
    "tabular": {"envs", "algos", "api", "cli"},
    "algos": {"envs", "train", "report", "api", "cli", "bench"},
    "report": {"algos", "train", "api", "cli", "bench"},
    "preferences": {"envs", "metrics", "algos", "train", "api", "cli", "bench"},
    "types": {"envs", "metrics", "preferences", "algos", "train", "api", "cli", "bench"},
}


def _imports(path: Path) -> set[str]:
    names = set()
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.ImportFrom) and node.module:
            names.add(node.module)
            names |= {f"{node.module}.{alias.name}" for alias in node.names}
        elif isinstance(node, ast.Import):
            names |= {alias.name for alias in node.names}
    return {name.split(".")[1] for name in names if name.startswith("qpensieve.")}


@pytest.mark.parametrize("part", FORBIDDEN)
def test_imports_point_one_way(part: str):
    files = [ROOT / f"{part}.py"] if (ROOT / f"{part}.py").exists() else list((ROOT / part).rglob("*.py"))
    assert files
    for path in files:
        assert not _imports(path) & FORBIDDEN[part], path
