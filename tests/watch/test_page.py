"""What can be told of the page's files without a browser."""

import re
from importlib import resources
from itertools import product

import pytest

FILES = {file.name: file.read_text() for file in (resources.files("qpensieve.watch") / "page").iterdir()}
PAGE, STYLE = FILES["index.html"], FILES["style.css"]
SCRIPTS = {name: text for name, text in FILES.items() if name.endswith(".js")}
TEXTS = [
    ("ink", "card"),
    ("ink", "ground"),
    ("soft", "card"),
    ("soft", "ground"),
    ("soft", "hover"),
    ("accent-ink", "accent"),
    ("accent", "card"),
    ("good", "card"),
    ("bad", "card"),
    ("bad", "bad-ground"),
    ("card", "side-a"),
    ("card", "side-b"),
]
"""Colours of text and of what it stands on."""


def colours(theme: str) -> dict[str, str]:
    """The named colours of a theme."""
    light, dark = re.findall(r":root \{(.*?)\}", STYLE, re.DOTALL)
    named = lambda block: dict(re.findall(r"--([a-z-]+): (#[0-9a-f]{6});", block))
    return named(light) | (named(dark) if theme == "dark" else {})


def luminance(colour: str) -> float:
    """Relative luminance as WCAG defines it."""
    channels = [int(colour[i : i + 2], 16) / 255 for i in (1, 3, 5)]
    linear = [c / 12.92 if c <= 0.03928 else ((c + 0.055) / 1.055) ** 2.4 for c in channels]
    return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]


def contrast(one: str, other: str) -> float:
    low, high = sorted((luminance(one), luminance(other)))
    return (high + 0.05) / (low + 0.05)


@pytest.mark.parametrize(("theme", "pair"), [*product(("light", "dark"), TEXTS)])
def test_text_can_be_read(theme: str, pair: tuple[str, str]):
    named = colours(theme)
    assert contrast(named[pair[0]], named[pair[1]]) >= 4.5


@pytest.mark.parametrize("theme", ["light", "dark"])
def test_objectives_stand_out_from_the_card(theme: str):
    listed = re.search(rf"{theme}: \[(.*?)\]", FILES["palette.js"])
    assert listed is not None
    found = re.findall(r"#[0-9a-f]{6}", listed[1])
    assert len(found) == 8
    assert min(contrast(colour, colours(theme)["card"]) for colour in found) >= 3


def test_the_page_obeys_its_content_security_policy():
    assert not re.search(r"<style|\sstyle=|\son[a-z]+=|javascript:", PAGE)
    assert re.findall(r"<script(.*?)>(.*?)</script>", PAGE) == [(' type="module" src="main.js"', "")]
    for name, text in SCRIPTS.items():
        assert not re.search(r"eval\(|new Function|innerHTML|insertAdjacentHTML|document\.write", text), name


def test_nothing_comes_from_elsewhere():
    for name, text in FILES.items():
        addresses = re.findall(r"(?:https?:)?//[a-z][a-z0-9.-]+\.[a-z]{2,}[^\s\"'`]*", text)
        assert set(addresses) <= {"http://www.w3.org/2000/svg"}, name  # the name of SVG, not a place


def test_every_file_that_is_asked_for_is_there_and_no_other():
    asked = set(re.findall(r'(?:src|href)="([^"#]+)"', PAGE))
    asked |= {name for text in SCRIPTS.values() for name in re.findall(r'from "\./([^"]+)"', text)}
    assert asked | {"index.html"} == set(FILES)


def test_every_element_that_a_script_names_is_on_the_page():
    there = set(re.findall(r'\sid="([^"]+)"', PAGE)) | {"dial"}  # made by dial.js
    for name, text in SCRIPTS.items():
        assert set(re.findall(r'byId\("([^"]+)"\)', text)) <= there, name
