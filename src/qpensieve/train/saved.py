"""The policies of a run folder or saved agent, read without training: no session, no device, nothing is written.

A session would make replay, optimisers and compiled programs first. Acting needs the actors alone, and NumPy acts.
"""

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import jax
import numpy as np
from jaxtyping import Float64

from qpensieve import config as configs
from qpensieve.errors import MissingFileError, UserError
from qpensieve.learning.acting import num_parameters
from qpensieve.learning.interface import Algorithm
from qpensieve.learning.predictor import AgentPredictor
from qpensieve.methods import make_algorithm
from qpensieve.population.answering import ArchivePredictor, Policies
from qpensieve.population.moments import Moments
from qpensieve.records import checkpoint, folder
from qpensieve.records.checkpoint import Checkpoint, CheckpointError
from qpensieve.records.npz import read_npz
from qpensieve.records.reading import interpreting
from qpensieve.records.trees import under
from qpensieve.train.session import Arrays, Predictor

TRIES = 3
"""How often the newest policies are looked for: a run that trains replaces its checkpoints."""


@dataclass(frozen=True)
class _Found:
    """The newest policies that could be read, if any, their step, and what was wrong with later ones."""

    predictor: Predictor | None
    step: int
    problems: list[CheckpointError]


class SavedPolicies:
    """What a folder holds of policies, now and as it grows.

    Args:
        source: A run folder or a saved agent.
        trust: Whether code that the configuration of someone else imports may be run.

    Raises:
        FileNotFoundError: It is neither.
        UntrustedError: It would import code of someone else.
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
        """Place of a seed among those of the run; ValueError if there is no such seed."""
        there = self.config.seed_list
        if seed not in there:
            raise UserError(f"seed must be one of {', '.join(map(str, there))}, got {seed}")
        return there.index(seed)

    def stamp(self, step: int) -> int:
        """What differs where the policies of a step were written anew; 0: they are gone."""
        kept = checkpoint.parameter_steps(self.source).get(step)
        try:
            return (kept or checkpoint.folder_of(self.source, step) / checkpoint.META).stat().st_mtime_ns
        except OSError:
            return 0

    def newest(self, warn: Callable[[str], None] = lambda message: None) -> tuple[Predictor, int]:
        """The newest policies that can be read, and their step.

        Args:
            warn: Called with a message for each newer step that is damaged.

        Raises:
            CheckpointError: There are none, or none can be read: then what is wrong with the newest.
        """
        there = self.steps
        found = self._newest_of(there)
        for _ in range(TRIES - 1):
            if not found.problems or there == self.steps:  # else a run has replaced what was there
                break
            there = self.steps
            found = self._newest_of(there)
        return self._told(found, warn)

    def _newest_of(self, steps: list[int]) -> "_Found":
        problems: list[CheckpointError] = []
        for step in reversed(steps):
            try:
                return _Found(self.predictor(step), step, problems)
            except (CheckpointError, UserError) as error:  # a UserError: it has gone since
                problems.append(CheckpointError(str(error)))
        return _Found(None, 0, problems)

    def _told(self, found: "_Found", warn: Callable[[str], None]) -> tuple[Predictor, int]:
        if found.predictor is None:
            is_there = (self.source / folder.CONFIG).exists()
            about = "holds no parameters yet: train it first (qpensieve train or resume)" if is_there else "is gone"
            none = f"{self.source} {about}"
            raise found.problems[0] if found.problems else CheckpointError(none)
        for problem in found.problems:
            warn(f"{problem}; policies of an earlier step are taken, {found.step:,}")
        return found.predictor, found.step

    def predictor(self, step: int) -> Predictor:
        """The policies as of one of `steps`.

        Raises:
            ValueError: There is no such step.
            CheckpointError: It cannot be read.
        """
        there = self.steps
        if step not in there:
            shown = ", ".join(map(str, there)) or "none"
            raise UserError(f"step must be one that {self.source} kept: {shown}; got {step}")
        arrays, algorithm = self._arrays(step), self._algorithm
        if algorithm is None:
            return self._archive(arrays, step)
        num = self.config.seeds * algorithm.agents_per_seed
        self._check({name: (num, *shape) for name, shape in self._needed.items()}, arrays, step)
        names, structure = self._leaves
        actor = algorithm.actor(structure.unflatten([arrays.get(name, name) for name in names]))
        flat = np.concatenate([leaf.reshape(num, -1) for leaf in jax.tree.leaves(actor)], axis=1)
        return AgentPredictor(algorithm.acting, algorithm.preferences, flat.astype(np.float32), step)

    @cached_property
    def _algorithm(self) -> Algorithm[Any] | None:
        """None: a population."""
        config = self.config
        return None if config.method.is_population else make_algorithm(config.algo, config.agent, self.spec)

    @cached_property
    def _state(self) -> Any:
        """Shapes of one agent's state."""
        algorithm, lam = self._algorithm, jax.ShapeDtypeStruct((self.spec.num_objectives,), np.float32)
        assert algorithm is not None
        return jax.eval_shape(lambda lam: algorithm.init(jax.random.key(0), lam), lam)

    @cached_property
    def _leaves(self) -> tuple[list[str], Any]:
        """Names of the arrays of a state, and how they make one."""
        leaves, structure = jax.tree_util.tree_flatten_with_path(self._state)
        return [jax.tree_util.keystr(path) for path, _ in leaves], structure

    @cached_property
    def _needed(self) -> dict[str, tuple[int, ...]]:
        """Names of the arrays that the actor is made of, and the shape of each for one agent."""
        assert self._algorithm is not None
        made = jax.make_jaxpr(self._algorithm.actor)(self._state).jaxpr
        used = {id(var) for var in (*made.outvars, *(var for step in made.eqns for var in step.invars))}
        rows = zip(self._leaves[0], made.invars, jax.tree.leaves(self._state), strict=True)
        return {name: leaf.shape for name, var, leaf in rows if id(var) in used}

    @cached_property
    def _names(self) -> dict[str, str]:
        """Names of the arrays that acting needs, in a file of parameters -> in a checkpoint."""
        if self._algorithm is not None:
            return {name: f"state.agent{name}" for name in self._needed}
        parts = ("objs", "policies")
        return {f"archive/{row}/{part}": f"search/{row}/archive/{part}" for row in self._rows for part in parts}

    def _arrays(self, step: int) -> Arrays:
        """What acting needs, by its name in a file of parameters."""
        path = checkpoint.parameter_steps(self.source).get(step)
        if path is not None:
            try:
                return read_npz(path, self._names)
            except (ValueError, OSError) as error:
                if step not in checkpoint.kept_steps(self.source):  # else its checkpoint has them too
                    raise CheckpointError(f"cannot read the parameters in {path}: {error}") from error
        saved = checkpoint.load_step(self.source, step)
        if saved is None:
            raise CheckpointError(
                f"the checkpoint of step {step} of {self.source} is gone: a run that goes on drops it"
            )
        found = {name: saved.arrays[there] for name, there in self._names.items() if there in saved.arrays}
        return found if self._algorithm is not None else self._with_members(found, saved)

    def _with_members(self, found: Arrays, saved: Checkpoint) -> Arrays:
        """Archives in which there is nothing yet are replaced by the members, as in files of parameters."""
        is_empty = [f"archive/{row}/objs" in found and found[f"archive/{row}/objs"].size == 0 for row in self._rows]
        if not any(is_empty):
            return found
        with interpreting(saved.path, "a checkpoint of this configuration"):
            objs = saved.arrays["tasks/objs"]
            moments = Moments(*(saved.arrays[f"member.moments.{name}"] for name in ("mean", "squares", "count")))
            actors = [leaf.reshape(len(leaf), -1) for leaf in under(saved.arrays, "member.state.actor").values()]
            size = self.spec.obs_size
            kept = np.concatenate([*actors, moments.mean[:, :size], moments.scale[:, :size]], axis=1)
            parts = kept.astype(np.float32).reshape(len(objs), -1, kept.shape[1])
            members = {row: (objs[row], parts[row]) for row in self._rows if is_empty[row]}
        for row, (reached, policies) in members.items():
            found |= {f"archive/{row}/objs": reached, f"archive/{row}/policies": policies}
        return found

    @property
    def _rows(self) -> range:
        return range(self.config.seeds)

    def _archive(self, arrays: Arrays, step: int) -> ArchivePredictor:
        spec, hidden = self.spec, self.config.agent.ppo.hidden
        widths = (spec.obs_size, hidden, hidden, spec.action_size)
        size = num_parameters(widths) + spec.action_size + 2 * spec.obs_size
        archives = []
        for row, seed in enumerate(self.config.seed_list):
            objs, policies = f"archive/{row}/objs", f"archive/{row}/policies"
            num = len(arrays[objs]) if objs in arrays and arrays[objs].ndim else 0
            self._check({objs: (num, spec.num_objectives), policies: (num, size)}, arrays, step)
            if num == 0:
                raise CheckpointError(f"the parameters of step {step} in {self.source} hold no policy of seed {seed}")
            archives.append(Policies(arrays[objs].astype(np.float64), arrays[policies].astype(np.float32)))
        return ArchivePredictor(archives, widths)

    def _check(self, shapes: dict[str, tuple[int, ...]], arrays: Arrays, step: int) -> None:
        """Refuse arrays that are missing, are no numbers or do not fit the configuration."""
        for name, shape in shapes.items():
            found = arrays.get(name)
            if found is None or found.shape != shape or found.dtype.kind != "f":
                got = "is missing" if found is None else f"is {found.dtype} {found.shape}, not float {shape}"
                raise CheckpointError(f"the parameters of step {step} in {self.source} cannot be used: {name} {got}")
