"""MO-SAC against loops in NumPy, hand-computed numbers, and the order of its update."""

from dataclasses import replace
from functools import cache, partial
from itertools import combinations
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

from qpensieve.algos import mosac
from qpensieve.learning.interface import Transition
from qpensieve.types import EnvSpec
from tests.algos.problem import (
    BATCH,
    SAC,
    SPEC,
    action_noise,
    assert_trees_close,
    assert_trees_equal,
    mosac_update,
    once,
    preferences,
    question,
    sac_state,
    transitions,
)
from tests.oracles import mosac as oracle
from tests.rounding import assert_same_to_rounding

TWO = EnvSpec("two", 4, 2, ("a", "b"), None, None)

# One compiled program for each function and shape, for all tests.
_soft_target = jax.jit(partial(mosac.soft_target, SAC))
_sample = jax.jit(mosac.sample_actions)
_twin_values = jax.jit(mosac.twin_values)
_critics = jax.jit(jax.value_and_grad(mosac.critic_loss, has_aux=True))
_policy = jax.jit(jax.value_and_grad(mosac.single_preference_loss, has_aux=True))


@cache
def _updated(cfg: mosac.SacConfig) -> Any:
    """The update, compiled once for each configuration."""
    return jax.jit(mosac_update(cfg))


def _draws(cfg: mosac.SacConfig, batch: Transition, seed: int) -> mosac.Draws:
    return once(partial(mosac.draw, cfg, 1))(batch, jax.random.key(seed))


def _target(state: mosac.State, batch: Transition, lam: jax.Array, seed: int) -> np.ndarray:
    return np.asarray(_soft_target(state, batch, lam, action_noise(seed)))


def _expected_target(state: mosac.State, batch: Transition, lam: jax.Array, seed: int) -> np.ndarray:
    noise = action_noise(seed)
    at = question(state.actor, batch.s_next, lam[None], noise)
    return oracle.target(oracle.twins_of(state.target), at, np.asarray(batch.r), np.asarray(batch.terminated), 0.9)


def _lam(seed: int) -> jax.Array:
    """One preference for each sample."""
    return preferences(seed, BATCH)


def test_the_critic_target_is_that_of_the_loops():
    state, batch, lam = sac_state(0), transitions(1), _lam(2)
    y = _target(state, batch, lam, seed=3)
    np.testing.assert_allclose(y, _expected_target(state, batch, lam, seed=3), rtol=1e-5, atol=1e-5)
    ended = np.asarray(batch.terminated) == 1
    np.testing.assert_array_equal(y[ended], np.asarray(batch.r)[ended])
    assert (np.abs(y - np.asarray(batch.r))[~ended] > 1e-3).all()


def test_with_a_pessimism_of_a_half_the_target_is_that_of_the_mean_of_both_twins():
    state, batch, lam = sac_state(0), transitions(1), _lam(2)
    y = jax.jit(partial(mosac.soft_target, replace(SAC, pessimism=0.5)))(state, batch, lam, action_noise(3))
    a_next, logp = _sample(state.actor, batch.s_next, lam, action_noise(3))
    inputs = np.concatenate([batch.s_next, a_next, lam], axis=1)
    q = np.mean([oracle.forward(net, inputs) for net in oracle.twins_of(state.target)], axis=0)
    going_on = SAC.discount * (1 - np.asarray(batch.terminated))[:, None]
    expected = batch.r + going_on * (q - 0.5 * np.asarray(logp)[:, None])
    np.testing.assert_allclose(y, expected, rtol=1e-5, atol=1e-5)


def test_only_an_end_stops_the_bootstrap():
    """A row cut by a time limit has terminated = 0 and counts on."""
    state, batch, lam = sac_state(0), transitions(1), _lam(2)
    cut = replace(batch, terminated=jnp.zeros(BATCH))
    y = _target(state, cut, lam, seed=3)
    np.testing.assert_allclose(y, _expected_target(state, cut, lam, seed=3), rtol=1e-5, atol=1e-5)
    assert (np.abs(y - np.asarray(batch.r)) > 1e-3).all()


