"""Help pages and hints. tyro parses the words; here the settings are described and grouped by what they set."""

import ast
import dataclasses
import difflib
import inspect
import re
import textwrap
from collections.abc import Iterable
from dataclasses import dataclass
from functools import cache, partial
from itertools import takewhile
from pathlib import Path
from types import NoneType, UnionType
from typing import Any, Literal, Union, get_args, get_origin, get_type_hints

from qpensieve.config import RunConfig
from qpensieve.errors import UserError
from qpensieve.methods import METHODS, Method
from qpensieve.pages import PREFERENCE, entry, wrap
from qpensieve.settings import NEEDS_REPLAY, SYNONYMS, fit, flat, marked

RUN, ALGORITHM, EVALUATION, OUTPUT = "run", "algorithm", "evaluation", "output"
GROUPS: dict[str, str] = {
    "preset": RUN,
    **dict.fromkeys(
        (
            *("random_steps", "random_noise", "noise", "noise_correlation", "block", "replay_capacity"),
            *("updates_per_step", "target_steps"),
        ),
        ALGORITHM,
    ),
    **dict.fromkeys(("eval_period", "full_eval_period", "final_evaluation", "reference"), EVALUATION),
    **dict.fromkeys(("log_period", "checkpoint_seconds", "parameters_period", "keep_replay"), OUTPUT),
}
"""What a setting sets, where it is not what the settings beside it do."""
DOMAIN_ELSEWHERE = ("domain", "env", "env-id", "env-name", "environment", "task")
"""Options by which other programs name what to train on."""
KINDS = {int: "N", float: "X", str: "TEXT", Path: "PATH"}
OF_TYRO = {"INT": "N", "FLOAT": "X", "STR": "TEXT"}
"""The same in its words."""
WIDE = 100_000
"""Columns of a page of tyro before it is tidied."""
RULE, OF_ENTRY = re.compile(r" *-{5,}"), 2
"""The line below a title of tyro; and how far its entries are indented, whose further lines are more."""


@dataclass(frozen=True)
class Option:
    """One setting as a help page shows it."""

    name: str
    hint: Any
    default: Any
    text: str
    group: str

    @property
    def flag(self) -> str:
        """As people write it."""
        words = self.name.replace("_", "-")
        if self.hint is bool:
            return f"--{'no-' if self.default is True else ''}{words}"
        return f"--{words} {describe_value(self.hint)}"


def describe_value(hint: Any) -> str:
    """What stands behind the name of an option."""
    origin, inner = get_origin(hint), [one for one in get_args(hint) if one is not NoneType]
    if origin is Literal:
        return "|".join(map(str, inner))
    if origin in (Union, UnionType):
        return "|".join(dict.fromkeys(map(describe_value, inner)))
    if origin is tuple:
        return f"{describe_value(inner[0])} ..."
    return KINDS.get(hint, "VALUE")


@cache
def texts(kind: type) -> dict[str, str]:
    """What the source says of every field: the text below it, or its entry in the list of attributes."""
    body = ast.parse(textwrap.dedent(inspect.getsource(kind))).body[0]
    found: dict[str, str] = {}
    if isinstance(body, ast.ClassDef):
        for field, below in zip(body.body, body.body[1:], strict=False):
            is_text = isinstance(below, ast.Expr) and isinstance(below.value, ast.Constant)
            if (
                is_text
                and isinstance(below, ast.Expr)
                and isinstance(field, ast.AnnAssign)
                and isinstance(field.target, ast.Name)
            ):
                found[field.target.id] = str(ast.literal_eval(below.value))
    listed = (inspect.getdoc(kind) or "").partition("Attributes:\n")[2]
    for field in re.split(r"\n(?=    \w)", listed.rstrip()) if listed else []:
        name, _, text = field.strip().partition(": ")
        found.setdefault(name, text)
    return {name: " ".join(text.split()) for name, text in found.items()}


def options(part: Any, group: str = OUTPUT) -> list[Option]:
    """Every setting of a dataclass and of its parts."""
    hints, said = get_type_hints(type(part)), texts(type(part))
    found: list[Option] = []
    for field in dataclasses.fields(part):
        value = getattr(part, field.name)
        if dataclasses.is_dataclass(value):
            inside = RUN if isinstance(value, RunConfig) else ALGORITHM if isinstance(part, RunConfig) else group
            found += options(value, inside)
        else:
            own = GROUPS.get(field.name, group)
            found.append(Option(field.name, hints[field.name], value, said.get(field.name, ""), own))
    return found


def train_page(arguments: Any, config: RunConfig, about: str) -> str:
    """Help of `qpensieve train` for the algorithm chosen: settings that it has no use for are left out.

    Args:
        arguments: All that the command takes, with its defaults.
        config: The part of it that is the run's configuration.
        about: What the command does.
    """
    method = config.method
    unused = {"domain", *(marked(config, NEEDS_REPLAY) if method.is_population else ())}
    shown = [option for option in options(arguments) if option.name not in unused]
    lines = [
        "usage: qpensieve train DOMAIN [--algo NAME] [--preset NAME] [--SETTING VALUE]",
        "",
        *wrap(f"{about} {PREFERENCE}"),
        "",
        *entry("DOMAIN", texts(RunConfig)["domain"]),
    ]
    titles = {RUN: RUN, ALGORITHM: f"{ALGORITHM}: {config.algo}, {method.summary}", EVALUATION: EVALUATION}
    for group, title in (titles | {OUTPUT: OUTPUT}).items():
        lines += ["", *wrap(title)]
        for option in shown:
            if option.group == group:
                note = _note(method, option) if group == ALGORITHM else ""
                lines += _algorithms(option) if option.name == "algo" else _option(option, note)
    return "\n".join(lines)


