"""Agents for people who know Stable-Baselines3: learn, predict, evaluate, save, load."""

import dataclasses
import tempfile
import warnings
from pathlib import Path
from typing import Any

import numpy as np
from jaxtyping import Float

from qpensieve import config as configs
from qpensieve.config import AlgoName, RunConfig
from qpensieve.console import Progress
from qpensieve.evaluation import FULL_EPISODES, protocols
from qpensieve.population.trainer import PopulationTrainer
from qpensieve.preferences import check_preference
from qpensieve.presets import default_config
from qpensieve.records import checkpoint
from qpensieve.records.atomic import TEMPORARY
from qpensieve.records.checkpoint import Checkpoint, CheckpointError
from qpensieve.records.folder import CHECKPOINTS, CONFIG, METRICS, REPLAY
from qpensieve.records.scores import RunSummary, summarize
from qpensieve.replay.log import ReplayLog
from qpensieve.train.run import find_fault, forgets_replay, make_replay_log, restore
from qpensieve.train.sessions import make_trainer


class Agent:
    """One policy for every preference, trained for several seeds side by side.

    Args:
        domain: A domain, a Gymnasium id or module:factory.
        seeds: How many seeds.
        preset: `paper` or `quick`.
        settings: Any field of `RunConfig`, of the algorithm's config or of `mosac.SacConfig`, by its name.
    """

    algo: AlgoName = "qpensieve"

    def __init__(self, domain: str, seeds: int = 5, preset: str = "paper", **settings: Any):
        config = configs.override(default_config(domain, self.algo, preset), {"seeds": seeds} | settings)
        config = configs.resolve(config)
        # How many steps is learn's business; a trainer with a replay starts with room for the random ones.
        is_population = self.algo in configs.POPULATIONS
        steps = config.steps if is_population else max(config.random_steps, config.block)
        self._open(dataclasses.replace(config, steps=steps))

    def _open(self, config: RunConfig) -> None:
        self._trainer = make_trainer(config)
        self._predictor = self._trainer.predictor()

    @property
    def config(self) -> RunConfig:
        return self._trainer.config

    @property
    def num_steps(self) -> int:
        """Environment steps each seed has learned from."""
        return self._trainer.step

    def learn(self, total_timesteps: int, progress_bar: bool = False) -> "Agent":
        """Train every seed for `total_timesteps` more environment steps; gives the agent itself.

        PGMORL and PFA plan their learning rate (PFA its preferences too) for a run of this length, and stop at the last
        whole iteration within it.
        """
        if total_timesteps < self._trainer.block:
            raise ValueError(f"total_timesteps is {total_timesteps}, but one block takes {self._trainer.block}")
        goal = self._trainer.step + total_timesteps
        if goal > self.config.steps or isinstance(self._trainer, PopulationTrainer):
            self._trainer.extend(goal)
        progress = Progress(goal, self._trainer.step, quiet=not progress_bar)
        while self._trainer.step + self._trainer.block <= goal:
            self._trainer.advance()
            progress.show(self._trainer.step)
        self._trainer.drain()
        self._predictor = self._trainer.predictor()
        return self

    def predict(
        self,
        obs: Float[np.ndarray, "*batch obs"],
        preference: Float[np.ndarray, "*batch d"] | Any,
        seed: int = 0,
        deterministic: bool = True,
        generator: np.random.Generator | None = None,
    ) -> Float[np.ndarray, "*batch act"]:
        """Action(s) in [-1, 1] of one seed's policy, in plain NumPy.

        Args:
            obs: One observation, or a batch of them.
            preference: One preference for all, or one for each observation.
            seed: Which of the trained seeds, counted from 0.
            deterministic: The mean action (as evaluations use), or a sample.
            generator: Source of the noise of samples.
        """
        spec = self._trainer.spec
        rows = np.atleast_2d(np.asarray(obs, np.float32))
        if rows.ndim != 2 or rows.shape[1] != spec.obs_size:
            raise ValueError(
                f"observation has shape {np.shape(obs)}, expected ({spec.obs_size},) or (n, {spec.obs_size})"
            )
        lam = np.atleast_2d(check_preference(preference, spec.num_objectives)).astype(np.float32)
        if len(lam) not in (1, len(rows)):
            raise ValueError(f"got {len(lam)} preferences for {len(rows)} observations: give one, or one for each")
        lam = np.broadcast_to(lam, (len(rows), lam.shape[1]))
        if not 0 <= seed < self.config.seeds:
            raise ValueError(f"seed {seed} was not trained: there are {self.config.seeds}, counted from 0")
        stream = None if deterministic else generator or np.random.default_rng()
        action = self._predictor.act(seed, rows, lam, stream)
        return action[0] if np.ndim(obs) == 1 else action

    def evaluate(self, preferences: Any = None, episodes: int = FULL_EPISODES) -> RunSummary:
        """UT, HV, front size, best single row and rank correlation per seed.

        On the test table (agents with preferences of their own: on those) or on `preferences`.
        """
        spec = self._trainer.spec
        own = self._trainer.own_preferences
        table = protocols(spec.num_objectives, own).full if preferences is None else preferences
        table = np.atleast_2d(check_preference(table, spec.num_objectives))
        reference = None if spec.reference is None else np.array(spec.reference)
        return summarize(self.returns(table, episodes), table, reference)

    def returns(self, preferences: Any, episodes: int = FULL_EPISODES) -> Float[np.ndarray, "seed p e d"]:
        """Undiscounted returns of the deterministic policies."""
        return self._trainer.evaluate(np.asarray(preferences, np.float64), episodes)

    def save(self, path: str | Path) -> Path:
        """Write the agent, replay included, so that `load` continues exactly; gives the folder.

        What was saved there before is replaced only once all of the new is on the disk.
        """
        folder = Path(path)
        if (folder / METRICS).exists():
            raise FileExistsError(
                f"{folder} is a run's folder: save the agent elsewhere, its checkpoints would be lost"
            )
        folder.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(prefix=TEMPORARY, dir=folder) as name:
            new = Path(name)
            try:
                self._write(new)
            except (CheckpointError, OSError) as error:
                reason = error.__cause__ or error
                raise CheckpointError(f"cannot save the agent: {reason}; what {folder} held is as it was") from error
            for part in (REPLAY, CHECKPOINTS, CONFIG):
                if (folder / part).exists():
                    (folder / part).rename(new / f"old-{part}")
                if (new / part).exists():
                    (new / part).rename(folder / part)
        return folder

    def _write(self, folder: Path) -> None:
        configs.save(self.config, folder / CONFIG)
        log, manifest = make_replay_log(folder, self._trainer), None
        if log is not None and not isinstance(self._trainer, PopulationTrainer):
            rows, first = self._trainer.replay_rows()
            log.begin(first)
            log.append(rows)
            manifest = log.flush()
        meta = {"config": configs.to_dict(self.config), "replay": manifest}
        checkpoint.save(folder, self._trainer.step, self._trainer.arrays(), meta, keep=1)

    def _restore(self, saved: Checkpoint, log: ReplayLog | None) -> None:
        if forgets_replay(log, saved):
            warnings.warn(f"{saved.path} keeps no replay: learning goes on, but not to the same numbers", stacklevel=3)
        restore(self._trainer, log, saved)
        self._predictor = self._trainer.predictor()

    def close(self) -> None:
        self._trainer.close()


