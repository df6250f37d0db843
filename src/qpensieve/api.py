"""Agents for people who know Stable-Baselines3: learn, predict, evaluate, save, load."""

import dataclasses
import tempfile
import warnings
from pathlib import Path
from typing import Any

import numpy as np
from jaxtyping import Float

from qpensieve import config as configs
from qpensieve.config import AlgoName, RunConfig, default_config
from qpensieve.preferences import check_preference, test_table
from qpensieve.replay import row_width
from qpensieve.report.evaluations import RunSummary, summarize
from qpensieve.train import checkpoint
from qpensieve.train.checkpoint import Checkpoint, CheckpointError
from qpensieve.train.evaluate import FULL_EPISODES
from qpensieve.train.log import Progress
from qpensieve.train.replay_log import ReplayLog
from qpensieve.train.run import CONFIG, MAY_DIFFER, METRICS
from qpensieve.train.trainer import Trainer


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
        # How many steps is learn's business; the trainer starts with room for the random ones.
        self._open(dataclasses.replace(config, steps=max(config.random_steps, config.block)))

    def _open(self, config: RunConfig) -> None:
        self._trainer = Trainer(config)
        self._policy = self._trainer.newest_policy()

    @property
    def config(self) -> RunConfig:
        return self._trainer.config

    @property
    def num_steps(self) -> int:
        """Environment steps each seed has learned from."""
        return self._trainer.step

    def learn(self, total_timesteps: int, progress_bar: bool = False) -> "Agent":
        """Train every seed for `total_timesteps` more environment steps; gives the agent itself."""
        goal = self._trainer.step + total_timesteps
        if goal > self.config.steps:
            self._trainer.extend(goal)
        progress = Progress(goal, self._trainer.step, quiet=not progress_bar)
        while self._trainer.step < goal:
            self._trainer.advance()
            progress.show(self._trainer.step)
        self._trainer.drain()
        self._policy = self._trainer.newest_policy()
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
        mean, log_std = self._policy.only(seed).gaussian(rows[None], lam[None])
        if not deterministic:
            generator = generator or np.random.default_rng()
            mean = mean + np.exp(log_std) * generator.standard_normal(mean.shape).astype(np.float32)
        action = np.tanh(mean[0])
        return action[0] if np.ndim(obs) == 1 else action

    def evaluate(self, preferences: Any = None, episodes: int = FULL_EPISODES) -> RunSummary:
        """UT, HV, front size, best single row and rank correlation per seed, on the test table or on `preferences`."""
        spec = self._trainer.spec
        table = test_table(spec.num_objectives) if preferences is None else preferences
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
        with tempfile.TemporaryDirectory(prefix=checkpoint.TEMPORARY, dir=folder) as name:
            new = Path(name)
            try:
                self._write(new)
            except (CheckpointError, OSError) as error:
                reason = error.__cause__ or error
                raise CheckpointError(f"cannot save the agent: {reason}; what {folder} held is as it was") from error
            for part in ("replay", "checkpoints", CONFIG):
                if (folder / part).exists():
                    (folder / part).rename(new / f"old-{part}")
                if (new / part).exists():
                    (new / part).rename(folder / part)
        return folder

    def _write(self, folder: Path) -> None:
        configs.save(self.config, folder / CONFIG)
        log = ReplayLog(folder, row_width(self._trainer.spec), self.config.seeds, self.config.capacity)
        rows, first = self._trainer.replay_rows()
        log.begin(first)
        log.append(rows)
        meta = {"config": configs.to_dict(self.config), "replay": log.flush()}
        checkpoint.save(folder, self._trainer.step, self._trainer.arrays(), meta, keep=1)

    def _restore(self, saved: Checkpoint, log: ReplayLog) -> None:
        manifest = saved.meta["replay"]
        if manifest is None:
            warnings.warn(f"{saved.path} keeps no replay: learning goes on, but not to the same numbers", stacklevel=3)
        rows, first = (None, 0) if manifest is None else log.load(manifest)
        self._trainer.restore(saved.arrays, rows, first)
        self._policy = self._trainer.newest_policy()

    def close(self) -> None:
        self._trainer.close()


class QPensieve(Agent):
    """Q-Pensieve: improves on the best of several preferences' values in current and past critics."""

    algo = "qpensieve"


class MOSAC(Agent):
    """Multi-objective SAC: Q-Pensieve with one preference and no snapshots."""

    algo = "mosac"


def load(path: str | Path) -> Agent:
    """The agent that `save` wrote or that a run's folder holds, as of its newest whole checkpoint."""
    folder = Path(path)
    if not (folder / CONFIG).exists():
        raise FileNotFoundError(f"{folder} is neither a saved agent nor a run's folder: it has no {CONFIG}")
    config = configs.load(folder / CONFIG)
    kind = next(kind for kind in (QPensieve, MOSAC) if kind.algo == config.algo)
    agent = kind.__new__(kind)
    agent._open(config)
    log = ReplayLog(folder, row_width(agent._trainer.spec), config.seeds, config.capacity)

    def find_fault(saved: Checkpoint) -> str | None:
        checkpoint.check_config(saved.meta["config"], configs.to_dict(config), ignore=MAY_DIFFER)
        return log.verify(saved.meta["replay"] or [])

    saved = checkpoint.load_latest(folder, warnings.warn, find_fault)
    if saved is None:
        raise CheckpointError(f"{folder} holds no checkpoint yet: 'qpensieve resume {folder}' starts the run over")
    agent._restore(saved, log)
    return agent
