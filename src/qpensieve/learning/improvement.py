"""The improvement value of eq. (11), fast: score every candidate without gradients, differentiate only the winner.

The gradient of a maximum is the gradient at its argmax. So all (critic, twin, preference) candidates are scored in one
forward pass, with lam folded into the last layer and the state-action part of the first layer shared by all
preferences. The winner of each sample is picked, and only its gradient by the action is computed, from the activations
of that pass.
Of critics that are no `Mlp` the winner's gradient comes from automatic differentiation (`best_value_of_any`).
`bench/plain.py` holds the plain form: automatic differentiation through the maximum.
"""

from collections.abc import Callable
from functools import partial
from typing import Any, Literal, NamedTuple

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
    if not isinstance(critics.net, Mlp):
        return best_value_of_any(critics, choice, prefs, s, a)
    nets, prefs, s, fixed = jax.lax.stop_gradient((critics.net, prefs, s, a))
    state_action = jnp.concatenate([s, fixed], axis=1)
    of_critic = lambda given: _best_preference(
        given[0], prefs, state_action, _allowed(choice.cap, given[1], len(prefs))
    )
    candidates = _over_critics(of_critic, (nets, _is_last(choice)))
    critic = _best_critic(jnp.where(choice.filled[:, None], candidates.value, -jnp.inf), choice)
    row = jnp.arange(critic.size)
    best = jax.tree.map(lambda leaf: leaf[critic, row], candidates)
    gradient = _by_action(nets, 2 * critic + best.twin, best, s.shape[1], a.shape[1])
    # The same value, with the winner's gradient attached to the action.
    value = best.value + jnp.sum(gradient * (a - fixed), axis=-1)
    return value, Winner(critic, best.twin, best.preference)


def best_value_of_any(
    critics: Critic,
    choice: Choice,
    prefs: Float[Array, "m c d"],
    s: Float[Array, "b obs"],
    a: Float[Array, "b act"],
) -> tuple[Float[Array, " b"], Winner]:
    """`best_value` of critics with any network: scored by a forward pass, the winner's gradient by JAX.

    A sample's gradient is taken of all networks under its winning preference, times 1 for the winner and 0 for the
    others: to read the winner's weights sample by sample would take more memory than that takes time.
    """
    critics, prefs, s, fixed = jax.lax.stop_gradient((critics, prefs, s, a))
    lam, row = prefs[0], jnp.arange(len(s))
    values = lambda prefs, a: _values(critics, lam, prefs, s, a)
    if len(prefs) == 1:  # the pass that scores is that of the winners too
        q, back = jax.vjp(partial(values, prefs), fixed)
        best, winner = _choose(q, choice)
    else:
        best, winner = _choose(values(prefs, fixed), choice)
        won = prefs[winner.preference, jnp.minimum(row, prefs.shape[1] - 1)]
        q, back = jax.vjp(partial(values, won[None]), fixed)
    is_winner = jnp.zeros_like(q).at[winner.critic, winner.twin, 0, row].set(1.0)
    (gradient,) = back(is_winner)
    # The same value, with the winner's gradient attached to the action.
    return best + jnp.sum(gradient * (a - fixed), axis=-1), winner


Judge = Callable[[Float[Array, "k m b"]], Float[Array, "k m b"]]
"""Values of all candidates of a batch -> what the choice compares; -inf: this candidate does not count."""


class Offer(NamedTuple):
    """Candidates: critics, the preferences that each of them is read under, and lam, which weighs the objectives."""

    critics: Critic
    """Leaves lead with [k, 2]."""
    prefs: Float[Array, "k m c d"]
    """One set for the batch (c = 1) or one per sample (c = b)."""
    lam: Float[Array, "c d"]


def judged_value(
    offer: Offer, judge: Judge, s: Float[Array, "b obs"], a: Float[Array, "b act"]
) -> tuple[Float[Array, " b"], Winner]:
    """The judged value of each sample's best candidate, with the gradient of that candidate's own value.

    Every critic has its own list of preferences, and `judge` sees the values of the whole batch. The activations of all
    candidates are kept until the choice is made, so this form is for few candidates.

    Args:
        offer: The candidates.
        judge: What the choice compares; it must let at least one candidate of each sample count.
        s: States.
        a: Actions; the result is differentiable by them and by nothing else.
    """
    offer, s, fixed = jax.lax.stop_gradient((offer, s, a))
    find = _judged_gradient if isinstance(offer.critics.net, Mlp) else _judged_gradient_of_any
    best, gradient, winner = find(offer, judge, s, fixed)
    return best + jnp.sum(gradient * (a - fixed), axis=-1), winner


_Found = tuple[Float[Array, " b"], Float[Array, "b act"], Winner]
"""Judged value of each winner, the gradient of its value by the action, and which candidate it is."""


