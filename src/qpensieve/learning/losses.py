"""Pieces that algorithms share: squashed Gaussian, scalarisation, targets, optimiser steps, preferences, agents."""

from collections.abc import Callable
from typing import TypeVar, cast

import jax
import jax.numpy as jnp
import numpy as np
import optax
from jaxtyping import Array, Float, Key

from qpensieve.preferences import Sampler, check_draw, normalize

Tree = TypeVar("Tree")
Aux = TypeVar("Aux")


def scalarize(lam: Float[Array, "*batch d"], q: Float[Array, "*batch d"]) -> Float[Array, "*batch"]:
    """Return lam . q, over the last axis."""
    return jnp.sum(lam * q, axis=-1)


def squash(
    mean: Float[Array, " act"], log_std: Float[Array, " act"], noise: Float[Array, " act"]
) -> tuple[Float[Array, " act"], Float[Array, ""]]:
    """Return the action tanh(u), u = mean + std * noise, and its log-probability (exact, stable log-determinant)."""
    u = mean + jnp.exp(log_std) * noise
    log_normal = -0.5 * jnp.square(noise) - log_std - 0.5 * jnp.log(2.0 * jnp.pi)
    log_det = 2.0 * (jnp.log(2.0) - u - jax.nn.softplus(-2.0 * u))
    return jnp.tanh(u), jnp.sum(log_normal - log_det)


def between_twins(lam: Float[Array, " d"], q: Float[Array, "2 d"], pessimism: float = 1.0) -> Float[Array, " d"]:
    """Return the whole vector of the twin with the smaller lam . Q, instead of the elementwise minimum.

    That twin has the weight `pessimism`, and the other twin has the rest.
    """
    scalar = q @ lam
    is_first = scalar[0] <= scalar[1]
    smaller, other = jnp.where(is_first, q[0], q[1]), jnp.where(is_first, q[1], q[0])
    return smaller if pessimism == 1.0 else other + pessimism * (smaller - other)


def polyak(target: Tree, online: Tree, tau: float) -> Tree:
    """Move `target` a share `tau` of the way to `online`."""
    return jax.tree.map(lambda t, o: t + tau * (o - t), target, online)


def start_optimizer(optimizer: optax.GradientTransformation, model: object) -> optax.OptState:
    """Return the first state of an optimiser. The cast is needed because optax's types do not include modules."""
    return optimizer.init(cast(optax.Params, model))


def gradient_step(
    optimizer: optax.GradientTransformation,
    loss: Callable[[Tree], tuple[Float[Array, ""], Aux]],
    model: Tree,
    state: optax.OptState,
) -> tuple[Tree, optax.OptState, Float[Array, ""], Aux]:
    """Step down `loss`; return the model, the optimiser's state, the loss and its auxiliary result."""
    (value, aux), gradient = jax.value_and_grad(loss, has_aux=True)(model)
    parameters = cast(optax.Params, model)
    updates, state = optimizer.update(gradient, state, parameters)
    return cast(Tree, optax.apply_updates(parameters, updates)), state, value, aux


def sample_preferences(
    key: Key[Array, ""], num: int, num_objectives: int, sampler: Sampler = "uniform-sum"
) -> Float[Array, "m d"]:
    """Draw `num` float32 preferences on the device; all arguments but `key` are static under `jit`."""
    check_draw(num, num_objectives, sampler)
    draw = {"uniform-sum": jax.random.uniform, "dirichlet": jax.random.exponential, "abs-normal": jax.random.normal}
    return normalize(abs(draw[sampler](key, (num, num_objectives), dtype=np.float32)))


A = TypeVar("A")
T = TypeVar("T")


def over_agents(function: Callable[[A], T], args: A) -> T:
    """Apply a function to all agents or critics: at once, or one after the other on a CPU, where this is faster."""
    return jax.lax.map(function, args) if jax.default_backend() == "cpu" else jax.vmap(function)(args)


def flatten(actor: object) -> Float[Array, " parameters"]:
    """Join all leaves to one row, in the order of the policies on the host."""
    return jnp.concatenate([leaf.ravel() for leaf in jax.tree.leaves(actor)])
