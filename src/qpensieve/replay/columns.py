"""What a row of the replay holds: s, a, r, s_next, terminated, and lam where a method needs it.

Written on the host; no JAX here.
"""

from dataclasses import dataclass
from functools import cached_property
from itertools import accumulate, pairwise

import numpy as np
from jaxtyping import Float, Float32

from qpensieve.host_types import Behaviour, EnvSpec, Step


@dataclass(frozen=True)
class Columns:
    """Which columns hold what.

    Attributes:
        obs_size: Numbers of an observation.
        action_size: Numbers that are stored of an action.
        num_objectives: Numbers of a reward.
        preference_size: Numbers that are stored of the preference of a step's episode: all, or 0.
    """

    obs_size: int
    action_size: int
    num_objectives: int
    preference_size: int = 0

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

    @property
    def preference(self) -> slice:
        """Columns of the preference; none if it is not kept."""
        return slice(self.width - self.preference_size, self.width)

    def pack(
        self,
        rows: Float32[np.ndarray, "n width"],
        obs: Float[np.ndarray, "n obs"],
        action: Float[np.ndarray, "n a"],
        step: Step,
    ) -> None:
        """Write one step of n lanes into their rows, all but the preference, which is known for whole blocks.

        Args:
            rows: Where to write.
            obs: Observations that were acted on.
            action: Actions as the replay stores them.
            step: The result of the actions.
        """
        s, a, r, s_next, terminated = self._columns[:5]
        rows[:, s], rows[:, a], rows[:, r], rows[:, s_next] = obs, action, step.reward, step.last_obs
        rows[:, terminated.start] = step.terminated

    @property
    def sizes(self) -> tuple[int, ...]:
        """Numbers of each part."""
        kept = (self.preference_size,) if self.preference_size else ()
        return self.obs_size, self.action_size, self.num_objectives, self.obs_size, 1, *kept

    @cached_property
    def _columns(self) -> list[slice]:
        return [slice(*ends) for ends in pairwise(accumulate(self.sizes, initial=0))]


def columns_of(spec: EnvSpec, behaviour: Behaviour) -> Columns:
    """The columns of an environment's transitions, with actions as they are stored, and preferences if kept."""
    kept = spec.num_objectives if behaviour.keeps_preferences else 0
    return Columns(spec.obs_size, behaviour.acting.action_size, spec.num_objectives, kept)
