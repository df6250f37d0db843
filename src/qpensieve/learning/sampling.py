"""Preferences drawn on the device, distributed as those that `preferences.py` draws on the host."""

import jax
import numpy as np
from jaxtyping import Array, Float, Key

from qpensieve.preferences import Sampler, check_draw, normalize


def sample_preferences(
    key: Key[Array, ""], num: int, num_objectives: int, sampler: Sampler = "uniform-sum"
) -> Float[Array, "m d"]:
    """Draw `num` float32 preferences on the device; `num`, `num_objectives` and `sampler` are static under `jit`."""
    check_draw(num, num_objectives, sampler)
    draw = {"uniform-sum": jax.random.uniform, "dirichlet": jax.random.exponential, "abs-normal": jax.random.normal}
    return normalize(abs(draw[sampler](key, (num, num_objectives), dtype=np.float32)))