def _judged_gradient(offer: Offer, judge: Judge, s: Float[Array, "b obs"], a: Float[Array, "b act"]) -> _Found:
    nets, prefs, lam, row = offer.critics.net, offer.prefs, offer.lam, jnp.arange(len(s))
    assert isinstance(nets, Mlp)
    state_action = jnp.concatenate([s, a], axis=1)
    of_twins = jax.vmap(lambda net, prefs: _score(net, lam, prefs, state_action), in_axes=(0, None))
    found = _over_critics(lambda given: of_twins(*given), (nets, prefs))
    best, winner = _pick(found.q, judge)
    k, twin, m, shared = winner.critic, winner.twin, winner.preference, jnp.minimum(row, len(lam) - 1)
    first = found.first[k, twin, row] + found.shift[k, twin, m, shared]
    by_second = jnp.where(found.second[k, twin, m, row] > 0, found.readout[k, twin, shared], 0.0)
    candidate = _Candidate(best, twin, m, first > 0, by_second)
    return best, _by_action(nets, 2 * k + twin, candidate, s.shape[1], a.shape[1]), winner


def _judged_gradient_of_any(offer: Offer, judge: Judge, s: Float[Array, "b obs"], a: Float[Array, "b act"]) -> _Found:
    alone = lambda critic: jax.tree.map(lambda leaf: leaf[None], critic)
    of_critic = lambda critic, prefs, a: _values(alone(critic), offer.lam, prefs, s, a)[0]
    q, back = jax.vjp(lambda a: jax.vmap(of_critic, in_axes=(0, 0, None))(offer.critics, offer.prefs, a), a)
    best, winner = _pick(q, judge)
    place = (winner.critic, winner.twin, winner.preference, jnp.arange(len(s)))
    (gradient,) = back(jnp.zeros_like(q).at[place].set(1.0))
    return best, gradient, winner


def _pick(q: Float[Array, "k 2 m b"], judge: Judge) -> tuple[Float[Array, " b"], Winner]:
    """The candidate that `judge` prefers, sample by sample; twins by minimum."""
    judged = judge(jnp.minimum(q[:, 0], q[:, 1]))
    row, m = jnp.arange(q.shape[3]), q.shape[2]
    place = jnp.argmax(judged.reshape(-1, len(row)), axis=0).astype(jnp.int32)
    critic, preference = place // m, place % m
    twin = (q[critic, 1, preference, row] < q[critic, 0, preference, row]).astype(jnp.int32)
    return judged[critic, preference, row], Winner(critic, twin, preference)


def _choose(q: Float[Array, "k 2 m b"], choice: Choice) -> tuple[Float[Array, " b"], Winner]:
    """The value and place of each sample's winner: the best preference of every critic, then the best critic."""
    value, row = jnp.minimum(q[:, 0], q[:, 1]), jnp.arange(q.shape[3])
    if choice.cap is not None:
        most = jax.vmap(_allowed, in_axes=(None, 0, None))(choice.cap, _is_last(choice), q.shape[2])
        assert most is not None
        value = jnp.where(value <= most, value, -jnp.inf)
    preference = jnp.argmax(value, axis=1).astype(jnp.int32)
    of_critic = jnp.take_along_axis(value, preference[:, None], axis=1)[:, 0]
    critic = _best_critic(jnp.where(choice.filled[:, None], of_critic, -jnp.inf), choice)
    best = preference[critic, row]
    twin = (q[critic, 1, best, row] < q[critic, 0, best, row]).astype(jnp.int32)
    return of_critic[critic, row], Winner(critic, twin, best)


def _values(
    critics: Critic,
    lam: Float[Array, "c d"],
    prefs: Float[Array, "m c2 d"],
    s: Float[Array, "b obs"],
    a: Float[Array, "b act"],
) -> Float[Array, "k 2 m b"]:
    """Values lam . Q(s, a; pref) of every critic, twin, preference and sample."""
    every = jnp.broadcast_to(prefs, (len(prefs), len(s), prefs.shape[2]))
    over_batch = jax.vmap(lambda critic, *inputs: critic(*inputs), in_axes=(None, 0, 0, 0))
    over_prefs = jax.vmap(over_batch, in_axes=(None, None, None, 0))
    over_twins = jax.vmap(over_prefs, in_axes=(0, None, None, None))
    scalar = lambda twins: jnp.sum(over_twins(twins, s, a, every) * lam[None, None], axis=-1)
    return _over_critics(scalar, critics)


def _over_critics(of_critic: Callable[[Any], Any], critics: Any) -> Any:
    """On the CPU one critic after the other, so that its activations stay in the cache; else all at once."""
    return jax.lax.map(of_critic, critics) if jax.default_backend() == "cpu" else jax.vmap(of_critic)(critics)


def _is_last(choice: Choice) -> Bool[Array, " k"]:
    return jnp.arange(len(choice.filled)) == len(choice.filled) - 1


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
    one = _score(jax.tree.map(lambda leaf: leaf[0], twins), prefs[0], prefs, state_action)
    two = _score(jax.tree.map(lambda leaf: leaf[1], twins), prefs[0], prefs, state_action)
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


def _score(
    net: Mlp, lam: Float[Array, "c d"], prefs: Float[Array, "m c d"], state_action: Float[Array, "b in"]
) -> _Scores:
    """Forward pass of one network under every preference, with lam folded into the last layer."""
    split, m, b = state_action.shape[1], prefs.shape[0], len(state_action)
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
