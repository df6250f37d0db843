"""The command `qpensieve`: the table of commands, which needs no JAX, and the messages of failed commands."""

import difflib
import os
import select
import sys
import textwrap
import traceback
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from importlib import import_module
from typing import NoReturn, TextIO

import qpensieve
from qpensieve import console
from qpensieve.errors import ShownError, StopTraining, UserError, is_refusal
from qpensieve.train.interrupts import termination

COMMANDS: dict[str, tuple[str, str]] = {
    "train": ("commands:train", "Train Q-Pensieve or another method on a domain."),
    "resume": ("commands:resume", "Continue a run that was stopped or killed, or train it longer."),
    "evaluate": ("commands:evaluate", "Play the full protocol with the newest policies of a run; draw pictures."),
    "watch": ("watch.commands:watch", "Turn the preference and see the policy act, in the browser."),
    "video": ("watch.commands:video", "Write a film of a policy, a panel for each preference."),
    "plot": ("commands:plot", "Draw the pictures of a run, or the curves of several runs in one."),
    "export": ("commands:export", "Write a run as one small JSON file: settings, machine, scores and returns."),
    "calibrate": ("commands:calibrate", "Find for each preference the one to ask the policy for in its place."),
    "export-policy": (
        "commands:export_policy",
        "Write a policy for programs without qpensieve, which need NumPy alone.",
    ),
    "compare": ("commands:compare", "Compare runs: UT, HV, ED against MO-SAC, and settings that differ."),
    "critic": ("commands:critic", "Measure L_critic: how far the critics of a run are from Monte-Carlo returns."),
    "policies": ("commands:policies", "List the policies that come with qpensieve: zoo:NAME works like a run."),
    "domains": ("commands:domains", "List the built-in domains: sizes, time limit, objectives, reference point."),
    "paper": ("", "Make the paper's tables and figures: list, plan, run, status, report."),
    "sweep": ("experiments.commands:sweep", "Make the runs of your own plan, a TOML file, and their report."),
    "theory": ("theory.command:theory", "Run the paper's theorem on a small problem, with pictures."),
    "version": ("cli:version", "Print the version."),
    "paper list": ("experiments.commands:list_artefacts", "List the tables and figures with their cost."),
    "paper plan": ("experiments.commands:plan", "Show the runs that tables and figures need, with their cost."),
    "paper run": ("experiments.commands:run", "Make the runs, then the report; a second call continues."),
    "paper status": ("experiments.commands:status", "Show which runs are done, running, waiting or failed."),
    "paper report": ("experiments.commands:report", "Write the tables and figures of the runs so far."),
}
"""Command -> its function as `module:name`, and a sentence for help."""
ABOUT = {
    "qpensieve": "One policy for every trade-off between several objectives. A preference (lam) has a weight for each "
    "objective; weights are not negative and sum to 1.",
    "qpensieve paper": "Make the tables and figures of the paper: find the runs that they need, make the runs on this "
    "machine or others, resume stopped runs, and write the report. Without names: all tables and figures.",
}
EXIT_FAILED, EXIT_BUG, EXIT_STOPPED, EXIT_TERMINATED = 1, 70, 130, 143
EXIT_UNHEARD = 128 + 13
"""Exit code if the reader of the output has ended, as shells give for SIGPIPE."""
SAVE_WHEN_STOPPED = ("train", "resume", "paper", "sweep")
"""Commands that save at SIGTERM."""
OUT_OF_MEMORY = "RESOURCE_EXHAUSTED"
"""Text in XLA's errors about a lack of memory, which have no type of their own."""
DEBUG = "QPENSIEVE_DEBUG"
"""Environment variable: 1 shows the traceback of every error."""
ERASE_LINE = "\r\x1b[K"


def version() -> None:
    """Print the version."""
    print(qpensieve.__version__)


@console.plain_warnings()
def main(arguments: list[str] | None = None) -> None:
    """Run the command line."""
    words = sys.argv[1:] if arguments is None else arguments
    is_saving = any(word in SAVE_WHEN_STOPPED for word in words[:1])
    try:
        with termination() if is_saving else nullcontext(lambda: False) as is_terminated:
            try:
                _run(words)
            except BrokenPipeError:
                raise
            except (Exception, KeyboardInterrupt) as error:
                _end_by(error, EXIT_TERMINATED if is_terminated() else EXIT_STOPPED)
            finally:
                sys.stdout.flush()
    except BrokenPipeError:
        _end_unheard()


