"""Many agents as one axis: how a function is applied to all of them, and their parameters as rows."""

from collections.abc import Callable
from typing import Any, TypeVar

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

T = TypeVar("T")


def over_agents(function: Callable[[Any], T], args: Any) -> T:
    """Apply to every agent: all at once on an accelerator, one after the other on the CPU, where this is faster."""
    return jax.lax.map(function, args) if jax.default_backend() == "cpu" else jax.vmap(function)(args)


def flatten(actor: Any) -> Float[Array, " parameters"]:
    """All leaves in one row, in the order that policies on the host expect."""
    return jnp.concatenate([leaf.ravel() for leaf in jax.tree.leaves(actor)])
