"""Equality to rounding: what two compiled programs promise that compute the same numbers in another order."""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

EPS = float(np.finfo(np.float32).eps)
ROUNDINGS = 64.0
"""Roundings of the largest value of an array that any of its values may be off by, after one to three updates."""


def assert_same_to_rounding(tree: Any, other: Any, roundings: float = ROUNDINGS) -> None:
    """Compare leaf by leaf: |a - b| <= roundings x eps x max|b|; integers, flags and random keys must be equal.

    After an update by Adam compare first moments: a parameter whose gradient is rounding noise moves a whole step.
    """
    (leaves, structure), (others, other_structure) = jax.tree_util.tree_flatten_with_path(tree), jax.tree.flatten(other)
    assert structure == other_structure
    for (path, leaf), other_leaf in zip(leaves, others, strict=True):
        a, b = plain(leaf), plain(other_leaf)
        name = jax.tree_util.keystr(path)
        assert (a.shape, a.dtype) == (b.shape, b.dtype), name
        if not np.issubdtype(a.dtype, np.floating):
            np.testing.assert_array_equal(a, b, err_msg=name)
            continue
        largest = np.abs(b[np.isfinite(b)]).max(initial=0.0)
        np.testing.assert_allclose(a, b, rtol=0.0, atol=roundings * EPS * largest, equal_nan=False, err_msg=name)


def assert_largest(values: Any, winner: Any, roundings: float = ROUNDINGS) -> None:
    """Check winners [...] among candidates [k, ...]: each the largest, or below it by rounding."""
    values, winner = np.asarray(values), np.asarray(winner)
    won = np.take_along_axis(values, winner[None], axis=0)[0]
    finite = np.abs(values[np.isfinite(values)]).max()
    assert (won >= values.max(axis=0) - roundings * EPS * finite).all()


def plain(leaf: Any) -> np.ndarray:
    """Return the leaf as an array of NumPy, keys as their bits."""
    if isinstance(leaf, jax.Array) and jnp.issubdtype(leaf.dtype, jax.dtypes.prng_key):
        return np.asarray(jax.random.key_data(leaf))
    return np.asarray(leaf)