def test_no_gradient_flows_into_the_target():
    state, batch, lam = sac_state(0), transitions(1), _lam(2)

    def total(networks):
        actor, target = networks
        moved = replace(state, actor=actor, target=target)
        return jnp.sum(mosac.soft_target(SAC, moved, batch, lam, action_noise(3)))

    assert not any(np.any(leaf) for leaf in jax.tree.leaves(jax.jit(jax.grad(total))((state.actor, state.target))))


def test_the_critic_loss_is_that_of_the_loops():
    state, batch, lam = sac_state(0), transitions(1), _lam(2)
    y = jax.random.normal(jax.random.key(4), (BATCH, 3))
    (loss, _), _ = _critics(state.critic, batch, lam, y)
    expected = oracle.critic_loss(oracle.twins_of(state.critic), batch, np.asarray(lam), np.asarray(y))
    assert float(loss) == pytest.approx(expected, rel=1e-5)


def test_the_policy_loss_is_that_of_the_loops():
    state, batch, prefs = sac_state(0), transitions(1), preferences(2, 1)
    query = mosac.Query(jnp.exp(state.log_alpha), batch.s, prefs, action_noise(3))
    (loss, (logp, _)), _ = _policy(state.actor, state.critic, query)
    at = question(state.actor, batch.s, prefs, action_noise(3))
    expected, expected_logp = oracle.policy_loss([oracle.twins_of(state.critic)], at)
    assert float(loss) == pytest.approx(expected, rel=1e-5)
    assert float(jnp.mean(logp)) == pytest.approx(expected_logp, rel=1e-5)


@pytest.mark.parametrize(("entropy", "direction"), [(-3.0, 1), (-1.0, -1), (-2.0, 0)])
def test_the_temperature_rises_while_the_entropy_is_below_its_target(entropy: float, direction: int):
    slope = jax.grad(lambda x: mosac.temperature_loss(x, jnp.full(5, -entropy), -2.0)[0])(jnp.log(0.3))
    assert float(slope) == pytest.approx(entropy + 2.0)
    assert np.sign(-slope) == direction


def _one_update(cfg: mosac.SacConfig = SAC):
    state, batch = sac_state(0, cfg=cfg), transitions(1)
    new, info = _updated(cfg)(state, batch, jax.random.key(5))
    return state, batch, new, info, _draws(cfg, batch, 5)


def test_the_critics_step_first_and_the_policy_climbs_the_updated_ones():
    state, batch, new, info, draws = _one_update()
    lam = jnp.broadcast_to(draws.prefs[0], batch.r.shape)
    y = _soft_target(state, batch, lam, draws.next_noise)
    (q_loss, _), _ = _critics(state.critic, batch, lam, y)
    assert float(info["critic_loss"]) == pytest.approx(float(q_loss), rel=1e-5)

    query = mosac.Query(jnp.exp(state.log_alpha), batch.s, draws.prefs, draws.noise)
    (against_new, (logp, _)), _ = _policy(state.actor, new.critic, query)
    (against_old, _), _ = _policy(state.actor, state.critic, query)
    assert float(info["policy_loss"]) == pytest.approx(float(against_new), rel=1e-5)
    assert abs(float(against_new) - float(against_old)) > 1e-3
    assert float(info["temperature"]) == pytest.approx(0.5)
    assert float(info["entropy"]) == pytest.approx(-float(jnp.mean(logp)), rel=1e-5)


def test_the_target_of_the_entropy_may_move_on_a_line_that_ends():
    cfg = replace(SAC, target_entropy_end=-3.0, anneal_updates=10)
    np.testing.assert_allclose(
        mosac.annealed(cfg, "target_entropy", jnp.array([0, 5, 10, 11])), [-1.0, -2.0, -3.0, -3.0]
    )
    state, update = sac_state(0, cfg=cfg), _updated(cfg)
    first, later = (update(state, transitions(1), jax.random.key(5), number)[0] for number in (0, 5))
    of_temperature = lambda state: 10.0 * float(state.optimizers.temperature[0].mu)
    assert of_temperature(later) == pytest.approx(of_temperature(first) + SPEC.action_size, rel=1e-4)
    assert_same_to_rounding(later.optimizers.actor, first.optimizers.actor)
    assert cfg.least_target_entropy == -3.0


