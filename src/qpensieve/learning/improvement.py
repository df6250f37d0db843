"""The improvement value of eq. (11), fast: score every candidate without gradients, differentiate only the winner.

The gradient of a maximum is the gradient at its argmax. So all (critic, twin, preference) candidates are scored in one
forward pass, with lam folded into the last layer and the state-action part of the first layer shared by all
preferences. The winner of each sample is picked, and only its gradient by the action is computed, from the activations
of that pass.
`bench/plain.py` holds the plain form: automatic differentiation through the maximum.
"""

from typing import Literal, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int

from qpensieve.learning.nets import Critic, Mlp


class Winner(eqx.Module):
    """Which candidate each sample climbs."""

    critic: Int[Array, " b"]
    twin: Int[Array, " b"]
    preference: Int[Array, " b"]


class _Candidate(eqx.Module):
    """The best preference of one critic for each sample, and what its gradient by the action needs."""

    value: Float[Array, " b"]
    twin: Int[Array, " b"]
    preference: Int[Array, " b"]
    is_first_on: Bool[Array, "b hidden"]
    """Which units of the first layer are above zero."""
    by_second: Float[Array, "b hidden"]
    """Gradient of the value by the second layer's input sums."""


class _Scores(eqx.Module):
    """Scalar values lam . Q of one network under every preference, and the activations behind them."""

    q: Float[Array, "m b"]
    first: Float[Array, "b hidden"]
    """State-action part of the first layer's input sums."""
    shift: Float[Array, "m c hidden"]
    """Their preference part."""
    second: Float[Array, "m b hidden"]
    readout: Float[Array, "c hidden"]
    """The last layer with lam folded in."""


class Choice(NamedTuple):
    """Which candidate a sample climbs: of the critics that exist the largest or median, of values up to a cap."""

    filled: Bool[Array, " k"]
    over_critics: Literal["max", "median"] = "max"
    cap: Float[Array, " b"] | None = None
    """Values above it do not count, but for that of the last critic under lam: one must. None: all do."""


def best_value(
    critics: Critic,
    choice: Choice,
    prefs: Float[Array, "m c d"],
    s: Float[Array, "b obs"],
    a: Float[Array, "b act"],
) -> tuple[Float[Array, " b"], Winner]:
    """Max over critics and `prefs` of the minimum over twins of lam . Q'(s, a; lam'), per sample, lam = prefs[0].

    Args:
        critics: Candidates; leaves lead with [k, 2].
        choice: Which of the k critics exist, and which of them counts.
        prefs: m preferences, one set for the batch (c = 1) or one per sample (c = b); the first is lam itself.
        s: States.
        a: Actions; the result is differentiable by them and by nothing else.
    """
    critics, prefs, s, fixed = jax.lax.stop_gradient((critics, prefs, s, a))
    state_action = jnp.concatenate([s, fixed], axis=1)
    of_critic = lambda given: _best_preference(
        given[0], prefs, state_action, _allowed(choice.cap, given[1], len(prefs))
    )
    # On the CPU one critic after the other, so that its activations stay in the cache; else all at once.
    over_critics = jax.lax.map if jax.default_backend() == "cpu" else lambda f, x: jax.vmap(f)(x)
    candidates = over_critics(of_critic, (critics.net, jnp.arange(len(choice.filled)) == len(choice.filled) - 1))
    critic = _best_critic(jnp.where(choice.filled[:, None], candidates.value, -jnp.inf), choice)
    row = jnp.arange(critic.size)
    best = jax.tree.map(lambda leaf: leaf[critic, row], candidates)
    gradient = _by_action(critics.net, 2 * critic + best.twin, best, s.shape[1], a.shape[1])
    # The same value, with the winner's gradient attached to the action.
    value = best.value + jnp.sum(gradient * (a - fixed), axis=-1)
    return value, Winner(critic, best.twin, best.preference)


