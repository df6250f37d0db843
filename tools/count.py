"""Measure the size of the project: python tools/count.py [--no-run] [--path FILE ...].

It prints code lines, tokens, words, `Any`, options, habits of the language, and the functions that a short run calls.
Code lines are lines with code: no blank lines, comments or docstrings.
"""

import argparse
import ast
import dataclasses
import inspect
import io
import re
import subprocess
import sys
import tempfile
import threading
import tokenize
from collections.abc import Iterator
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
PACKAGE = ROOT / "src" / "qpensieve"
NO_CODE = (tokenize.COMMENT, tokenize.NL, tokenize.NEWLINE, tokenize.INDENT, tokenize.DEDENT, tokenize.ENDMARKER)
ON_THE_PATH = ("algos", "algorithms", "learning", "acting", "replay", "train", "training")
"""Packages whose files count as the path of an update and its loop, where the run calls them."""
HABITS = ("beside", "anew", "so manieth", "of ours", "others than", "goes on", "stands", "stands still", "is told")


def files(folder: str, pattern: str = "*") -> list[Path]:
    """List the files of a folder that Git tracks or would track."""
    command = ["git", "ls-files", "--cached", "--others", "--exclude-standard", "--", folder]
    names = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True).stdout.splitlines()
    return [path for path in (ROOT / name for name in names) if path.match(pattern) and path.is_file()]


def code_size(path: Path) -> tuple[int, int]:
    """Return code lines and tokens of a Python file."""
    text = path.read_text()
    bodies = [body for node in ast.walk(ast.parse(text)) if isinstance(body := getattr(node, "body", None), list)]
    values = [item.value for body in bodies for item in body if isinstance(item, ast.Expr)]
    strings = [one for one in values if isinstance(one, ast.Constant) and isinstance(one.value, str)]
    doc = {line for one in strings for line in range(one.lineno, (one.end_lineno or one.lineno) + 1)}
    tokens = [one for one in tokenize.generate_tokens(io.StringIO(text).readline) if one.type not in NO_CODE]
    tokens = [one for one in tokens if one.start[0] not in doc]
    return len({line for one in tokens for line in range(one.start[0], one.end[0] + 1)}), len(tokens)


def total(paths: list[Path]) -> tuple[int, int, int]:
    """Return code lines, tokens and number of some Python files."""
    sizes = [code_size(path) for path in paths]
    return sum(lines for lines, _ in sizes), sum(tokens for _, tokens in sizes), len(paths)


def any_count(paths: list[Path]) -> tuple[int, int]:
    """Count `Any`, alone and together with names of types that contain `Any`."""
    trees = [ast.parse(path.read_text()) for path in paths]
    has_any = lambda node: any(isinstance(one, ast.Name) and one.id == "Any" for one in ast.walk(node))
    types = (ast.Subscript, ast.BinOp, ast.Name)
    given = [one for tree in trees for one in tree.body if isinstance(one, ast.Assign) and isinstance(one.value, types)]
    aliases = {"Any", *(name.id for one in given if has_any(one.value) for name in one.targets)}  # pyright: ignore
    found = [node for tree in trees for node in ast.walk(tree) if isinstance(node, ast.Name)]
    used = [node.id for node in found if isinstance(node.ctx, ast.Load) and node.id in aliases]
    return used.count("Any"), len(used)


def help_options(flag: str) -> str:
    """Return the number of options on a help page of `train`; `-` if there is no such page."""
    command = [sys.executable, "-m", "qpensieve", "train", flag]
    shown = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    if shown.returncode:
        return "-"
    return str(len(set(re.findall(r"^[\s│]*(?:-\w, )?(--[a-z][\w-]*)", shown.stdout, re.MULTILINE))))


