"""Agents, with the methods of Stable-Baselines3: learn, predict, evaluate, save, load."""

import dataclasses
import sys
import warnings
from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar, Unpack

import numpy as np
from jaxtyping import Float

from qpensieve import config as configs
from qpensieve import zoo
from qpensieve.algos.cnder import CnDerConfig
from qpensieve.algos.envelope import EnvelopeConfig
from qpensieve.algos.hybrid_sac import HybridConfig
from qpensieve.algos.mosac import SacConfig
from qpensieve.algos.qpensieve import QPensieveConfig
from qpensieve.algos.sac import SingleSacConfig
from qpensieve.callbacks.group import Callbacks
from qpensieve.config import RunConfig, default_config
from qpensieve.console import Progress, Workload
from qpensieve.deploy import write_loader, write_policy
from qpensieve.deploy.exported import ExportedPolicies, ExportedSession
from qpensieve.envs import EnvSource, is_local, name_for
from qpensieve.envs.base import FULL_EPISODES
from qpensieve.envs.registry import with_objectives
from qpensieve.errors import UserError
from qpensieve.front import Axis, Bound, Choice, Front, measure
from qpensieve.keywords import Keywords
from qpensieve.methods import Method, register_method
from qpensieve.population.pgmorl import PfaConfig, PgmorlConfig
from qpensieve.preferences import check_preference
from qpensieve.records import calibration as calibrations
from qpensieve.records import folder
from qpensieve.records.calibration import Calibration
from qpensieve.records.checkpoint import CheckpointError
from qpensieve.records.critic_errors import CriticErrors
from qpensieve.records.scores import RunSummary, summarize
from qpensieve.report import drawing
from qpensieve.report.front import Figure, axes_of, plot_front
from qpensieve.train.calibrate import EPISODES, calibrate
from qpensieve.train.checkpointer import Checkpointer
from qpensieve.train.critic_error import CriticMeter, Draw, Sampling
from qpensieve.train.evaluate import protocols
from qpensieve.train.loop import AgentTraining, describe, open_session
from qpensieve.train.saved import finish_save, save_agent
from qpensieve.train.session import Predictor, Session, play

__all__ = ["CNDER", "MOSAC", "PFA", "PGMORL", "SAC", "Agent", "EnvelopeDQN", "HybridSAC", "QPensieve", "load"]
__all__ += ["CnDerConfig", "EnvelopeConfig", "HybridConfig", "PfaConfig", "PgmorlConfig", "QPensieveConfig"]
__all__ += ["Method", "RunConfig", "SacConfig", "SingleSacConfig", "register_method"]

if TYPE_CHECKING:
    from qpensieve.config import PresetName
    from qpensieve.preferences import ArrayLike

    Number = float
else:  # arguments of wrong types are refused in a sentence, not by their annotation
    ArrayLike = Number = PresetName = object
Kind = TypeVar("Kind", bound="Agent")


