"""Start, resume and evaluate a run folder. A run that is stopped and resumed has the same numbers."""

import dataclasses
from collections.abc import Callable
from contextlib import ExitStack, suppress
from pathlib import Path
from typing import Any

from qpensieve import config as configs
from qpensieve.compatibility import recipe
from qpensieve.config import RunConfig
from qpensieve.errors import FileInTheWayError, UserError, make_folder
from qpensieve.records import checkpoint, folder, provenance
from qpensieve.records.checkpoint import CheckpointError
from qpensieve.records.files import write_json
from qpensieve.records.folder import lock, refuse_links
from qpensieve.records.log import has_evaluations
from qpensieve.train.run_files import RunFiles
from qpensieve.train.run_loop import RESULTS, Options, Run
from qpensieve.train.saved import SavedPolicies, finish_save
from qpensieve.train.session import play


def start(path: Path, config: RunConfig, options: Options) -> Run:
    """Start a new run in a new folder. If it cannot start, no folder is left.

    Raises:
        ValueError: The settings cannot run, or the environment has no name by which `resume` could make it.
        OSError: The folder holds a run or parts of one, or cannot be made.
        FolderInUseError: Another process holds the folder.
    """
    config = configs.with_schedule(config)
    configs.check(config)
    configs.check_can_be_saved(config)
    _check_new(path)
    made = [one for one in (path, *path.parents) if not one.exists()]
    run = Run(path, config, options)
    try:
        if made:  # a folder that has been there must not come back: another process may have renamed it since
            make_folder(path)
        run.files.held = lock(path)
        configs.save(config, path / folder.CONFIG)
        _write_provenance(run)
    except BaseException:
        is_ours = run.files.held is not None  # else the folder belongs to another process
        for name in (folder.CONFIG, folder.PROVENANCE, folder.LOCK) if is_ours else ():
            (path / name).unlink(missing_ok=True)
        for one in made:
            with suppress(OSError):
                one.rmdir()
        run.close()
        raise
    return run


def _write_provenance(run: Run) -> None:
    """Write versions, machine and commit."""
    session = run.session
    about = {"recipe": recipe(run.config), "lanes_per_seed": session.lanes_per_seed}
    about |= {"objectives": list(session.spec.objectives)}
    write_json(run.folder / folder.PROVENANCE, provenance.describe() | about)


def _check_new(path: Path) -> None:
    """Refuse a folder that holds a run, or parts of one that a new run would be mixed with."""
    folder.refuse_file(path)
    if (path / folder.CONFIG).exists():
        raise FileInTheWayError(
            f"{path} holds a run already: continue it with 'qpensieve resume {path}', or choose --name"
        )
    found = [name for name in (*folder.FILES, *folder.FOLDERS) if name != folder.LOCK and (path / name).exists()]
    if found:
        raise FileInTheWayError(
            f"{path} must not hold parts of another run, but it holds {', '.join(found)} without {folder.CONFIG}; "
            "choose another --name, or move them away"
        )


