"""Diagnostics of policies and critics that the loop logs once in a block."""

import jax
import jax.numpy as jnp
import optax
from jaxtyping import Array, Float, Key

from qpensieve.learning.interface import Info
from qpensieve.learning.losses import sample_preferences

BINS = 5
"""Bins of lam1 in diagnostics; bin i holds (i - 1) / 5 to i / 5."""
SATURATED = 0.99
"""Size of an action's component from which it counts as saturated."""


def spread_preferences(key: Key[Array, ""], num: int, d: int) -> Float[Array, "num d"]:
    """Draw preferences: lam1 uniform in bin i % 5 for row i, the rest uniform on the remaining simplex."""
    key_first, key_rest = jax.random.split(key)
    bins = jnp.arange(num) % BINS
    first = ((bins + jax.random.uniform(key_first, (num,))) / BINS)[:, None]
    rest = sample_preferences(key_rest, num, d - 1, "dirichlet") if d > 2 else jnp.ones((num, d - 1))
    return jnp.concatenate([first, (1.0 - first) * rest], axis=1) if d > 1 else jnp.ones((num, 1))


def by_bin(name: str, values: Float[Array, " b"]) -> Info:
    """Return the means of the rows of each bin."""
    bins = jnp.arange(len(values)) % BINS
    return {f"{name}_bin_{i + 1}": jnp.mean(values, where=bins == i) for i in range(BINS)}


def of_update(gradient: object, errors: Float[Array, "b d"], a: Float[Array, "b act"]) -> Info:
    """Return the length of the critics' gradient, the mean size of each objective's errors, and the saturation.

    The saturation is the share of components of actions near -1 or 1.
    """
    sizes = jnp.mean(jnp.abs(errors), axis=0)
    seen = {"critic_gradient_max": optax.tree.norm(gradient)} | {f"td_error_{i + 1}": x for i, x in enumerate(sizes)}
    return seen | {"saturation": jnp.mean((jnp.abs(a) > SATURATED).astype(jnp.float32))}
