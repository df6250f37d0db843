"""Rollouts of a population, and the fitness of its members: all lanes of all members step together.

The running statistics of a member (its observations, and per objective its discounted return) are updated at every
step, as normalising environments of its own would do. The noise of actions is drawn from (seed, task, iteration).
"""

from collections.abc import Sequence

import jax
import numpy as np
from jaxtyping import Float32, Float64, Int64

from qpensieve.envs import LaneOptions, make_lanes
from qpensieve.envs.base import MAX_EVAL_STEPS, Lanes, State, play
from qpensieve.learning.streams import Purpose, derived_seed, generator
from qpensieve.population.members import OBS_CLIP, KeptPolicy, MemberPolicy
from qpensieve.population.ppo import Place, PpoConfig, Rollout, RunningStatistics

REWARD_CLIP = 10.0
"""Normalised rewards are clipped to plus or minus this."""


def lane_seeds(
    places: Sequence[Place], num_lanes: int, purpose: Purpose = Purpose.ROLLOUT_LANE, *numbers: int
) -> list[int]:
    """Return the seed of every lane, member by member; other `numbers` give other seeds."""
    return [
        derived_seed(place.seed, purpose, place.task, *numbers, lane) for place in places for lane in range(num_lanes)
    ]


class RolloutCollector:
    """Steps the lanes of all members, an iteration at a time.

    Args:
        lanes: The environments, member by member.
        places: Seed and task of each member.
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

    def collect(self, policy: MemberPolicy, moments: RunningStatistics, iteration: int) -> Rollout:
        """Run one iteration of every member; add its observations, then its discounted returns to `moments`."""
        cfg, lanes, spec = self._cfg, self.lanes, self.lanes.spec
        size, shape, noise = spec.obs_size, (cfg.rollout_steps, *self._shape), self.draw_noise(iteration)
        widths = (size, spec.action_size, spec.num_objectives)
        seen, action, normalized_reward = (np.empty((*shape, width), np.float32) for width in widths)
        terminated, truncated = np.empty(shape, bool), np.empty(shape, bool)
        met = np.empty((*self._shape, size + spec.num_objectives))
        obs = lanes.obs.reshape(*self._shape, size)
        if self._is_fresh:
            moments.merge(obs.astype(np.float64), slice(size))
            self._is_fresh = False
        scale = moments.scale
        for k in range(cfg.rollout_steps):
            seen[k] = normalize(obs, moments.mean, scale)
            action[k] = policy.explore(seen[k], noise[k])
            step = lanes.step(action[k].reshape(lanes.num_lanes, -1))  # clipped there, not in the rollout
            obs, reward = step.obs.reshape(obs.shape), step.reward.reshape(self.sums.shape)
            self.sums *= cfg.discount
            self.sums += reward
            met[..., :size], met[..., size:] = obs, self.sums
            moments.merge(met)
            scale = moments.scale
            clipped = normalized_reward[k]
            np.clip(reward / scale[:, None, size:], -REWARD_CLIP, REWARD_CLIP, out=clipped, casting="same_kind")
            terminated[k] = step.terminated.reshape(self._shape)
            truncated[k] = step.truncated.reshape(self._shape)
            self.sums[terminated[k] | truncated[k]] = 0.0
        of_steps = (seen, action, normalized_reward, terminated, truncated)
        by_member = (np.ascontiguousarray(np.swapaxes(part, 0, 1)) for part in of_steps)
        return Rollout(*jax.device_put((*by_member, normalize(obs, moments.mean, scale))))

    def state(self) -> State:
        """Return named arrays (copies) with everything that the running episodes need."""
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

    def draw_noise(self, iteration: int) -> Float32[np.ndarray, "K n l act"]:
        """Draw the noise of all actions of an iteration."""
        shape = (self._cfg.rollout_steps, self._cfg.num_lanes, self.lanes.spec.action_size)
        of_member = lambda place: generator(place.seed, Purpose.ROLLOUT_NOISE, place.task, iteration)
        draws = [of_member(place).standard_normal(shape, dtype=np.float32) for place in self._places]
        return np.stack(draws, axis=1)


def normalize(
    obs: Float32[np.ndarray, "n l obs"],
    mean: Float64[np.ndarray, "n column"],
    scale: Float64[np.ndarray, "n column"],
) -> Float32[np.ndarray, "n l obs"]:
    """Return observations as the networks expect them; later columns of the statistics are ignored."""
    size = obs.shape[2]
    x = (obs - mean[:, None, :size]) / scale[:, None, :size]
    return np.clip(x, -OBS_CLIP, OBS_CLIP, out=x).astype(np.float32)


class Fitness:
    """Measures all members at once by the mean return of their mean actions; every episode of every member is a lane.

    Args:
        domain: The environment.
        places: Seed and task of each member, seed by seed.
        episodes: Episodes of each member.
        num_threads: Threads of the simulator. None: as many as help.
        max_steps: Steps after which an episode is cut.
    """

    def __init__(
        self,
        domain: str,
        places: tuple[Place, ...],
        episodes: int,
        num_threads: int | None,
        max_steps: int = MAX_EVAL_STEPS,
    ):
        self._places, self._episodes, self._max_steps = places, episodes, max_steps
        num_lanes = len(places) * episodes
        options = LaneOptions(autoreset=False, num_threads=num_threads)
        self.lanes = make_lanes(domain, num_lanes, list(range(num_lanes)), options)  # seeded again at every measurement

    def measure(
        self, policy: KeptPolicy, number: int
    ) -> tuple[Float64[np.ndarray, "member d"], Int64[np.ndarray, " member"]]:
        """Play the policies of all members; returns mean returns, and the steps that this took.

        Args:
            policy: The policies of all members.
            number: Number of iterations that they have trained for; every number has its own start states.
        """
        lanes, shape = self.lanes, (len(self._places), self._episodes)
        lanes.reseed(lane_seeds(self._places, self._episodes, Purpose.FITNESS, number))
        act = lambda obs: policy.exploit(obs.reshape(*shape, -1)).reshape(lanes.num_lanes, -1)
        total = play(lanes, act, self._max_steps)
        return total.reshape(*shape, -1).mean(axis=1), lanes.elapsed.reshape(shape).sum(axis=1)

    def close(self) -> None:
        self.lanes.close()
