"""Folders of runs as far as the pictures read them, and ways to look at what was drawn."""

import json
from pathlib import Path

import numpy as np
from matplotlib.figure import Figure

from qpensieve import preferences
from qpensieve.envs.deep_sea import FRONT
from qpensieve.metrics import reference_point
from qpensieve.records import evaluations
from qpensieve.records.evaluations import Evaluations
from qpensieve.records.folder import CONFIG, EVALUATIONS, METRICS, PROVENANCE
from qpensieve.report import curves, front
from qpensieve.report.results import read_run

STEPS = 50_000
EXACT = FRONT


def make_table(returns: np.ndarray, num_short: int = 3, num_full: int = 1, reference: str | None = None) -> Evaluations:
    """A run that did ever better and ended at `returns` [seed, p, d] on the full table."""
    seeds, _, d = returns.shape
    lam = preferences.test_table(d)[: returns.shape[1]]
    corner = None if reference is None else reference_point(reference)
    table = evaluations.empty(seeds, lam[::5], np.empty((0, d)), lam, corner)
    for t in range(num_short):
        short = returns[:, ::5, None] - (num_short - 1 - t)
        table = evaluations.append_short(table, (t + 1) * STEPS, short.repeat(2, axis=2), np.empty((seeds, 0, 2, d)))
    for t in range(num_full):
        table = evaluations.append_full(table, (t + 1) * 3 * STEPS, returns[:, :, None])
    return table


def dst_returns(seeds: int = 3) -> np.ndarray:
    front, lam = EXACT.points, preferences.test_table(2)
    return np.stack([front[: 8 - i][np.argmax(lam @ front[: 8 - i].T, axis=1)] for i in range(seeds)])


def train_rows(seeds: int) -> list[dict]:
    rows = [{"event": "start", "step": 0}, {"event": "evaluation", "step": STEPS, "temperature": "not a train row"}]
    for step in range(1000, 5000, 1000):
        row = {"event": "train", "step": step, "temperature": [100 / step + i for i in range(seeds)]}
        rows.append(row if step < 3000 else row | {"snapshot_share": [0.6] * seeds})
    return rows


def make_run(
    folder: Path, table: Evaluations | None, rows: list[dict] | None = None, made: object = None, **config: object
) -> Path:
    """A run folder as far as reports read it; `made` is its provenance."""
    folder.mkdir(parents=True, exist_ok=True)
    if table is not None:
        evaluations.save(folder / EVALUATIONS, table)
    known = {"domain": "DST2d", "algo": "qpensieve", "seeds": 3, "steps": 3 * STEPS, "unknown": {"a": 1}}
    (folder / CONFIG).write_text(json.dumps(known | config))
    if rows is not None:
        (folder / METRICS).write_text("".join(json.dumps(row) + "\n" for row in rows))
    if made is not None:
        (folder / PROVENANCE).write_text(json.dumps(made))
    return folder


def draw_front(run: Path) -> Path:
    return front.draw_front(read_run(run), run / "front.png")


def draw_curves(run: Path) -> Path:
    return curves.draw_curves(read_run(run), run / "curves.png")


def titles(figure: Figure) -> list[str]:
    return [axes.get_title() for axes in figure.axes]


def lines(figure: Figure, panel: int) -> dict[str, np.ndarray]:
    """Label -> [x, y] of the labelled lines of a panel."""
    every = figure.axes[panel].get_lines()
    return {str(line.get_label()): np.array(line.get_data()) for line in every if str(line.get_label())[0] != "_"}


def foot(figure: Figure) -> str:
    """The note below the panels, which stands above the legend where there is one."""
    return figure.legends[0].get_title().get_text() if figure.legends else figure.get_supxlabel()
