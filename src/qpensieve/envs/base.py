"""Lanes: n independent episodes of one environment, stepped together, arrays in and arrays out.

`Lanes` does what all environments share: random streams, automatic resets, the time limit, checks and saving. A
`Simulator` has the state, the physics and the rewards of one body.

The stream of an episode depends on (seed, stream number, episode number) alone. So lane i does not depend on n, and a
saved state has counters instead of generators.
"""

import warnings
from collections.abc import Callable, Sequence

import numpy as np
from jaxtyping import Bool, Float, Float64, Int

from qpensieve.envs.simulator import (
    ALL_LANES,
    DEFAULT_OPTIONS,
    Index,
    LaneOptions,
    SimulationDivergedError,
    Simulator,
    State,
)
from qpensieve.errors import UserError
from qpensieve.preferences import ArrayLike
from qpensieve.types import Step

STATE_VERSION = 1

SURELY_FINITE = 1e30
"""If a sum of squares is below this, every summand is finite as float32."""

LANE_SEED_LIMIT = 2**63
"""Seeds are stored as int64."""

SIMULATOR_PREFIX = "simulator/"
"""Prefix of the names of the simulator's arrays in a saved state."""

SHORT_EPISODES, FULL_EPISODES = 2, 10
"""Episodes per preference of periodic evaluations and of the full protocol."""
MAX_EVAL_STEPS = 10_000
"""Steps after which an evaluation cuts an episode. Episodes of the ten domains have at most 2000 steps."""


