"""One training run in memory: collect a block on the host while the device learns from the one before.

Schedule, fixed so that a run is deterministic: block n is collected with the policy that had learned from block n - 2;
while the device learns from block n, block n + 1 is collected. Everything that changes is in `arrays()`.
"""

import sys
from dataclasses import dataclass, replace
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Float, Float32, Float64, Int64, Shaped

from qpensieve import config as configs
from qpensieve.algos.hybrid_sac import HybridConfig, cases
from qpensieve.algos.sac import SingleSacConfig
from qpensieve.config import RunConfig
from qpensieve.envs import LaneOptions, make_lanes
from qpensieve.envs.base import State as LaneState
from qpensieve.learning.tally import Infos, Tally
from qpensieve.methods import make_algorithm
from qpensieve.preferences import sac_preferences
from qpensieve.records.checkpoint import CheckpointError
from qpensieve.records.trees import arrays_to_tree, tree_to_arrays, under
from qpensieve.replay import priorities
from qpensieve.replay import ring as replay
from qpensieve.replay.layout import RowLayout, layout_of
from qpensieve.replay.slots import HostMemory
from qpensieve.train.collect import Collected, Collector
from qpensieve.train.evaluate import evaluate
from qpensieve.train.learner import Block, Learner, TrainState, make_learner
from qpensieve.train.session import DivergedError, EnvFailedError, environment_errors, first_bad_row
from qpensieve.types import Algorithm

FREED_AT_ONCE = 256
"""Slots freed by one call to the device; a fixed number, so that it is compiled once."""


@dataclass
class _Pending:
    """What the device has been asked for and not yet handed over: the policy after the newest block, and its log."""

    flat: Any
    info: Any
    step: int


