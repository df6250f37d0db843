"""Shared data types of the host and the axis legend.

Axes, always in this order: `seed`, `n` lanes (`lane` in the replay), `b` batch, `k` snapshots, `2` twins, `m`
preferences, `p` test preferences, `e` episodes, and last `d` objectives. A seed has one or several agents, an agent has
lanes, and each lane has its own rows in the replay.

This module does not import JAX, nor does code that steps and acts, so collection workers start fast.
`learning/interface.py` has the types with JAX.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Protocol, runtime_checkable

import numpy as np
from jaxtyping import Bool, Float, Float32, Shaped

from qpensieve.errors import UserError
from qpensieve.preferences import Sampler


@dataclass(frozen=True)
class ActionBox:
    """Bounds of the actions of a foreign environment. Algorithms use flat actions in [-1, 1].

    Attributes:
        low: Lowest number of each entry.
        high: Highest number of each entry.
        shape: Shape of an action.
        dtype: Name of the array type of an action.
    """

    low: tuple[float, ...]
    high: tuple[float, ...]
    shape: tuple[int, ...]
    dtype: str = "float32"

    def rescale(self, actions: Float[np.ndarray, "n act"]) -> Float[np.ndarray, "n ..."]:
        """Map actions in [-1, 1] to the box (-1 becomes `low`, 1 becomes `high`), in its dtype and shape."""
        low, high = np.array(self.low), np.array(self.high)
        points = low + (np.asarray(actions, np.float64) + 1.0) / 2.0 * (high - low)
        # Rounding may pass a bound by one unit in the last place, which some environments refuse.
        return np.clip(points, low, high).astype(self.dtype).reshape(-1, *self.shape)


@dataclass(frozen=True)
class Indices:
    """Observations of unordered whole numbers. Each number becomes a one-hot vector.

    Attributes:
        counts: Number of values of each entry.
        firsts: The lowest value of each entry.
    """

    counts: tuple[int, ...]
    firsts: tuple[int, ...]

    def encode(self, values: Float[np.ndarray, "n entries"]) -> Float[np.ndarray, "n obs"]:
        """Return one-hot rows: 1 at the value of each entry, 0 elsewhere.

        Raises:
            ValueError: A number is not one of the values of its entry.
        """
        indices = values - np.array(self.firsts)
        is_value = (indices >= 0) & (indices < np.array(self.counts)) & (indices == np.floor(indices))
        if not is_value.all():
            row, entry = np.argwhere(~is_value)[0]
            first, last = self.firsts[entry], self.firsts[entry] + self.counts[entry] - 1
            raise UserError(
                f"observation must be whole numbers, entry {entry} from {first} to {last}; got {values[row, entry]:g}"
            )
        starts = np.cumsum((0, *self.counts[:-1]))
        rows = np.zeros((len(values), sum(self.counts)), values.dtype)
        rows[np.arange(len(values))[:, None], starts + indices.astype(np.int64)] = 1.0
        return rows


@dataclass(frozen=True)
class EnvSpec:
    """Description of an environment for algorithms and reports.

    Attributes:
        id: Domain name such as `Hopper2d`, or the id of a foreign Gymnasium environment.
        obs_size: Length of an observation.
        action_size: Length of an action. Algorithms and lanes use actions in [-1, 1].
        objectives: One name per objective, in reward order.
        reference: Reference point of the hypervolume. None: there is no point, so HV is not computed.
        max_steps: Time limit of lanes in environment steps. None: only the environment may have a limit.
        num_actions: Number of discrete actions: an action is an index below it. None: actions are continuous.
        action_box: Bounds of the environment's own actions. None: [-1, 1].
        obs_shape: Shape of the environment's own observation. None: flat.
        first_action: Discrete actions: the environment's own number for index 0.
        obs_indices: Ranges of the whole numbers that make up an observation; algorithms see them one-hot. None: an
            observation is plain numbers.
    """

    id: str
    obs_size: int
    action_size: int
    objectives: tuple[str, ...]
    reference: tuple[float, ...] | None
    max_steps: int | None
    num_actions: int | None = None
    action_box: ActionBox | None = None
    obs_shape: tuple[int, ...] | None = None
    first_action: int = 0
    obs_indices: Indices | None = None

    @property
    def num_objectives(self) -> int:
        return len(self.objectives)

    def native_actions(self, actions: Float[np.ndarray, "n act"]) -> Shaped[np.ndarray, "n ..."]:
        """Convert actions of an algorithm for the environment's `step`: into its box, or to integer indices [n]."""
        if self.num_actions is not None:
            return self.first_action + actions[:, 0].astype(np.int64)
        return actions if self.action_box is None else self.action_box.rescale(actions)

    def one_of(self, native: Shaped[np.ndarray, "n ..."], row: int) -> Any:
        """Return one row of `native_actions`: an array, or an index."""
        return native[row] if self.num_actions is not None else native[row, ...]

    def encoded(self, observations: Float[np.ndarray, "n ..."]) -> Float[np.ndarray, "n obs"]:
        """Convert observations of the environment for algorithms: flat, or one-hot if they are indices."""
        flat = observations.reshape(len(observations), -1)
        return flat if self.obs_indices is None else self.obs_indices.encode(flat)

    def rows(self, obs: object) -> tuple[Float32[np.ndarray, "n obs"], bool]:
        """Return one observation or a batch (flat or in the environment's shape) as rows, and whether it was one.

        Raises:
            ValueError: `obs` is no array of finite numbers, has a wrong shape or no rows, or an index is out of range.
        """
        try:
            values = np.asarray(obs, np.float32)
        except (ValueError, TypeError) as error:
            hint = "; reset() returns a pair, whose first part it is" if isinstance(obs, tuple) else ""
            raise UserError(f"obs must be an array of numbers, got a {type(obs).__name__}: {error}{hint}") from error
        own = (self.obs_size,) if self.obs_shape is None else self.obs_shape
        shapes = (own,) if self.obs_indices is not None else ((self.obs_size,), own)
        is_single = values.shape in shapes
        if not is_single and (values.ndim == 0 or values.shape[1:] not in shapes):
            many = ", ".join(("n", *map(str, shapes[0])))
            raise UserError(f"obs must have shape {shapes[0]} or ({many}{',' * (many == 'n')}), got {values.shape}")
        if values.size == 0:
            raise UserError("obs must hold at least one observation, got none")
        if not np.isfinite(values).all():
            raise UserError(f"obs must be finite, got {values[~np.isfinite(values)][0]}")
        return self.encoded(values[None] if is_single else values), is_single