def _note(method: Method, option: Option) -> str:
    """What a method makes of a setting that is also another's."""
    if option.name in method.fixed:
        return f"To be left as it is: {method.name} refuses other values. "
    return "The helper's alone. " if option.name in method.of_helper else ""


def _option(option: Option, note: str) -> list[str]:
    is_silent = option.default is None or option.default == () or option.hint is bool
    default = "" if is_silent else f" [{option.default}]"
    text = option.text.removeprefix("Off-policy methods: ")
    told = f"Turns off: {text}" if option.default is True else text[:1].upper() + text[1:]
    return entry(option.flag, note + told + default)


def _algorithms(option: Option) -> list[str]:
    lines = entry("--algo NAME", f"{option.text} [{option.default}] Others have other settings: --algo NAME --help.")
    for method in METHODS.values():
        lines += entry(f"  {method.name}", method.summary)
    return lines


def check_options(words: Iterable[str], arguments: Any, config: RunConfig) -> None:
    """Refuse an option of `train` that the algorithm does not have.

    Raises:
        ValueError: Says whose it is, or which one was probably meant.
    """
    known = {option.name.replace("_", "-") for option in options(arguments)}
    words = list(words)
    domains = list(takewhile(lambda word: not word.startswith("-"), words))
    if len(domains) > 1:
        raise UserError(f"train takes one domain, got {', '.join(domains)}; for several there is qpensieve sweep")
    for word in words:
        name = word.split("=")[0].removeprefix("--").replace("_", "-")
        if word.startswith("--") and name in DOMAIN_ELSEWHERE:
            raise UserError(f"the domain stands without an option, got --{name}: qpensieve train DST2d")
        if not word.startswith("--") or name in {"help", *known} or name.removeprefix("no-") in known:
            continue
        other = SYNONYMS.get(name.replace("-", "_"), "").replace("_", "-")
        meant = [other] if other in known else []
        owners = [method.name for method in METHODS.values() if name.replace("-", "_") in flat(method.config())]
        if owners and not meant:
            raise UserError(f"{config.algo} has no setting --{name}; it is one of {', '.join(owners)}")
        like = partial(difflib.get_close_matches, name, sorted(known))
        near = meant or like(n=1, cutoff=0.85) or like(n=3, cutoff=0.5)  # a slip of a letter has one meaning
        hint = f"; did you mean {' or '.join(f'--{one}' for one in near)}?" if near else "."
        raise UserError(f"unknown setting --{name}{hint} All of them: qpensieve train --algo {config.algo} --help")


def with_none(words: Iterable[str], config: RunConfig) -> list[str]:
    """The words of `train` with `none` as tyro knows it, `None`, for settings that may be none and are no text."""
    named, found = "", []
    for word in words:
        option, is_joined, value = word.partition("=") if word.startswith("--") else (named, "", word)
        is_none = option.startswith("--") and fit(config, option[2:].replace("-", "_"), value) is None
        found.append(f"{option}={None}" if is_none and is_joined else str(None) if is_none else word)
        named = word
    return found


def option_of(words: Iterable[str], value: str) -> str:
    """The option that a value was given to, as it was written; "a number" where none was named."""
    named = ""
    for word in words:
        if word.startswith("--"):
            named, _, joined = word.partition("=")
            word = joined or word
        if word == value and named:
            return named
    return "a number"


def tidy(page: str) -> str:
    """A help page of tyro in the form of that of `train`.

    Args:
        page: The page, made so wide (`WIDE`) that tyro breaks no line.
    """
    first, *lines = (line.rstrip() for line in page.splitlines())
    said, about = [re.sub(r"\[[A-Z -]+ OPTIONS\]|\[--[^]]+\]( \[--[^]]+\])*", "[OPTIONS]", first)], ""
    for line, below in zip(lines, [*lines[1:], ""], strict=True):
        indent, is_rule = len(line) - len(line.lstrip()), RULE.fullmatch(line)
        if indent > OF_ENTRY and not is_rule:
            about += f"  {line.strip()}"
            continue
        said += _entry(about)
        about = line if indent == OF_ENTRY and not is_rule and not RULE.fullmatch(below) else ""
        if indent == OF_ENTRY and RULE.fullmatch(below):
            said[-1] = line.strip().rstrip(".")  # says more than the title above it
        elif not about and not is_rule and (line or said[-1]):
            said += wrap(line.strip().removeprefix("positional ")) or [""]
    return "\n".join([*said, *_entry(about)]).rstrip()


def _entry(line: str) -> list[str]:
    """An option or argument as tyro describes it, in our words; none for an empty line."""
    if not line:
        return []
    name, _, text = line.strip().partition("  ")
    is_on = "(default: True)" in text
    said = " ".join(re.sub(r" ?\((default: (None|False|True|)|required)\)", "", text).split())
    said = re.sub(r"\(default: (.+)\)$", r"[\1]", said)
    if both := re.fullmatch(r"(--[\w-]+), (--no-[\w-]+)", name):
        return entry(both[2], f"Turns off: {said}") if is_on else entry(both[1], said)
    plain = re.sub(r"\[(\S+) \[\S+ \.\.\.\]\]", r"\1 ...", name.replace("{None}|", "").replace("{None,", "{"))
    chosen = re.sub(r"\{(.+?)\}", lambda found: found[1].replace(",", "|"), plain)
    return entry(re.sub(r"\b(INT|FLOAT|STR)\b", lambda found: OF_TYRO[found[0]], chosen), said)
