"""Your own plans: a TOML file with the fields of an artefact, and grids over any setting.

title = "Snapshots on two domains"
[run]                      # what all runs share: domain, algo, preset, seeds, steps, and any setting
preset = "quick"
[grid]                     # every combination is a run; domains are rows, the rest are columns
domain = ["DST2d", "Hopper2d"]
num_snapshots = [0, 4]
[[runs]]                   # further runs, one by one
column = "MO-SAC"
domain = "DST2d"
algo = "mosac"
"""

import difflib
import itertools
import re
import tomllib
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

from qpensieve.config import RunConfig, check, check_fits, default_config, default_preset, with_schedule
from qpensieve.errors import MissingFileError, UserError
from qpensieve.experiments.plan import Artefact, Place, Wanted, shown
from qpensieve.experiments.views import SHOWS
from qpensieve.settings import fit, flat, names

TOP = ("title", "show", "metrics", "reference", "notes", "then", "preferences", "run", "grid", "runs")
METRICS = ("HV", "UT", "ED")
OF_THE_RUN = ("domain", "algo", "preset", "seeds", "steps")
EXAMPLE = 'such as\n\n[run]\npreset = "quick"\n\n[grid]\ndomain = ["DST2d"]\nnum_snapshots = [0, 4]\n'


def read_sweep(path: Path) -> Artefact:
    """Read the plan in a file.

    Raises:
        ValueError: The file is not a valid plan; the message names the field and what it must be.
        OSError: The file cannot be read.
    """
    if not path.is_file():
        raise MissingFileError(f"{path} must be a TOML file, but it is {'a folder' if path.is_dir() else 'missing'}")
    try:
        content = tomllib.loads(path.read_text())
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise UserError(f"{path} must be a TOML file: {error}") from error
    try:
        return _artefact(path.stem, content)
    except ValueError as error:
        raise UserError(f"{path}: {error}") from error


def _artefact(name: str, content: dict[str, Any]) -> Artefact:
    unknown = [key for key in content if key not in TOP]
    if unknown:
        raise UserError(f"unknown field {unknown[0]!r}: use {', '.join(TOP)}; settings of runs belong under [run]")
    show, reference = content.get("show", "scores"), content.get("reference")
    if show not in SHOWS:
        raise UserError(f"show must be one of {', '.join(SHOWS)}, got {show!r}")
    metrics = _listed(content, "metrics", METRICS.__contains__, f"a list of {', '.join(METRICS)}")
    if not metrics and "metrics" in content:
        raise UserError(f"metrics must name at least one of {', '.join(METRICS)}, or be left out; got []")
    then = _listed(content, "then", lambda value: value == "critic", '["critic"] or left out')
    preferences = _listed(content, "preferences", _is_row, "a list of lists of numbers, such as [[0.5, 0.5]]")
    artefact = Artefact(
        re.sub(r"[^A-Za-z0-9_-]+", "-", name).strip("-") or "sweep",
        str(content.get("title", name)),
        "a plan of your own",
        show,
        _cells(content),
        metrics=metrics or METRICS[:2],
        preferences=tuple(tuple(map(float, row)) for row in preferences),
        reference=reference,
        notes=_listed(content, "notes", lambda value: isinstance(value, str), "a list of texts"),
        critic=bool(then) or show == "critic",
    )
    if reference is not None and reference not in artefact.columns:
        raise UserError(f"reference must be a column ({', '.join(artefact.columns)}), got {reference!r}")
    _check_shown(artefact)
    return artefact


def _check_shown(artefact: Artefact) -> None:
    """Raise ValueError if the runs cannot be shown or measured as the file asks."""
    configs = {place: wanted.config() for place, wanted in artefact.cells.items()}
    if artefact.show == "critic" and (len(configs) != 1 or not artefact.preferences):
        raise UserError("show = 'critic' needs one run, and preferences such as [[0.5, 0.5]]")
    if artefact.show == "growth" and not artefact.preferences:
        raise UserError("show = 'growth' needs preferences such as [[0.5, 0.5]]")
    if artefact.show == "single-curves" and not any(getattr(c.agent, "preferences", ()) for c in configs.values()):
        raise UserError("show = 'single-curves' needs runs that name their preferences, of sac or hybrid-sac")
    if artefact.show == "score-curves" and artefact.metrics[0] == "ED":
        raise UserError("show = 'score-curves' needs the metric HV or UT, got ED")
    if artefact.critic:
        for place, config in configs.items():
            if config.method.is_population:
                raise UserError(f"the run {place} has no critic to measure: leave out then, or that run")


