"""Compare configurations: do they describe the same run, or runs that a table may compare?

A mark on a field of `RunConfig` says what it decides (`settings.MACHINE`, ...). Fields without a mark, and all settings
of methods, decide what is learned.
"""

from collections.abc import Collection, Mapping
from dataclasses import replace
from functools import cache
from typing import NamedTuple

from qpensieve import settings
from qpensieve.config import RunConfig, completed, default_config, from_dict, with_schedule
from qpensieve.envs import find_domain
from qpensieve.methods import RECIPE
from qpensieve.settings import EVALUATION, LENGTH, MACHINE, RECORDS, SEEDS, Mark

LEARNING = Mark("learning")
EVERYTHING = frozenset({LEARNING, LENGTH, SEEDS, EVALUATION, RECORDS, MACHINE})
SAME_NUMBERS = EVERYTHING - {MACHINE}
"""Marks of the settings in which a resumed run must agree with its checkpoint. Its length may grow."""
SAME_SETTINGS = frozenset({LEARNING, LENGTH, EVALUATION})
"""Marks of the settings in which an exported file must agree with the run of a plan whose place it takes."""


class Difference(NamedTuple):
    """A setting in which two configurations differ. A value is None also if the setting is missing."""

    name: str
    before: object
    now: object

    def __str__(self) -> str:
        return f"{self.name} was {_in_words(self.before)}, is {_in_words(self.now)}"


def settings_of(config: RunConfig | Mapping[str, object], decide: Collection[Mark] = EVERYTHING) -> dict[str, object]:
    """Return name -> value of the settings of a configuration and its parts that have a mark in `decide`.

    Schedules are filled in if this version can run the configuration. So that values can be compared, lists become
    tuples, whole floats become integers, and a built-in domain gets its short name.

    Args:
        config: A configuration, or one that this or an earlier version saved.
        decide: Marks, such as `SAME_SETTINGS`.
    """
    built = config if isinstance(config, RunConfig) else _built(config)
    values = settings.flat(with_schedule(built)) if isinstance(built, RunConfig) else completed(built)
    found = {name: _plain(value) for name, value in values.items() if _marks().get(name, LEARNING) in decide}
    if (domain := find_domain(str(found.get("domain")))) is not None:
        found["domain"] = domain.id
    return found


def settings_that_differ(
    before: RunConfig | Mapping[str, object],
    now: RunConfig | Mapping[str, object],
    decide: Collection[Mark] = EVERYTHING,
) -> list[Difference]:
    """List the settings with a mark in `decide` in which two configurations differ."""
    theirs, ours = settings_of(before, decide), settings_of(now, decide)
    of = lambda flat, name: flat.get(name, _plain(settings.RETIRED.get(name)))
    pairs = [Difference(name, of(theirs, name), of(ours, name)) for name in {**theirs, **ours}]
    return [pair for pair in pairs if pair.before != pair.now]


def recipe(config: RunConfig) -> str | None:
    """Return `robust` and its version if the run learns with all settings of the preset; else None."""
    if config.method.robust is None:
        return None
    preset = replace(default_config(config.domain, config.algo, "robust"), steps=config.steps)
    return None if settings_that_differ(preset, config, {LEARNING}) else f"robust {RECIPE}"


def is_bound_to_length(config: RunConfig) -> bool:
    """Return whether learning depends on `steps`, so that a longer run cannot continue this one.

    This is so for a population, and if `steps` sets `random_steps` or a setting of the method.
    """
    planned = with_schedule(config)
    is_planned = (planned.agent, planned.random_steps) != (config.agent, config.random_steps)
    return config.method.is_population or is_planned


def _built(saved: Mapping[str, object]) -> RunConfig | Mapping[str, object]:
    """Return the configuration that was saved, or `saved` itself if this version cannot build it."""
    try:
        return from_dict(dict(saved))
    except (ValueError, TypeError):
        return saved


@cache
def _marks() -> dict[str, Mark]:
    return {name: mark for mark in EVERYTHING for name in settings.marked(RunConfig("DST2d"), mark)}


def _plain(value: object) -> object:
    if isinstance(value, list | tuple):
        return tuple(map(_plain, value))
    return int(value) if isinstance(value, float) and value.is_integer() else value


def _in_words(value: object) -> str:
    if value is None:
        return settings.NONE
    return ", ".join(map(str, value)) or settings.NONE if isinstance(value, tuple) else str(value)