def resume(
    path: Path,
    options: Options,
    warn: Callable[[str], None],
    trust: bool = False,
    start_over: bool = False,
    **changes: Any,
) -> Run:
    """Open a run as of its newest whole checkpoint, or from the start if it was killed before the first one.

    The folder of a saved agent becomes a run.

    Args:
        path: The run folder.
        options: What the run shows and writes.
        warn: Called with a message if something was lost, or steps were rounded.
        trust: Whether the code that the configuration names may be imported.
        start_over: Begin from the start; whatever the run has reached is removed.
        changes: Settings that may change: `num_threads`, and `steps`, which may grow, and shrink to what is reached.

    Raises:
        CheckpointError: The run has results, but no checkpoint to continue from.
    """
    finish_save(path)
    folder.check_run(path)
    with ExitStack() as opened:
        held = lock(path)
        opened.callback(held.close)
        # The file is read once: the settings that were checked are those that run and that are written back.
        saved = configs.load(path / folder.CONFIG, trust)
        before = saved if checkpoint.kept_steps(path) else configs.with_schedule(saved)
        steps = configs.whole_blocks(before, changes.pop("steps", before.steps), warn)
        config = configs.lengthened(dataclasses.replace(before, **changes), steps)
        _check_steps(path, before, steps, start_over)
        run = Run(path, config, options)
        run.files.held = held
        opened.callback(run.close)
        if start_over:
            warn(f"{path} starts over: what it had reached is removed")
            run.start_over()
        else:
            _restore(run, warn)
        if not (path / folder.PROVENANCE).exists():  # a saved agent, which becomes a run, or a folder of a plan
            _write_provenance(run)
        provenance.note_changes(path / folder.PROVENANCE, run.session.step, warn)
        if config.steps != before.steps:
            before = configs.lengthened(before, config.steps)
            provenance.change(path / folder.PROVENANCE, recipe=recipe(before))
        if before != saved:
            configs.save(before, path / folder.CONFIG)
        opened.pop_all()
    return run


def _check_steps(path: Path, before: RunConfig, steps: int, start_over: bool) -> None:
    """Refuse a length that the run has passed. The length of a population is planned and may only grow."""
    if before.method.is_population and steps < before.steps:
        raise UserError(f"steps of {before.algo} may only grow: the run has {before.steps:,}, got {steps:,}")
    reached = 0 if start_over else checkpoint.last_good_step(path) or 0
    if steps < reached:
        raise UserError(f"steps must be at least {reached:,}, which the run has reached, got {steps:,}")


def _restore(run: Run, warn: Callable[[str], None]) -> None:
    """Bring a run to its newest whole checkpoint, or to its start if it has neither a checkpoint nor results."""
    path, log = run.folder, run.folder / folder.METRICS
    saved = run.checkpointer.latest(warn)
    if saved is not None:
        if not (path / folder.EVALUATIONS).exists() and has_evaluations(log):
            lost = "earlier evaluations are lost, and curves begin where the run continues"
            warn(f"{path / folder.EVALUATIONS} is gone: {lost}; to keep them, stop and put it back")
        run.restore(saved)
        return
    found = [name for name in RESULTS if (path / name).exists()]
    if found or has_evaluations(log):
        raise CheckpointError(
            f"{path} has results ({', '.join(found or [folder.METRICS])}) but no checkpoint to continue from, and "
            f"starting over would remove them; put its {folder.CHECKPOINTS} back, or ask for it: qpensieve resume "
            f"{path} --start-over"
        )
    warn(f"{path} has no checkpoint yet: starting over from {folder.CONFIG}")
    run.start_over()


def evaluate(path: Path, warn: Callable[[str], None], trust: bool = False) -> None:
    """Evaluate the newest policies of a run by the full protocol; add to its table and log, and remove nothing.

    The newest policies are those of the newest readable checkpoint or file of parameters.

    Args:
        path: The run folder.
        warn: Called with the step that is evaluated, and with damaged checkpoints.
        trust: Whether the code that the configuration names may be imported.
    """
    refuse_links(path)
    saved = SavedPolicies(path, trust)
    # An agent that has not learned yet is saved without schedules.
    (policies, step), config = saved.newest(warn), configs.with_schedule(saved.config)
    files = RunFiles(path, config, saved.spec, saved.own_preferences, warn)
    files.held = lock(path)
    try:
        files.load()
        table = files.table
        newest = max(table.full_steps.tolist(), default=0)
        if step not in table.full_steps:
            warn(f"evaluating the policies of step {step:,}")
        if newest > step:
            warn(f"the full evaluation of step {newest:,} is newer: it stays, and the scores shown are its")
        played = lambda: play(policies, config, step, table.full_preferences, config.full_eval_episodes)
        files.add_full(step, lambda: policies.share(played(), table.full_preferences))
    finally:
        files.close()
