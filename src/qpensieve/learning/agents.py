"""Many agents as one axis: how a function is applied to all of them, and their parameters as rows."""

from collections.abc import Callable
from typing import Any, TypeVar

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

T = TypeVar("T")


def over_agents(function: Callable[[Any], T], args: Any) -> T:
    """Apply to every agent: all at once on an accelerator, one after the other on the CPU.

    On the CPU this is faster.
    """
    return jax.lax.map(function, args) if jax.default_backend() == "cpu" else jax.vmap(function)(args)


def looped(function: Callable[[Any, Any], T], args: Any) -> T:
    """The result of a function of arrays and of 0, on the CPU computed within a loop, as updates are.

    Outside of one, rounding would depend on how many agents share a core: XLA does without a loop of one turn, such as
    that over the agents of a core, and joins what is in it with what is around it. That this one ends after one turn is
    hidden from it. The 0 is for random keys: folded in, it says that a second turn would have another.
    """
    if jax.default_backend() != "cpu":
        return function(args, 0)
    blank = jax.tree.map(lambda leaf: jnp.zeros(leaf.shape, leaf.dtype), jax.eval_shape(function, args, 0))
    hidden = lambda i: jax.tree.map(lambda leaf: jax.lax.optimization_barrier((leaf, i))[0], args)
    turn = lambda i, _: function(hidden(i), i)
    return jax.lax.fori_loop(0, jax.lax.optimization_barrier(jnp.int32(1)), turn, blank)


def flatten(actor: Any) -> Float[Array, " parameters"]:
    """All leaves in one row, in the order that policies on the host expect."""
    return jnp.concatenate([leaf.ravel() for leaf in jax.tree.leaves(actor)])
