"""L_critic for the paper's two tables: measured once a run is trained, and shown by preference and step."""

from pathlib import Path

import numpy as np

from qpensieve import config as configs
from qpensieve.console import format_count
from qpensieve.errors import UserError
from qpensieve.experiments.plan import Artefact
from qpensieve.experiments.shelf import Shelf
from qpensieve.records import checkpoint, critic_errors
from qpensieve.records.critic_errors import CriticErrors
from qpensieve.records.folder import CONFIG, CRITIC
from qpensieve.report import cells
from qpensieve.report.critic import PAPER, PAPER_STEPS
from qpensieve.report.results import read_run
from qpensieve.report.sheets import Cell, Metric, Sheet
from qpensieve.train.critic_error import CriticMeter, Sampling

METRIC = "L_critic"
SMALL_RUN = 10_000
"""Runs of fewer steps are trials: a few pairs (s, a) are enough."""
FEW = Sampling(pairs=2, rollouts=2)


def measure(run: Path) -> None:
    """Measure a run at the paper's steps, or at the same parts of a run of another length; writes `critic.json`.

    Steps at which the discount still moves are not among them.
    """
    config = configs.load(run / CONFIG, trust=True)  # it has just been trained
    kept = checkpoint.parameter_steps(run)
    if not kept:
        raise UserError(f"{run} has kept no parameters: set parameters_period to {config.steps} or less")
    there = np.array(sorted(step for step in kept if not configs.about_discount(config, step)))
    if there.size == 0:
        raise UserError(configs.about_discount(config, max(kept)))
    steps = sorted({nearest(there, step * config.steps / PAPER_STEPS[-1]) for step in PAPER_STEPS})
    meter = CriticMeter(config, None, FEW if config.steps < SMALL_RUN else Sampling())
    try:
        rows = [row for step in steps for row in meter.measure(checkpoint.load_parameters(kept[step]), step)]
    finally:
        meter.close()
    critic_errors.add(run / CRITIC, meter.errors(rows))  # all at once: where the file is, nothing is missing


def nearest(steps: np.ndarray, wanted: int | float) -> int:
    """The step nearest to a wanted one."""
    return int(steps[np.abs(steps - wanted).argmin()])


def critic_sheet(artefact: Artefact, shelf: Shelf, report: Path) -> Sheet:
    """L_critic: rows are preferences, columns are steps."""
    ((domain, _), wanted), *_ = artefact.cells.items()
    goal = shelf.plan.size.config_of(wanted).steps
    measured = [(errors, path) for path in shelf.paths(wanted) if (errors := _measured(path)) is not None]
    sources = {run.path: run.source for run in cells.read_runs([path for _, path in measured], report)}
    planned = [step * goal // PAPER_STEPS[-1] for step in PAPER_STEPS]
    steps = sorted({row.step for errors, _ in measured for row in errors.rows}) or planned
    filled = {}
    for lam in artefact.preferences:
        for step in steps:
            found = [(errors, path, row) for errors, path in measured if (row := _row(errors, lam, step)) is not None]
            values = {
                seed: value for errors, _, row in reversed(found) for seed, value in zip(errors.seeds, row, strict=True)
            }
            as_printed = PAPER.get(domain, {}).get(lam) if step in planned else None
            printed = {} if as_printed is None else {METRIC: (as_printed[planned.index(step)], None)}
            filled[_words(lam), format_count(step)] = Cell(
                {METRIC: np.array([values[seed] for seed in sorted(values)])} if values else None,
                tuple(sorted(values)),
                step,
                step,
                tuple(sources[path] for _, path, _ in found if path in sources),
                printed,
            )
    return Sheet(
        artefact.name,
        artefact.title,
        f"{artefact.opening} Norm of the critic's error against soft Monte-Carlo returns, mean over pairs.",
        [_words(lam) for lam in artefact.preferences],
        [format_count(step) for step in steps],
        [Metric(METRIC, is_lower_better=True)],
        filled,
        [*artefact.notes, *shelf.notes],
        corner="preference",
    )


def _measured(path: Path) -> CriticErrors | None:
    """The measured errors of a run folder or exported run; None if there are none."""
    return read_run(path).critic


def _row(errors: CriticErrors, lam: tuple[float, ...], step: int) -> list[float] | None:
    """The errors of all seeds under a preference at a step; None if they were not measured."""
    rows = [row for row in errors.rows if np.allclose(row.preference, lam) and row.actions == "policy"]
    return next((row.error for row in rows if row.step == step), None)


def _words(lam: tuple[float, ...]) -> str:
    return ", ".join(f"{weight:g}" for weight in lam)