def config_fields() -> int:
    """Count the fields of the settings of all methods and of a run; inherited fields count once."""
    from qpensieve.config import RunConfig
    from qpensieve.methods import METHODS
    from qpensieve.train.run_loop import Options

    found: dict[type, set[str]] = {}
    todo: list[type] = [RunConfig, Options, *(method.config for method in METHODS.values())]
    while todo:
        kind = todo.pop()
        for owner in kind.__mro__:
            if dataclasses.is_dataclass(owner) and owner not in found:
                found[owner] = set(vars(owner).get("__annotations__", {}))
                todo += [one.type for one in dataclasses.fields(owner) if isinstance(one.type, type)]
    return sum(map(len, found.values()))


def called(steps: int = 100) -> Iterator[tuple[str, str, int]]:
    """Yield file, name and line of the package's functions that two blocks, an evaluation and a save call."""
    from qpensieve.config import default_config, override
    from qpensieve.train.run import start
    from qpensieve.train.run_loop import Options

    seen: set[Any] = set()
    block = steps // 2
    size = {"steps": steps, "block": block, "random_steps": block, "seeds": 1, "eval_period": steps, "hidden": 8}
    config = override(default_config("Hopper2d"), size | {"batch_size": 8})
    with tempfile.TemporaryDirectory() as folder:
        run = start(Path(folder) / "run", config, Options(quiet=True, final_evaluation=False))
        note = lambda frame, event, _: seen.add(frame.f_code) if event == "call" else None
        threading.setprofile(note)
        sys.setprofile(note)
        run.train()
        sys.setprofile(None)
        threading.setprofile(None)  # pyright: ignore[reportArgumentType]
        run.close()
    for code in seen:
        is_function = code.co_flags & inspect.CO_OPTIMIZED and not code.co_name.startswith("<")
        if is_function and code.co_filename.startswith(str(PACKAGE)):
            yield code.co_filename, code.co_name, code.co_firstlineno


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--no-run", action="store_true", help="call no run: no path, no functions")
    parser.add_argument("--path", nargs="*", type=Path, help="files of the path of an update, in place of those found")
    asked = parser.parse_args()
    source, pages = files("src", "*.py"), files(".", "*.md")
    texts = [path.read_text() for path in source]
    lines, tokens, num = total(source)
    marks = [sum(len(re.findall(mark, text)) for text in texts) for mark in (r"# (?:type|pyright): ignore", "# noqa")]
    print(f"src: {lines:,} code lines, {tokens:,} tokens, {num} files")
    for name in ("tests", "tools", "benchmarks", "examples"):
        print("{}: {:,} code lines, {:,} tokens, {} files".format(name, *total(files(name, "*.py"))))
    words = {path: len(path.read_text().split()) for path in pages}
    print(f"words: {sum(words.values()):,} in {len(pages)} .md files, {words[ROOT / 'README.md']:,} in README.md")
    own, with_aliases = (1000 * count / lines for count in any_count(source))
    print(f"Any: {own:.1f} per 1000 lines, {with_aliases:.1f} with aliases; ignores {marks[0]}, noqa {marks[1]}")
    options, hidden = help_options("--help"), help_options("--help-all")
    print(f"train: {options} options, {hidden} with --help-all; fields of all settings classes: {config_fields()}")
    docs = [*texts, *(path.read_text() for path in [*files("docs", "*.md"), ROOT / "README.md"])]
    of = lambda habit: sum(len(re.findall(rf"\b{habit}\b", text, re.IGNORECASE)) for text in docs)
    print("habits in src, docs and README: " + ", ".join(f"{habit} {of(habit)}" for habit in HABITS))
    if not asked.no_run:
        functions = set(called())
        paths = {Path(file) for file, _, _ in functions}
        print(f"a short run calls {len(functions)} functions in {len(paths)} files")
        asked.path = asked.path or [one for one in paths if one.relative_to(PACKAGE).parts[0] in ON_THE_PATH]
    if asked.path:
        print("path of an update and its loop: {:,} code lines, {:,} tokens, {} files".format(*total(asked.path)))
        print("  " + " ".join(sorted(str(path.resolve().relative_to(PACKAGE)) for path in asked.path)))


if __name__ == "__main__":
    main()
