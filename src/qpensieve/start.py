"""Where the command `qpensieve` begins: what needs no JAX is answered at once, the rest says that it is loading."""

import sys
from collections.abc import Iterator
from contextlib import contextmanager

import qpensieve
from qpensieve import pages

ERASE_LINE = "\r\x1b[K"


def main() -> None:
    """Entry point of the command line."""
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
    except ValueError as error:
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
