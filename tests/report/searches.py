"""Folders of runs with a search, and ways to look at the pictures of them."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
from matplotlib.figure import Figure

from qpensieve import preferences
from qpensieve.records import evaluations, search
from qpensieve.records.files import save_record
from qpensieve.records.folder import SEARCH
from qpensieve.records.search import SearchRecord
from qpensieve.report import population
from qpensieve.report.results import read_run
from tests.report import runs


def make_run(folder: Path, record: SearchRecord | None, **config: Any) -> Path:
    """A run folder as far as the pictures of a search read it."""
    d = 2 if record is None else len(record.reference)
    lam = preferences.test_table(d) if d > 1 else np.ones((1, 1))
    none, seeds = np.empty((0, d)), 2
    table = evaluations.empty(seeds, lam[:2], none, lam, None)
    table = evaluations.append_short(table, 10, np.ones((seeds, len(lam[:2]), 1, d)), np.empty((seeds, 0, 1, d)))
    stages = {"generation_iterations": 2, "fitness_episodes": 4}
    known = {"domain": "foreign", "algo": "pgmorl", "first_seed": 3, "agent": {"stages": stages}}
    runs.make_run(folder, table, **known | config)
    if record is not None:
        save_record(folder / SEARCH, record)
    return folder


def make_search(d: int, num_seeds: int = 2, num_generations: int = 3) -> SearchRecord:
    """Four tasks that wander, in generations of two iterations after a warm-up of four."""
    draw = np.random.default_rng(0).normal
    generation = np.concatenate([np.zeros(5, int), np.repeat(np.arange(num_generations) + 1, 2)])
    objs = np.cumsum(draw(1.0, 2.0, (len(generation), num_seeds, 4, d)), axis=0)
    starts = objs[4 : 4 + 2 * num_generations : 2]
    record = search.empty(np.zeros(d), num_seeds, 4)
    record = replace(record, objs=objs, lam=np.ones_like(objs) / d, generation=generation)
    predicted = starts + draw(1.0, 2.0, starts.shape)
    share = np.zeros((num_generations, num_seeds))
    record = replace(record, starts=starts, predicted=predicted, bounds_share=share)
    archives = [record.archive_of(seed, record.num_iterations) for seed in range(num_seeds)]
    found = [[_found_at(record, seed, row) for row in rows] for seed, rows in enumerate(archives)]
    return replace(
        record,
        archive_objs=np.concatenate(archives),
        archive_seed=np.repeat(np.arange(num_seeds), [len(rows) for rows in archives]),
        archive_found_at=np.concatenate(found).astype(np.int64),
    )


def _found_at(record: SearchRecord, seed: int, objs: np.ndarray) -> int:
    return int(np.argwhere((record.objs[:, seed] == objs).all(axis=-1))[0, 0])


def panel(figure: Figure, title: str) -> Any:
    """The only panel whose title begins so."""
    (axes,) = [axes for axes in figure.axes if axes.get_title().startswith(title)]
    return axes


def labelled(axes: Any) -> dict[str, np.ndarray]:
    """Label -> points [n, 2] of lines and scatters that have one."""
    found = {str(line.get_label()): np.array(line.get_data()).T for line in axes.get_lines()}
    found |= {str(dots.get_label()): np.asarray(dots.get_offsets()) for dots in axes.collections}
    return {name: value for name, value in found.items() if not name.startswith("_")}


def steps(axes: Any) -> list[np.ndarray]:
    """Points [n, 2] of the fronts, in the order in which they were drawn."""
    return [np.array(line.get_data()).T for line in axes.get_lines() if line.get_drawstyle() == "steps-pre"]


def titles(figure: Figure) -> list[str]:
    return [axes.get_title() for axes in figure.axes if axes.get_title()]


def draw_generations(run: Path) -> Path:
    return population.draw_generations(read_run(run), run / "generations.png")


def draw_predictions(run: Path) -> Path | None:
    return population.draw_predictions(read_run(run), run / "predictions.png")
