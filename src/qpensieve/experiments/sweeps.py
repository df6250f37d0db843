"""Plans of one's own: a TOML file with the fields of an artefact, and grids over any setting.

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

import itertools
import tomllib
from pathlib import Path
from typing import Any, get_args

from qpensieve.config import check, resolve
from qpensieve.experiments.artefacts import Artefact, Place, Show, Wanted

TOP = ("title", "show", "metrics", "reference", "notes", "then", "preferences", "run", "grid", "runs")
SHOWN: tuple[str, ...] = tuple(show for show in get_args(Show) if show != "settings")
OF_THE_RUN = ("domain", "algo", "preset", "seeds", "steps")
EXAMPLE = 'such as\n\n[run]\npreset = "quick"\n\n[grid]\ndomain = ["DST2d"]\nnum_snapshots = [0, 4]\n'


def read_sweep(path: Path) -> Artefact:
    """The plan of a file.

    Raises:
        ValueError: The file is no such plan; names the field and what it must be.
        OSError: It cannot be read.
    """
    try:
        content = tomllib.loads(path.read_text())
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise ValueError(f"{path} must be a TOML file: {error}") from error
    try:
        return _artefact(path.stem, content)
    except ValueError as error:
        raise ValueError(f"{path}: {error}") from error


def _artefact(name: str, content: dict[str, Any]) -> Artefact:
    unknown = [key for key in content if key not in TOP]
    if unknown:
        raise ValueError(f"unknown field {unknown[0]!r}: use {', '.join(TOP)}; settings of runs belong under [run]")
    show = content.get("show", "scores")
    if show not in SHOWN:
        raise ValueError(f"show must be one of {', '.join(SHOWN)}, got {show!r}")
    artefact = Artefact(
        name,
        str(content.get("title", name)),
        "a plan of your own",
        show,
        _cells(content),
        metrics=tuple(content.get("metrics", ("HV", "UT"))),
        preferences=tuple(map(tuple, content.get("preferences", ()))),
        reference=content.get("reference"),
        notes=tuple(content.get("notes", ())),
        then=tuple(content.get("then", ("critic",) if show == "critic" else ())),
    )
    if artefact.reference is not None and artefact.reference not in artefact.columns:
        raise ValueError(f"reference must be a column ({', '.join(artefact.columns)}), got {artefact.reference!r}")
    return artefact


def _cells(content: dict[str, Any]) -> dict[Place, Wanted]:
    shared, grid, single = content.get("run", {}), content.get("grid", {}), content.get("runs", [])
    for key, value, kind in (("run", shared, dict), ("grid", grid, dict), ("runs", single, list)):
        if not isinstance(value, kind):
            raise ValueError(f"{key} must be a {'list of tables' if kind is list else 'table'}, {EXAMPLE}")
    empty = [key for key, values in grid.items() if not isinstance(values, list) or not values]
    if empty:
        raise ValueError(f"grid: {empty[0]} must be a list of values, got {grid[empty[0]]!r}")
    combinations = [dict(zip(grid, values, strict=True)) for values in itertools.product(*grid.values())]
    lines = combinations if grid else []
    if not lines and not single:
        lines = [{}] if "domain" in shared else []
    if not lines and not single:
        raise ValueError(f"there is no run: give a [grid], [[runs]], or a domain under [run], {EXAMPLE}")
    cells: dict[Place, Wanted] = {}
    for number, line in enumerate([*lines, *single], start=1):
        place, wanted = _line(shared, line)
        if place in cells:
            raise ValueError(f"run {number} has the place of another one, {place}: give it another row or column")
        cells[place] = wanted
    return cells


def _line(shared: dict[str, Any], own: dict[str, Any]) -> tuple[Place, Wanted]:
    """Where a run stands, and the run: what is shared with its own settings over it."""
    own = dict(own)
    row, column = own.pop("row", None), own.pop("column", None)
    both = {**shared, **own}
    if "domain" not in both:
        raise ValueError("every run needs a domain, under [run], in the [grid] or in [[runs]]")
    algo = str(both.get("algo", "qpensieve"))
    named = {key: value for key, value in own.items() if key not in ("domain", "seeds")}
    changes = {key: value for key, value in both.items() if key not in OF_THE_RUN}
    if "steps" in own:  # part of what tells runs apart; shared steps may grow later
        changes["steps"] = own["steps"]
    preset = str(both.get("preset", "paper"))
    settings = tuple((key, _frozen(value)) for key, value in changes.items())
    steps = None if "steps" in own else both.get("steps")
    wanted = Wanted(str(both["domain"]), algo, settings, steps, preset, both.get("seeds"))
    config = wanted.config()
    check(resolve(config))
    wanted = wanted if wanted.seeds else Wanted(wanted.domain, algo, settings, steps, preset, config.seeds)
    about = ", ".join(f"{key} {_shown(value)}" for key, value in named.items() if key != "algo")
    given = ", ".join(part for part in (algo if "algo" in named or not about else "", about) if part)
    return (row or str(both["domain"]), column or given), wanted


def _frozen(value: Any) -> Any:
    return tuple(value) if isinstance(value, list) else value


def _shown(value: Any) -> str:
    return ",".join(map(str, value)) if isinstance(value, list) else str(value)
