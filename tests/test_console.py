"""The terminal: the line that people watch, and how numbers and tables are shown."""

import io

import pytest

from qpensieve import console
from qpensieve.console import DONE, EVALUATING, LEARNING, RANDOM, SAVING, Progress, Workload


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """The time, to be moved by hand."""
    now = [100.0]
    monkeypatch.setattr(console.time, "monotonic", lambda: now[0])
    return now


class FakeTerminal(io.StringIO):
    def isatty(self) -> bool:
        return True

    @property
    def lines(self) -> list[str]:
        """What the line showed, one after the other."""
        return self.getvalue().split("\r\x1b[K")[1:]


@pytest.fixture
def terminal(monkeypatch: pytest.MonkeyPatch) -> FakeTerminal:
    monkeypatch.setenv("COLUMNS", "140")
    return FakeTerminal()


def run(progress: Progress, clock: list[float], phase: str, steps: range, seconds: float) -> None:
    """Blocks of a phase, each of so many seconds."""
    for step in steps:
        progress.enter(phase)
        clock[0] += seconds
        progress.show(step)


class TestProgress:
    def test_a_terminal_sees_one_line_with_rate_time_left_and_notes(self, clock: list[float], terminal: FakeTerminal):
        progress = Progress(1000, 0, terminal)
        progress.note(**{"UT(short)": "5.2"})
        clock[0] += 10.0
        progress.show(250)
        (line,) = terminal.lines
        assert line == "[#####...............]  250/1,000 steps  00:30 left  25 steps/s  UT(short) 5.2"

    @pytest.mark.parametrize("width", [20, 60, 140])
    def test_no_line_reaches_the_last_column_and_the_phase_comes_first(
        self, width: int, clock: list[float], terminal: FakeTerminal, monkeypatch: pytest.MonkeyPatch
    ):
        workload = Workload(random_steps=10_000, eval_period=50_000, final_evaluation=10.0)
        progress = Progress(1_500_000, 0, terminal, workload=workload)
        monkeypatch.setenv("COLUMNS", str(width))  # people change it meanwhile
        progress.note(**{"UT(short)": "-1234.5", "HV(short)": "1.234e+06", "temperature": "0.2", "archive HV": "1e6"})
        run(progress, clock, RANDOM, range(1000, 11_000, 1000), 1.0)
        run(progress, clock, LEARNING, range(11_000, 51_000, 1000), 30.0)
        run(progress, clock, EVALUATING, range(50_000, 50_001), 30.0)
        assert max(map(len, terminal.lines)) < width
        assert any("steps" in line for line in terminal.lines)
        shown = all(name in terminal.getvalue() for name in (RANDOM, LEARNING, EVALUATING, "left", "to learning"))
        assert shown == (width >= 60)
        assert ("HV(short) 1.234e+06" in terminal.getvalue()) == (width >= 140)

    def test_phases_are_named_at_once_and_the_first_blocks_are_compiling(
        self, clock: list[float], terminal: FakeTerminal
    ):
        progress = Progress(100, 0, terminal, workload=Workload(random_steps=20))
        run(progress, clock, RANDOM, range(10, 30, 10), 1.0)
        run(progress, clock, LEARNING, range(30, 50, 10), 1.0)
        progress.enter(EVALUATING)
        progress.enter(SAVING)
        progress.enter(DONE)
        shown = [line.split("  ")[1] for line in terminal.lines]
        assert shown == ["compiling", RANDOM, RANDOM, "compiling", LEARNING, LEARNING, EVALUATING, SAVING, DONE]
        assert "took 00:04" in terminal.lines[-1]

    def test_the_time_left_is_that_of_learning_and_does_not_rise_after_the_random_steps(self, clock: list[float]):
        progress = Progress(1000, 0, out := FakeTerminal(), workload=Workload(random_steps=100))
        run(progress, clock, RANDOM, range(10, 60, 10), 2.0)
        assert "00:10 to learning" in out.lines[-1]
        run(progress, clock, RANDOM, range(60, 110, 10), 0.1)
        assert progress.seconds_left() == float("inf")
        run(progress, clock, LEARNING, range(110, 111), 60.0)  # compiles: nobody's pace
        assert progress.seconds_left() == float("inf")
        left = []
        for step in range(120, 1010, 10):
            run(progress, clock, LEARNING, range(step, step + 1), 10.0)
            left.append(progress.seconds_left())
        assert left[0] == pytest.approx(880, rel=0.15)
        assert left == sorted(left, reverse=True)
        assert left[-1] == 0

    def test_a_file_gets_a_plain_line_now_and_then_and_the_first_of_every_phase(self, clock: list[float]):
        out = io.StringIO()
        progress = Progress(1000, 0, out)
        run(progress, clock, LEARNING, range(1, 101), 1.0)
        progress.enter(EVALUATING)
        progress.enter(LEARNING)
        lines = out.getvalue().splitlines()
        assert [line.split("  ")[1] for line in lines] == ["compiling", *[LEARNING] * 3, EVALUATING]
        assert "\x1b" not in out.getvalue()
        assert "\r" not in out.getvalue()

    def test_quiet_progress_shows_answers_alone(self, clock: list[float], terminal: FakeTerminal):
        quiet = Progress(10, 0, terminal, quiet=True)
        quiet.enter(LEARNING)
        quiet.show(5, force=True)
        quiet.say("hello")
        quiet.end()
        assert terminal.getvalue() == ""
        quiet.answer("stopping")
        assert terminal.getvalue() == "stopping\n"
        Progress(10, 10, terminal).show(10, force=True)
        assert "00:00 left" in terminal.lines[-1]

    def test_a_long_run_says_once_how_long(self, clock: list[float], terminal: FakeTerminal):
        workload = Workload(size="1.5M steps x 5 seeds", hint="--preset quick takes a few minutes")
        progress = Progress(1_500_000, 0, terminal, workload=workload)
        run(progress, clock, LEARNING, range(100, 1000, 100), 1.0)
        said = [line for line in terminal.lines if line.endswith("\n")]
        assert said == [
            "1.5M steps x 5 seeds: about 4.2 hours more on this machine; --preset quick takes a few minutes\n"
        ]


