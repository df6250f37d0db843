"""Eq. (11), fast: score every candidate without gradients, then differentiate only the winner.

The gradient of a maximum is the gradient at its argmax. One forward pass scores all candidates (critic, twin,
preference), with lam folded into the last layer. Preferences share the state-action part of the first layer. The
gradient of each sample's winner is computed from the activations of that pass. `benchmarks/plain.py` has the plain
form, which differentiates through the maximum.
"""

from functools import partial
from typing import NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int

from qpensieve.learning.losses import over_agents
from qpensieve.learning.nets import Critic, Mlp

MASKED = 2
"""Most networks for which one product with zeros is as fast on a CPU as products in tiles."""
TILE = 64
"""Rows of a tile."""


class Winner(eqx.Module):
    """The candidate with the largest value of each sample."""

    critic: Int[Array, " b"]
    twin: Int[Array, " b"]
    preference: Int[Array, " b"]


class _Candidate(eqx.Module):
    """The best preference of one critic for each sample, with the activations that its gradient needs."""

    value: Float[Array, " b"]
    twin: Int[Array, " b"]
    preference: Int[Array, " b"]
    is_first_on: Bool[Array, "b hidden"]
    """Whether each unit of the first layer is above zero."""
    by_second: Float[Array, "b hidden"]
    """Gradient of the value by the input sums of the second layer."""


class _Scores(eqx.Module):
    """Scalar values lam . Q of one network under every preference, and the activations behind them."""

    q: Float[Array, "m b"]
    first: Float[Array, "b hidden"]
    """State-action part of the first layer's input sums."""
    shift: Float[Array, "m hidden"]
    """Preference part of the first layer's input sums."""
    second: Float[Array, "m b hidden"]
    readout: Float[Array, " hidden"]
    """The last layer with lam folded in."""


class Eligible(NamedTuple):
    """The candidates that may win."""

    filled: Bool[Array, " k"]
    """Whether each critic exists."""
    margin: float | None = None
    """A value may exceed the own value, that of the last critic under lam, by at most this share of the batch's mean
    size of own values. None: all values may win."""


def best_value(
    critics: Critic,
    eligible: Eligible,
    prefs: Float[Array, "m d"],
    s: Float[Array, "b obs"],
    a: Float[Array, "b act"],
) -> tuple[Float[Array, " b"], Winner]:
    """Return max over critics and `prefs` of min over twins of lam . Q'(s, a; lam'), with lam = prefs[0].

    Args:
        critics: Candidates; leaves lead with [k, 2].
        eligible: The candidates that may win.
        prefs: Preferences; the first is lam itself.
        s: States.
        a: Actions; the result has a gradient by them alone.
    """
    nets, prefs, s, fixed = jax.lax.stop_gradient((critics.net, prefs, s, a))
    score = partial(_score_twins, prefs, jnp.concatenate([s, fixed], axis=1))
    current = score(jax.tree.map(lambda leaf: leaf[-1], nets))
    own = jnp.minimum(current[0].q[0], current[1].q[0])
    most = None if eligible.margin is None else own + eligible.margin * jnp.mean(jnp.abs(own))
    candidates = jax.tree.map(lambda leaf: leaf[None], _best_preference(current, most, is_current=True))
    if len(eligible.filled) > 1:
        # On the CPU one critic after the other: its activations stay in the cache.
        past = jax.tree.map(lambda leaf: leaf[:-1], nets)
        of_past = over_agents(lambda net: _best_preference(score(net), most), past)
        candidates = jax.tree.map(lambda *leaves: jnp.concatenate(leaves), of_past, candidates)
    value = jnp.where(eligible.filled[:, None], candidates.value, -jnp.inf)
    critic = jnp.argmax(value, axis=0).astype(jnp.int32)
    row = jnp.arange(critic.size)
    best = jax.tree.map(lambda leaf: leaf[critic, row], candidates)
    gradient = _by_action(nets, 2 * critic + best.twin, best, s.shape[1], a.shape[1])
    # The same value, with the winner's gradient attached to the action.
    value = best.value + jnp.sum(gradient * (a - fixed), axis=-1)
    return value, Winner(critic, best.twin, best.preference)


def _score_twins(prefs: Float[Array, "m d"], state_action: Float[Array, "b in"], twins: Mlp) -> tuple[_Scores, _Scores]:
    one, two = (_score(jax.tree.map(lambda leaf, i=i: leaf[i], twins), prefs, state_action) for i in range(2))
    return one, two


