"""Links and anchors of every page lead somewhere; the reference lists every public name, and each has a docstring."""

import inspect
import re
from pathlib import Path
from typing import Any

import pytest

import qpensieve
from qpensieve import cli
from tests.docs.pages import ROOT, all_pages, anchors, blocks, links

REFERENCE = ROOT / "docs" / "api.md"
OUTSIDE = ("https://", "http://", "mailto:")


def broken(page: Path, target: str) -> str | None:
    """What is wrong with a link of a page; None if it leads somewhere."""
    name, _, anchor = target.partition("#")
    file = (page.parent / name).resolve() if name else page
    if not file.is_relative_to(ROOT):
        return f"{target} leaves the repository"
    if not file.exists():
        return f"{target} does not exist"
    if anchor and (file.suffix != ".md" or anchor not in anchors(file.read_text())):
        return f"{target}: no such heading"
    return None


def public_names() -> list[tuple[str, Any]]:
    parts = [("qpensieve", qpensieve)]
    parts += [(f"qpensieve.{name}", getattr(qpensieve, name)) for name in ("callbacks", "envs", "metrics")]
    return [(f"{prefix}.{name}", getattr(part, name)) for prefix, part in parts for name in part.__all__]


class TestLinks:
    @pytest.mark.parametrize("page", all_pages(), ids=lambda page: str(page.relative_to(ROOT)))
    def test_links_lead_somewhere(self, page: Path):
        inside = [target for target in links(page.read_text()) if not target.startswith(OUTSIDE)]
        assert [problem for target in inside if (problem := broken(page, target))] == []

    def test_a_broken_link_is_found(self):
        page = ROOT / "README.md"
        assert broken(page, "docs/nothing.md") == "docs/nothing.md does not exist"
        assert broken(page, "docs/glossary.md#nothing") == "docs/glossary.md#nothing: no such heading"
        assert broken(page, "../secret.md") == "../secret.md leaves the repository"
        assert broken(page, "docs/glossary.md#the-scores") is None

    def test_links_in_code_do_not_count(self):
        assert links("[a](b.md) `[c](d.md)`\n```\n[e](f.md)\n```\n") == ["b.md"]

    def test_the_index_has_every_page(self):
        index = ROOT / "docs" / "index.md"
        listed = {(index.parent / target).resolve() for target in links(index.read_text())}
        methods = ROOT / "docs" / "algorithms"
        pages = {page for page in (ROOT / "docs").rglob("*.md") if page.parent != methods} - {index}
        assert sorted(str(page) for page in pages - listed) == []


class TestReference:
    @pytest.mark.parametrize(("name", "value"), public_names(), ids=lambda one: one if isinstance(one, str) else "")
    def test_public_names_have_docstrings(self, name: str, value: Any):
        if inspect.ismodule(value) or inspect.isclass(value) or callable(value):
            assert value.__doc__, f"{name} has no docstring"

    def test_methods_of_agents_have_docstrings(self):
        methods = [name for name in vars(qpensieve.Agent) if not name.startswith("_")]
        assert [name for name in methods if not inspect.getdoc(getattr(qpensieve.Agent, name))] == []

    def test_the_reference_has_every_public_name(self):
        shown = set(re.findall(r"^::: (\S+)$", REFERENCE.read_text(), re.MULTILINE))
        assert {name for name, _ in public_names() if not name.endswith("__version__")} - shown == set()


@pytest.mark.parametrize("page", all_pages(), ids=lambda page: str(page.relative_to(ROOT)))
def test_commands_of_pages_exist(page: Path):
    text = "".join(block.text for block in blocks(page.read_text()) if block.language in ("", "sh", "bash"))
    used = set(re.findall(r"^qpensieve (\w[\w-]*)", text, re.MULTILINE))
    assert used - set(cli.COMMANDS) == set()
