"""The picture of training itself: losses, gradients, entropy and values in bins of lam1; what shows a burst."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from qpensieve.envs.registry import find_domain
from qpensieve.errors import MissingFileError, UserError
from qpensieve.records.folder import CONFIG, METRICS, why_no_run
from qpensieve.records.reading import interpreting, read_object
from qpensieve.report import drawing
from qpensieve.report.drawing import COLOUR_MAP, COLOURS, GREY
from qpensieve.report.logged import Series, alarm_steps, read_series, read_training
from qpensieve.report.run_data import names_of

# matplotlib is an extra and slow to import, so it is imported by the functions that draw.
if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure
else:
    Axes = Figure = Any

BINS = 5
ALARM_COLOUR = "#D55E00"


@dataclass(frozen=True)
class Panel:
    """One panel: what it is called, and the logged values it shows -> their labels.

    Attributes:
        title: What it shows.
        names: Logged value -> label; of each a thin line per seed, and their mean.
        is_log: Whether its axis is logarithmic.
        is_ordered: Whether the lines are bins, coloured from small to large.
    """

    title: str
    names: dict[str, str]
    is_log: bool = False
    is_ordered: bool = False


def panels_of(objectives: Sequence[str]) -> list[Panel]:
    """All panels, in the order drawn."""
    edges = [f"{i / BINS:g} to {(i + 1) / BINS:g}" for i in range(BINS)]
    of_first = f"by preference for {objectives[0]}" if objectives else "by preference"
    binned = lambda name: {f"{name}_bin_{i + 1}": edges[i] for i in range(BINS)}
    return [
        Panel("critic loss, mean of a row", {"critic_loss": ""}, is_log=True),
        Panel("critic loss, largest of a row", {"critic_loss_max": ""}, is_log=True),
        Panel("length of the critics' gradient, largest seen", {"critic_gradient_max": ""}, is_log=True),
        Panel("error of the critics", {f"td_error_{i + 1}": one for i, one in enumerate(objectives)}, is_log=True),
        Panel("entropy of the policy", {"entropy": ""}),
        Panel(f"entropy {of_first}", binned("entropy"), is_ordered=True),
        Panel(f"value λ · Q {of_first}", binned("q"), is_ordered=True),
        Panel("temperature", {"temperature": ""}, is_log=True),
        Panel("temperature raised at once, times", {"temperature_raise": ""}),
        Panel("actions at their limits", {"saturation": ""}),
        Panel("samples that climb a snapshot", {"snapshot_share": ""}),
    ]


def draw_training(run: Path, out: Path) -> Path | None:
    """Draw what was logged while a run learned, with a line at every alarm; None if nothing was logged.

    Raises:
        MissingPlots: If matplotlib is not installed.
        FileNotFoundError: If the folder is none of a run.
        ValueError: If a file is damaged.
    """
    config, path = _read_config(run), run / METRICS
    rows, alarms = read_training(path), alarm_steps(path)
    num_seeds, chosen = int(config.get("seeds", 1)), []
    with interpreting(path, "a log"):
        for panel in panels_of(_objectives(config, rows, names_of(run))):
            series = {name: read_series(rows, name, num_seeds) for name in panel.names}
            found = {name: one for name, one in series.items() if one is not None}
            if found:
                chosen.append((panel, found))
    if not chosen:
        return None
    num_rows = -(-len(chosen) // 2)
    figure = drawing.new_figure(height=0.6 + 2.2 * num_rows)
    axes = None
    for number, (panel, found) in enumerate(chosen):
        axes = drawing.style(figure.add_subplot(num_rows, 2, number + 1, sharex=axes))
        _draw(axes, panel, found)
        for step in alarms:
            axes.axvline(step, color=ALARM_COLOUR, linewidth=0.6, alpha=0.6, zorder=1)
    names = f"{config.get('domain', 'unknown domain')} · {config.get('algo', 'unknown algorithm')}"
    drawing.set_title(figure, f"{names} · {drawing.count(num_seeds, 'seed')}")
    told = f"{drawing.count(len(alarms), 'step')} with alarms (orange)" if alarms else "no alarm"
    figure.supxlabel(f"environment steps; {told}", fontsize=9, color=GREY)
    return drawing.write_figure(figure, out)


def _read_config(run: Path) -> dict[str, Any]:
    if not (run / CONFIG).is_file():
        raise MissingFileError(f"{run} is not a run folder: {why_no_run(run)}")
    config = read_object(run / CONFIG)
    with interpreting(run / CONFIG, "a configuration"):
        seeds = config.get("seeds", 1)
        if type(seeds) is not int or seeds < 1 or not isinstance(config.get("objectives", []), list):
            raise UserError(f"seeds must be a whole number above 0 and objectives a list, got {seeds!r}")
    return config


def _objectives(config: dict[str, Any], rows: list[dict[str, Any]], named: Sequence[str]) -> list[str]:
    """Names of the objectives whose errors are logged."""
    num = sum(name.startswith("td_error_") for name in (rows[-1] if rows else {}))
    known = find_domain(str(config.get("domain", "")))
    names = named or config.get("objectives", ()) if known is None else known.objectives
    if num == 1 < len(names):
        return ["lam · Q"]  # SAC learns nothing else
    return [str(name) for name in names] if len(names) == num else [f"objective {i + 1}" for i in range(num)]


def _draw(axes: Axes, panel: Panel, found: dict[str, Series]) -> None:
    from matplotlib import colormaps
    from matplotlib.ticker import EngFormatter

    if panel.is_log and all((values[np.isfinite(values)] > 0).all() for _, values in found.values()):
        drawing.set_log(axes)
    shades = [colormaps[COLOUR_MAP](0.9 * i / (BINS - 1)) for i in range(BINS)] if panel.is_ordered else COLOURS
    for (name, (steps, values)), colour in zip(found.items(), shades, strict=False):
        if values.shape[1] > 1:  # a burst of one seed hardly shows in the mean
            alpha = 0.5 if len(panel.names) == 1 else 0.25
            axes.plot(steps, values, color=colour, alpha=alpha, linewidth=0.7, zorder=2)
        mean = np.nanmean(values, axis=1) if np.isfinite(values).any(axis=1).all() else values.mean(axis=1)
        axes.plot(steps, mean, color=colour, linewidth=1.4, zorder=3, label=panel.names[name] or None)
    axes.set_title(panel.title, fontsize=10)
    axes.xaxis.set_major_formatter(EngFormatter(sep=""))
    if len(panel.names) > 1:
        drawing.add_legend_above(axes, 3, 0.08 + 0.1 * -(-len(found) // 3), fontsize=7)