def _best_preference(
    twins: tuple[_Scores, _Scores], most: Float[Array, " b"] | None, is_current: bool = False
) -> _Candidate:
    """Pick the preference with the largest value for each sample, of values up to `most`.

    The value of the current critic under lam may always win.
    """
    one, two = twins
    value = jnp.minimum(one.q, two.q)
    if most is not None:
        counts = value <= most[None]
        value = jnp.where(counts.at[0].set(True) if is_current else counts, value, -jnp.inf)
    row = jnp.arange(value.shape[1])
    best = jnp.argmax(value, axis=0).astype(jnp.int32)
    is_two = (two.q < one.q)[best, row]
    either = lambda x, y: jnp.where(is_two[:, None], y, x)
    first = either(one.first + one.shift[best], two.first + two.shift[best])
    second = either(one.second[best, row], two.second[best, row])
    by_second = jnp.where(second > 0, either(one.readout[None], two.readout[None]), 0.0)
    return _Candidate(value[best, row], is_two.astype(jnp.int32), best, first > 0, by_second)


def _score(net: Mlp, prefs: Float[Array, "m d"], state_action: Float[Array, "b in"]) -> _Scores:
    """Score one network under every preference, with lam = prefs[0] folded into the last layer."""
    lam, split, m, b = prefs[0], state_action.shape[1], prefs.shape[0], len(state_action)
    first = state_action @ net.first.weight[:split] + net.first.bias[None]
    shift = prefs @ net.first.weight[split:]
    hidden = jax.nn.relu(first[None] + shift[:, None]).reshape(m * b, -1)
    second = (hidden @ net.second.weight + net.second.bias[None]).reshape(m, b, -1)
    readout = net.last.weight @ lam
    return _Scores(jax.nn.relu(second) @ readout + lam @ net.last.bias, first, shift, second, readout)


def _by_action(
    nets: Mlp, net: Int[Array, " b"], best: _Candidate, obs_size: int, action_size: int
) -> Float[Array, "b act"]:
    """Return the gradient of each sample's winner by the action, through the network `net` of that sample."""
    nets = jax.tree.map(lambda leaf: leaf.reshape(-1, *leaf.shape[2:]), nets)
    by_first = jnp.where(best.is_first_on, _back_through_own(best.by_second, nets.second.weight, net), 0.0)
    into_action = nets.first.weight[:, obs_size : obs_size + action_size]
    every = jnp.einsum("bh,nah->bna", by_first, into_action)
    return jnp.take_along_axis(every, net[:, None, None], axis=1)[:, 0]


def _back_through_own(
    x: Float[Array, "b out"], weights: Float[Array, "n in out"], net: Int[Array, " b"]
) -> Float[Array, "b in"]:
    """Multiply every row with the transposed weights of its own network."""
    n = len(weights)
    if n > MASKED and jax.default_backend() == "cpu":
        return in_tiles(x, weights, net)
    # Rows of other networks are zero, so one product serves all.
    is_own = net[:, None, None] == jnp.arange(n)[None, :, None]
    spread = jnp.where(is_own, x[:, None], 0.0).reshape(len(x), -1)
    return spread @ jnp.swapaxes(weights, 1, 2).reshape(spread.shape[1], -1)


def in_tiles(
    x: Float[Array, "b out"], weights: Float[Array, "n in out"], net: Int[Array, " b"]
) -> Float[Array, "b in"]:
    """Multiply rows sorted by network, a tile of one network at a time, so that there are no products with zeros."""
    (n, size, _), b = weights.shape, len(x)
    is_own = net[:, None] == jnp.arange(n)[None]
    tiles = -(-jnp.sum(is_own, axis=0) // TILE)
    end = jnp.cumsum(tiles)
    rank = jnp.cumsum(is_own, axis=0)[jnp.arange(b), net] - 1
    place = (end - tiles)[net] * TILE + rank
    most = (b + n * (TILE - 1)) // TILE
    placed = jnp.zeros((most * TILE, x.shape[1])).at[place].set(x)
    owner = jnp.sum(jnp.arange(most)[:, None] >= end[None], axis=1)

    def multiply(tile: Int[Array, ""], out: Float[Array, "rows in"]) -> Float[Array, "rows in"]:
        rows = jax.lax.dynamic_slice_in_dim(placed, tile * TILE, TILE)
        return jax.lax.dynamic_update_slice_in_dim(out, rows @ weights[owner[tile]].T, tile * TILE, axis=0)

    return jax.lax.fori_loop(0, end[-1], multiply, jnp.zeros((most * TILE, size)))[place]
