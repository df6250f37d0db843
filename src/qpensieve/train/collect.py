"""The host side of training: lanes of all agents, acting in NumPy, blocks of packed transitions.

No generator here has a state that must be saved: noise is derived from (seed, block) or (seed, sequence of blocks),
preferences from (seed, episode).
"""

from collections.abc import Iterable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass

import numpy as np
from jaxtyping import Bool, Float32, Int64

from qpensieve.envs.base import Lanes
from qpensieve.envs.simulator import State
from qpensieve.learning.acting import AGENTS_PER_THREAD, SharedPolicy
from qpensieve.learning.streams import LaneNoise, Purpose, generator
from qpensieve.machine import available_cores
from qpensieve.preferences import Sampler, draw_preferences
from qpensieve.replay.layout import layout_of
from qpensieve.types import Behaviour, Explorer, Parameters


class Episodes:
    """Preferences of all episodes of all lanes, also past ones; each is drawn from (seed, episode) when needed."""

    def __init__(self, seeds: list[int], num_objectives: int, sampler: Sampler):
        self._seeds, self._num_objectives = seeds, num_objectives
        self._sampler: Sampler = sampler
        self._known = [np.zeros((0, num_objectives), np.float32) for _ in seeds]

    def preference(self, lane: int, episode: int) -> Float32[np.ndarray, " d"]:
        """Return the preference of one episode."""
        stream = generator(self._seeds[lane], Purpose.PREFERENCE, episode)
        return draw_preferences(stream, 1, self._num_objectives, self._sampler)[0].astype(np.float32)

    def past(self, episodes: Int64[np.ndarray, "lane K"], number: int, num: int) -> Float32[np.ndarray, "lane K num d"]:
        """Return, for each step of block `number`, the preferences of `num` random earlier episodes of the same lane.

        Steps of the first episode get its own preference.
        """
        found = np.zeros((*episodes.shape, num, self._num_objectives), np.float32)
        for lane, of_steps in enumerate(episodes if num else ()):
            known = self._known[lane]
            if new := [self.preference(lane, episode) for episode in range(len(known), int(of_steps.max()) + 1)]:
                known = self._known[lane] = np.concatenate([known, new])
            draws = generator(self._seeds[lane], Purpose.PAST, number).random((len(of_steps), num))
            found[lane] = known[np.floor(draws * of_steps[:, None]).astype(np.int64)]
        return found


@dataclass(frozen=True, eq=False)
class Collected:
    """A block of transitions.

    Attributes:
        rows: Packed for the replay.
        lam: Preference of the episode that each step belongs to.
        episodes: Number of that episode.
        done: Whether an episode ended at the step, by itself or by the time limit.
    """

    rows: Float32[np.ndarray, "lane K width"]
    lam: Float32[np.ndarray, "lane K d"]
    episodes: Int64[np.ndarray, "lane K"]
    done: Bool[np.ndarray, "lane K"]


class Collector:
    """Steps all lanes and packs their transitions into blocks for the replay.

    Args:
        lanes: The environments, agent by agent.
        seeds: Seed of each lane.
        block: Steps of a block.
        behaviour: How to act, and the number of lanes of each agent.
    """

    def __init__(self, lanes: Lanes, seeds: list[int], block: int, behaviour: Behaviour):
        self.episodes = Episodes(seeds, lanes.spec.num_objectives, behaviour.sampler)
        self.lanes, self._seeds, self._block = lanes, seeds, block
        self._acting, self._lanes_per_agent = behaviour.acting, behaviour.num_lanes
        self._layout = layout_of(lanes.spec, behaviour)
        self._noise = LaneNoise(behaviour, seeds, block)
        self._preferences = np.zeros((len(seeds), lanes.spec.num_objectives), np.float32)
        # An agent with its own preference gets no preference as input in its first lane.
        has_own = behaviour.has_own_preferences
        self._is_drawn = [not has_own or lane % behaviour.num_lanes > 0 for lane in range(len(seeds))]
        self._num_threads = min(available_cores(), len(seeds) // behaviour.num_lanes // AGENTS_PER_THREAD)
        self._pool = ThreadPoolExecutor(self._num_threads) if self._num_threads > 1 else None
        self._boundary: State = {}
        self._is_halfway = False
        """Whether a block has begun but not ended. If it is True when the next block begins, the last block failed."""

    def start(self) -> None:
        """Begin the first episodes."""
        self.lanes.reset()
        self.refresh_preferences(range(len(self._seeds)))
        self._boundary = self.lanes.state()

    def state(self) -> State:
        """Return the lanes as they were at the end of the newest whole block."""
        return self._boundary

    def restore(self, state: State) -> None:
        """Continue from what `state` returned."""
        self.lanes.restore(state)
        self.refresh_preferences(range(len(self._seeds)))
        self._boundary = self.lanes.state()
        self._is_halfway = False

    def refresh_preferences(self, lanes: Iterable[int]) -> None:
        """Draw the preference of the running episode in each of `lanes`; it is kept until that episode ends."""
        for lane in lanes:
            if self._is_drawn[lane]:
                self._preferences[lane] = self.episodes.preference(lane, int(self.lanes.episodes[lane]))

    def begin(self, policy: Explorer | None, number: int) -> None:
        """Do nothing. Worker processes begin the block that `collect` will return next; this process cannot."""

    def policy(self, flat: Parameters) -> Explorer:
        """Return the agents' policies, to collect with."""
        if self._pool is None:
            return self._acting.policy(flat)
        return SharedPolicy(self._acting, flat, self._pool, self._num_threads)

    def collect(self, policy: Explorer | None, number: int) -> Collected:
        """Collect block `number`: K steps of every lane.

        After a block that failed or was interrupted, lanes begin where they were before that block.

        Args:
            policy: What `policy` returned. None: random actions.
            number: Number of the block.
        """
        if self._is_halfway:
            self.restore(self._boundary)
        self._is_halfway = True
        noise = self._noise.draw(number, is_random=policy is None)
        steps, layout = (len(self._seeds), self._block), self._layout
        empty = lambda width: np.empty((*steps, width), np.float32)
        rows, lam = empty(layout.width), empty(layout.num_objectives)
        block = Collected(rows, lam, episodes=np.empty(steps, np.int64), done=np.empty(steps, bool))
        lanes, preferences, decode = self.lanes, self._preferences, self._acting.decode
        by_agent = lambda x: x.reshape(-1, self._lanes_per_agent, *x.shape[1:])
        asked, draws = by_agent(preferences), by_agent(noise)
        obs, first_step = lanes.obs, number * self._block
        block.lam[:], block.episodes[:] = preferences[:, None], lanes.episodes[:, None]
        for k in range(self._block):
            action = noise[:, k]
            if policy is not None:
                action = policy.explore(by_agent(obs), asked, draws[:, :, k], first_step + k).reshape(len(obs), -1)
            step = lanes.step(decode(action))
            layout.pack(block.rows[:, k], obs, action, step)
            block.done[:, k] = done = step.done
            if np.count_nonzero(done):
                ended = np.flatnonzero(done)
                self.refresh_preferences(ended.tolist())
                block.lam[ended, k + 1 :] = preferences[ended, None]
                block.episodes[ended, k + 1 :] = lanes.episodes[ended, None]
            obs = step.obs
        self._boundary, self._is_halfway = lanes.state(), False
        return block

    def close(self) -> None:
        self.lanes.close()
        if self._pool is not None:
            self._pool.shutdown()