class QPensieve(Agent):
    """Q-Pensieve: improves on the best of several preferences' values in current and past critics."""

    algo = "qpensieve"


class MOSAC(Agent):
    """Multi-objective SAC: Q-Pensieve with one preference and no snapshots."""

    algo = "mosac"


class SAC(Agent):
    """Single-objective SAC, one agent for each of 19 preferences (or of `preferences=("0.9,0.1", ...)`)."""

    algo = "sac"


class HybridSAC(Agent):
    """SAC for single preferences that climbs the snapshots of a Q-Pensieve trained beside it."""

    algo = "hybrid-sac"


class CNDER(Agent):
    """Conditioned networks with diverse experience replay, on DDPG."""

    algo = "cnder"


class EnvelopeDQN(Agent):
    """Envelope Q-learning with a deep network over binned (or discrete) actions."""

    algo = "envelope"


class PGMORL(Agent):
    """A population of PPO policies evolved where a model predicts the front to gain most; an archive answers."""

    algo = "pgmorl"


class PFA(Agent):
    """A population of PPO policies whose preferences slide along the front of two objectives; an archive answers."""

    algo = "pfa"


KINDS = (QPensieve, MOSAC, SAC, HybridSAC, CNDER, EnvelopeDQN, PGMORL, PFA)


def load(path: str | Path) -> Agent:
    """The agent that `save` wrote or that a run's folder holds, as of its newest whole checkpoint."""
    folder = Path(path)
    if not (folder / CONFIG).exists():
        raise FileNotFoundError(f"{folder} is neither a saved agent nor a run's folder: it has no {CONFIG}")
    config = configs.load(folder / CONFIG)
    kind = next(kind for kind in KINDS if kind.algo == config.algo)
    agent = kind.__new__(kind)
    agent._open(config)
    log = make_replay_log(folder, agent._trainer)

    saved = checkpoint.load_latest(folder, warnings.warn, lambda saved: find_fault(log, saved, config))
    if saved is None:
        raise CheckpointError(f"{folder} holds no checkpoint yet: 'qpensieve resume {folder}' starts the run over")
    agent._restore(saved, log)
    return agent
