"""The host side of a replay that samples by priority: which transition lies in which slot, and hints for updates."""

from typing import Any

import jax.numpy as jnp
import numpy as np
from jaxtyping import Float32, Int32, Int64

from qpensieve.envs.base import State
from qpensieve.replay.diverse import DiverseReplay
from qpensieve.train.collect import Collected, Episodes
from qpensieve.types import EnvSpec, Hints, Memory


class HostMemory:
    """Slots of all agents.

    Args:
        memory: Which transitions to keep, and what hints to give.
        spec: The environment, with the action as the replay stores it.
        capacity: Slots of each agent.
        num_agents: How many agents.
        discount: For the returns by which episodes are told apart.
    """

    def __init__(self, memory: Memory[Any], spec: EnvSpec, capacity: int, num_agents: int, discount: float):
        self._memory, self._spec, self.capacity, self._num_agents = memory, spec, capacity, num_agents
        self._written = 0
        self._diverse: list[DiverseReplay] = []
        if memory.kind == "diverse":
            self._diverse = [DiverseReplay(capacity, spec.num_objectives, discount) for _ in range(num_agents)]

    @property
    def log_capacity(self) -> int | None:
        """How many of the newest transitions may still be needed; None: all."""
        return None if self._diverse else self.capacity

    def place(self, block: Collected) -> tuple[Int32[np.ndarray, "agent K"], list[Int32[np.ndarray, " F"]]]:
        """Slots for the new transitions, and per agent the slots to be freed before they are written."""
        num = block.rows.shape[1]
        if not self._diverse:
            slots = (self._written + np.arange(num)) % self.capacity
            self._written += num
            return np.tile(slots.astype(np.int32), (self._num_agents, 1)), []
        start = self._spec.obs_size + self._spec.action_size
        rewards = block.rows[:, :, start : start + self._spec.num_objectives]
        placed = [replay.append(r, done) for replay, r, done in zip(self._diverse, rewards, block.done, strict=True)]
        self._written += num
        return np.stack([placement.slots for placement in placed]), [placement.freed for placement in placed]

    def hints(self, block: Collected, episodes: Episodes, number: int) -> Hints:
        """The preference in force at each step, and as many of earlier episodes as the algorithm asks for."""
        num, (agents, steps, d) = self._memory.num_past, block.lam.shape
        if num == 0:
            return Hints(jnp.asarray(block.lam), jnp.zeros((agents, steps, 0, d)))
        past = [episodes.past(agent, of_agent, number, num) for agent, of_agent in enumerate(block.episodes)]
        return Hints(jnp.asarray(block.lam), jnp.asarray(np.stack(past)))

    def state(self) -> State:
        arrays = {"written": np.array(self._written)}
        for agent, diverse in enumerate(self._diverse):
            arrays |= {f"{agent}/{name}": value for name, value in diverse.state().items()}
        return arrays

    def restore(self, state: State) -> None:
        self._written = int(state["written"])
        for agent, diverse in enumerate(self._diverse):
            prefix = f"{agent}/"
            diverse.restore({name.removeprefix(prefix): v for name, v in state.items() if name.startswith(prefix)})

    def arrange(
        self, rows: Float32[np.ndarray, "agent rows width"], first: int
    ) -> Float32[np.ndarray, "agent capacity width"]:
        """Rows in the order written, of which the first is transition `first`, put into their slots."""
        slots = np.zeros((len(rows), self.capacity, rows.shape[2]), np.float32)
        for agent, contents in enumerate(self._contents()):
            held = contents >= 0
            slots[agent, held] = rows[agent, contents[held] - first]
        return slots

    def in_order(
        self, slots: Float32[np.ndarray, "agent capacity width"]
    ) -> tuple[Float32[np.ndarray, "agent rows width"], int]:
        """The opposite: rows in the order written and the number of the first; those no longer held are zero."""
        first = 0 if self._diverse else max(0, self._written - self.capacity)
        rows = np.zeros((len(slots), self._written - first, slots.shape[2]), np.float32)
        for agent, contents in enumerate(self._contents()):
            held = contents >= 0
            rows[agent, contents[held] - first] = slots[agent, held]
        return rows, first

    def _contents(self) -> list[Int64[np.ndarray, " capacity"]]:
        """For each agent, the number of the transition in each slot, -1 for none."""
        if self._diverse:
            return [np.asarray(diverse.contents) for diverse in self._diverse]
        slot = np.arange(self.capacity)
        newest = self._written - 1 - (self._written - 1 - slot) % self.capacity
        return [np.where(newest >= 0, newest, -1)] * self._num_agents