def test_the_step_size_of_networks_may_move_on_a_line_that_ends():
    cfg = replace(SAC, learning_rate=0.01, learning_rate_end=0.002, anneal_updates=4)
    np.testing.assert_allclose(
        mosac.annealed(cfg, "learning_rate", jnp.array([0, 1, 4, 5])), [0.01, 0.008, 0.002, 0.002], rtol=1e-6
    )
    batch, fixed = transitions(1), lambda rate: replace(SAC, learning_rate=rate)
    updated = lambda cfg, state, seed: _updated(cfg)(state, batch, jax.random.key(seed))[0]
    first = updated(cfg, sac_state(0, cfg=cfg), 5)
    second = updated(cfg, first, 6)
    once = updated(fixed(0.01), sac_state(0, cfg=fixed(0.01)), 5)
    for part in ("actor", "critic", "log_alpha"):
        assert_trees_close(getattr(first, part), getattr(once, part), 1e-6)
    slower, same = (updated(fixed(rate), once, 6) for rate in (0.008, 0.01))
    assert_trees_close(second.critic, slower.critic, 1e-5)  # the policy's loss sees the critics: they come first
    assert_trees_close(second.actor, slower.actor, 1e-5)
    assert float(second.log_alpha) == pytest.approx(float(same.log_alpha), rel=1e-6)  # its own rate stays
    assert abs(float(slower.log_alpha) - float(same.log_alpha)) > 1e-4
    moved = [abs(a - b).max() for a, b in zip(*(map(jax.tree.leaves, (slower.critic, same.critic))), strict=True)]
    assert max(map(float, moved)) > 1e-4


def test_every_update_draws_its_preference_and_both_noises_afresh():
    draw = once(partial(mosac.draw, SAC, 5))
    one, other = (draw(transitions(1), jax.random.key(seed)) for seed in (0, 1))
    assert one.prefs.shape == (5, 3)
    np.testing.assert_allclose(one.prefs.sum(axis=-1), 1.0, rtol=1e-6)
    noises = [np.asarray(noise) for noise in (one.next_noise, one.noise, other.next_noise, other.noise)]
    assert not np.array_equal(one.prefs, other.prefs)
    assert all((a != b).all() for a, b in combinations(noises, 2))


def test_the_sampler_is_the_configured_one():
    """Of two objectives, uniform/sum falls below 0.1 in 1 draw of 18, Dirichlet(1) in 1 of 10."""
    batch = transitions(1, TWO)
    share = {}
    for sampler in ("uniform-sum", "dirichlet"):
        prefs = mosac.draw(replace(SAC, sampler=sampler), 20_000, batch, jax.random.key(0)).prefs
        share[sampler] = float(jnp.mean((prefs[..., 0] < 0.1).astype(jnp.float32)))
    assert share["uniform-sum"] == pytest.approx(1 / 18, abs=0.005)
    assert share["dirichlet"] == pytest.approx(1 / 10, abs=0.006)


def test_the_first_state_has_two_different_twins_and_a_target_equal_to_them():
    state = mosac.init(SAC, SPEC, jax.random.key(0))
    assert_trees_equal(state.target, state.critic)
    weights = state.critic.net.first.weight
    assert weights.shape == (2, 9, 16)
    assert not np.array_equal(weights[0], weights[1])
    assert float(state.log_alpha) == 0.0


