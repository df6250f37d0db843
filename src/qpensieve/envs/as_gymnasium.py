"""The ten domains as Gymnasium environments and vector environments, built on lanes."""

from typing import Any

import gymnasium
import numpy as np
from gymnasium.envs.registration import EnvSpec as GymSpec
from gymnasium.vector.utils import batch_space
from jaxtyping import Bool, Float

from qpensieve.envs.registry import get_domain, make_lanes
from qpensieve.envs.simulator import LaneOptions
from qpensieve.errors import UserError


class LaneEnv(gymnasium.Env[np.ndarray, np.ndarray]):
    """One lane of a domain with Gymnasium's interface and a vector reward.

    `reset(seed=s)` starts the first episode of lane 0 of `make_lanes(domain, n, seed=s)`. Each further `reset()` starts
    the next episode of that lane.

    Args:
        domain: Name of the domain.
        render_mode: None or "rgb_array".
        contact_forces: Ant only: append the contact forces to the observation.
    """

    metadata: dict[str, Any] = {"render_modes": ["rgb_array"]}  # noqa: RUF012 (Gymnasium's own attribute)

    def __init__(self, domain: str, render_mode: str | None = None, contact_forces: bool = False):
        if render_mode not in (None, *self.metadata["render_modes"]):
            raise UserError(f"render_mode must be 'rgb_array' or None, got {render_mode!r}")
        row = get_domain(domain)
        if row.num_actions is not None:
            raise UserError(f"{row.id} is not a Gymnasium environment, because its actions are indices; use make_lanes")
        options = LaneOptions(autoreset=False, num_threads=1, contact_forces=contact_forces)
        self._lane = make_lanes(row.id, 1, 0, options)
        self._is_seeded = False
        spec = self._lane.spec
        self.metadata = {
            "render_modes": ["rgb_array"],
            "render_fps": row.render_fps,
            "objectives": spec.objectives,
            "reference_point": spec.reference,
        }
        self.render_mode = render_mode
        self.observation_space = gymnasium.spaces.Box(*row.obs_range, (spec.obs_size,), np.float32)
        self.action_space = gymnasium.spaces.Box(-1.0, 1.0, (spec.action_size,), np.float32)
        self.reward_space = gymnasium.spaces.Box(-np.inf, np.inf, (spec.num_objectives,), np.float32)
        self.reward_dim = spec.num_objectives
        if row.exact is not None:
            self.pareto_front = row.exact.discounted
            """`pareto_front(gamma)`: the front of discounted returns, as in MO-Gymnasium; only where it is known."""

    @property
    def spec(self) -> GymSpec | None:
        return self._spec

    @spec.setter
    def spec(self, value: GymSpec | None) -> None:  # pyright: ignore[reportIncompatibleVariableOverride]
        if value is not None:
            value.metadata = self.metadata  # pyright: ignore[reportAttributeAccessIssue]
            # Set here, not registered: Gymnasium would add a TimeLimit, which marks a goal reached on the last step
            # as truncated and as terminated.
            value.max_episode_steps = self._lane.spec.max_steps
        self._spec = value

    _spec: GymSpec | None = None

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[Float[np.ndarray, " obs"], dict[str, Any]]:
        super().reset(seed=seed)
        if seed is not None or not self._is_seeded:
            lane_seed = int(self.np_random.integers(2**31)) if seed is None else seed
            self._lane.reseed(lane_seed)
            self._is_seeded = True
        return self._lane.reset()[0].copy(), {}

    def step(
        self, action: Float[np.ndarray, " act"]
    ) -> tuple[Float[np.ndarray, " obs"], Float[np.ndarray, " d"], bool, bool, dict[str, Any]]:
        if not self._lane.running[0]:
            raise RuntimeError(f"{self._lane.spec.id}: the episode is over (or never began); call reset() first")
        step = self._lane.step(np.asarray(action, np.float64)[None])
        reward = step.reward[0].astype(np.float32)
        return step.last_obs[0].copy(), reward, bool(step.terminated[0]), bool(step.truncated[0]), {}

    def render(self) -> np.ndarray | None:  # pyright: ignore[reportIncompatibleMethodOverride]
        if self.render_mode is None:
            gymnasium.logger.warn("render() without a render mode: make the environment with render_mode='rgb_array'")
            return None
        return self._lane.render()

    def close(self) -> None:
        self._lane.close()


class LaneVectorEnv(gymnasium.vector.VectorEnv[np.ndarray, np.ndarray, np.ndarray]):
    """Many lanes of a domain, stepped together, with Gymnasium's vector interface and vector rewards.

    After `reset(seed=s)`, environment i equals a `LaneEnv` after `reset(seed=s + i)`. The step after the end of an
    episode ignores the action, pays nothing and starts the next episode (`AutoresetMode.NEXT_STEP`).

    Args:
        domain: Name of the domain.
        num_envs: Number of environments.
        render_mode: None or "rgb_array".
        contact_forces: Ant only: append the contact forces to the observation.
        max_episode_steps: A time limit below the domain's own.
    """

    def __init__(
        self,
        domain: str,
        num_envs: int = 1,
        render_mode: str | None = None,
        contact_forces: bool = False,
        max_episode_steps: int | None = None,
    ):
        single = LaneEnv(domain, render_mode, contact_forces)
        single.close()
        self.num_envs, self.render_mode = num_envs, render_mode
        self.metadata = {**single.metadata, "autoreset_mode": gymnasium.vector.AutoresetMode.NEXT_STEP}
        self.single_observation_space, self.single_action_space = single.observation_space, single.action_space
        self.observation_space = batch_space(single.observation_space, num_envs)
        self.action_space = batch_space(single.action_space, num_envs)
        self.reward_space, self.reward_dim = single.reward_space, single.reward_dim
        options = LaneOptions(autoreset=False, contact_forces=contact_forces)
        self._lanes = make_lanes(domain, num_envs, 0, options)
        self._limit = np.inf if max_episode_steps is None else max_episode_steps
        self._is_seeded = False

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[Float[np.ndarray, "n obs"], dict[str, Any]]:
        super().reset(seed=seed)
        if seed is not None or not self._is_seeded:
            first = int(self.np_random.integers(2**31)) if seed is None else seed
            self._lanes.reseed([first + i for i in range(self.num_envs)])
            self._is_seeded = True
        return self._lanes.reset(), {}

    def step(
        self, actions: Float[np.ndarray, "n act"]
    ) -> tuple[
        Float[np.ndarray, "n obs"],
        Float[np.ndarray, "n d"],
        Bool[np.ndarray, " n"],
        Bool[np.ndarray, " n"],
        dict[str, Any],
    ]:
        ended = ~self._lanes.running
        step = self._lanes.step(actions)
        cut = self._lanes.running & (self._lanes.elapsed >= self._limit)
        self._lanes.rest(cut)
        obs = self._lanes.reset(ended) if ended.any() else step.obs
        return obs, step.reward.astype(np.float32), step.terminated, step.truncated | cut, {}

    def render(self) -> tuple[np.ndarray, ...] | None:
        return None if self.render_mode is None else tuple(map(self._lanes.render, range(self.num_envs)))

    def close_extras(self) -> None:
        self._lanes.close()