def _run(words: list[str]) -> None:
    words = [*words[1:], "--help"] if words[:1] == ["help"] else words
    prog = "qpensieve paper" if words[:1] == ["paper"] else "qpensieve"
    prefix, words = ("paper ", words[1:]) if words[:1] == ["paper"] else ("", words)
    names = [name.removeprefix(prefix) for name in COMMANDS if name.startswith(prefix)]
    names = [name for name in names if " " not in name]
    if words[:1] in (["-V"], ["--version"]):
        version()
    elif not words or words[0] in ("-h", "--help"):
        rows = {name: COMMANDS[prefix + name][1] for name in names}
        about = textwrap.fill(ABOUT[prog], console.PAGE)
        print(f"usage: {prog} COMMAND ...\n\n{about}\n\n{console.format_entries(rows)}\n")
        print(f"{prog} COMMAND --help says more.")
    elif words[0] not in names:
        near = difflib.get_close_matches(words[0], names, n=1, cutoff=0.5)
        hint = f"; did you mean '{prog} {near[0]}'?" if near else "."
        raise UserError(f"unknown command {words[0]!r}{hint} There are: {', '.join(names)}")
    else:
        module, _, name = COMMANDS[prefix + words[0]][0].partition(":")
        with _loading():
            from qpensieve.options import parse

            function: Callable[..., None] = getattr(import_module(f"qpensieve.{module}"), name)
        if name == "train":  # its options depend on --algo and --preset
            function(words[1:])
        else:
            parse(function, words[1:], f"{prog} {words[0]}")


def _end_by(error: BaseException, when_stopped: int) -> NoReturn:
    """Print why the command ends, in one sentence; for a bug also the traceback. Then exit."""
    if isinstance(error, StopTraining | KeyboardInterrupt):
        print(str(error) or "interrupted", file=sys.stderr)
        sys.exit(when_stopped)
    sentence = _sentence(error)
    if sentence is None or os.environ.get(DEBUG, "0") not in ("", "0"):
        traceback.print_exception(error)
    if sentence is None:
        cause = f"{type(error).__name__}: {error}".partition("\n")[0]
        print(f"this is a bug in qpensieve ({cause}): please report it with the lines above", file=sys.stderr)
        sys.exit(EXIT_BUG)
    print(f"qpensieve: {sentence}", file=sys.stderr)
    sys.exit(EXIT_FAILED)


def _sentence(error: BaseException) -> str | None:
    """Return the message of an error whose cause a user can remove, such as a lack of memory; None for a bug."""
    why = str(error).partition("\n")[0]
    if isinstance(error, MemoryError) or OUT_OF_MEMORY in why:
        about = f" ({why})" if why else ""
        return f"there is not enough memory{about}; use fewer seeds, a smaller replay or a smaller batch"
    if not isinstance(error, ShownError) and not is_refusal(error):
        return None
    if isinstance(error, OSError) and error.strerror:  # without the number of the error
        return f"{error.filename}: {error.strerror}" if error.filename else error.strerror
    return str(error)


def _end_unheard() -> NoReturn:
    """Exit without a message, because the reader of the output has ended.

    Raises:
        BrokenPipeError: Both streams are open, so another pipe is broken.
    """
    closed = [stream for stream in (sys.stdout, sys.stderr) if _is_closed(stream)]
    if not closed:
        raise
    for stream in closed:  # Python flushes the streams again at its end
        os.dup2(os.open(os.devnull, os.O_WRONLY), stream.fileno())
    sys.exit(EXIT_UNHEARD)


def _is_closed(stream: TextIO) -> bool:
    poll = select.poll()
    poll.register(stream, 0)
    return any(event & select.POLLERR for _, event in poll.poll(0))


@contextmanager
def _loading() -> Iterator[None]:
    """Show a line on a terminal while the package is imported, which takes seconds. Then erase the line."""
    is_shown = sys.stderr.isatty()
    if is_shown:
        print("loading JAX and qpensieve ...", end="", file=sys.stderr, flush=True)
    try:
        yield
    finally:
        if is_shown:
            print(ERASE_LINE, end="", file=sys.stderr, flush=True)
