"""Forms of eq. (11) with one stored critic: which candidates count and what is compared (results/recipe.md)."""

from typing import Literal

import jax.numpy as jnp
from jaxtyping import Array, Bool, Float

Form = Literal["all", "few", "pairs", "spread", "batch", "drift", "outlier"]
DEVIATIONS = 2.0
"""`outlier`: standard deviations by which a candidate must exceed the own value."""


def preferences_of(form: Form, prefs: Float[Array, "m c d"], num_critics: int) -> Float[Array, "k m2 c d"]:
    """The preferences that each critic is read under; the current critic is the last one."""
    if form == "pairs":
        return jnp.stack([prefs[1:]] * (num_critics - 1) + [prefs[:1]])
    return jnp.broadcast_to(prefs[None], (num_critics, *prefs.shape))


def judge(
    form: Form, margin: float | None, filled: Bool[Array, " k"], values: Float[Array, "k m b"]
) -> Float[Array, "k m b"]:
    """What the choice compares; -inf: the candidate does not count. `values` are lam . Q of the smaller twins.

    The own value is that of the current critic, the last one, under lam, the first preference. It always counts.

    Args:
        form: `batch` compares means over the batch. `drift` and `outlier` subtract from each snapshot's values the mean
            difference from the current critic under the same preference. The others compare the values.
        margin: A candidate may exceed the own value by at most this share of its mean size; with `batch` on average.
            `outlier` has another rule: a candidate must exceed the own value by `DEVIATIONS` of that difference.
        filled: Which critics exist.
        values: Values of all candidates.
    """
    own, difference = values[-1:, :1], values - values[-1:]
    judged = values
    if form in ("drift", "outlier"):
        judged = values - jnp.mean(difference, axis=2, keepdims=True)
    if form == "batch":
        judged = jnp.broadcast_to(jnp.mean(values, axis=2, keepdims=True), values.shape)
    counts = jnp.ones(values.shape, bool)
    if form == "outlier":
        counts = judged > own + DEVIATIONS * jnp.std(difference, axis=2, keepdims=True)
    elif margin is not None:
        base = jnp.mean(own, keepdims=True) if form == "batch" else own
        counts = judged <= base + margin * jnp.mean(jnp.abs(own))
    counts = (counts & filled[:, None, None]).at[-1, 0].set(True)
    return jnp.where(counts, judged, -jnp.inf)