@pytest.mark.parametrize(
    ("said", "text"),
    [
        *((console.format_duration(30.0), "less than a minute"), (console.format_duration(60.0), "1 minute")),
        *((console.format_duration(150.0), "2.5 minutes"), (console.format_duration(36_000.0), "10 hours")),
        *((console.format_count(999), "999"), (console.format_count(35_000), "35k")),
        *((console.format_count(1_500_000), "1.5M"), (console.clock(9_900.0), "2:45:00")),
        *((console.format_number(7.25681), "7.257"), (console.format_number(-12345.6), "-12,346")),
        *((console.format_number(9999.4), "9999"), (console.format_number(1234.5, 3, 1e3), "1,234")),
        *((console.format_number(3), "3"), (console.format_spread(7.25681, 12345.6), "7.257 +- 12,346")),
        (console.format_spread(0.5, 0.25, "{:.3f}".format), "0.500 +- 0.250"),
        (console.format_spread(7.25681, None), "7.257"),
    ],
)
def test_numbers_and_times_are_short(said: str, text: str):
    assert said == text


def test_a_table_too_wide_breaks_its_headings_and_then_goes_on_below():
    rows = [{"name": "a", "a long heading": 1.5, "another one here": 2.5}]
    assert console.format_table(rows, 25).splitlines() == [
        "               another",
        "       a long      one",
        "name  heading     here",
        "----------------------",
        "a         1.5      2.5",
    ]
    blocks = console.format_table(rows, 18).split("\n\n")
    assert len(blocks) == 2
    assert all(block.splitlines()[-1].startswith("a ") for block in blocks)
    assert all(len(line) <= 18 for block in blocks for line in block.splitlines())
