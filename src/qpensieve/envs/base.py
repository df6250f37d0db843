"""Lanes: n independent episodes of one environment, stepped together, arrays in and arrays out.

`Lanes` owns what every environment shares: the random stream of each lane, automatic resets, the time limit, checks of
what goes in and comes out, and saving. A `Simulator` owns one body: its state, its physics, its rewards.

The stream of an episode is derived from (lane seed, episode number) alone. So lane i behaves the same whatever n is,
and a saved state needs no generator: the counters say it all.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Protocol, runtime_checkable

import numpy as np
from jaxtyping import Bool, Float, Float64, Int

from qpensieve.types import EnvSpec, Step

STATE_VERSION = 1

Index = slice | Int[np.ndarray, " lanes"]
"""All lanes as a full slice (no copies), or the numbers of some."""

Streams = Callable[[int], np.random.SeedSequence]
"""Lane number -> the seed of the episode that is about to start there."""

State = dict[str, np.ndarray]
"""Named arrays; together they continue bit for bit."""

ALL_LANES = slice(None)


@dataclass(frozen=True)
class LaneOptions:
    """How lanes run. Only `contact_forces` changes what the environment is.

    Attributes:
        autoreset: Start the next episode at once when one ends. If False, a lane that ended rests: it is not simulated,
            pays nothing and keeps its last observation until `reset`.
        dtype: Of observations. float64 gives them before any cast.
        first_lane: Number of the first lane: with one seed for all, lanes 3 and 4 can be made without 0 to 2.
        num_threads: MuJoCo and LunarLander domains: threads (LunarLander: processes, from 32 lanes on) that share the
            lanes; None takes every core this process may use.
        contact_forces: Ant domains: 84 contact forces join the observation (slow: computed lane by lane).
        num_workers: Foreign environments: worker processes that share the lanes; 0 runs them in this process.
    """

    autoreset: bool = True
    dtype: type[np.floating[Any]] = np.float32
    first_lane: int = 0
    num_threads: int | None = None
    contact_forces: bool = False
    num_workers: int = 0


DEFAULT_OPTIONS = LaneOptions()


@runtime_checkable
class Simulator(Protocol):
    """One body for n lanes. Methods work on the lanes they are given and leave the others alone."""

    @property
    def spec(self) -> EnvSpec: ...

    def reset(self, lanes: Int[np.ndarray, " lanes"], streams: Streams) -> None:
        """Start a new episode in each of `lanes`."""
        ...

    def advance(
        self, lanes: Index, actions: Float64[np.ndarray, "lanes act"]
    ) -> tuple[Float64[np.ndarray, "lanes d"], Bool[np.ndarray, " lanes"], Bool[np.ndarray, " lanes"] | None]:
        """Step; gives reward, terminated, and truncated where the simulator itself cuts episodes (else None)."""
        ...

    def observe(self, lanes: Index) -> Float64[np.ndarray, "lanes obs"]:
        """Give the observation of each lane, before any cast, in an array the caller may keep."""
        ...

    def state(self) -> State: ...

    def restore(self, state: State) -> None: ...

    def render(self, lane: int) -> np.ndarray: ...

    def close(self) -> None: ...


class Lanes:
    """n independent episodes stepped together.

    Args:
        simulator: The body to step, made for n lanes.
        num_lanes: How many lanes it has.
        seed: One seed for all lanes (lane i then uses stream i of it), or one seed per lane; a lane with a seed of its
            own is the same as lane 0 of a batch made with that seed.
        options: Of these, `autoreset`, `dtype` and `first_lane` are used here.
    """

    def __init__(
        self,
        simulator: Simulator,
        num_lanes: int,
        seed: int | Sequence[int],
        options: LaneOptions = DEFAULT_OPTIONS,
    ):
        self.simulator = simulator
        self.spec = simulator.spec
        self.num_lanes = num_lanes
        self._options = options
        self._max_steps = np.iinfo(np.int64).max if self.spec.max_steps is None else self.spec.max_steps
        self.episodes = np.full(num_lanes, -1, np.int64)
        self.elapsed = np.zeros(num_lanes, np.int64)
        self.running = np.zeros(num_lanes, bool)
        self._obs = np.zeros((num_lanes, self.spec.obs_size), options.dtype)
        self.reseed(seed)

    @property
    def obs(self) -> Float[np.ndarray, "n obs"]:
        """The observation to act on in each lane."""
        if (self.episodes < 0).any():
            raise RuntimeError("lanes have no observation yet: call reset() first")
        return self._obs.copy()

    def reseed(self, seed: int | Sequence[int]) -> None:
        """Give the lanes new streams; the next `reset` starts their first episodes."""
        self._seeds, self._stream_numbers = _lane_streams(seed, self.num_lanes, self._options.first_lane)
        self.episodes[:] = -1
        self.elapsed[:] = 0
        self.running[:] = False

    def reset(self, lanes: Int[np.ndarray, " lanes"] | Sequence[int] | None = None) -> Float[np.ndarray, "n obs"]:
        """Start the next episode in all lanes, or in those named; gives the observations of all lanes."""
        chosen = np.arange(self.num_lanes) if lanes is None else np.asarray(lanes, np.int64)
        self.episodes[chosen] += 1
        self.elapsed[chosen] = 0
        self.running[chosen] = True
        if chosen.size:
            self.simulator.reset(chosen, self._stream)
            self._obs[chosen] = self._checked_obs(chosen)
        return self._obs.copy()

    def step(self, actions: Float[np.ndarray, "n act"]) -> Step:
        """Step every running lane once; actions are clipped to [-1, 1] first."""
        lanes = self._running_lanes()
        clipped = self._checked_actions(actions)[lanes]
        if len(clipped) == 0:  # every lane rests
            return self._collect(lanes, np.zeros((0, self.spec.num_objectives)), np.zeros(0, bool), np.zeros(0, bool))
        reward, terminated, cut = self.simulator.advance(lanes, clipped)
        self.elapsed[lanes] += 1
        truncated = self.elapsed[lanes] >= self._max_steps
        truncated = (truncated if cut is None else truncated | cut) & ~terminated
        self._check_finite("reward", reward, lanes)
        self._obs[lanes] = self._checked_obs(lanes)
        step = self._collect(lanes, reward, terminated, truncated)
        ended = np.flatnonzero(step.done)
        if ended.size == 0:
            return step
        self.running[ended] = False
        if not self._options.autoreset:
            return step
        return Step(self.reset(ended), step.reward, step.terminated, step.truncated, step.last_obs)

    def state(self) -> State:
        """Everything that `restore` needs to continue bit for bit, as named arrays."""
        own = {
            "version": np.array(STATE_VERSION),
            "seeds": self._seeds.copy(),
            "stream_numbers": self._stream_numbers.copy(),
            "episodes": self.episodes.copy(),
            "elapsed": self.elapsed.copy(),
            "running": self.running.copy(),
            "obs": self._obs.copy(),
        }
        return own | {f"simulator/{name}": value for name, value in self.simulator.state().items()}

    def restore(self, state: State) -> None:
        """Take over a saved `state`, of the same domain and number of lanes."""
        if int(state["version"]) != STATE_VERSION:
            raise ValueError(
                f"lane state has format version {int(state['version'])}, this program reads {STATE_VERSION}"
            )
        if state["obs"].shape != self._obs.shape:
            raise ValueError(
                f"lane state holds {state['obs'].shape[0]} lanes with observations of {state['obs'].shape[1]} numbers, "
                f"but {self.spec.id} here has {self.num_lanes} lanes of {self.spec.obs_size}"
            )
        self._seeds = state["seeds"].copy()
        self._stream_numbers = state["stream_numbers"].copy()
        self.episodes = state["episodes"].copy()
        self.elapsed = state["elapsed"].copy()
        self.running = state["running"].copy()
        self._obs = state["obs"].astype(self._options.dtype)
        prefix = "simulator/"
        self.simulator.restore({name.removeprefix(prefix): v for name, v in state.items() if name.startswith(prefix)})

    def render(self, lane: int = 0) -> np.ndarray:
        """Draw one lane as an RGB image."""
        return self.simulator.render(lane)

    def close(self) -> None:
        self.simulator.close()

    def _stream(self, lane: int) -> np.random.SeedSequence:
        key = (int(self._stream_numbers[lane]), int(self.episodes[lane]))
        return np.random.SeedSequence(int(self._seeds[lane]), spawn_key=key)

    def _running_lanes(self) -> Index:
        if self.running.all():
            return ALL_LANES
        if self._options.autoreset:
            raise RuntimeError("step() before reset(): call reset() once to start the episodes")
        return np.flatnonzero(self.running)

    def _checked_actions(self, actions: Float[np.ndarray, "..."]) -> Float64[np.ndarray, "n act"]:
        expected = (self.num_lanes, self.spec.action_size)
        if actions.shape != expected:
            raise ValueError(f"{self.spec.id}: actions have shape {actions.shape}, expected {expected} (lanes, action)")
        self._check_finite("action", actions, ALL_LANES)
        return np.clip(actions, -1.0, 1.0, dtype=np.float64)

    def _checked_obs(self, lanes: Index) -> Float64[np.ndarray, "lanes obs"]:
        obs = self.simulator.observe(lanes)
        self._check_finite("observation", obs, lanes)
        return obs

    def _check_finite(self, what: str, values: Float[np.ndarray, "lanes _"], lanes: Index) -> None:
        # A sum is finite only if every term is (or the terms overflow, which is as bad): one pass instead of two.
        if np.isfinite(values.sum()) or np.isfinite(values).all():
            return
        row, column = np.argwhere(~np.isfinite(values))[0]
        lane = int(np.arange(self.num_lanes)[lanes][row])
        raise FloatingPointError(
            f"{self.spec.id}: {what}[{column}] is {values[row, column]} in lane {lane} "
            f"at step {int(self.elapsed[lane])} of episode {int(self.episodes[lane])}"
        )

    def _collect(
        self,
        lanes: Index,
        reward: Float64[np.ndarray, "lanes d"],
        terminated: Bool[np.ndarray, " lanes"],
        truncated: Bool[np.ndarray, " lanes"],
    ) -> Step:
        obs = self._obs.copy()
        if isinstance(lanes, slice):
            return Step(obs, reward, terminated, truncated, obs)
        full_reward = np.zeros((self.num_lanes, reward.shape[1]))
        full_terminated, full_truncated = np.zeros((2, self.num_lanes), bool)
        full_reward[lanes], full_terminated[lanes], full_truncated[lanes] = reward, terminated, truncated
        return Step(obs, full_reward, full_terminated, full_truncated, obs)


def _lane_streams(
    seed: int | Sequence[int], num_lanes: int, first_lane: int
) -> tuple[Int[np.ndarray, " n"], Int[np.ndarray, " n"]]:
    if num_lanes < 1:
        raise ValueError(f"num_lanes must be at least 1, got {num_lanes}")
    if isinstance(seed, int | np.integer):
        seeds, numbers = np.full(num_lanes, seed, np.int64), first_lane + np.arange(num_lanes)
    else:
        seeds, numbers = np.asarray(seed, np.int64), np.zeros(num_lanes, np.int64)
        if seeds.shape != (num_lanes,):
            raise ValueError(f"got {seeds.size} seeds for {num_lanes} lanes: give one seed, or one per lane")
    if (seeds < 0).any():
        raise ValueError(f"seeds must not be negative, got {int(seeds.min())}")
    return seeds, numbers
