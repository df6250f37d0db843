"""L_critic of a run folder: which parameters it keeps, and the file that holds what was measured."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

from qpensieve import config as configs
from qpensieve.console import Progress
from qpensieve.errors import MissingFileError, UserError
from qpensieve.records import checkpoint, critic_errors, folder
from qpensieve.records.atomic import check_can_write
from qpensieve.records.checkpoint import CheckpointError
from qpensieve.records.critic_errors import CriticErrors
from qpensieve.records.trees import under
from qpensieve.train.critic_error import CriticMeter, Sampling
from qpensieve.train.saving import is_saved_agent
from qpensieve.train.session import Arrays

MEASURING = "measuring"
"""What the progress line says."""


def measure_run(  # noqa: PLR0913 (each is an option of the command)
    run: Path,
    steps: tuple[int, ...] = (),
    all_steps: bool = False,
    preferences: Any = None,
    sampling: Sampling = Sampling(),  # noqa: B008 (frozen)
    trust: bool = False,
    say: Callable[[str], None] = lambda message: None,
    quiet: bool = False,
) -> tuple[CriticErrors, Path | None]:
    """Measure the critics of a run and add that to its `critic.json`; returns what was measured, and the file.

    A saved agent is measured too, but nothing is written into its folder (None).

    Args:
        run: The run folder.
        steps: Steps of kept parameters or of checkpoints. Default: the newest.
        all_steps: All steps that there are.
        preferences: Under which to measure. None: the paper's, or those that the agents have of their own.
        sampling: Which pairs the critics are asked about.
        trust: Whether code that the configuration of someone else imports may be run.
        say: Is told what is measured, and of damaged checkpoints.
        quiet: No progress line.

    Raises:
        ValueError: There is no such step, or the method has no critic to measure.
        CheckpointError: There is nothing to measure, or it cannot be read.
    """
    if not (run / folder.CONFIG).exists():
        raise MissingFileError(f"{run} must be a run folder, but {folder.why_no_run(run)}")
    config = configs.load(run / folder.CONFIG, trust)
    chosen = _chosen(run, steps, all_steps)
    meter = CriticMeter(config, preferences, sampling)
    try:
        out = None if is_saved_agent(run) else run / folder.CRITIC
        if out is not None:  # better said before than after minutes
            check_can_write(out)
        say(_announcement(meter, chosen, sampling))
        load = lambda step: _parameters(run, step, say)
        return _measure(meter, chosen, load, out, quiet), out
    finally:
        meter.close()


def _measure(
    meter: CriticMeter, steps: list[int], load: Callable[[int], Arrays], out: Path | None, quiet: bool
) -> CriticErrors:
    """Measure the parameters of all steps; those of each are written at once, so that Ctrl-C loses only the last."""
    per_seed, rows = meter.most_steps, []
    per_step = per_seed * meter.config.seeds
    progress = Progress(per_step * len(steps), 0, quiet=quiet)
    try:
        for i, step in enumerate(steps):
            progress.enter(MEASURING)
            told = lambda seed, done, first=i * per_step: progress.show(first + seed * per_seed + done)
            measured = meter.measure(load(step), step, told)
            if out is not None:
                critic_errors.add(out, meter.errors(measured))
            rows += measured
        progress.show(per_step * len(steps), force=True)
    finally:
        progress.end()
    return meter.errors(rows)


def _chosen(run: Path, steps: tuple[int, ...], all_steps: bool) -> list[int]:
    """The steps to measure, in order."""
    there = sorted({*checkpoint.parameter_steps(run), *checkpoint.kept_steps(run)})
    if not there:
        raise CheckpointError(f"{run} holds no parameters to measure: train it first (qpensieve train or resume)")
    missing = [step for step in steps if step not in there]
    if missing:
        raise UserError(f"step must be one that {run} kept: {', '.join(map(str, there))}; got {missing[0]}")
    if all_steps:
        return there
    return sorted(set(steps)) or there[-1:]


def _parameters(run: Path, step: int, say: Callable[[str], None]) -> Arrays:
    """The parameters of a step: those that were kept, else those of a checkpoint."""
    kept = checkpoint.parameter_steps(run)
    if step in kept:
        return checkpoint.load_parameters(kept[step])
    saved = checkpoint.load_step(run, step)
    if saved is None:
        raise CheckpointError(f"the checkpoint of step {step} of {run} is gone; a run that goes on replaces it")
    say(f"step {step:,} is that of a checkpoint")
    return {name: value for name, value in under(saved.arrays, "state.agent").items() if ".optimizers" not in name}


def _announcement(meter: CriticMeter, steps: list[int], sampling: Sampling) -> str:
    config = meter.config
    sizes = (
        f"{len(steps)} step{'s' * (len(steps) > 1)}",
        f"{config.seeds} seed{'s' * (config.seeds > 1)}",
        f"{len(meter.preferences)} preference{'s' * (len(meter.preferences) > 1)}",
        f"{sampling.pairs} pairs",
        f"{meter.num_rollouts} rollouts",
    )
    return f"{config.domain_id}, {config.algo}: {' x '.join(sizes)}"
