"""Save an agent, whole or not at all, and read the policies of a folder without a session or a device."""

import json
import os
import re
import shutil
import tempfile
from collections.abc import Callable
from contextlib import suppress
from functools import cached_property
from pathlib import Path

import jax
import numpy as np
from jaxtyping import Float64

from qpensieve import config as configs
from qpensieve.errors import FileInTheWayError, UserError, make_folder
from qpensieve.learning.acting import num_parameters
from qpensieve.learning.interface import Algorithm
from qpensieve.learning.losses import flatten
from qpensieve.learning.predictor import FLAT, AgentPredictor
from qpensieve.methods import make_algorithm
from qpensieve.population.members import ArchivePredictor, Policies
from qpensieve.records import calibration as calibrations
from qpensieve.records import checkpoint, folder
from qpensieve.records.calibration import Calibration
from qpensieve.records.checkpoint import POLICY, CheckpointError
from qpensieve.records.files import read_object, write_json
from qpensieve.records.folder import refuse_links
from qpensieve.records.trees import under
from qpensieve.train.checkpointer import Checkpointer
from qpensieve.train.session import Arrays, Predictor, Session

TRIES = 3
"""Number of attempts to read the newest policies: a run that trains replaces its checkpoints."""


class SavedPolicies:
    """Reads the policies in a folder, also while a run adds to it.

    Args:
        source: A run folder or a saved agent.
        trust: Whether the code that the configuration names may be imported.

    Raises:
        FileNotFoundError: The folder holds neither a run nor an agent.
        UntrustedError: The configuration names code to import, and `trust` is False.
    """

    def __init__(self, source: Path, trust: bool = False):
        finish_save(source)
        folder.check_run(source)
        self.source = source
        self.config = configs.load(source / folder.CONFIG, trust)
        self.spec = configs.spec_of(self.config)

    def __str__(self) -> str:
        return str(self.source)

    @property
    def name(self) -> str:
        """Name of the folder."""
        return self.source.resolve().name

    @property
    def calibration(self) -> Calibration | None:
        """The calibration of the policies of its `step`; None without one for the seeds of the run."""
        found = calibrations.load(self.source / folder.CALIBRATION)
        return found if found is not None and found.seeds == self.config.seed_list else None

    @property
    def steps(self) -> list[int]:
        """Steps whose policies the folder holds, oldest first."""
        return sorted({*checkpoint.parameter_steps(self.source), *checkpoint.kept_steps(self.source)})

    def check_step(self, step: int) -> None:
        """Raise ValueError unless the folder holds policies of a step."""
        if step not in (there := self.steps):
            shown = ", ".join(map(str, there)) or "none"
            raise UserError(f"step must be one that {self.source} kept: {shown}; got {step}")

    @property
    def own_preferences(self) -> Float64[np.ndarray, "p d"] | None:
        """Preferences that have their own agent each. None: the policies of a seed serve all."""
        return None if self._algorithm is None else self._algorithm.preferences

    def row_of(self, seed: int) -> int:
        """Return the place of a seed among the seeds of the run; ValueError if the run has no such seed."""
        there = self.config.seed_list
        if seed not in there:
            raise UserError(f"seed must be one of {', '.join(map(str, there))}, got {seed}")
        return there.index(seed)

    def stamp(self, step: int) -> int:
        """Return a number that changes when the policies of a step are written again; 0 if the policies are gone."""
        kept = checkpoint.parameter_steps(self.source).get(step)
        try:
            return (kept or checkpoint.folder_of(self.source, step) / checkpoint.META).stat().st_mtime_ns
        except OSError:
            return 0

    def newest(self, warn: Callable[[str], None] = lambda message: None) -> tuple[Predictor, int]:
        """Load the newest policies that can be read; returns them and their step.

        Args:
            warn: Called with a message for each newer step that is damaged.

        Raises:
            CheckpointError: There are no policies, or none can be read; the message is then about the newest.
        """
        found, problems = None, list[CheckpointError]()
        for _ in range(TRIES):
            there, problems = self.steps, []
            for step in reversed(there):
                try:
                    found = self.predictor(step), step
                    break
                except (CheckpointError, UserError) as error:  # a UserError: the step has gone since
                    problems.append(CheckpointError(str(error)))
            if not problems or there == self.steps:  # else a run has replaced what was there
                break
        if found is None:
            is_there = (self.source / folder.CONFIG).exists()
            about = "holds no parameters yet: train it first (qpensieve train or resume)" if is_there else "is gone"
            raise problems[0] if problems else CheckpointError(f"{self.source} {about}")
        for problem in problems:
            warn(f"{problem}; policies of an earlier step are taken, {found[1]:,}")
        return found

    def predictor(self, step: int) -> Predictor:
        """Load the policies of one of `steps`.

        Raises:
            ValueError: The folder has no such step.
            CheckpointError: The policies cannot be read.
        """
        algorithm, seeds = self._algorithm, self.config.seeds
        if algorithm is None:
            names = [f"{row}/{part}" for row in range(seeds) for part in ("objs", "flat")]
            return self._archive(under(self._read(step, [POLICY + name for name in names]), POLICY), step)
        lam = jax.ShapeDtypeStruct((self.spec.num_objectives,), np.float32)
        actor = jax.eval_shape(lambda lam: flatten(algorithm.actor(algorithm.init(jax.random.key(0), lam))), lam)
        arrays = under(self._read(step, [POLICY + FLAT]), POLICY)
        self._check({FLAT: (seeds * algorithm.agents_per_seed, *actor.shape)}, arrays, step)
        return AgentPredictor(algorithm.acting, algorithm.preferences, arrays[FLAT].astype(np.float32), step)

    def parameters(self, step: int) -> Arrays:
        """Load policies and networks of every agent of one of `steps`; raises what `predictor` raises."""
        return {name: value for name, value in self._read(step).items() if ".optimizers" not in name}

    def _read(self, step: int, names: list[str] | None = None) -> Arrays:
        """Read the arrays of a file of parameters (None: all), or the same arrays from the checkpoint of the step."""
        self.check_step(step)
        kept = checkpoint.parameter_steps(self.source)
        if step in kept:
            try:
                return checkpoint.load_parameters(kept[step], names)
            except CheckpointError:
                if step not in checkpoint.kept_steps(self.source):  # else its checkpoint has them too
                    raise
        arrays = checkpoint.load_step(self.source, step).arrays
        return {name: arrays[name] for name in arrays if name.startswith(POLICY)} | under(arrays, "state.agent")

    @cached_property
    def _algorithm(self) -> Algorithm[object] | None:
        """The algorithm of the run; None: it is a population."""
        config = self.config
        return None if config.method.is_population else make_algorithm(config.algo, config.agent, self.spec)

    def _archive(self, arrays: Arrays, step: int) -> ArchivePredictor:
        spec, hidden = self.spec, self.config.agent.ppo.hidden
        widths = (spec.obs_size, hidden, hidden, spec.action_size)
        size = num_parameters(widths) + spec.action_size + 2 * spec.obs_size
        archives = []
        for row, seed in enumerate(self.config.seed_list):
            objs, flat = f"{row}/objs", f"{row}/flat"
            num = len(arrays[objs]) if objs in arrays and arrays[objs].ndim else 0
            self._check({objs: (num, spec.num_objectives), flat: (num, size)}, arrays, step)
            if num == 0:
                raise CheckpointError(f"the parameters of step {step} in {self.source} hold no policy of seed {seed}")
            archives.append(Policies(arrays[objs].astype(np.float64), arrays[flat].astype(np.float32)))
        return ArchivePredictor(archives, widths)

    def _check(self, shapes: dict[str, tuple[int, ...]], arrays: Arrays, step: int) -> None:
        """Raise CheckpointError for arrays that are missing, are no floats or do not fit the configuration."""
        for name, shape in shapes.items():
            found = arrays.get(name)
            if found is None or found.shape != shape or found.dtype.kind != "f":
                got = "is missing" if found is None else f"is {found.dtype} {found.shape}, not float {shape}"
                raise CheckpointError(f"the parameters of step {step} in {self.source} cannot be used: {name} {got}")