def test_a_temperature_per_preference_is_a_line_in_its_logarithm_and_learns_where_it_was_asked():
    log_alpha, lam = jnp.log(jnp.array([0.1, 0.5, 2.0])), jnp.array([[1.0, 0, 0], [0, 0.5, 0.5]])
    np.testing.assert_allclose(mosac.temperature(log_alpha, lam), [0.1, 1.0], rtol=1e-6)
    logp = jnp.array([3.0, 0.0])  # entropies -3 and 0 beside a target of -2: the first must rise, the second fall
    slope = jax.grad(lambda x: mosac.temperature_loss(x, logp, -2.0, lam)[0])(log_alpha)
    np.testing.assert_allclose(slope, [-0.5 * 1.0, 0.5 * 0.5 * 2.0, 0.5 * 0.5 * 2.0], rtol=1e-6)


def test_with_guards_the_temperature_rises_at_once_where_entropy_is_missing():
    """The gradient of the policy is that of a temperature times exp(3 x what is missing), which has no gradient."""
    state, batch, lam = sac_state(0), transitions(1), _lam(2)
    narrow = eqx.tree_at(lambda s: s.actor.net.last.bias, state, state.actor.net.last.bias.at[2:].add(-3.0))
    ask = lambda alpha, guards=False, target=-2.0: mosac.Query(alpha, batch.s, lam[:1], action_noise(4), target, guards)
    slope = jax.jit(jax.grad(lambda actor, query: mosac.single_preference_loss(actor, state.critic, query)[0]))
    _, logp = _sample(narrow.actor, batch.s, jnp.repeat(lam[:1], BATCH, 0), action_noise(4))
    lack = (float(jnp.mean(logp)) - 2.0) / 2
    assert 0.1 < lack < 0.9
    half = jnp.full((), 0.5)
    answered = slope(narrow.actor, ask(half, guards=True))
    assert_trees_close(answered, slope(narrow.actor, ask(half * np.exp(3.0 * lack))), 1e-5)
    most = slope(narrow.actor, ask(half, guards=True, target=9.0))
    assert_trees_close(most, slope(narrow.actor, ask(half * np.exp(3.0))), 1e-5)
    enough = slope(narrow.actor, ask(half, guards=True, target=-9.0))
    assert_same_to_rounding(enough, slope(narrow.actor, ask(half)))


GUARDED = replace(SAC, guards=True)


def test_guards_change_the_step_and_leave_the_rest_of_it_alone():
    plain, _ = _updated(SAC)(sac_state(0), transitions(1), jax.random.key(3))
    first = jax.jit(partial(mosac.init, GUARDED, SPEC))(jax.random.key(0))
    assert first.log_alpha.shape == (SPEC.num_objectives,)
    # The same networks, and a temperature that is the same for all preferences.
    of = lambda state: (state.actor, state.critic, state.target, state.log_alpha)
    same = eqx.tree_at(of, first, (*of(sac_state(0))[:3], jnp.full(3, jnp.log(0.5))))
    new, _ = _updated(GUARDED)(same, transitions(1), jax.random.key(3))
    r = np.asarray(transitions(1).r)
    np.testing.assert_allclose(new.rewards.low, np.minimum(r.min(axis=0), 0.0))
    np.testing.assert_allclose(new.rewards.high, np.maximum(r.max(axis=0), 0.0))
    # Adam's first step does not depend on the length of the gradient, its moments do.
    assert len(set(np.asarray(new.optimizers.temperature[0].mu).tolist())) == 3
    length = lambda state: float(optax.tree.norm(state.mu.net))
    clipped, first_moment = new.optimizers.critic[1][0], plain.optimizers.critic[0]
    np.testing.assert_allclose(length(clipped), length(first_moment), rtol=0.05)  # targets are bounded, not clipped yet
    low = eqx.tree_at(lambda s: s.optimizers.critic[0].median, same, jnp.full((), -3.0))
    after = _updated(GUARDED)(low, transitions(1), jax.random.key(3))[0].optimizers.critic[1][0]
    np.testing.assert_allclose(length(after), 0.1 * 3.0 * np.exp(-3.0 + 0.002), rtol=1e-3)