def _listed(content: dict[str, Any], key: str, is_right: Callable[[Any], bool], what: str) -> tuple[Any, ...]:
    """Return a field that is a list, checked; empty if the field is left out."""
    value = content.get(key, [])
    if not isinstance(value, list) or not all(map(is_right, value)):
        raise UserError(f"{key} must be {what}, got {value!r}")
    return tuple(value)


def _is_row(value: Any) -> bool:
    is_number = lambda value: isinstance(value, int | float) and not isinstance(value, bool)
    return isinstance(value, list) and bool(value) and all(map(is_number, value))


def _cells(content: dict[str, Any]) -> dict[Place, Wanted]:
    shared = content.get("run", {})
    if not isinstance(shared, dict):
        raise UserError(f"run must be a table, {EXAMPLE}")
    cells: dict[Place, Wanted] = {}
    for number, line in enumerate(_lines(content, shared), start=1):
        place, wanted = _line(shared, line)
        if place in cells:
            raise UserError(f"run {number} has the place of another one, {place}: give it another row or column")
        cells[place] = wanted
    seeds: dict[str, int | None] = {}
    for place, wanted in cells.items():
        if seeds.setdefault(wanted.name, wanted.seeds) != wanted.seeds:
            raise UserError(f"the run {place} is there twice with different seeds: give both the same number")
    return cells


def _lines(content: dict[str, Any], shared: dict[str, Any]) -> list[dict[str, Any]]:
    """Return the settings that each run does not share: every combination of the grid, then those of [[runs]]."""
    grid = content.get("grid", {})
    if not isinstance(grid, dict):
        raise UserError(f"grid must be a table, {EXAMPLE}")
    for key, values in grid.items():
        if not isinstance(values, list) or not values:
            raise UserError(f"grid: {key} must be a list of values, got {values!r}")
    combinations = [dict(zip(grid, values, strict=True)) for values in itertools.product(*grid.values()) if grid]
    single = _listed(content, "runs", lambda line: isinstance(line, dict), f"a list of tables, {EXAMPLE}")
    lines = [*combinations, *single] or ([{}] if "domain" in shared else [])
    if not lines:
        raise UserError(f"there is no run: give a [grid], [[runs]], or a domain under [run], {EXAMPLE}")
    return lines


def _check_names(given: dict[str, Any], usual: RunConfig) -> None:
    """Refuse a misspelt name of a field that is no setting, such as preset; names of settings are checked later."""
    for name in given.keys() - {*OF_THE_RUN, *names(usual), *flat(usual)}:
        if near := difflib.get_close_matches(name, OF_THE_RUN, n=1, cutoff=0.7):
            raise UserError(f"unknown setting {name!r}; did you mean {near[0]}?")


def _line(shared: dict[str, Any], own: dict[str, Any]) -> tuple[Place, Wanted]:
    """Return the place of a run, and the run: its own settings replace the shared ones."""
    own = dict(own)
    row, column = (None if name is None else str(name) for name in (own.pop("row", None), own.pop("column", None)))
    both = {**shared, **own}
    domain, algo = both.get("domain"), str(both.get("algo", "qpensieve"))
    preset = str(both.get("preset", default_preset(algo)))
    if domain is None:
        raise UserError("every run needs a domain, under [run], in the [grid] or in [[runs]]")
    if not isinstance(domain, str):
        raise UserError(f"domain must be a text, got {domain!r}; several are a list in the [grid]")
    if "first_seed" in both:
        raise UserError(f"first_seed must be left out, got {both['first_seed']}: seeds of a plan are counted from 0")
    usual = default_config(domain, algo, preset)
    _check_names(both, usual)
    both, own = ({name: fit(usual, name, value) for name, value in values.items()} for values in (both, own))
    for name in ("seeds", "steps"):
        value = both.get(name, 1)
        if isinstance(value, bool) or not isinstance(value, int) or value < 1:
            raise UserError(f"{name} must be a whole number of at least 1, got {value!r}")
    changes = {key: value for key, value in both.items() if key not in OF_THE_RUN}
    if "steps" in own:  # own steps distinguish a run from others; shared steps may grow later
        changes["steps"] = own["steps"]
    steps = None if "steps" in own else both.get("steps")
    wanted = Wanted(domain, algo, tuple(changes.items()), steps, preset, both.get("seeds"))
    config = wanted.config()
    check(with_schedule(config))
    check_fits(config)
    about = [f"{key} {shown(value)}" for key, value in own.items() if key not in ("domain", "seeds", "algo")]
    given = ", ".join([algo, *about] if "algo" in own or not about else about)
    return (row or domain, column or given), replace(wanted, seeds=wanted.seeds or config.seeds)
