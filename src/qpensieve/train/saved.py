"""The policies of a run folder or saved agent, read without a session: no device is used, and nothing is written."""

from collections.abc import Callable
from functools import cached_property
from pathlib import Path

import jax
import numpy as np
from jaxtyping import Float64

from qpensieve import config as configs
from qpensieve.errors import MissingFileError, UserError
from qpensieve.learning.acting import num_parameters
from qpensieve.learning.interface import Algorithm
from qpensieve.learning.losses import flatten
from qpensieve.learning.predictor import FLAT, AgentPredictor
from qpensieve.methods import make_algorithm
from qpensieve.population.members import ArchivePredictor, Policies
from qpensieve.records import checkpoint, folder
from qpensieve.records.checkpoint import POLICY, CheckpointError
from qpensieve.records.files import read_npz
from qpensieve.records.trees import under
from qpensieve.train.session import Arrays, Predictor

TRIES = 3
"""Number of attempts to read the newest policies: a run that trains replaces its checkpoints."""


class SavedPolicies:
    """Policies in a folder, now and as it grows.

    Args:
        source: A run folder or a saved agent.
        trust: Whether the code that the configuration names may be imported.

    Raises:
        FileNotFoundError: It is neither.
        UntrustedError: It names code to import, and `trust` is False.
    """

    def __init__(self, source: Path, trust: bool = False):
        if not (source / folder.CONFIG).exists():
            raise MissingFileError(f"{source} must be a run folder or a saved agent, but {folder.why_no_run(source)}")
        self.source = source
        self.config = configs.load(source / folder.CONFIG, trust)
        self.spec = configs.spec_of(self.config)

    @property
    def steps(self) -> list[int]:
        """Steps whose policies are there, oldest first."""
        return sorted({*checkpoint.parameter_steps(self.source), *checkpoint.kept_steps(self.source)})

    @property
    def own_preferences(self) -> Float64[np.ndarray, "p d"] | None:
        """Preferences that have their own agent each; None: all are served."""
        return None if self._algorithm is None else self._algorithm.preferences

    def row_of(self, seed: int) -> int:
        """Return the place of a seed among those of the run; ValueError if there is no such seed."""
        there = self.config.seed_list
        if seed not in there:
            raise UserError(f"seed must be one of {', '.join(map(str, there))}, got {seed}")
        return there.index(seed)

    def stamp(self, step: int) -> int:
        """Return a number that changes when the policies of a step are written again; 0: they are gone."""
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
            CheckpointError: There are none, or none can be read: then what is wrong with the newest.
        """
        found, problems = None, list[CheckpointError]()
        for _ in range(TRIES):
            there, problems = self.steps, []
            for step in reversed(there):
                try:
                    found = self.predictor(step), step
                    break
                except (CheckpointError, UserError) as error:  # a UserError: it has gone since
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
            ValueError: There is no such step.
            CheckpointError: It cannot be read.
        """
        arrays = self._read(step, lambda path: under(read_npz(path, self._names), POLICY), POLICY)
        return self._archive(arrays, step) if self._algorithm is None else self._agents(self._algorithm, arrays, step)

    def parameters(self, step: int) -> Arrays:
        """Load the networks of every agent of one of `steps`, without optimisers; errors as those of `predictor`."""
        arrays = self._read(step, checkpoint.load_parameters, "state.agent")
        return {name: value for name, value in arrays.items() if ".optimizers" not in name}

    def _read(self, step: int, read: Callable[[Path], Arrays], prefix: str) -> Arrays:
        """Read arrays of a step: from its file of parameters, else those of its checkpoint with a prefix."""
        kept, there = checkpoint.parameter_steps(self.source), self.steps
        if step not in there:
            shown = ", ".join(map(str, there)) or "none"
            raise UserError(f"step must be one that {self.source} kept: {shown}; got {step}")
        if step in kept:
            try:
                return read(kept[step])
            except (ValueError, OSError, CheckpointError) as error:
                if step not in checkpoint.kept_steps(self.source):  # else its checkpoint has them too
                    raise CheckpointError(f"cannot read the parameters in {kept[step]}: {error}") from error
        return under(checkpoint.load_step(self.source, step).arrays, prefix)

    @cached_property
    def _algorithm(self) -> Algorithm[object] | None:
        """None: a population."""
        config = self.config
        return None if config.method.is_population else make_algorithm(config.algo, config.agent, self.spec)

    @property
    def _names(self) -> list[str]:
        """Names of the arrays that acting needs."""
        if self._algorithm is not None:
            return [POLICY + FLAT]
        return [f"{POLICY}{row}/{part}" for row in range(self.config.seeds) for part in ("objs", "flat")]

    @cached_property
    def _width(self) -> int:
        """Number of an actor's parameters."""
        algorithm, lam = self._algorithm, jax.ShapeDtypeStruct((self.spec.num_objectives,), np.float32)
        assert algorithm is not None
        flat = lambda lam: flatten(algorithm.actor(algorithm.init(jax.random.key(0), lam)))
        return jax.eval_shape(flat, lam).shape[0]

    def _agents(self, algorithm: Algorithm[object], arrays: Arrays, step: int) -> AgentPredictor:
        self._check({FLAT: (self.config.seeds * algorithm.agents_per_seed, self._width)}, arrays, step)
        return AgentPredictor(algorithm.acting, algorithm.preferences, arrays[FLAT].astype(np.float32), step)

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
        """Refuse arrays that are missing, are no numbers or do not fit the configuration."""
        for name, shape in shapes.items():
            found = arrays.get(name)
            if found is None or found.shape != shape or found.dtype.kind != "f":
                got = "is missing" if found is None else f"is {found.dtype} {found.shape}, not float {shape}"
                raise CheckpointError(f"the parameters of step {step} in {self.source} cannot be used: {name} {got}")