def _best_critic(value: Float[Array, "k b"], choice: Choice) -> Int[Array, " b"]:
    """The critic with the largest value, or with the (lower) median of those that count; -inf: it does not."""
    if choice.over_critics == "max":
        return jnp.argmax(value, axis=0).astype(jnp.int32)
    order = jnp.argsort(value, axis=0)
    num = jnp.sum(value > -jnp.inf, axis=0)
    place = len(value) - num + (num - 1) // 2
    return jnp.take_along_axis(order, place[None], axis=0)[0].astype(jnp.int32)


def _allowed(cap: Float[Array, " b"] | None, is_last: Bool[Array, ""], num: int) -> Float[Array, "m b"] | None:
    """The largest value that counts, under each of `num` preferences."""
    if cap is None:
        return None
    is_own = (jnp.arange(num) == 0) & is_last
    return jnp.where(is_own[:, None], jnp.inf, cap[None])


def _best_preference(
    twins: Mlp, prefs: Float[Array, "m c d"], state_action: Float[Array, "b in"], most: Float[Array, "m b"] | None
) -> _Candidate:
    """For each sample, the preference with the largest value of this critic's smaller twin."""
    row = jnp.arange(len(state_action))
    shared = jnp.minimum(row, prefs.shape[1] - 1)  # a set for the whole batch has one row, which every sample reads
    one = _score(jax.tree.map(lambda leaf: leaf[0], twins), prefs, state_action)
    two = _score(jax.tree.map(lambda leaf: leaf[1], twins), prefs, state_action)
    value = jnp.minimum(one.q, two.q)
    if most is not None:
        value = jnp.where(value <= most, value, -jnp.inf)
    best = jnp.argmax(value, axis=0).astype(jnp.int32)
    is_two = (two.q < one.q)[best, row]
    either = lambda x, y: jnp.where(is_two[:, None], y, x)
    first = either(one.first[row] + one.shift[best, shared], two.first[row] + two.shift[best, shared])
    second = either(one.second[best, row], two.second[best, row])
    by_second = jnp.where(second > 0, either(one.readout[shared], two.readout[shared]), 0.0)
    return _Candidate(value[best, row], is_two.astype(jnp.int32), best, first > 0, by_second)


def _score(net: Mlp, prefs: Float[Array, "m c d"], state_action: Float[Array, "b in"]) -> _Scores:
    """Forward pass of one network under every preference, with lam = prefs[0] folded into the last layer."""
    lam, split, m, b = prefs[0], state_action.shape[1], prefs.shape[0], len(state_action)
    first = state_action @ net.first.weight[:split] + net.first.bias[None]
    shift = jnp.einsum("mcd,dh->mch", prefs, net.first.weight[split:])
    hidden = jax.nn.relu(first[None] + shift).reshape(m * b, -1)
    second = (hidden @ net.second.weight + net.second.bias[None]).reshape(m, b, -1)
    readout = lam @ net.last.weight.T
    q = jnp.sum(jax.nn.relu(second) * readout[None], axis=-1) + (lam @ net.last.bias)[None]
    return _Scores(q, first, shift, second, readout)


def _by_action(
    nets: Mlp, net: Int[Array, " b"], best: _Candidate, obs_size: int, action_size: int
) -> Float[Array, "b act"]:
    """Gradient of each sample's winning candidate by the action, through the network `net` of that sample."""
    nets = jax.tree.map(lambda leaf: leaf.reshape(-1, *leaf.shape[2:]), nets)
    n, hidden = nets.second.bias.shape
    # Every sample through its own network: rows of other networks are zero, so one product serves all.
    is_own = net[:, None, None] == jnp.arange(n)[None, :, None]
    spread = jnp.where(is_own, best.by_second[:, None], 0.0).reshape(-1, n * hidden)
    back = jnp.swapaxes(nets.second.weight, 1, 2).reshape(n * hidden, hidden)
    by_first = jnp.where(best.is_first_on, spread @ back, 0.0)
    into_action = nets.first.weight[:, obs_size : obs_size + action_size]
    return jnp.einsum("bh,bah->ba", by_first, into_action[net])
