"""Rollouts of a population: every member acts in its own few lanes, all lanes step together.

The running statistics of a member (its observations, and per objective its discounted return) are updated at every
step, as the member's own environments would do. The noise of actions is drawn from (seed, task, iteration).
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from jaxtyping import Bool, Float32, Float64

from qpensieve.envs.base import Lanes, State
from qpensieve.learning.streams import Purpose, derived_seed, generator
from qpensieve.population.members import OBS_CLIP, MemberPolicy
from qpensieve.population.moments import Moments
from qpensieve.population.ppo import PpoConfig
from qpensieve.types import Step

REWARD_CLIP = 10.0
"""Normalised rewards are clipped to plus or minus this."""


@dataclass(frozen=True)
class Place:
    """The seed of a member and its task within that seed; all its randomness comes from these two."""

    seed: int
    task: int


def lane_seeds(places: Sequence[Place], num_lanes: int) -> list[int]:
    """Seed of every lane, member by member."""
    return [
        derived_seed(place.seed, Purpose.ROLLOUT_LANE, place.task, lane)
        for place in places
        for lane in range(num_lanes)
    ]


@dataclass(frozen=True, eq=False)
class Rollouts:
    """The `ppo.Rollout` of every member, for one iteration."""

    obs: Float32[np.ndarray, "n K l obs"]
    action: Float32[np.ndarray, "n K l act"]
    reward: Float32[np.ndarray, "n K l d"]
    terminated: Bool[np.ndarray, "n K l"]
    truncated: Bool[np.ndarray, "n K l"]
    last_obs: Float32[np.ndarray, "n l obs"]


class _Block:
    """Rollouts while they are filled; the axis of steps comes first."""

    def __init__(self, cfg: PpoConfig, lanes: Lanes, num_members: int):
        spec, shape = lanes.spec, (cfg.rollout_steps, num_members, cfg.num_lanes)
        self.obs = np.empty((*shape, spec.obs_size), np.float32)
        self.action = np.empty((*shape, spec.action_size), np.float32)
        self.reward = np.empty((*shape, spec.num_objectives), np.float32)
        self.terminated = np.empty(shape, bool)
        self.truncated = np.empty(shape, bool)

    def by_member(self, last_obs: Float32[np.ndarray, "n l obs"]) -> Rollouts:
        turn = lambda x: np.ascontiguousarray(np.swapaxes(x, 0, 1))
        parts = turn(self.obs), turn(self.action), turn(self.reward), turn(self.terminated), turn(self.truncated)
        return Rollouts(*parts, last_obs)


class RolloutCollector:
    """Steps the lanes of all members, an iteration at a time.

    Args:
        lanes: The environments, member by member.
        places: Where each member trains.
        cfg: Lanes of a member, steps of an iteration, discount.
    """

    def __init__(self, lanes: Lanes, places: Sequence[Place], cfg: PpoConfig):
        self.lanes, self._places, self._cfg = lanes, places, cfg
        self._shape = (len(places), cfg.num_lanes)
        self.sums: Float64[np.ndarray, "n l d"] = np.zeros((*self._shape, lanes.spec.num_objectives))
        """Discounted return so far of the running episodes."""
        self._is_fresh = False

    def start(self) -> None:
        """Begin new episodes in all lanes; the statistics of the next iteration include their first observations."""
        self.lanes.reset()
        self.sums[:] = 0.0
        self._is_fresh = True

    def collect(self, policy: MemberPolicy, moments: Moments, iteration: int) -> Rollouts:
        """One iteration of every member; adds its observations and returns to `moments` (in this order)."""
        cfg, lanes, size = self._cfg, self.lanes, self.lanes.spec.obs_size
        block, noise = _Block(cfg, lanes, len(self._places)), self._draw_noise(iteration)
        met = np.empty((*self._shape, size + lanes.spec.num_objectives))
        obs = lanes.obs.reshape(*self._shape, size)
        if self._is_fresh:
            moments.merge(obs.astype(np.float64), slice(size))
            self._is_fresh = False
        scale = moments.scale
        for k in range(cfg.rollout_steps):
            block.obs[k] = normalize(obs, moments.mean, scale)
            block.action[k] = policy.explore(block.obs[k], noise[k])
            step = lanes.step(block.action[k].reshape(lanes.num_lanes, -1))  # clipped there, not in the block
            obs, reward = step.obs.reshape(obs.shape), step.reward.reshape(*self._shape, -1)
            met[..., :size] = obs
            met[..., size:] = self._accumulate(reward)
            moments.merge(met)
            scale = moments.scale
            np.clip(reward / scale[:, None, size:], -REWARD_CLIP, REWARD_CLIP, out=block.reward[k], casting="same_kind")
            self._end_episodes(step)
            block.terminated[k] = step.terminated.reshape(self._shape)
            block.truncated[k] = step.truncated.reshape(self._shape)
        return block.by_member(normalize(obs, moments.mean, scale))

    def state(self) -> State:
        """Named arrays (copies) with everything that the running episodes need."""
        lanes = {f"lanes/{name}": value for name, value in self.lanes.state().items()}
        return lanes | {"sums": self.sums.copy()}

    def restore(self, state: State) -> None:
        """Go back to what `state` returned; other arrays are ignored."""
        prefix = "lanes/"
        lanes = {name.removeprefix(prefix): value for name, value in state.items() if name.startswith(prefix)}
        self.lanes.restore(lanes)
        self.sums = state["sums"].copy()

    def close(self) -> None:
        self.lanes.close()

    def _accumulate(self, reward: Float64[np.ndarray, "n l d"]) -> Float64[np.ndarray, "n l d"]:
        self.sums *= self._cfg.discount
        self.sums += reward
        return self.sums

    def _end_episodes(self, step: Step) -> None:
        ended = np.flatnonzero(step.done)
        if ended.size:
            self.sums.reshape(len(step.done), -1)[ended] = 0.0

    def _draw_noise(self, iteration: int) -> Float32[np.ndarray, "K n l act"]:
        shape = (self._cfg.rollout_steps, self._cfg.num_lanes, self.lanes.spec.action_size)
        of_member = lambda place: generator(place.seed, Purpose.ROLLOUT_NOISE, place.task, iteration)
        draws = [of_member(place).standard_normal(shape, dtype=np.float32) for place in self._places]
        return np.stack(draws, axis=1)


def normalize(
    obs: Float32[np.ndarray, "n l obs"],
    mean: Float64[np.ndarray, "n column"],
    scale: Float64[np.ndarray, "n column"],
) -> Float32[np.ndarray, "n l obs"]:
    """Normalised observations, as the networks expect them; later columns of the statistics are ignored."""
    size = obs.shape[2]
    x = (obs - mean[:, None, :size]) / scale[:, None, :size]
    return np.clip(x, -OBS_CLIP, OBS_CLIP, out=x).astype(np.float32)
