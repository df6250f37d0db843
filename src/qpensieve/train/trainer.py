"""One training run in memory: the host collects a block while the device learns from the block before.

Schedule, fixed so that a run is deterministic: block n is collected with the policy that had learned from block n - 2;
while the device learns from block n, block n + 1 is collected. Everything that changes is in `arrays()`.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Float32, Float64, Int32, Shaped

from qpensieve import config as configs
from qpensieve.config import RunConfig
from qpensieve.envs import LaneOptions, make_lanes
from qpensieve.learning.interface import Algorithm, Hints, UniformLearning
from qpensieve.learning.predictor import AgentPredictor
from qpensieve.machine import available_cores, make_devices, num_parts
from qpensieve.methods import make_algorithm
from qpensieve.records.trees import arrays_to_tree, tree_to_arrays, under
from qpensieve.replay.layout import Rows, layout_of
from qpensieve.replay.log import ReplayLog
from qpensieve.replay.slots import Slots
from qpensieve.train.collect import Collected, Collector
from qpensieve.train.evaluate import foreign_lanes
from qpensieve.train.learner import Block, Learner, make_learner, spread
from qpensieve.train.memory import check_memory
from qpensieve.train.session import Accumulator, EnvFailedError, Session, agent_names, check_finite, environment_errors
from qpensieve.train.workers import CollectionWorkers, EvaluationJob, EvaluationWorkers, can_work

FREED_AT_ONCE = 256
"""Number of slots freed by one call of the device; fixed, so that it is compiled once."""


@dataclass
class _Pending:
    """Results that the device may still be computing: the policy after the newest block, and its log."""

    flat: jax.Array | np.ndarray
    info: Mapping[str, jax.Array] | None
    step: int


class Trainer(Session):
    """A run that advances block by block.

    Args:
        config: What to train; checked first.
    """

    def __init__(self, config: RunConfig):
        super().__init__()
        configs.check(config)
        self.config, self.spec, self.block = config, configs.spec_of(config), config.block
        self.algorithm = algorithm = make_algorithm(config.algo, config.agent, self.spec)
        self.layout = layout_of(self.spec, algorithm.behaviour)
        """The layout of a transition in a row of the replay."""
        self.own_preferences, self.lanes_per_seed = algorithm.preferences, algorithm.lanes_per_seed
        self.num_agents = config.seeds * algorithm.agents_per_seed
        capacity, num_lanes = self._capacity(config), config.seeds * self.lanes_per_seed
        make_devices(num_parts(self.num_agents, available_cores()))
        self._check_memory(algorithm, capacity)
        self._slots = Slots(algorithm.learning, self.layout, capacity, num_lanes, discount=algorithm.discount)
        self._learner = self._make_learner()
        self.collector = self._make_collector()
        self.evaluation_workers = self._make_evaluation_workers()
        try:
            with environment_errors("at its first reset"):
                self.collector.start()
        except EnvFailedError:
            self.close()
            raise
        self._is_whole = True
        """Whether replay, counters and agents are at the end of the same block."""
        self._state = self._learner.init(jnp.asarray(config.seed_list))
        self._acting = self.newest_flat()
        self._pending = _Pending(self._acting, None, 0)

    def _capacity(self, config: RunConfig) -> int:
        """Return the rows of each lane's replay in a run."""
        is_uniform = isinstance(self.algorithm.learning, UniformLearning)
        return config.capacity if is_uniform else config.replay_capacity

    def _check_memory(self, algorithm: Algorithm[object], capacity: int) -> None:
        """Refuse a run that cannot fit into memory, with the foreign environments that exist at once."""
        config = self.config
        environments = foreign_lanes(config.domain, config.seeds, config.full_eval_episodes)  # of an evaluation
        if environments:
            environments += config.seeds * self.lanes_per_seed
        check_memory(algorithm, self.layout, capacity, config.seeds, environments)

    def _make_learner(self) -> Learner:
        learner = make_learner(self.algorithm, self.layout, self._slots.capacity, self.config.updates_per_step)
        return spread(learner, self.num_agents)

    def _make_collector(self) -> Collector | CollectionWorkers:
        """Make the collector: in this process, or in worker processes if cores are free."""
        config, block = self.config, self.config.block
        # Agents of one seed share its lane seeds, so no agent depends on the others.
        seeds = [seed for seed in config.seed_list for _ in range(self.lanes_per_seed)]
        behaviour = replace(self.algorithm.behaviour, random_correlation=config.random_correlation)
        num = num_workers(config.num_threads, self.num_agents, is_accelerated=jax.default_backend() != "cpu")
        if num > 1 and can_work(config.domain, behaviour):
            return CollectionWorkers(config.domain, seeds, block, behaviour, num)
        lanes = make_lanes(config.domain, len(seeds), seeds, LaneOptions(num_threads=config.num_threads))
        return Collector(lanes, seeds, block, behaviour)

    def _make_evaluation_workers(self) -> EvaluationWorkers | None:
        """Make processes for evaluations, if cores are free and the processes can play them."""
        config, algorithm = self.config, self.algorithm
        num = spare_cores(config.num_threads, self.num_agents)
        if num == 0 or not can_work(config.domain, algorithm.behaviour):
            return None
        processes = min(num, config.seeds)
        own, threads = self.own_preferences, num // processes
        job = EvaluationJob(config.domain, config.seed_list, algorithm.acting, own, config.max_eval_steps, threads)
        return EvaluationWorkers(job, processes)

    def advance(self) -> Rows:
        """Collect one block and hand it to the device; returns the rows of the block."""
        self._check_whole()
        # A run that was resumed without its replay fills it again before it continues to learn.
        is_learning = self._slots.written >= self.config.random_steps
        with environment_errors(f"after step {self.step}"):
            collected = self.collector.collect(self._next_policy(), self.step // self.block)
        self._is_whole = False
        block = self.place(collected)
        self.step += self.block
        # The next block begins as soon as its policy is there. But if the device is still busy with that policy, it
        # gets its next work before the host waits for it.
        is_device_late = not getattr(self._pending.flat, "is_ready", lambda: True)()  # NumPy's arrays are ready
        if not is_device_late:
            self._start_next_block()
        if is_learning:
            self._state, flat, info = self._learner.learn(self._state, block)
        else:
            self._state, flat, info = self._learner.write(self._state, block), self._pending.flat, None
        if is_device_late:
            self._start_next_block()
        self._pending, self._is_whole = _Pending(flat, info, self.step), True
        return collected.rows

    def _check_whole(self) -> None:
        """Raise RuntimeError if the device lacks a block that the host has counted: no number would be right."""
        if not self._is_whole:
            raise RuntimeError(
                f"training ended within the block to step {self.step}, by an error or a second Ctrl-C: what it had "
                "learned can be neither saved nor learned on; load what was saved before"
            )

    def place(self, collected: Collected) -> Block:
        """Make a block the input of the device; frees the slots that it needs first."""
        learning, rows = self.algorithm.learning, jnp.asarray(collected.rows)
        slots, freed = self._slots.place(collected.rows, collected.done)
        if isinstance(learning, UniformLearning):
            return Block(rows)
        for chunk in _chunks(freed, self._slots.capacity):
            self._state = self._learner.free(self._state, jnp.asarray(chunk))
        past = self.collector.episodes.past(collected.episodes, self.step // self.block, learning.num_past)
        return Block(rows, jnp.asarray(slots), Hints(jnp.asarray(collected.lam), jnp.asarray(past)))

    def drain(self) -> None:
        """Wait for the device and add the logged values of the newest block; the acting policy does not change."""
        info, self._pending.info, self.summed_to = self._pending.info, None, self._pending.step
        if info is None:
            return
        infos = jax.device_get(info)
        for name, value in infos.items():
            self._check_finite(name, value)
        self.sums.add(infos)
        self._check_finite("a parameter of the policy", np.asarray(self._pending.flat))

    def begin_evaluation(self, preferences: Float64[np.ndarray, "p d"], episodes: int) -> EvaluationWorkers | None:
        """Start, in worker processes, the evaluation that `evaluate` would make of the current policies.

        Returns:
            The workers, which play while training continues. None: there are none, so call `evaluate`.
        """
        if self.evaluation_workers is not None:
            self.evaluation_workers.begin(self.newest_flat(), self.step, preferences, episodes)
        return self.evaluation_workers

    def newest_flat(self) -> Float32[np.ndarray, "agent parameters"]:
        """Return the parameters of the newest policies."""
        return np.asarray(self._learner.flat_actors(self._state))

    def predictor(self) -> AgentPredictor:
        """Return a predictor with the newest policies; DivergedError if they are no longer finite."""
        flat = self.newest_flat()
        self._check_finite("a parameter of the policy", flat)
        return AgentPredictor(self.algorithm.acting, self.own_preferences, flat, self.step)

    def parameters(self) -> dict[str, np.ndarray]:
        """Return the state of every agent (policy, critics, targets, snapshots) without optimisers and replay."""
        arrays = tree_to_arrays(self._state.agent)
        return {name: value for name, value in arrays.items() if ".optimizers" not in name} | self.policy_arrays()

    def arrays(self) -> dict[str, np.ndarray]:
        """Return everything but the rows of the replay, as of the newest block, by name.

        Raises:
            DivergedError: A number is not finite.
            RuntimeError: Training was cut off within a block.
        """
        self._check_whole()
        self.drain()
        arrays = tree_to_arrays(replace(self._state, replay=self._slots.without_rows(self._state.replay)), "state")
        for name, value in arrays.items():
            self._check_finite(name, value)
        arrays |= {f"lanes/{name}": value for name, value in self.collector.state().items()}
        arrays |= {f"log/{name}": value for name, value in self.sums.sums.items()}
        arrays |= {f"memory/{name}": value for name, value in self._slots.state().items()}
        arrays |= self.policy_arrays()
        arrays["acting"] = self._acting
        arrays["counters"] = np.array([self.step, self.sums.count], np.int64)
        return arrays

    def restore(self, arrays: dict[str, np.ndarray], rows: Rows | None = None, first: int = 0) -> None:
        """Go back to the state that `arrays` returned.

        Args:
            arrays: What `arrays` returned.
            rows: The newest rows of the replay, in the order written. None: the replay starts empty.
            first: Number of rows written before `rows`.
        """
        like = replace(self._state, replay=self._slots.without_rows(self._state.replay))
        saved = arrays_to_tree(like, arrays, "state")
        buffer = self._slots.restored(saved.replay, under(arrays, "memory/"), rows, first)
        self._state = self._learner.place(replace(saved, replay=buffer))
        self.collector.restore(under(arrays, "lanes/"))
        self.step, count = (int(value) for value in arrays["counters"])
        self.summed_to, self._is_whole = self.step, True
        self._acting = arrays["acting"]
        self.sums = Accumulator(under(arrays, "log/"), count)
        self._pending = _Pending(self.newest_flat(), None, self.step)

    def replay_log(self, folder: Path) -> ReplayLog:
        """Return the rows of the replay in a folder."""
        return ReplayLog(folder, self.layout.width, self._slots.num_lanes, self._slots.log_capacity)

    def replay_rows(self) -> tuple[Rows, int]:
        """Return the replay's rows in the order written, and how many were written before them."""
        return self._slots.in_order(self._state.replay)

    def plan(self, steps: int) -> None:
        """Prepare to train up to `steps` in total: the replay grows, and schedules become as long."""
        if steps <= self.config.steps and configs.with_schedule(self.config) == self.config:
            return
        config = configs.lengthened(self.config, max(steps, self.config.steps))
        configs.check(config)
        algorithm = make_algorithm(config.algo, config.agent, self.spec)
        self._check_memory(algorithm, self._capacity(config))
        grown = self._slots.grown(self._state.replay, self._capacity(config))
        is_changed = config.agent != self.config.agent
        self.config, self.algorithm = config, algorithm
        if is_changed:
            self._learner = self._make_learner()
        self._state = self._learner.place(replace(self._state, replay=grown))

    def close(self) -> None:
        self.collector.close()
        if self.evaluation_workers is not None:
            self.evaluation_workers.close()

    def _start_next_block(self) -> None:
        """Wait for the device, and begin to collect the next block with the newest policy."""
        self.drain()
        self._acting = np.asarray(self._pending.flat)
        if self.step < self.goal:
            self.collector.begin(self._next_policy(), self.step // self.block)

    def _next_policy(self) -> Any:
        """Return the policy that collects the next block; None: random actions."""
        return None if self.step < self.config.random_steps else self.collector.policy(self._acting)

    def _check_finite(self, what: str, value: Shaped[np.ndarray, "rows *rest"]) -> None:
        """Raise DivergedError if a number is not finite; the message names its owner and the newest step."""
        names = agent_names(self.config.seed_list, self.own_preferences)
        check_finite(what, value, lambda row: names[row * len(names) // len(value)], self._pending.step)


def _chunks(freed: Sequence[Int32[np.ndarray, " _"]], none: int) -> Iterator[Int32[np.ndarray, "lane F"]]:
    """Yield slots to free, `FREED_AT_ONCE` of every lane at a time. Lanes with fewer slots are filled with `none`."""
    most = max((len(of_lane) for of_lane in freed), default=0)
    for start in range(0, most, FREED_AT_ONCE):
        chunk = np.full((len(freed), FREED_AT_ONCE), none, np.int32)
        for lane, of_lane in enumerate(freed):
            part = of_lane[start : start + FREED_AT_ONCE]
            chunk[lane, : len(part)] = part
        yield chunk


def num_workers(num_threads: int | None, num_agents: int, is_accelerated: bool) -> int:
    """Return the number of processes that collect; 1: this process alone.

    Without an accelerator it is 1 unless `num_threads` is set: the cores are busy learning, and collecting takes a
    small part of the time.
    """
    default = max(1, available_cores() - 1) if is_accelerated else 1
    return min(num_threads or default, num_agents)


def spare_cores(num_threads: int | None, num_agents: int) -> int:
    """Return the number of cores that evaluate while training continues; 0: training waits for evaluations.

    It is `num_threads` if set. Else, with an accelerator and several cores, the cores that do not collect, at least 1.
    Else 0.
    """
    num_cores, is_accelerated = available_cores(), jax.default_backend() != "cpu"
    if num_threads is not None or not is_accelerated or num_cores == 1:
        return num_threads or 0
    return max(1, num_cores - 1 - num_workers(None, num_agents, is_accelerated))