class Agent:
    """An agent that serves every preference. It can train several seeds together.

    Args:
        domain: A domain, a Gymnasium id, module:factory, or a class or function that makes an environment.
        seeds: Number of seeds. None: the preset's, which is one except for `paper`.
        preset: `robust`, `quick` or `paper`. None: `robust` if the method has it, else `paper`.
        algo: Name of a method. None: the method of the class.
        objectives: For an environment with a single reward: the numbers in `info` that become the objectives. With a
            vector reward: names of its entries.
        settings: Fields of `RunConfig` or of the method's settings. `steps` fixes the length of the schedules. Without
            `steps` the first `learn` fixes it.
    """

    algo: str = "qpensieve"
    """The method, if the constructor names none."""

    def __init__(
        self,
        domain: EnvSource,
        seeds: int | None = None,
        preset: PresetName | None = None,
        algo: str | None = None,
        objectives: Sequence[str] = (),
        **settings: Unpack[Keywords],
    ):
        name = with_objectives(name_for(domain), objectives)
        if is_local(name):
            warnings.warn(f"this agent can be trained but not saved: {configs.not_saved(name)}", stacklevel=2)
        method = algo or self.algo
        config = default_config(name, method, preset or configs.default_preset(method))
        config = configs.override(config, ({} if seeds is None else {"seeds": seeds}) | settings)
        configs.check(config)
        for about in configs.remarks(config):
            warnings.warn(about, stacklevel=2)
        if "steps" in settings:
            config = configs.with_schedule(config)
        elif not config.method.is_population:  # the first `learn` decides how long to train
            config = dataclasses.replace(config, steps=config.block)
        self._start(open_session(config))

    def _start(self, session: Session) -> None:
        self.session = session
        """The training of the agent."""
        self.algo = session.config.algo
        self.calibration: Calibration | None = None
        """The newest calibration, which is for the policies of its `step`. None: there is no calibration."""
        self._newest: Predictor | None = None
        self._newest_step = 0

    @classmethod
    def load(cls: type[Kind], path: str | Path, trust: bool = False) -> Kind:
        """Load an agent from a saved folder, a run folder (its newest readable checkpoint) or a policy file.

        If no checkpoint has its replay, such as after a copy without it, the newest checkpoint is loaded without a
        replay, with a warning. The agent then predicts and evaluates as usual, and `learn` fills a new replay first.
        The agent of an exported policy cannot learn.

        Args:
            path: The folder; or a policy file, or `zoo:NAME`, a policy that comes with the package.
            trust: Import the code that the folder's domain names (`module:factory`).

        Raises:
            CheckpointError: There is no checkpoint, or none can be read.
            UntrustedError: The folder names code to import, and `trust` is False.
            ValueError: The agent's method is not that of this class. `Agent.load` loads any method.
        """
        source = zoo.find(Path(path))
        if source.is_file():
            return cls._of_file(ExportedPolicies(source, trust))
        finish_save(source)
        folder.check_run(source)
        config = configs.load(source / folder.CONFIG, trust)
        kind = cls._kind(config.algo, source)
        session = open_session(config)
        try:
            said: list[str] = []
            checkpointer = Checkpointer(source, session)
            saved = checkpointer.latest(said.append, needs_replay=False)
            if saved is None:
                again = f"start the run over with 'qpensieve resume {source}'"
                raise CheckpointError(f"{source} holds no checkpoint yet: {again}")
            checkpointer.restore(saved)
        except BaseException:
            session.close()
            raise
        for message in said:
            warnings.warn(message, stacklevel=2)
        agent: Any = kind.__new__(kind)
        agent._start(session)
        agent.calibration = calibrations.load(source / folder.CALIBRATION)
        return agent

    @classmethod
    def _of_file(cls: type[Kind], policies: ExportedPolicies) -> Kind:
        """Return an agent that acts with a policy file."""
        agent: Any = object.__new__(cls._kind(policies.config.algo, policies.source))
        agent._start(ExportedSession(policies))
        agent.calibration = policies.calibration
        return agent

    @classmethod
    def _kind(cls, algo: str, source: Path) -> type["Agent"]:
        """Return the class of a loaded agent: for `Agent` the class of its method, else this class."""
        of_method = next((kind for kind in Agent.__subclasses__() if kind.algo == algo), None)
        if cls is Agent:
            return of_method or Agent
        if cls.algo != algo:
            use = "qpensieve.load" if of_method is None else f"qpensieve.{of_method.__name__}.load or qpensieve.load"
            raise UserError(f"{source} holds an agent of {algo}, but {cls.__name__} is {cls.algo}: use {use}")
        return cls

    @property
    def config(self) -> RunConfig:
        """Settings of the training."""
        return self.session.config

    @property
    def num_steps(self) -> int:
        """Environment steps that each seed has learned from."""
        return self.session.step

    def learn(
        self: Kind,
        total_timesteps: Number,
        progress_bar: bool = False,
        callback: object = None,
        eval_period: int | None = None,
    ) -> Kind:
        """Train every seed for `total_timesteps` more environment steps; return the agent.

        The first call fits the schedules to its length, as `qpensieve train --steps` does. A later call stretches
        annealed settings over the longer run. If several calls are one run, give `steps` to the constructor. PGMORL and
        PFA stop at the last whole iteration.

        Args:
            total_timesteps: A whole number, such as 100_000 or 1e5. Off-policy methods round it up to whole blocks,
                with a warning.
            progress_bar: Show a progress line.
            callback: A function (step, metrics), an object with methods of `qpensieve.callbacks.Callback`, or a list of
                these. If a callback returns False, the training stops, and the agent keeps what it learned. Callbacks
                change no number.
            eval_period: Steps between short evaluations for the callbacks, with one more at the end. None: no
                evaluations.

        Raises:
            ValueError: An argument is wrong. The agent stays as it was.
            CallbackError: A callback failed. The agent is at the end of the newest block and can be saved or continue.
            KeyboardInterrupt: Ctrl-C was pressed. The agent is at the end of the newest block. A second Ctrl-C ends
                training at once.
        """
        session, callbacks = self.session, Callbacks(callback)
        goal = session.step + self._checked_steps(total_timesteps)
        if eval_period is not None and _whole("eval_period", eval_period, 1) and len(callbacks) == 0:
            raise UserError("eval_period needs a callback, which gets the evaluations: pass callback=")
        with callbacks.during(describe(session, goal)):
            session.plan(goal)
            workload = Workload(random_steps=session.random_steps)
            progress = Progress(goal, session.step, quiet=not progress_bar, workload=workload)
            try:
                AgentTraining(session, goal, callbacks, progress, eval_period).train()
            finally:
                progress.end()
        if about := configs.learning_warning(self.config, self.num_steps):
            warnings.warn(about, stacklevel=2)
        return self

    def _checked_steps(self, total: Number) -> int:
        least = self.session.block if self.config.method.is_population else 1
        is_number = isinstance(total, int | float | np.integer | np.floating) and not isinstance(total, bool)
        if not is_number or not least <= total <= sys.maxsize or total != int(total):
            raise UserError(f"total_timesteps must be a whole number of at least {least}, got {total!r}")
        return configs.whole_blocks(self.config, int(total), partial(warnings.warn, stacklevel=4))

    def predict(  # noqa: PLR0913 (each has a name of its own in a call)
        self,
        obs: ArrayLike | float,
        preference: ArrayLike | None = None,
        seed: int = 0,
        deterministic: bool = True,
        generator: np.random.Generator | None = None,
        normalized: bool = False,
        calibrated: bool = False,
    ) -> np.ndarray | Any:
        """Return the action of one seed's policy for an observation, or the actions for a batch, as NumPy arrays.

        The environment's `step` takes these actions: numbers in its own box ([-1, 1] in the ten domains), or integer
        indices if actions are discrete.

        Args:
            obs: One observation or a batch, flat or in the environment's shape.
            preference: One preference for all observations, or one for each. None raises ValueError.
            seed: Which of the trained seeds, counted from 0.
            deterministic: True: the action that evaluations use. False: a sample of the policy.
            generator: Source of the noise of samples. None: a new source at every call.
            normalized: Return actions in [-1, 1] instead of the environment's box.
            calibrated: Ask the policy for the preference that `calibrate` found in place of `preference`. ValueError if
                there is no calibration of this step.
        """
        spec = self.session.spec
        if preference is None:
            named = ", ".join(spec.objectives)
            raise UserError(f"predict needs a preference: weights of {named} that sum to 1")
        rows, is_single = spec.rows(obs)
        lam = np.atleast_2d(check_preference(preference, spec.num_objectives)).astype(np.float32)
        if len(lam) not in (1, len(rows)):
            raise UserError(f"preference must be one, or one for each of {len(rows)} observations, got {len(lam)}")
        lam = np.broadcast_to(lam, (len(rows), lam.shape[1]))
        row = self._checked_seed(seed)
        lam = self._current_calibration().ask(row, lam) if calibrated else lam
        stream = None if deterministic else _checked_generator(generator)
        action = self._policies().act(seed, rows, lam, stream)
        if not normalized or spec.num_actions is not None:
            action = spec.native_actions(action)
        return spec.one_of(action, 0) if is_single else action

    def _policies(self) -> Predictor:
        """Return the newest policies, also during training, when a callback predicts."""
        if self._newest is None or self._newest_step != self.session.step:
            self._newest, self._newest_step = self.session.predictor(), self.session.step
        return self._newest

    def evaluate(self, preferences: ArrayLike | None = None, episodes: int = FULL_EPISODES) -> RunSummary:
        """Evaluate every seed: UT, UT calibrated, UT best row, HV, front size, best single row, rank correlation.

        Without `preferences` the agents' own preferences are played (sac, hybrid-sac), or else the test table.
        """
        table, given = self._table(preferences), self.session.spec.reference
        known = self.calibration if self._is_calibrated else None
        return summarize(self.returns(table, episodes), table, None if given is None else np.array(given), known)

    def front(self, seed: int = 0, preferences: ArrayLike | None = None, episodes: int = FULL_EPISODES) -> Front:
        """Play one seed's policy under each preference; return the mean returns, and which rows are not dominated.

        `print` shows the rows that are not dominated. Without `preferences`, the preferences of `evaluate` are played.
        """
        policies, table, row = self._policies(), self._table(preferences), self._checked_seed(seed)
        returns = play(policies, self.config, self.num_steps, table, _whole("episodes", episodes, 1))
        return measure(self.session.spec.objectives, table, returns[row], policies.share(returns, table)[row])

    def plot_front(  # noqa: PLR0913 (each has a name of its own in a call)
        self,
        x: Axis | None = None,
        y: Axis | None = None,
        seed: int | None = 0,
        preferences: ArrayLike | None = None,
        episodes: int = FULL_EPISODES,
        path: str | Path | None = None,
    ) -> Figure:
        """Draw the mean return under each preference; return the figure of matplotlib.

        The colour of a point shows the weights of its preference. Dominated points are small and pale.

        Args:
            x: Objective of the horizontal axis: its name or index. None: the first objective that is not `y`.
            y: Objective of the vertical axis. None: the first objective that is not `x`.
            seed: Which of the trained seeds, counted from 0. None: all together.
            preferences: Preferences to play, as in `evaluate`.
            episodes: Episodes per preference.
            path: Also write the picture to this file (.png, .pdf, .svg, .jpg).

        Raises:
            ImportError: matplotlib is not installed; the message says how to install it.
        """
        table, config = self._table(preferences), self.config
        seeds = slice(None) if seed is None else slice(self._checked_seed(seed), seed + 1)
        which = f"{config.seeds} seeds" if seed is None else f"seed {config.seed_list[seed]}"
        title = f"{config.domain} · {config.algo} · step {self.num_steps:,} · {which}"
        names, returns = self.session.spec.objectives, lambda: self.returns(table, episodes)[seeds]
        out = None if path is None else drawing.check_picture(Path(path))
        figure = plot_front(config.domain, names, axes_of(names, x, y), table, returns)
        drawing.set_title(figure, title)
        if out is not None:
            drawing.write_figure(figure, out)
        return figure

    def choose(
        self, maximize: Axis, where: Mapping[Axis, Bound] | None = None, seed: int = 0, episodes: int = FULL_EPISODES
    ) -> Choice:
        """Choose the preference under which one objective is largest while others keep their bounds.

        Args:
            maximize: Name or index of an objective.
            where: Objective -> bound, such as {"control": (">=", -50)}. If no preference keeps all bounds, the nearest
                one is chosen, with a warning.
            seed: Which of the trained seeds, counted from 0.
            episodes: Episodes per preference.
        """
        return self.front(seed, episodes=episodes).choose(maximize, where)

    def calibrate(self, episodes: int = EPISODES, progress_bar: bool = False) -> Calibration:
        """Find for each test preference the row of the test table to ask the policy for in its place.

        A policy that is asked for a preference need not be the best policy for it, above all where episodes can end
        early. Half of the episodes choose a row for each preference, and the other half confirm the choice. A
        preference without a confirmed gain keeps its own row. `predict(..., calibrated=True)`, `evaluate`, `save` and
        `export_policy` use the result until the agent continues to learn. `print` shows the result.

        Args:
            episodes: Most episodes of each seed. Their steps count as samples: `environment_steps` of the result.
            progress_bar: Show a progress line.
        """
        session, policies = self.session, self._policies()
        num, own = session.spec.num_objectives, session.own_preferences
        self.calibration = calibrate(self.config, policies.act, self.num_steps, own, num, episodes, not progress_bar)
        return self.calibration

    @property
    def _is_calibrated(self) -> bool:
        return self.calibration is not None and self.calibration.step == self.num_steps

    def _current_calibration(self) -> Calibration:
        if self.calibration is None:
            raise UserError("this agent is not calibrated: call agent.calibrate() first, or 'qpensieve calibrate RUN'")
        if not self._is_calibrated:
            steps = f"it is of step {self.calibration.step:,}, but the agent is at step {self.num_steps:,}"
            raise UserError(f"the calibration is out of date: {steps}; call agent.calibrate() again")
        return self.calibration

    def _table(self, preferences: ArrayLike | None) -> Float[np.ndarray, "p d"]:
        """Return the given preferences as rows. None: the agents' own preferences, or else the test table."""
        num, own = self.session.spec.num_objectives, self.session.own_preferences
        table = check_preference(protocols(num, own).full if preferences is None else preferences, num)
        if table.ndim > 2 or table.size == 0:
            raise UserError(f"preferences must be one, or rows of them, got shape {table.shape}")
        return np.atleast_2d(table)

    def _checked_seed(self, seed: int) -> int:
        return _whole("seed", seed, 0, self.config.seeds - 1)

    def __repr__(self) -> str:
        asked = f"{self.config.domain!r}, algo={self.algo!r}, seeds={self.config.seeds}"
        return f"<{type(self).__name__}({asked}) after {self.num_steps:,} steps>"

    def returns(self, preferences: ArrayLike | None, episodes: int = FULL_EPISODES) -> Float[np.ndarray, "seed p e d"]:
        """Play the deterministic policies; return the undiscounted returns of their episodes."""
        return self.session.evaluate(self._table(preferences), _whole("episodes", episodes, 1))

    def critic_error(
        self,
        preferences: ArrayLike | None = None,
        pairs: int = Sampling.pairs,
        rollouts: int = Sampling.rollouts,
        actions: Draw = Sampling.actions,
        seed: int = Sampling.seed,
    ) -> CriticErrors:
        """Measure L_critic: how far the critics are from Monte-Carlo returns of their policy, per preference and seed.

        Args:
            preferences: One preference or rows. None: the agents' own (sac, hybrid-sac), else the paper's for this
                number of objectives, else the centre of the simplex.
            pairs: Pairs of state and action, per seed and preference.
            rollouts: Returns of each pair.
            actions: How the actions of the pairs are drawn: by the policy, or uniformly.
            seed: Seed of the measurement.

        Raises:
            ValueError: The method has no critic Q(s, a; lam): PGMORL and PFA.
        """
        meter = CriticMeter(self.config, preferences, Sampling(pairs, rollouts, actions, seed))
        try:
            return meter.errors(meter.measure(self.session.parameters(), self.num_steps))
        finally:
            meter.close()

    def save(self, path: str | Path) -> Path:
        """Write the agent with its replay, so that the loaded agent continues exactly; return the folder.

        The folder must be new, empty or hold an earlier save. The earlier save and its results are replaced when the
        new save is complete.

        Raises:
            ValueError: The environment cannot be imported by a name.
            OSError: The folder holds something else.
            CheckpointError: The agent cannot be written.
        """
        return save_agent(self.session, path, self.calibration)

    def export_policy(self, path: str | Path, seed: int = 0, critics: bool = False) -> Path:
        """Write one seed's policy as arrays, with a loader that needs NumPy alone; return the file.

        The file also has the calibration, if it is of this step.

        Args:
            path: The file, such as policy.npz.
            seed: Which of the trained seeds, counted from 0.
            critics: Also write the critics, with which the loader returns values.
        """
        row, known = self._checked_seed(seed), self.calibration if self._is_calibrated else None
        parameters = self.session.parameters() if critics else None
        written = write_policy(self._policies(), self.session, row, Path(path), self.num_steps, known, parameters)
        write_loader(written)
        return written

    def close(self) -> None:
        """End threads and worker processes. The agent cannot learn afterwards."""
        self.session.close()

    def __enter__(self: Kind) -> Kind:
        """Return the agent. The end of the `with` block closes it."""
        return self

    def __exit__(self, *error: object) -> None:
        self.close()


