"""What a look at policy and critics between two blocks shows: what a burst of the values needs to be seen.

Once in a block, on the batch of its last update, under preferences spread over five bins of lam1 (that of the first
objective). Names that end in `_max` are logged as the largest since the last row, all others as the mean.
"""

import jax
import jax.numpy as jnp
import optax
from jaxtyping import Array, Float, Key

from qpensieve.learning.interface import Info, Transition
from qpensieve.learning.sampling import sample_preferences

BINS = 5
"""Bins of lam1; bin i holds (i - 1) / 5 to i / 5."""
SATURATED = 0.99
"""Size of an action's component from which it counts as saturated."""


def spread_preferences(key: Key[Array, ""], num: int, d: int) -> Float[Array, "num d"]:
    """Preferences with lam1 in bin i % 5 for row i, uniformly; the rest uniform on what is left of the simplex."""
    key_first, key_rest = jax.random.split(key)
    bins = jnp.arange(num) % BINS
    first = ((bins + jax.random.uniform(key_first, (num,))) / BINS)[:, None]
    rest = sample_preferences(key_rest, num, d - 1, "dirichlet") if d > 2 else jnp.ones((num, d - 1))
    return jnp.concatenate([first, (1.0 - first) * rest], axis=1) if d > 1 else jnp.ones((num, 1))


def enough(batch: Transition) -> Transition:
    """The batch, repeated where it has fewer rows than there are bins."""
    b = len(batch.r)
    return batch if b >= BINS else jax.tree.map(lambda leaf: leaf[jnp.arange(BINS) % b], batch)


def by_bin(name: str, values: Float[Array, " b"]) -> Info:
    """Means of the rows of each bin."""
    bins = jnp.arange(len(values)) % BINS
    return {f"{name}_bin_{i + 1}": jnp.mean(values, where=bins == i) for i in range(BINS)}


def of_critics(gradient: object, errors: Float[Array, "b d"]) -> Info:
    """The length of the critics' gradient, and the mean size of the errors of each objective."""
    sizes = jnp.mean(jnp.abs(errors), axis=0)
    shown = {f"td_error_{i + 1}": sizes[i] for i in range(len(sizes))}
    return {"critic_gradient_max": optax.tree.norm(gradient)} | shown


def saturation(a: Float[Array, "b act"]) -> Info:
    """The share of components of actions at the edge of what is possible."""
    return {"saturation": jnp.mean((jnp.abs(a) > SATURATED).astype(jnp.float32))}
