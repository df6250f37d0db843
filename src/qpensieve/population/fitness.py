"""Fitness of members: the mean return of their mean actions over fresh episodes, in separate lanes."""

import numpy as np
from jaxtyping import Float64, Int64

from qpensieve.envs import LaneOptions, make_lanes
from qpensieve.envs.episodes import MAX_EVAL_STEPS, play
from qpensieve.learning.streams import Purpose, derived_seed
from qpensieve.population.members import KeptPolicy
from qpensieve.population.rollout import Place


class Fitness:
    """Measures all members at once; every episode of every member is a lane.

    Args:
        domain: The environment.
        places: Where the members train, seed by seed.
        episodes: Episodes of each member.
        num_threads: Threads of the simulator. None: every core.
        max_steps: Steps after which an episode is no longer waited for.
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
        """Objectives of every member, and the steps that measuring took.

        Args:
            policy: The policy of all members.
            number: Number of iterations they have trained for; every number has its own start states.
        """
        lanes, shape = self.lanes, (len(self._places), self._episodes)
        lanes.reseed(self.lane_seeds(number))
        act = lambda obs: policy.exploit(obs.reshape(*shape, -1)).reshape(lanes.num_lanes, -1)
        total = play(lanes, act, self._max_steps)
        return total.reshape(*shape, -1).mean(axis=1), lanes.elapsed.reshape(shape).sum(axis=1)

    def lane_seeds(self, number: int) -> list[int]:
        """Seed of every lane, member by member."""
        return [
            derived_seed(place.seed, Purpose.FITNESS, place.task, number, episode)
            for place in self._places
            for episode in range(self._episodes)
        ]

    def close(self) -> None:
        self.lanes.close()
