"""L_critic of a run folder: which parameters it keeps, and the file that holds what was measured."""

from collections.abc import Callable
from pathlib import Path

from qpensieve.console import Progress
from qpensieve.errors import UserError
from qpensieve.preferences import ArrayLike
from qpensieve.records import critic_errors, folder
from qpensieve.records.checkpoint import CheckpointError
from qpensieve.records.critic_errors import CriticErrors
from qpensieve.records.files import check_can_write
from qpensieve.train.critic_error import CriticMeter, Sampling
from qpensieve.train.saved import SavedPolicies
from qpensieve.train.session import Arrays

MEASURING = "measuring"
"""What the progress line says."""


def measure_run(  # noqa: PLR0913 (each is an option of the command)
    run: Path,
    steps: tuple[int, ...] = (),
    all_steps: bool = False,
    preferences: ArrayLike | None = None,
    sampling: Sampling = Sampling(),
    trust: bool = False,
    say: Callable[[str], None] = lambda message: None,
    quiet: bool = False,
) -> tuple[CriticErrors, Path]:
    """Measure the critics of a run and add that to its `critic.json`; returns what was measured, and the file.

    Args:
        run: The run folder.
        steps: Steps of kept parameters or of checkpoints. Default: the newest.
        all_steps: All steps that there are.
        preferences: Under which to measure. None: the paper's, or those that the agents have of their own.
        sampling: Which pairs the critics are asked about.
        trust: Whether the code that the configuration names may be imported.
        say: Called with what is measured, and with damaged checkpoints.
        quiet: No progress line.

    Raises:
        ValueError: There is no such step, or the method has no critic to measure.
        CheckpointError: There is nothing to measure, or it cannot be read.
    """
    saved = SavedPolicies(run, trust)
    chosen = _chosen(run, saved.steps, steps, all_steps)
    meter = CriticMeter(saved.config, preferences, sampling)
    try:
        out = run / folder.CRITIC
        check_can_write(out)  # better said before than after minutes
        say(_announcement(meter, chosen, sampling))
        return _measure(meter, chosen, saved.parameters, out, quiet), out
    finally:
        meter.close()


def _measure(
    meter: CriticMeter, steps: list[int], load: Callable[[int], Arrays], out: Path, quiet: bool
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
            critic_errors.add(out, meter.errors(measured))
            rows += measured
        progress.show(per_step * len(steps), force=True)
    finally:
        progress.end()
    return meter.errors(rows)


def _chosen(run: Path, there: list[int], steps: tuple[int, ...], all_steps: bool) -> list[int]:
    """Return the steps to measure, in order."""
    if not there:
        raise CheckpointError(f"{run} holds no parameters to measure: train it first (qpensieve train or resume)")
    missing = [step for step in steps if step not in there]
    if missing:
        raise UserError(f"step must be one that {run} kept: {', '.join(map(str, there))}; got {missing[0]}")
    if all_steps:
        return there
    return sorted(set(steps)) or there[-1:]


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