@dataclass
class Step:
    """Result of one step of n lanes. Not frozen, because a frozen class takes five times as long to make.

    Attributes:
        obs: Observation to act on next. If an episode ended, it is the first of the next episode.
        reward: Reward vector of the step.
        terminated: Whether the environment ended the episode, so that targets do not bootstrap.
        truncated: Whether a limit cut the episode, so that targets bootstrap from `last_obs`.
        last_obs: Observation that this step reached, before a reset: the `s_next` of the transition.
    """

    obs: Float[np.ndarray, "n obs"]
    reward: Float[np.ndarray, "n d"]
    terminated: Bool[np.ndarray, " n"]
    truncated: Bool[np.ndarray, " n"]
    last_obs: Float[np.ndarray, "n obs"]

    @property  # the lock of a cached property takes longer
    def done(self) -> Bool[np.ndarray, " n"]:
        """Whether the episode ended or was cut."""
        return self.terminated | self.truncated


Parameters = Float32[np.ndarray, "n parameters"]
"""Flat actors of n agents, one row each."""
Observations = Float32[np.ndarray, "n rows obs"]
Preferences = Float32[np.ndarray, "n rows d"]
"""Preference of each row."""
Noise = Float32[np.ndarray, "n rows c"]
StoredActions = Float32[np.ndarray, "n rows a"]
"""Actions as the replay stores them."""
Actions = Float32[np.ndarray, "n rows act"]
"""Actions as the environment takes them."""


@runtime_checkable
class Explorer(Protocol):
    """Policies of n agents that explore in plain NumPy."""

    def explore(self, obs: Observations, lam: Preferences, noise: Noise, step: int) -> StoredActions:
        """Return actions to learn from. The rows are the lanes of an agent."""
        ...


@runtime_checkable
class HostPolicy(Explorer, Protocol):
    """Policies of n agents in plain NumPy."""

    def sample(self, obs: Observations, lam: Preferences, noise: Noise, step: int) -> StoredActions:
        """Sample actions of the evaluated policy, for any rows."""
        ...

    def exploit(self, obs: Observations, lam: Preferences) -> Actions:
        """Return deterministic actions."""
        ...


@dataclass(frozen=True)
class Acting:
    """How an algorithm acts on the host, without a device.

    Attributes:
        policy: Flat actors -> policies.
        draw_noise: (generator, K) -> noise of K steps of one lane [K, c], for `explore`.
        draw_actions: (generator, K) -> K uniformly random actions [K, a], as the replay stores them.
        decode: Stored actions [..., a] -> actions of the environment [..., act].
        action_size: Number of values that the replay stores for an action.
        is_discrete: Whether the algorithm can act in an environment with discrete actions.
    """

    policy: Callable[[Parameters], HostPolicy]
    draw_noise: Callable[[np.random.Generator, int], Float32[np.ndarray, "K c"]]
    draw_actions: Callable[[np.random.Generator, int], Float32[np.ndarray, "K a"]]
    decode: Callable[[Float32[np.ndarray, "*batch a"]], Float32[np.ndarray, "*batch act"]]
    action_size: int
    is_discrete: bool = False


@dataclass(frozen=True)
class Behaviour:
    """How an algorithm collects. Unlike the algorithm, this can be sent to another process.

    Attributes:
        acting: How to act.
        sampler: Distribution of the preferences that episodes act under.
        num_lanes: Number of environments that one agent acts in.
        has_own_preferences: Whether each agent has a fixed preference, which its first lane follows.
        random_correlation: Correlation of continuous random actions from step to step. None: white.
        num_white_lanes: Number of lanes, the first of each agent, whose random actions are always white.
    """

    acting: Acting
    sampler: Sampler = "uniform-sum"
    num_lanes: int = 1
    has_own_preferences: bool = False
    random_correlation: float | None = None
    num_white_lanes: int = 0
