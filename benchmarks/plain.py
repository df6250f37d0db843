"""Eq. (11) as written: the maximum over the vmapped grid of candidates, differentiated by JAX.

The fast form in `qpensieve.learning.improvement` is compared with this one: tests check that value and gradient are the
same, and the benchmark times both.
"""

from dataclasses import replace
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float

from qpensieve.algos import mosac, qpensieve
from qpensieve.learning.interface import Algorithm, from_one_lane
from qpensieve.learning.nets import Critic, GaussianActor
from qpensieve.learning.snapshots import Snapshots, with_current
from qpensieve.types import EnvSpec


def pensieve_value(
    critics: Critic,
    filled: Bool[Array, " k"],
    prefs: Float[Array, "m d"],
    s: Float[Array, " obs"],
    a: Float[Array, " act"],
) -> Float[Array, ""]:
    """Return the maximum of lam . Q'(s, a; lam') over `prefs` and `critics`, with the smaller twin; lam = prefs[0]."""
    scalar = lambda critic, pref: prefs[0] @ critic(s, a, pref)
    per_pref = jax.vmap(scalar, in_axes=(None, 0))
    per_critic = jax.vmap(jax.vmap(per_pref, in_axes=(0, None)), in_axes=(0, None))
    q = per_critic(critics, prefs).min(axis=1)  # [k, 2, m] -> [k, m]
    return jnp.max(q, where=filled[:, None], initial=-jnp.inf)


def batch_value(
    critics: Critic,
    filled: Bool[Array, " k"],
    prefs: Float[Array, "m d"],
    s: Float[Array, "b obs"],
    a: Float[Array, "b act"],
) -> Float[Array, " b"]:
    """Return `pensieve_value` of every sample, with the arguments of the fast form."""
    return jax.vmap(pensieve_value, in_axes=(None, None, None, 0, 0))(critics, filled, prefs, s, a)


def pensieve_loss(snapshots: Snapshots, actor: GaussianActor, critic: Critic, query: mosac.Query) -> mosac.LossAndAux:
    """Return the policy loss (11) with the plain value."""
    a, logp = mosac.sample_actions(actor, query.s, query.lam, query.noise)
    critics, filled = jax.lax.stop_gradient(with_current(snapshots, critic))
    value = batch_value(critics, filled, query.prefs, query.s, a)
    return jnp.mean(query.weigh(logp) - value), (logp, {})


def make(cfg: qpensieve.QPensieveConfig, spec: EnvSpec) -> Algorithm[Any]:
    """Return Q-Pensieve with the plain loss."""

    def step(state: Any, batch: Any, draws: Any) -> Any:
        sac, info = mosac.step(cfg.sac, state.sac, batch, draws, partial(pensieve_loss, state.snapshots))
        return qpensieve.State(sac, state.snapshots), info

    return replace(qpensieve.make(cfg, spec), learning=from_one_lane(step, partial(qpensieve.draw, cfg)))