class Trainer:
    """A run that advances block by block.

    Args:
        config: What to train; checked first.
    """

    def __init__(self, config: RunConfig):
        configs.check(config)
        self.config = config
        lanes = make_lanes(config.domain, len(self.lane_seeds), self.lane_seeds, _lane_options(config))
        self.spec = lanes.spec
        try:
            self.algorithm = make_algorithm(config.algo, config.agent, self.spec)
        except ValueError:
            lanes.close()
            raise
        self.stored = replace(self.spec, action_size=self.algorithm.acting.action_size)
        """The environment, with the action as the replay stores it."""
        self.collector = Collector(lanes, self.lane_seeds, config.block, self.algorithm, config.core.sampler)
        self._learner = _make_learner(self)
        self._memory = self._make_memory()
        self.step = 0
        self._state = self._learner.init(jnp.asarray(config.seed_list))
        self._begin()
        self._boundary: LaneState = lanes.state()
        self._acting = np.asarray(self._learner.flat_actors(self._state))
        self._pending = _Pending(self._acting, None, 0)
        self._written = 0
        self._tally = Tally()
        self.summed_to = 0
        """Step up to which `take_log` has what was learned."""

    @property
    def own_preferences(self) -> Float64[np.ndarray, "p d"] | None:
        """Preferences that each have an agent of their own; None: one agent serves all."""
        return self.algorithm.preferences

    @property
    def lanes_per_seed(self) -> int:
        """Environments that each seed steps."""
        return _lanes_per_seed(self.config)

    @property
    def block(self) -> int:
        """Steps of one `advance`."""
        return self.config.block

    @property
    def goal(self) -> int:
        """The step at which the run ends."""
        return self.config.steps

    @property
    def agents_per_seed(self) -> int:
        return 1 if self.own_preferences is None else len(self.own_preferences)

    @property
    def num_agents(self) -> int:
        return self.config.seeds * self.agents_per_seed

    @property
    def lane_seeds(self) -> list[int]:
        """The seed of each lane, agent by agent. Agents of one seed share it: each behaves as if it were alone."""
        return [seed for seed in self.config.seed_list for _ in range(self.lanes_per_seed)]

    @property
    def capacity(self) -> int:
        """Rows of each lane's replay."""
        return self.config.capacity if self.algorithm.memory is None else self.config.replay_capacity

    @property
    def layout(self) -> RowLayout:
        """How a transition lies in a row of the replay."""
        return layout_of(self.spec, self.algorithm.acting)

    @property
    def num_lanes(self) -> int:
        """How many lanes write rows."""
        return len(self.lane_seeds)

    @property
    def log_capacity(self) -> int:
        """How many of a lane's newest rows a checkpoint may need."""
        needed = self.capacity if self._memory is None else self._memory.log_capacity
        return sys.maxsize if needed is None else needed

    def _make_memory(self) -> HostMemory | None:
        memory, discount = self.algorithm.memory, self.config.core.discount
        return memory and HostMemory(memory, self.stored, self.capacity, self.num_agents, discount)

    def _begin(self) -> None:
        """Start the first episodes."""
        try:
            with environment_errors("at its first reset"):
                self.collector.start()
        except EnvFailedError:
            self.close()
            raise

    @property
    def block_number(self) -> int:
        return self.step // self.config.block

    def advance(self) -> Float32[np.ndarray, "lane K width"]:
        """Collect one block and hand it to the device; returns the rows of the block."""
        policy = None if self.step < self.config.random_steps else self.collector.policy(self._acting)
        # Without a saved replay a resumed run has to fill it again before it learns on.
        is_learning = self._written >= self.config.random_steps
        with environment_errors(f"after step {self.step}"):
            collected = self.collector.collect(policy, self.block_number)
        block = self.place(collected)
        self.step += self.config.block
        self._written += self.config.block
        if is_learning:
            self._state, flat, info = self._learner.learn(self._state, block)
        else:
            self._state, flat, info = self._learner.write(self._state, block), self._pending.flat, None
        self._hand_over()
        self._pending = _Pending(flat, info, self.step)
        self._boundary = self.collector.lanes.state()
        return collected.rows

    def place(self, collected: Collected) -> Block:
        """The block as the device takes it; slots that it needs are freed first."""
        if self._memory is None:
            return Block(jnp.asarray(collected.rows))
        hints = self._memory.hints(collected, self.collector.episodes, self.block_number)
        slots, freed = self._memory.place(collected)
        most = max((len(of_agent) for of_agent in freed), default=0)
        for start in range(0, most, FREED_AT_ONCE):
            chunk = np.full((self.num_agents, FREED_AT_ONCE), self.capacity, np.int32)
            for agent, of_agent in enumerate(freed):
                part = of_agent[start : start + FREED_AT_ONCE]
                chunk[agent, : len(part)] = part
            self._state = self._learner.free(self._state, jnp.asarray(chunk))
        return Block(jnp.asarray(collected.rows), jnp.asarray(slots), hints)

    def drain(self) -> None:
        """Wait for the device and take over the log of the newest block; acting still lags as scheduled."""
        info, self._pending.info, self.summed_to = self._pending.info, None, self._pending.step
        if info is None:
            return
        infos = jax.device_get(info)
        for name, value in infos.items():
            self._check_finite(name, value)
        self._tally.add(infos)
        self._check_finite("a parameter of the policy", np.asarray(self._pending.flat))

    def take_log(self) -> Infos:
        """Mean of what was logged since the last call, up to `summed_to`, per seed; empty while nothing was learned."""
        return self._tally.take()

    def evaluate(self, preferences: Float64[np.ndarray, "p d"], episodes: int) -> Float64[np.ndarray, "seed p e d"]:
        """Returns of the policies as they are now."""
        with environment_errors(f"in the evaluation at step {self.step}", (RuntimeError, ArithmeticError)):
            return evaluate(self.config.domain, self.config.seed_list, self.act, preferences, episodes)

    def act(
        self, obs: Float[np.ndarray, "seed rows obs"], lam: Float[np.ndarray, "seed rows d"]
    ) -> Float32[np.ndarray, "seed rows act"]:
        """Deterministic actions of the newest policies.

        Where preferences have agents of their own, the nearest one's acts; lam must then be the same for all seeds.
        """
        own = self.algorithm.preferences
        if own is None:
            return np.asarray(self._learner.act(self._state, obs, lam))
        agent = nearest(own, lam[0])
        groups = [np.flatnonzero(agent == i) for i in range(len(own))]
        index = np.zeros((len(own), max(map(len, groups))), np.int64)  # shorter groups repeat row 0, which is dropped
        for i, group in enumerate(groups):
            index[i, : len(group)] = group
        by_agent = lambda x: x[:, index].reshape(self.num_agents, index.shape[1], -1)
        actions = np.asarray(self._learner.act(self._state, by_agent(obs), by_agent(lam)))
        actions = actions.reshape(self.config.seeds, *index.shape, -1)
        out = np.empty((*obs.shape[:2], actions.shape[-1]), np.float32)
        for i, group in enumerate(groups):
            out[:, group] = actions[:, i, : len(group)]
        return out

    def newest_flat(self) -> Float32[np.ndarray, "agent parameters"]:
        """Parameters of the newest policies."""
        return np.asarray(self._learner.flat_actors(self._state))

    def predictor(self) -> "AgentPredictor":
        """Acts as the newest policies do."""
        return AgentPredictor(self.algorithm, self.newest_flat(), self.agents_per_seed, self.step)

    def parameters(self) -> dict[str, np.ndarray]:
        """Policy, critics, target and snapshots of every seed, without optimisers and replay."""
        arrays = tree_to_arrays(self._state.agent)
        return {name: value for name, value in arrays.items() if ".optimizers" not in name}

    def arrays(self) -> dict[str, np.ndarray]:
        """Everything but the replay's rows, as of the end of the newest block, by name; nothing that is not finite."""
        self.drain()
        arrays = tree_to_arrays(self._without_rows(), "state")
        for name, value in arrays.items():
            self._check_finite(name, value)
        arrays |= {f"lanes/{name}": value for name, value in self._boundary.items()}
        arrays |= self._tally.arrays()
        if self._memory is not None:
            arrays |= {f"memory/{name}": value for name, value in self._memory.state().items()}
        arrays["acting"] = self._acting
        arrays["counters"] = np.array([self.step, self._tally.count], np.int64)
        return arrays

    def restore(
        self,
        arrays: dict[str, np.ndarray],
        rows: Float32[np.ndarray, "lane rows width"] | None = None,
        first: int = 0,
    ) -> None:
        """Go back to the state that `arrays` returned.

        Args:
            arrays: All of it.
            rows: The replay's newest rows, in the order written; None forgets the replay.
            first: How many rows were written before them.
        """
        restored = arrays_to_tree(self._without_rows(), arrays, "state")
        self._state = replace(restored, replay=self._restored_replay(restored.replay, arrays, rows, first))
        self.collector.lanes.restore(under(arrays, "lanes/"))
        self.collector.refresh_preferences(range(len(self.lane_seeds)))
        self._boundary = self.collector.lanes.state()
        self.step, count = (int(value) for value in arrays["counters"])
        self.summed_to, self._written = self.step, 0 if rows is None else self.step
        self._acting = arrays["acting"]
        self._tally = Tally(under(arrays, "log/"), count)
        self._pending = _Pending(np.asarray(self._learner.flat_actors(self._state)), None, self.step)

    def replay_rows(self) -> tuple[Float32[np.ndarray, "lane rows width"], int]:
        """The replay's rows in the order written, and how many were written before them."""
        ring, written = np.asarray(self._state.replay.rows), int(self._state.replay.written[0])
        if self._memory is not None:
            return self._memory.in_order(ring)
        first = max(0, written - ring.shape[1])
        return ring[:, np.arange(first, written) % ring.shape[1]], first

    def search_record(self) -> None:
        """Nothing is searched here."""

    def plan(self, steps: int) -> None:
        """Be ready for `steps` in all: the replay grows where it is still smaller than it may become."""
        if steps <= self.config.steps:
            return
        config = replace(self.config, steps=steps)
        configs.check(config)
        self.config = config
        missing = self.capacity - self._state.replay.rows.shape[1]
        if missing > 0:
            rows = jnp.pad(self._state.replay.rows, ((0, 0), (0, missing), (0, 0)))
            self._state = replace(self._state, replay=replace(self._state.replay, rows=rows))

    def close(self) -> None:
        self.collector.close()

    def _without_rows(self) -> TrainState:
        """The state with an empty array in place of the replay's rows, which are saved apart."""
        empty = jnp.zeros((len(self.lane_seeds), 0, replay.row_width(self.stored)))
        return replace(self._state, replay=replace(self._state.replay, rows=empty))

    def _restored_replay(
        self, saved: Any, arrays: dict[str, np.ndarray], rows: Float32[np.ndarray, "lane rows width"] | None, first: int
    ) -> Any:
        """The replay as saved, with its rows put back in place; without rows an empty one."""
        shape = (len(self.lane_seeds), self.capacity, replay.row_width(self.stored))
        self._memory = self._make_memory()
        if rows is None:
            forgotten = jax.tree.map(jnp.zeros_like, saved)
            if self._memory is not None:  # its capacity is no count of what was written
                fresh = jax.vmap(lambda _: priorities.empty(self.capacity))(saved.written)
                forgotten = replace(forgotten, priorities=fresh)
            return replace(forgotten, rows=jnp.zeros(shape))
        written = int(saved.written[0])
        if first + rows.shape[1] != written:
            raise CheckpointError(f"the replay ends at transition {first + rows.shape[1]}, the state at {written}")
        if self._memory is not None:
            self._memory.restore(under(arrays, "memory/"))
            return replace(saved, rows=jnp.asarray(self._memory.arrange(rows, first)))
        ring = np.zeros(shape, np.float32)
        ring[:, (first + np.arange(rows.shape[1])) % self.capacity] = rows
        return replace(saved, rows=jnp.asarray(ring))

    def _hand_over(self) -> None:
        """The policy of the block before becomes the one that acts next; waits for the device to have made it."""
        self.drain()
        self._acting = np.asarray(self._pending.flat)

    def _check_finite(self, what: str, value: Shaped[np.ndarray, "seed *rest"]) -> None:
        """Stop the run where the newest block has left something that is not a number."""
        row = first_bad_row(value)
        if row is not None:
            agent = self._name(len(value), row)
            raise DivergedError(f"{what} of {agent} is no longer finite at step {self._pending.step}")

    def _name(self, num_rows: int, row: int) -> str:
        """Whose row it is, of an array that leads with agents or lanes."""
        seed = f"seed {self.config.seed_list[row * self.config.seeds // num_rows]}"
        own = self.algorithm.preferences
        if own is None:
            return seed
        agent = row * self.num_agents // num_rows % len(own)
        return f"{seed}, preference {','.join(f'{x:g}' for x in own[agent])}"


