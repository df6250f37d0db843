"""The layout of a transition in a row of the replay, with the way back from rows to transitions on the device."""

from dataclasses import asdict
from itertools import accumulate

import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Float32

from qpensieve.learning.interface import Transition
from qpensieve.replay.columns import Columns, columns_of
from qpensieve.types import Behaviour, EnvSpec

Rows = Float32[np.ndarray, "lane rows width"]
"""Packed transitions of every lane, in the order written."""


class RowLayout(Columns):
    """Which columns hold what, and transitions taken out of them."""

    def unpack(self, rows: Float[Array, "*batch width"]) -> Transition:
        """The transitions in the rows."""
        s, a, r, s_next, terminated = jnp.split(rows, list(accumulate(self.sizes))[:-1], axis=-1)
        return Transition(s, a, r, s_next, terminated[..., 0])


def layout_of(spec: EnvSpec, behaviour: Behaviour) -> RowLayout:
    """The layout of an environment's transitions, in the columns that collecting writes."""
    return RowLayout(**asdict(columns_of(spec, behaviour)))
