"""Run a benchmark: python -m benchmarks NAME [--json FILE] [options]; --help after a name lists the options."""

import argparse
import dataclasses
import importlib
import sys
from pathlib import Path

import tyro

from qpensieve.console import format_table
from qpensieve.errors import UserError
from qpensieve.records.provenance import write_rows

NAMES = ("lanes", "blocks", "update", "methods", "collect", "train", "sb3")


def main(words: list[str] | None = None) -> None:
    """Measure, print the table, and write the figures if a file is named."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks", add_help=False)
    parser.add_argument("name", choices=NAMES)
    parser.add_argument("--json", type=Path, metavar="FILE", help="also write the figures to this file")
    arguments, options = parser.parse_known_args(words)
    benchmark = importlib.import_module(f"benchmarks.{arguments.name}")
    settings = tyro.cli(benchmark.Settings, args=options, prog=f"python -m benchmarks {arguments.name}")
    try:
        rows = benchmark.run(settings, progress=lambda line: print(line, file=sys.stderr))
    except UserError as error:
        raise SystemExit(str(error)) from None
    print(format_table(rows))
    if arguments.json is not None:
        write_rows(arguments.json, arguments.name, rows, dataclasses.asdict(settings))
        print(f"written: {arguments.json}")


if __name__ == "__main__":
    main()