@dataclass(frozen=True, eq=False)
class AgentPredictor:
    """Policies as they were at a step, acting in plain NumPy.

    Attributes:
        algorithm: Whose policies.
        flat: Their parameters.
        agents_per_seed: How many of them each seed has.
        step: Environment steps they had learned from.
    """

    algorithm: Algorithm[Any]
    flat: Float32[np.ndarray, "agent parameters"]
    agents_per_seed: int
    step: int

    def act(
        self,
        seed: int,
        obs: Float32[np.ndarray, "n obs"],
        lam: Float32[np.ndarray, "n d"],
        stream: np.random.Generator | None = None,
    ) -> Float32[np.ndarray, "n act"]:
        """Actions of one seed's agent, deterministic or, where there is a `stream`, sampled.

        Where preferences have agents of their own, the nearest one's acts.
        """
        acting, own = self.algorithm.acting, self.algorithm.preferences
        agents = np.zeros(len(obs), np.int64) if own is None else nearest(own, lam)
        noise = None if stream is None else acting.draw_noise(stream, len(obs))
        parts = [(agents == agent, seed * self.agents_per_seed + agent) for agent in np.unique(agents).tolist()]
        out: list[tuple[np.ndarray, np.ndarray]] = []
        for rows, agent in parts:
            policy = acting.policy(self.flat[agent : agent + 1])
            asked = obs[None, rows], lam[None, rows]
            if noise is None:
                out.append((rows, policy.exploit(*asked)[0]))
            else:
                out.append((rows, acting.decode(policy.sample(*asked, noise[None, rows], self.step)[0])))
        action = np.empty((len(obs), out[0][1].shape[1]), np.float32)
        for rows, values in out:
            action[rows] = values
        return action


def _lanes_per_seed(config: RunConfig) -> int:
    agent = config.agent
    if isinstance(agent, SingleSacConfig):
        return len(agent.preferences) or len(sac_preferences())
    return 2 * len(cases(agent, config.domain_id)) if isinstance(agent, HybridConfig) else 1


def _lane_options(config: RunConfig) -> LaneOptions:
    return LaneOptions(num_threads=config.num_threads)


def nearest(own: Float64[np.ndarray, "p d"], lam: Float[np.ndarray, "rows d"]) -> Int64[np.ndarray, " rows"]:
    """Index of the own preference nearest to each of `lam`."""
    return np.square(lam[:, None] - own[None]).sum(axis=2).argmin(axis=1)


def _make_learner(trainer: Trainer) -> Learner:
    return make_learner(trainer.algorithm, trainer.stored, trainer.config.core.batch_size, trainer.capacity)
