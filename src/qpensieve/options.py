"""How tyro reads the options of a command: numbers such as 2e5, and settings that `--help` hides."""

import dataclasses
from collections.abc import Callable, Collection
from functools import partial
from pathlib import Path
from types import NoneType, UnionType
from typing import Annotated, Any, TypeVar, Union, get_args, get_origin, get_type_hints

import tyro
from docstring_parser import parse_from_object
from tyro.constructors import (
    ConstructorRegistry,
    PrimitiveConstructorSpec,
    PrimitiveTypeInfo,
    StructConstructorSpec,
    StructFieldSpec,
    StructTypeInfo,
)

from qpensieve.errors import ShownError, UserError
from qpensieve.settings import NONE, number, whole

T = TypeVar("T")
HELP, HELP_ALL = ("-h", "--help"), "--help-all"
RunFolder = Annotated[Path, tyro.conf.Positional, tyro.conf.arg(metavar="RUN")]
Names = Annotated[tuple[str, ...], tyro.conf.Positional, tyro.conf.arg(metavar="[NAME ...]")]
RunsOrFiles = Annotated[tuple[Path, ...], tyro.conf.Positional, tyro.conf.arg(metavar="RUN_OR_FILE [RUN_OR_FILE ...]")]


class _WrongNumberError(ShownError):
    """A word that is no number, and why. It is no ValueError, which tyro would print in a box."""


def parse(
    what: Callable[..., T],
    words: list[str],
    prog: str,
    rule: Callable[[StructTypeInfo], StructConstructorSpec | None] | None = None,
    **settings: Any,
) -> T:
    """Call a command, or make a dataclass, with the options in `words`.

    Args:
        what: The command or the class.
        words: Words of the command line.
        prog: Name of the command.
        rule: How dataclasses become options. None: tyro's own rule.
        settings: Further arguments of `tyro.cli`.

    Raises:
        UserError: A word is no number; the message names its option.
    """
    registry = ConstructorRegistry()
    registry.primitive_rule(_number)
    if rule is not None:
        registry.struct_rule(rule)
    try:
        with registry:
            return tyro.cli(what, args=words, prog=prog, config=(tyro.conf.OmitArgPrefixes,), **settings)
    except _WrongNumberError as error:
        word, why = error.args
        raise UserError(f"{_option_of(word, words)} {why}".lstrip()) from error


def _option_of(value: str, words: list[str]) -> str:
    """Return the first option in the words that has a value; empty if there is none."""
    option = ""
    for word in words:
        own = word
        if word.startswith("--"):
            option, _, own = word.partition("=")
        if option and own == value:
            return option
    return ""


def parse_settings(default: T, words: list[str], hidden: Collection[str], about: str) -> T:
    """Make the settings of `qpensieve train` from words. If the words ask for help, show it and exit.

    Args:
        default: Values of settings that the words do not name. If its domain is empty, the words must name one.
        words: Words of the command line.
        hidden: Settings that help leaves out.
        about: Help's description of the command.
    """
    is_help = not {*HELP, HELP_ALL}.isdisjoint(words)
    words = [HELP[1] if word == HELP_ALL else word for word in words]
    rule = partial(_settings, hidden=hidden if is_help else ())
    return parse(type(default), words, "qpensieve train", rule, default=default, description=about)


def _number(info: PrimitiveTypeInfo) -> PrimitiveConstructorSpec[int | float | None] | None:
    """Return how to read numbers: 2e5 may be a whole number, and `none` is None. Return None for other types."""
    kinds = get_args(info.type) if get_origin(info.type) in (Union, UnionType) else (info.type,)
    numbers, may_be_none = [kind for kind in (int, float) if kind in kinds], NoneType in kinds
    if not numbers or len(kinds) > len(numbers) + may_be_none:
        return None
    reader = number if float in kinds else whole
    is_whole = lambda value: int in kinds and isinstance(value, float) and value.is_integer()

    def read(words: list[str]) -> int | float | None:
        try:
            value = None if may_be_none and words[0].lower() == NONE else reader(words[0])
            return int(value) if value is not None and is_whole(value) else value
        except UserError as error:
            raise _WrongNumberError(words[0], str(error)) from error

    is_one = lambda value: isinstance(value, kinds) and not isinstance(value, bool)
    metavar = "|".join([kind.__name__.upper() for kind in numbers] + [NONE] * may_be_none)
    return PrimitiveConstructorSpec(1, metavar, read, is_one, lambda value: [str(value).lower()])


def explanations(kind: type) -> dict[str, str]:
    """Return name -> docstring of every field of a dataclass, inherited ones included."""
    owners = [owner for owner in reversed(kind.__mro__) if dataclasses.is_dataclass(owner)]
    return {text.arg_name: text.description or "" for owner in owners for text in parse_from_object(owner).params}


def _settings(info: StructTypeInfo, hidden: Collection[str]) -> StructConstructorSpec | None:
    """Return the options of a dataclass, some of them hidden from help; None for other types."""
    if not dataclasses.is_dataclass(info.type):
        return None
    from qpensieve.methods import METHODS  # imports JAX, which other commands do not need

    hints = get_type_hints(info.type, include_extras=True)
    texts = explanations(info.type)
    fields = []
    for field in dataclasses.fields(info.type):
        value = getattr(info.default, field.name)
        hint: Any = hints[field.name]
        if dataclasses.is_dataclass(value):
            hint = type(value)
        elif field.name in hidden:
            hint = Annotated[hint, tyro.conf.Suppress]
        elif field.name == "domain":
            hint = Annotated[hint, tyro.conf.Positional, tyro.conf.arg(metavar="DOMAIN")]
        elif field.name == "algo":
            hint = Annotated[hint, tyro.conf.arg(metavar=f"{{{','.join(METHODS)}}}")]
        unset = field.name == "domain" and not value
        text = " ".join(texts.get(field.name, "").split())
        fields.append(StructFieldSpec(field.name, hint, tyro.MISSING if unset else value, text))
    return StructConstructorSpec(info.type, tuple(fields))