REPLACED = (
    *(folder.CHECKPOINTS, folder.REPLAY, folder.CONFIG, folder.METRICS, folder.EVALUATIONS, folder.SUMMARY),
    *(folder.CRITIC, folder.CALIBRATION, folder.LOCK, *folder.PICTURES),
)
"""Contents of a saved agent's folder that a save replaces: the earlier agent, and files that commands added to it."""
_BELOW = {
    folder.REPLAY: r"rows_\d+_\d+\.npy",
    folder.CHECKPOINTS: rf"step_\d+(/({re.escape(checkpoint.ARRAYS)}|{re.escape(checkpoint.META)}))?",
}
"""Folder of a saved agent -> pattern of the names in it."""
_READY, _MANIFEST = f"{checkpoint.TEMPORARY}ready", "parts.json"
"""Folder of a complete new save until it has replaced the earlier one, and the file in it that lists its parts."""


def save_agent(session: Session, path: str | Path, calibration: Calibration | None = None) -> Path:
    """Write a session and its calibration into a new or empty folder or over an earlier save; returns the folder.

    Raises:
        ValueError: The path is empty, or the environment has no name that another process could make it by.
        OSError: Something else is in the folder, or a file is in the way.
        CheckpointError: It cannot be written. The message says whether the earlier save is unchanged.
    """
    configs.check_can_be_saved(session.config)
    if not str(path).strip():
        raise UserError("path must name the folder to save the agent in, got an empty one")
    target = Path(path)
    folder.refuse_file(target)
    is_new = not target.exists()
    if not is_new:
        refuse_links(target)
        finish_save(target)
        _check_replaceable(target)
    make_folder(target)
    new = Path(tempfile.mkdtemp(prefix=checkpoint.TEMPORARY, dir=target))
    try:
        configs.save(session.config, new / folder.CONFIG)
        if calibration is not None:
            calibrations.save(new / folder.CALIBRATION, calibration)
        Checkpointer(new, session).save_whole()
        _replace(new, target)
    except (CheckpointError, OSError) as error:
        reason = error.__cause__ or error
        left = "the next load completes the save" if (target / _READY).exists() else f"{target} is unchanged"
        raise CheckpointError(f"cannot save the agent: {reason}; {left}") from error
    finally:
        shutil.rmtree(new, ignore_errors=True)
        if is_new:
            with suppress(OSError):  # only an empty folder goes
                target.rmdir()
    return target


