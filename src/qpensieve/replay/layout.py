"""The layout of a transition in a row of the replay: s, a, r, s_next, terminated."""

from dataclasses import dataclass
from functools import cached_property
from itertools import accumulate, pairwise

import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Float32

from qpensieve.types import Acting, EnvSpec, Step, Transition

Rows = Float32[np.ndarray, "lane rows width"]
"""Packed transitions of every lane, in the order written."""


@dataclass(frozen=True)
class RowLayout:
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
        return sum(self._sizes)

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
        parts = (obs, action, step.reward, step.last_obs, step.terminated[:, None])
        for columns, part in zip(self._columns, parts, strict=True):
            rows[:, columns] = part

    def unpack(self, rows: Float[Array, "*batch width"]) -> Transition:
        """The transitions in the rows."""
        s, a, r, s_next, terminated = jnp.split(rows, list(accumulate(self._sizes))[:-1], axis=-1)
        return Transition(s, a, r, s_next, terminated[..., 0])

    @property
    def _sizes(self) -> tuple[int, ...]:
        return self.obs_size, self.action_size, self.num_objectives, self.obs_size, 1

    @cached_property
    def _columns(self) -> list[slice]:
        return [slice(*ends) for ends in pairwise(accumulate(self._sizes, initial=0))]


def layout_of(spec: EnvSpec, acting: Acting) -> RowLayout:
    """The layout of an environment's transitions, with actions as `acting` stores them."""
    return RowLayout(spec.obs_size, acting.action_size, spec.num_objectives)