class QPensieve(Agent):
    """Q-Pensieve: the policy climbs the best value over several preferences and over past critics."""

    algo = "qpensieve"


class MOSAC(Agent):
    """Multi-objective SAC: Q-Pensieve with one preference and no snapshots."""

    algo = "mosac"


class SAC(Agent):
    """Single-objective SAC: one agent for each of 19 preferences, or for those of `preferences=("0.9,0.1", ...)`."""

    algo = "sac"


class HybridSAC(Agent):
    """SAC, one agent per preference. From `switch_after` updates on, it also climbs past critics of a helper.

    The helper is a Q-Pensieve, which trains at the same time on its own samples.
    """

    algo = "hybrid-sac"


class CNDER(Agent):
    """Conditioned networks with diverse experience replay, on DDPG."""

    algo = "cnder"


class EnvelopeDQN(Agent):
    """Envelope Q-learning with a deep network over binned or discrete actions."""

    algo = "envelope"


class PGMORL(Agent):
    """A population of PPO policies, trained where a model predicts the largest gain. An archive serves preferences."""

    algo = "pgmorl"


class PFA(Agent):
    """A population of PPO policies whose preferences slide along the front. An archive serves preferences."""

    algo = "pfa"


def load(path: str | Path, trust: bool = False) -> Agent:
    """Load the agent of a folder, a policy file or `zoo:NAME`, whatever its method is; see `Agent.load`."""
    return Agent.load(path, trust)


def _whole(name: str, value: object, low: int, high: int = sys.maxsize) -> int:
    """Return `value` as an int; ValueError unless it is a whole number of Python or NumPy from `low` to `high`."""
    if isinstance(value, bool) or not isinstance(value, int | np.integer) or not low <= value <= high:
        limits = f"of at least {low}" if high == sys.maxsize else f"from {low} to {high}"
        raise UserError(f"{name} must be a whole number {limits}, got {value!r}")
    return int(value)


def _checked_generator(generator: object) -> np.random.Generator:
    """Return the generator; a new one for None. Refuse a seed, which would give the same numbers at every call."""
    if generator is not None and not isinstance(generator, np.random.Generator):
        raise UserError(f"generator must be a np.random.Generator, such as np.random.default_rng(0); got {generator!r}")
    return np.random.default_rng() if generator is None else generator