def is_saved_agent(path: Path) -> bool:
    """Return whether a folder holds a saved agent, perhaps with its results, and nothing else."""
    names = _names(path)
    if not {folder.CONFIG, folder.CHECKPOINTS} <= names <= {*REPLACED, folder.POLICY}:
        return False
    try:
        configs.from_dict(read_object(path / folder.CONFIG))
    except (OSError, ValueError, TypeError, KeyError, AttributeError, RecursionError):
        return False
    below = [(part, found.relative_to(path / part)) for part in _BELOW for found in (path / part).rglob("*")]
    ours = [(part, name) for part, name in below if not name.parts[0].startswith(checkpoint.TEMPORARY)]
    return all(re.fullmatch(_BELOW[part], name.as_posix()) for part, name in ours)


def _names(path: Path) -> set[str]:
    return {entry.name for entry in path.iterdir() if not entry.name.startswith(checkpoint.TEMPORARY)}


def _check_replaceable(target: Path) -> None:
    """Refuse a folder that holds anything but a saved agent."""
    names = _names(target)
    if names and not is_saved_agent(target):
        shown = f"{', '.join(sorted(names)[:3])}{f' and {len(names) - 3} more' if len(names) > 3 else ''}"
        what = "a run" if folder.PROVENANCE in names else "something else"
        raise FileInTheWayError(
            f"cannot save the agent in {target}: the folder must be new, empty or hold an earlier save, but it holds "
            f"{what} ({shown}); choose another folder"
        )


def _replace(new: Path, target: Path) -> None:
    """Put the parts of `new` into `target`, all of them or none.

    First `new` gets the name that says it is complete: from then on `finish_save` completes a save that was killed.
    """
    write_json(new / _MANIFEST, [part for part in REPLACED if (new / part).exists()])
    ready = target / _READY
    new.rename(ready)
    try:
        _swap(ready, target)
    except BaseException:
        ready.rename(new)  # everything is back in its place, and not complete any more
        raise
    _discard(ready)


def finish_save(target: Path) -> None:
    """Complete a save over an earlier one that was killed between two renames, if there is one. Call it before reading.

    Raises:
        CheckpointError: It cannot be completed.
    """
    ready = target / _READY
    if not (ready / _MANIFEST).is_file() or ready.is_symlink():
        return
    try:
        _swap(ready, target)
        _discard(ready)
    except (OSError, ValueError, TypeError) as error:
        raise CheckpointError(f"a save in {target} was cut off and cannot be completed: {error}") from error


def _swap(new: Path, target: Path) -> None:
    """Move what `new` lists into `target` and what it replaces into `new`; if a move fails, all are taken back.

    It may be called again where it was cut off: what has moved already is no longer in `new`.
    """
    listed, done = json.loads((new / _MANIFEST).read_text()), []
    try:
        for part in REPLACED:
            if part in listed and not (new / part).exists():  # it has moved already
                continue
            for source, place in ((target / part, new / f"old-{part}"), (new / part, target / part)):
                if source.exists():
                    source.rename(place)
                    done.append((source, place))
    except BaseException:
        for source, place in reversed(done):
            place.rename(source)
        raise


def _discard(ready: Path) -> None:
    """Remove the replaced parts; the name goes first, so that a half removed folder is not taken for a save."""
    gone = ready.with_name(f"{checkpoint.TEMPORARY}gone-{os.getpid()}")
    ready.rename(gone)
    shutil.rmtree(gone, ignore_errors=True)
