"""Markdown files as the tests see them: fenced blocks, headings and links."""

import re
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).parents[2]
FENCE = re.compile(r"^```(?P<info>[^\n`]*)\n(?P<text>.*?)^```[ ]*$", re.MULTILINE | re.DOTALL)
HEADING = re.compile(r"^#{1,6} +(?P<title>.+?)[ #]*$", re.MULTILINE)
LINK = re.compile(r"\]\((?P<target>[^()\s]+)\)|(?:src|href)=\"(?P<html>[^\"]+)\"")
TITLE = re.compile(r'title="(?P<name>[^"]+)"')


@dataclass(frozen=True)
class Block:
    """A fenced block: its language, its text, and the name of the file it shows (None: no file)."""

    language: str
    text: str
    file: str | None
    line: int


def all_pages() -> list[Path]:
    """Every Markdown file that belongs to the project."""
    folders = [ROOT.glob("*.md"), *((ROOT / name).rglob("*.md") for name in ("docs", "examples", "results", "tools"))]
    return sorted(path for found in folders for path in found)


def blocks(text: str) -> list[Block]:
    """The fenced blocks of a page, in order."""
    return [_block(match, text) for match in FENCE.finditer(text)]


def prose(text: str) -> str:
    """The page without fenced blocks and code spans: what is left may hold links and headings."""
    return re.sub(r"`[^`\n]*`", "", FENCE.sub("", text))


def links(text: str) -> list[str]:
    """Targets of the links and pictures of a page."""
    return [match["target"] or match["html"] for match in LINK.finditer(prose(text))]


def anchors(text: str) -> set[str]:
    """Anchors of a page's headings, as GitHub makes them."""
    found: list[str] = []
    for match in HEADING.finditer(FENCE.sub("", text)):
        title = re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", match["title"])
        slug = re.sub(r"[^\w\- ]", "", title.lower()).replace(" ", "-")
        found.append(slug if slug not in found else f"{slug}-{found.count(slug)}")
    return set(found)


def _block(match: re.Match[str], text: str) -> Block:
    language, _, rest = match["info"].strip().partition(" ")
    name = TITLE.search(rest)
    return Block(language, match["text"], name and name["name"], text.count("\n", 0, match.start()) + 2)
