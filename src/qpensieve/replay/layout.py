"""The layout of a transition in a row of the replay: s, a, r, s_next, terminated. No JAX here: the host packs rows."""

from dataclasses import dataclass
from functools import cached_property
from itertools import accumulate, pairwise
from typing import Any

import numpy as np
from jaxtyping import Float, Float32

from qpensieve.types import Behaviour, EnvSpec, Step

Rows = Float32[np.ndarray, "lane rows width"]
"""Packed transitions of every lane, in the order written."""


@dataclass(frozen=True)
class RowLayout:
    """Which columns of a row hold what.

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
        """How many numbers a row has."""
        return self._columns[-1].stop

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

    def unpack(self, rows: Any) -> tuple[Any, ...]:
        """Return s, a, r, s_next and terminated of rows [*batch, width], which may be arrays of JAX."""
        *parts, terminated = (rows[..., part] for part in self._columns)
        return *parts, terminated[..., 0]

    @cached_property
    def _columns(self) -> list[slice]:
        sizes = (self.obs_size, self.action_size, self.num_objectives, self.obs_size, 1)
        return [slice(*ends) for ends in pairwise(accumulate(sizes, initial=0))]


def layout_of(spec: EnvSpec, behaviour: Behaviour) -> RowLayout:
    """Return the layout of an environment's transitions, with actions as they are stored."""
    return RowLayout(spec.obs_size, behaviour.acting.action_size, spec.num_objectives)
