"""Where the command `qpensieve` begins: what needs no JAX is answered at once, the rest says that it is loading."""

import os
import select
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import NoReturn, TextIO

import qpensieve
from qpensieve import pages
from qpensieve.errors import UserError

ERASE_LINE = "\r\x1b[K"
EXIT_UNHEARD = 128 + 13
"""As a shell says it of a program that SIGPIPE has ended."""


def main() -> None:
    """Entry point of the command line."""
    try:
        try:
            _main()
        finally:
            sys.stdout.flush()
    except BrokenPipeError:
        _end_unheard()


def _end_unheard() -> NoReturn:
    """End without a word, as other commands do, where the reader of the output has ended."""
    closed = [stream for stream in (sys.stdout, sys.stderr) if _is_closed(stream)]
    if not closed:
        raise
    for stream in closed:  # Python flushes them once more at its end
        os.dup2(os.open(os.devnull, os.O_WRONLY), stream.fileno())
    sys.exit(EXIT_UNHEARD)


def _is_closed(stream: TextIO) -> bool:
    poll = select.poll()
    poll.register(stream, 0)
    return any(event & select.POLLERR for _, event in poll.poll(0))


def _main() -> None:
    words = sys.argv[1:]
    if words[:1] == ["help"]:
        words = [*words[1:], "--help"]
    if not words or words[0] in ("-h", "--help"):
        print(pages.overview(pages.COMMANDS, "qpensieve", f"{pages.ABOUT} {pages.PREFERENCE}"))
    elif words[0] in ("-V", "--version"):
        print(qpensieve.__version__)
    else:
        _run(words)


def _run(words: list[str]) -> None:
    try:
        pages.check_command(words[0], pages.COMMANDS, "qpensieve")
        with _loading():
            from qpensieve import cli
    except UserError as error:
        sys.exit(f"qpensieve: {error}")
    except KeyboardInterrupt:
        sys.exit("interrupted")
    cli.main(words)


@contextmanager
def _loading() -> Iterator[None]:
    """Say so while the package is imported, which takes seconds; on a terminal only, and gone afterwards."""
    is_shown = sys.stderr.isatty()
    if is_shown:
        print("loading JAX and qpensieve ...", end="", file=sys.stderr, flush=True)
    try:
        yield
    finally:
        if is_shown:
            print(ERASE_LINE, end="", file=sys.stderr, flush=True)