def test_targets_are_bounded_by_the_rewards_of_the_batch_they_are_in():
    state = replace(sac_state(0), rewards=mosac.start_reward_range(3))
    wild = eqx.tree_at(lambda s: s.target, state, jax.tree.map(lambda leaf: 100.0 * leaf, state.target))
    y = _soft_target(wild, transitions(1), _lam(2), action_noise(3))
    most = 10 * 0.5 * SPEC.action_size
    assert np.asarray(y).max() <= most * np.log(2) + 1e-3
    assert np.asarray(y).min() >= -2 * most - 1e-3
    free = _soft_target(replace(wild, rewards=None), transitions(1), _lam(2), action_noise(3))
    assert np.abs(np.asarray(free)).max() > 1e3


# Diagnostics


@pytest.mark.parametrize("d", [2, 3, 5])
def test_preferences_are_spread_over_the_bins_of_the_first_objective(d: int):
    lam = np.asarray(once(lambda key: mosac.spread_preferences(key, 500, d))(jax.random.key(0)))
    np.testing.assert_allclose(lam.sum(axis=1), 1.0, rtol=1e-5)
    assert (lam >= 0).all()
    np.testing.assert_array_equal(np.floor(lam[:, 0] * 5), np.arange(500) % 5)
    assert 0.45 < lam[:, 0].mean() < 0.55
    if d > 2:  # the rest is shared evenly in the mean
        np.testing.assert_allclose(lam[:, 1:].mean(axis=0), (1 - lam[:, 0].mean()) / (d - 1), rtol=0.15)


def test_means_by_bin_peaks_and_shares_by_hand():
    values = jnp.arange(12.0)
    assert {name: float(v) for name, v in mosac.by_bin("q", values).items()} == {
        "q_bin_1": 5.0,
        "q_bin_2": 6.0,
        "q_bin_3": 4.5,
        "q_bin_4": 5.5,
        "q_bin_5": 6.5,
    }
    gradient, errors = {"w": jnp.array([3.0]), "b": jnp.array([4.0])}, jnp.array([[1.0, -2.0], [3.0, 4.0]])
    seen = once(mosac.update_diagnostics)(gradient, errors, jnp.array([[0.995, -0.5], [-1.0, 0.98]]))
    expected = {"critic_gradient_max": 5.0, "td_error_1": 2.0, "td_error_2": 3.0, "saturation": 0.5}
    assert {name: float(v) for name, v in seen.items()} == expected


def test_diagnostics_are_those_of_the_parts_they_are_made_of():
    state, batch = sac_state(0), transitions(1)
    seen = once(partial(mosac.inspect, SAC))(state, batch, jax.random.key(5))

    def drawn(key: Any) -> Any:
        key_lam, key_next, key_now = jax.random.split(key, 3)
        noises = (jax.random.normal(key, (BATCH, SPEC.action_size)) for key in (key_next, key_now))
        return mosac.spread_preferences(key_lam, BATCH, 3), *noises

    lam, next_noise, noise = once(drawn)(jax.random.key(5))
    y = _soft_target(state, batch, lam, next_noise)
    errors = np.abs(np.asarray(_twin_values(state.critic, batch.s, batch.a, lam)[0] - y))
    np.testing.assert_allclose([seen[f"td_error_{i}"] for i in (1, 2, 3)], errors.mean(axis=0), rtol=1e-4)
    a, logp = _sample(state.actor, batch.s, lam, noise)
    smaller = (np.asarray(_twin_values(state.critic, batch.s, a, lam)) * np.asarray(lam)).sum(axis=-1).min(axis=0)
    np.testing.assert_allclose(seen["q_bin_2"], smaller[1::5].mean(), rtol=1e-4)
    np.testing.assert_allclose(seen["entropy_bin_5"], -np.asarray(logp)[4::5].mean(), rtol=1e-4)
    squares = [np.sum(np.square(leaf)) for leaf in jax.tree.leaves(_critics(state.critic, batch, lam, y)[1])]
    np.testing.assert_allclose(seen["critic_gradient_max"], np.sqrt(sum(squares)), rtol=1e-4)