class Lanes:
    """n independent episodes stepped together.

    Args:
        simulator: The body to step, made for n lanes.
        num_lanes: Number of lanes.
        seed: One seed for all lanes, or one seed per lane. If all lanes share a seed, lane i uses its stream
            `first_lane` + i. Otherwise each lane uses stream 0 of its own seed.
        options: `Lanes` uses `autoreset`, `dtype`, `first_lane` and `time_limit`.
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
        """The observation to act on in each lane; RuntimeError before the first `reset`."""
        if (self.episodes < 0).any():
            raise RuntimeError(f"{self.spec.id}: lanes have no observation yet: call reset() first")
        return self._obs.copy()

    def reseed(self, seed: int | Sequence[int]) -> None:
        """Give the lanes new seeds; the next `reset` starts the first episodes. ValueError if the seeds do not fit."""
        self._stream_numbers = np.zeros(self.num_lanes, np.int64)
        if not isinstance(seed, Sequence | np.ndarray) or isinstance(seed, str):
            self._stream_numbers += self._options.first_lane + np.arange(self.num_lanes)
            seed = [_checked_seed(seed)] * self.num_lanes
        if len(seed) != self.num_lanes:
            raise ValueError(f"seed must be one number or one per lane ({self.num_lanes}), got {len(seed)}")
        self._seeds = np.array([_checked_seed(one) for one in seed], np.int64)
        self.episodes[:] = -1
        self.elapsed[:] = 0
        self.running[:] = False

    def reset(self, lanes: ArrayLike | None = None) -> Float[np.ndarray, "n obs"]:
        """Start the next episode in all lanes, or in `lanes` (numbers or a mask); returns all observations."""
        self._start(np.arange(self.num_lanes) if lanes is None else _lane_numbers(lanes, self.num_lanes))
        return self._obs.copy()

    def step(self, actions: ArrayLike) -> Step:
        """Step every running lane once.

        Args:
            actions: [n, act], clipped to [-1, 1] first. Discrete actions are indices, [n, 1] or [n].

        Raises:
            ValueError: The shape is wrong, or an index is out of range.
            FloatingPointError: An action, reward or observation is not finite, or the physics diverged.
            RuntimeError: `reset` was not called.
        """
        lanes = self._running_lanes()
        clipped = self._checked_actions(actions)
        if lanes is not ALL_LANES:
            clipped = clipped[lanes]
        if len(clipped) == 0:  # all lanes rest
            return self._collect(lanes, np.zeros((0, self.spec.num_objectives)), np.zeros(0, bool), np.zeros(0, bool))
        try:
            reward, terminated, cut = self.simulator.advance(lanes, clipped)
        except SimulationDivergedError as error:
            raise FloatingPointError(f"{self.spec.id}: {error} {self._where(error.lane, ahead=1)}") from error
        self.elapsed[lanes] += 1
        truncated = self.elapsed[lanes] >= self._max_steps
        if cut is not None:
            truncated |= cut
        truncated &= ~terminated
        if not self._options.time_limit:
            truncated[:] = False
        if not _is_surely_finite(reward):
            self._check_finite("reward", reward, lanes, kept_as=self._options.dtype)
        self._obs[lanes] = self._checked_obs(lanes)
        step = self._collect(lanes, reward, terminated, truncated)
        done = step.done
        if not np.count_nonzero(done):
            return step
        ended = np.flatnonzero(done)
        self.running[ended] = False
        if not self._options.autoreset:
            return step
        self._start(ended)
        step.obs[ended] = self._obs[ended]
        return step

    def rest(self, lanes: ArrayLike) -> None:
        """Let `lanes` (numbers or a mask) rest until their next `reset`; RuntimeError if `autoreset` is on."""
        if self._options.autoreset:
            raise RuntimeError(f"{self.spec.id}: lanes that reset themselves cannot rest: use autoreset=False")
        self.running[_lane_numbers(lanes, self.num_lanes)] = False

    def state(self) -> State:
        """Return named arrays from which `restore` continues bit for bit."""
        own = {
            "version": np.array(STATE_VERSION),
            "id": np.array(self.spec.id),
            "seeds": self._seeds.copy(),
            "stream_numbers": self._stream_numbers.copy(),
            "episodes": self.episodes.copy(),
            "elapsed": self.elapsed.copy(),
            "running": self.running.copy(),
            "obs": self._obs.copy(),
        }
        return own | {f"{SIMULATOR_PREFIX}{name}": value for name, value in self.simulator.state().items()}

    def restore(self, state: State) -> None:
        """Continue from a saved `state` of the same domain and number of lanes.

        A state that does not fit raises ValueError before anything changes. If a lane does not reach its saved
        observation, a warning says so.
        """
        self.check_state(state)
        prefix = SIMULATOR_PREFIX
        self.simulator.restore({name.removeprefix(prefix): v for name, v in state.items() if name.startswith(prefix)})
        self._seeds = state["seeds"].copy()
        self._stream_numbers = state["stream_numbers"].copy()
        self.episodes = state["episodes"].copy()
        self.elapsed = state["elapsed"].copy()
        self.running = state["running"].copy()
        self._obs = state["obs"].astype(self._options.dtype)
        reached = self.simulator.observe(ALL_LANES)
        differs = (reached.astype(np.float32) != self._obs.astype(np.float32)).any(axis=1) & (self.episodes >= 0)
        if differs.any():
            lane = self._options.first_lane + int(np.argmax(differs))
            warnings.warn(
                f"{self.spec.id}: lane {lane} was not restored to its saved observation: the environment is not "
                "deterministic given its seed and actions, so the run does not continue exactly",
                stacklevel=2,
            )

    def render(self, lane: int = 0) -> np.ndarray:
        """Draw one lane as an RGB image."""
        return self.simulator.render(lane)

    def close(self) -> None:
        self.simulator.close()

    def _start(self, lanes: Int[np.ndarray, " lanes"]) -> None:
        self.episodes[lanes] += 1
        self.elapsed[lanes] = 0
        self.running[lanes] = True
        if lanes.size:
            self.simulator.reset(lanes, self._stream)
            self._obs[lanes] = self._checked_obs(lanes)

    def _stream(self, lane: int) -> np.random.SeedSequence:
        key = (int(self._stream_numbers[lane]), int(self.episodes[lane]))
        return np.random.SeedSequence(int(self._seeds[lane]), spawn_key=key)

    def _running_lanes(self) -> Index:
        if np.count_nonzero(self.running) == self.num_lanes:
            return ALL_LANES
        if self._options.autoreset or (self.episodes < 0).any():
            raise RuntimeError(f"{self.spec.id}: no episode has started yet: call reset() before step()")
        return np.flatnonzero(self.running)

    def _checked_actions(self, actions: ArrayLike) -> Float64[np.ndarray, "n act"]:
        values = np.asarray(actions)
        if self.spec.num_actions is not None:
            return self._checked_indices(values, self.spec.num_actions)
        expected = (self.num_lanes, self.spec.action_size)
        if values.shape != expected:
            raise ValueError(f"{self.spec.id}: actions must have shape {expected} (lanes, action), got {values.shape}")
        if not _is_surely_finite(values):
            self._check_finite("action", values, ALL_LANES, ahead=1)
        return np.maximum(np.minimum(values, 1.0, dtype=np.float64), -1.0)  # np.clip takes three times as long

    def _checked_indices(self, values: np.ndarray, num_actions: int) -> Float64[np.ndarray, "n 1"]:
        if values.shape not in ((self.num_lanes, 1), (self.num_lanes,)):
            expected = f"({self.num_lanes}, 1) or ({self.num_lanes},), one index per lane"
            raise ValueError(f"{self.spec.id}: actions must have shape {expected}, got {values.shape}")
        if not (np.issubdtype(values.dtype, np.integer) or np.issubdtype(values.dtype, np.floating)):
            raise ValueError(f"{self.spec.id}: actions must be indices, got type {values.dtype}")
        indices = values.reshape(-1, 1).astype(np.float64)
        is_index = (indices >= 0) & (indices < num_actions) & (indices == np.floor(indices))
        if is_index.all():
            return indices
        lane = int(np.argmin(is_index))
        wrong = f"got {values.reshape(-1)[lane]} {self._where(lane, ahead=1)}"
        raise ValueError(f"{self.spec.id}: action must be a whole number from 0 to {num_actions - 1}, {wrong}")

    def _checked_obs(self, lanes: Index) -> Float[np.ndarray, "lanes obs"]:
        obs = self.simulator.observe(lanes)
        if _is_surely_finite(obs):
            return obs
        # Cast before the check, because a finite float64 may be infinite as float32.
        with np.errstate(over="ignore"):
            obs = obs.astype(self._options.dtype, copy=False)
        self._check_finite("observation", obs, lanes)
        return obs

    def _check_finite(
        self, what: str, values: np.ndarray, lanes: Index, ahead: int = 0, kept_as: type[np.floating] = np.float64
    ) -> None:
        with np.errstate(over="ignore"):
            is_finite = np.isfinite(values.astype(kept_as, copy=False))
        if is_finite.all():
            return
        row, column = np.argwhere(~is_finite)[0]
        where, value = self._where(int(np.arange(self.num_lanes)[lanes][row]), ahead), values[row, column]
        too_large = f" (more than {np.dtype(kept_as)} holds)" if np.isfinite(value) else ""
        raise FloatingPointError(f"{self.spec.id}: {what}[{column}] is {value}{too_large} {where}")

    def _where(self, lane: int, ahead: int) -> str:
        """Return lane, step and episode in words; `ahead` is 1 if the step is not counted yet."""
        step, episode = int(self.elapsed[lane]) + ahead, int(self.episodes[lane])
        return f"in lane {self._options.first_lane + lane} at step {step} of episode {episode}"

    def check_state(self, state: State) -> None:
        """Refuse a state that does not fit these lanes, before anything has changed."""
        for name, wanted in (("version", str(STATE_VERSION)), ("id", self.spec.id)):
            if (found := str(state.get(name, "none"))) != wanted:
                raise UserError(f"lane state of {self.spec.id} must have the {name} {wanted}, got {found}")
        own = self.state()
        if own.keys() != state.keys():
            missing, unknown = sorted(own.keys() - state.keys()), sorted(state.keys() - own.keys())
            raise UserError(f"lane state of {self.spec.id}: missing arrays {missing}, unknown arrays {unknown}")
        if state["obs"].shape != self._obs.shape:
            raise UserError(
                f"lane state of {self.spec.id} must hold {self.num_lanes} lanes with observations of "
                f"{self.spec.obs_size} numbers, got {state['obs'].shape[0]} lanes with {state['obs'].shape[1]}"
            )
        resting = np.flatnonzero(~state["running"] & (state["episodes"] >= 0)) + self._options.first_lane
        if self._options.autoreset and resting.size:
            numbers = ", ".join(map(str, resting.tolist()))
            raise ValueError(
                f"lane state of {self.spec.id}: the episodes of lanes {numbers} are over and rest until a reset; "
                "restore it into lanes made with autoreset=False"
            )

    def _collect(
        self,
        lanes: Index,
        reward: Float64[np.ndarray, "lanes d"],
        terminated: Bool[np.ndarray, " lanes"],
        truncated: Bool[np.ndarray, " lanes"],
    ) -> Step:
        obs, last_obs = self._obs.copy(), self._obs.copy()
        if isinstance(lanes, slice):
            return Step(obs, reward, terminated, truncated, last_obs)
        full_reward = np.zeros((self.num_lanes, reward.shape[1]))
        full_terminated, full_truncated = np.zeros((2, self.num_lanes), bool)
        full_reward[lanes], full_terminated[lanes], full_truncated[lanes] = reward, terminated, truncated
        return Step(obs, full_reward, full_terminated, full_truncated, last_obs)


def play(
    lanes: Lanes,
    act: Callable[[Float[np.ndarray, "n obs"]], Float[np.ndarray, "n act"]],
    max_steps: int = MAX_EVAL_STEPS,
) -> Float64[np.ndarray, "n d"]:
    """Play the next episode of every lane and return its undiscounted return.

    Args:
        lanes: Lanes that rest at the end of an episode (`autoreset=False`).
        act: Observations -> actions.
        max_steps: Steps after which an episode is cut: its return so far counts, with a warning.
    """
    obs, total = lanes.reset(), np.zeros((lanes.num_lanes, lanes.spec.num_objectives))
    for _ in range(max_steps):
        step = lanes.step(act(obs))
        total += step.reward
        obs = step.obs
        if not lanes.running.any():
            return total
    # The text has no numbers of the episode, so that Python shows the warning once.
    warnings.warn(
        f"{lanes.spec.id}: an episode of an evaluation did not end within {max_steps} steps, so its return so far "
        "counts; give the environment a time limit (gymnasium.wrappers.TimeLimit) or set max_eval_steps",
        stacklevel=2,
    )
    return total


def _is_surely_finite(values: np.ndarray) -> bool:
    """Return True if a fast check shows that all numbers are finite, also as float32. False: the check is not sure."""
    return bool(np.vdot(values, values) < SURELY_FINITE)


def _lane_numbers(lanes: ArrayLike, num_lanes: int) -> Int[np.ndarray, " lanes"]:
    """Return lane numbers from a list of numbers or a mask with one entry per lane; ValueError for anything else."""
    numbers = np.asarray(lanes)
    if numbers.dtype == bool:
        if numbers.shape != (num_lanes,):
            raise ValueError(f"a mask of lanes must have one entry per lane, ({num_lanes},), got {numbers.shape}")
        return np.flatnonzero(numbers)
    if numbers.size == 0:
        return np.empty(0, np.int64)
    if numbers.ndim != 1 or not np.issubdtype(numbers.dtype, np.integer):
        raise ValueError(f"lanes must be a list of lane numbers or a mask, got {lanes!r}")
    if numbers.min() < 0 or numbers.max() >= num_lanes:
        raise ValueError(f"lane numbers must be from 0 to {num_lanes - 1}, got {numbers.tolist()}")
    return numbers.astype(np.int64)


def _checked_seed(seed: object) -> int:
    if isinstance(seed, bool) or not isinstance(seed, int | np.integer):
        raise ValueError(f"a seed must be a whole number, got {seed!r}")
    if seed < 0:
        raise ValueError(f"seeds must not be negative, got {seed}")
    if seed >= LANE_SEED_LIMIT:
        raise ValueError(f"seeds must be below 2**63, got {seed}")
    return int(seed)
