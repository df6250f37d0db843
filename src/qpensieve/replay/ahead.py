"""Several steps as one: what n-step targets are made of."""

import jax.numpy as jnp
from jaxtyping import Array, Bool, Float

from qpensieve.types import Transition


def fold(steps: Transition, is_there: Bool[Array, "b n"], discount: float | Float[Array, ""]) -> Transition:
    """The transition from the first state over up to n steps, with their discounted rewards and the first preference.

    It ends before a step that does not follow: where an episode ended, by itself or by the time limit, or the newest
    row was reached. A target multiplies the value of the state reached by discount x (1 - terminated). So that it
    counts all steps, `terminated` of a transition over h steps that goes on is 1 - discount^(h - 1).

    Args:
        steps: Steps one after the other, [b, n].
        is_there: Whether each of them was written after the one before.
        discount: Discount factor, of the update that learns from it.
    """
    goes_on = steps.terminated[:, :-1] == 0
    follows = jnp.all(steps.s_next[:, :-1] == steps.s[:, 1:], axis=-1) & goes_on & is_there[:, 1:]
    if steps.lam is not None:  # an episode that ended where all begin: the next has another preference
        follows &= jnp.all(steps.lam[:, :-1] == steps.lam[:, 1:], axis=-1)
    counts = jnp.cumprod(
        jnp.concatenate([jnp.ones((len(follows), 1), bool), follows], axis=1).astype(jnp.float32), axis=1
    )
    weights = counts * (discount ** jnp.arange(counts.shape[1]))[None]
    last = counts.sum(axis=1).astype(jnp.int32) - 1
    row = jnp.arange(len(last))
    still = weights[row, last] * (1.0 - steps.terminated[row, last])
    r = jnp.sum(weights[..., None] * steps.r, axis=1)
    lam = None if steps.lam is None else steps.lam[:, 0]
    return Transition(steps.s[:, 0], steps.a[:, 0], r, steps.s_next[row, last], 1.0 - still, lam)
