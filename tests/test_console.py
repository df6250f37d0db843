"""The terminal: the line that people watch, and how numbers and tables are shown."""

import sys

import pytest

from qpensieve import console
from qpensieve.console import Progress


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """The time, to be moved by hand."""
    now = [100.0]
    monkeypatch.setattr(console.time, "monotonic", lambda: now[0])
    return now


class TestProgress:
    def test_a_terminal_sees_one_line_with_rate_time_left_and_notes(
        self, clock: list[float], capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
    ):
        monkeypatch.setattr(sys.stderr, "isatty", lambda: True)
        progress = Progress(1000, 0)
        progress.note(**{"UT(short)": "5.2"})
        clock[0] += 10.0
        progress.show(250)
        text = capsys.readouterr().err
        assert text.startswith("\r\x1b[K")
        assert "\n" not in text
        for part in ("[#####...............]", "250/1,000 steps", "25 steps/s", "00:30 left", "UT(short) 5.2"):
            assert part in text

    def test_it_is_shown_twice_a_second_at_most(
        self, clock: list[float], capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
    ):
        monkeypatch.setattr(sys.stderr, "isatty", lambda: True)
        progress = Progress(1000, 0)
        for step in range(1, 101):
            clock[0] += 0.1
            progress.show(step)
        assert 15 <= capsys.readouterr().err.count("\r") <= 20

    def test_a_file_gets_a_plain_line_now_and_then(self, clock: list[float], capsys: pytest.CaptureFixture[str]):
        progress = Progress(1000, 0)
        for step in range(1, 101):
            clock[0] += 1.0
            progress.show(step)
        text = capsys.readouterr().err
        assert len(text.splitlines()) == 3
        assert "\x1b" not in text

    def test_the_rate_of_a_resumed_run_counts_from_where_it_began(
        self, clock: list[float], capsys: pytest.CaptureFixture[str]
    ):
        progress = Progress(1000, 500)
        clock[0] += 10.0
        progress.show(600, force=True)
        assert " 10 steps/s  00:40 left" in capsys.readouterr().err

    def test_nothing_is_said_in_quiet_nor_divided_by_zero(self, clock: list[float], capsys: pytest.CaptureFixture[str]):
        quiet = Progress(10, 0, quiet=True)
        quiet.show(5, force=True)
        quiet.say("hello")
        assert capsys.readouterr().err == ""
        Progress(10, 10).show(10, force=True)
        assert "--:-- left" in capsys.readouterr().err

    def test_long_times_have_hours(self, clock: list[float], capsys: pytest.CaptureFixture[str]):
        progress = Progress(100_000, 0)
        clock[0] += 100.0
        progress.show(1000, force=True)
        assert "2:45:00 left" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("value", "digits", "whole_from", "text"),
    [
        (7.25681, 4, 1e4, "7.257"),
        (-12345.6, 4, 1e4, "-12,346"),
        (9999.4, 4, 1e4, "9999"),
        (1234.5, 3, 1e3, "1,234"),
        (3, 4, 1e4, "3"),
    ],
)
def test_numbers_have_few_digits_and_large_ones_commas(value: float, digits: int, whole_from: float, text: str):
    assert console.format_number(value, digits, whole_from) == text


def test_a_spread_is_shown_by_the_same_format_on_both_sides():
    assert console.format_spread(7.25681, 12345.6) == "7.257 +- 12,346"
    assert console.format_spread(0.5, 0.25, "{:.3f}".format) == "0.500 +- 0.250"


def test_a_table_has_words_to_the_left_and_numbers_to_the_right_below_a_rule():
    rows = [{"name": "a", "rate": 1234.5, "num": 3}, {"name": "longer", "rate": None, "num": True}]
    assert console.format_table(rows).splitlines() == [
        "name     rate   num",
        "-------------------",
        "a       1,234     3",
        "longer      -  True",
    ]


def test_markdown_has_commas_in_whole_numbers_only():
    rows = [{"method": "mosac", "steps": 1000, "UT": "7.00 +- 0.10"}]
    assert console.format_markdown(rows).splitlines() == [
        "| method | steps | UT |",
        "| --- | --- | --- |",
        "| mosac | 1,000 | 7.00 +- 0.10 |",
    ]
