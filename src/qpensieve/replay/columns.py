"""What a row of the replay holds: s, a, r, s_next, terminated.

Written on the host; no JAX here.
"""

from dataclasses import dataclass
from functools import cached_property
from itertools import accumulate, pairwise

import numpy as np
from jaxtyping import Float, Float32

from qpensieve.types import Behaviour, EnvSpec, Step


@dataclass(frozen=True)
class Columns:
    """Which columns hold what.

    Attributes:
        obs_size: Numbers of an observation.
        action_size: Numbers that are stored of an action.
        num_objectives: Numbers of a reward.
    """

    obs_size: int
    action_size: int
    num_objectives: int

    @property
    def width(self) -> int:
        """Numbers in a row."""
        return sum(self.sizes)

    @property
    def action(self) -> slice:
        """Columns of the action."""
        return self._columns[1]

    @property
    def reward(self) -> slice:
        """Columns of the reward."""
        return self._columns[2]

    def pack(
        self,
        rows: Float32[np.ndarray, "n width"],
        obs: Float[np.ndarray, "n obs"],
        action: Float[np.ndarray, "n a"],
        step: Step,
    ) -> None:
        """Write one step of n lanes into their rows.

        Args:
            rows: Where to write.
            obs: Observations that were acted on.
            action: Actions as the replay stores them.
            step: The result of the actions.
        """
        s, a, r, s_next, terminated = self._columns
        rows[:, s], rows[:, a], rows[:, r], rows[:, s_next] = obs, action, step.reward, step.last_obs
        rows[:, terminated.start] = step.terminated

    @property
    def sizes(self) -> tuple[int, ...]:
        """Numbers of each part."""
        return self.obs_size, self.action_size, self.num_objectives, self.obs_size, 1

    @cached_property
    def _columns(self) -> list[slice]:
        return [slice(*ends) for ends in pairwise(accumulate(self.sizes, initial=0))]


def columns_of(spec: EnvSpec, behaviour: Behaviour) -> Columns:
    """The columns of an environment's transitions, with actions as they are stored."""
    return Columns(spec.obs_size, behaviour.acting.action_size, spec.num_objectives)
