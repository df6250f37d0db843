"""Hybrid SAC: SAC until there is help, then never below its own value; the helper is Q-Pensieve."""

from dataclasses import replace
from functools import cache, partial
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy import stats

from qpensieve.algos import hybrid_sac, mosac, qpensieve, sac
from qpensieve.algos.hybrid_sac import HybridConfig, Offer
from qpensieve.algos.qpensieve import QPensieveConfig
from qpensieve.learning.losses import sample_preferences
from qpensieve.train.learner import Block, make_learner
from tests.algos.problem import (
    BATCH,
    LAYOUT,
    SAC,
    SPEC,
    action_noise,
    assert_trees_equal,
    once,
    pensieve_state,
    pensieve_update,
    random_like,
    sac_update,
    transitions,
)
from tests.rounding import assert_same_to_rounding

LAM = jnp.array([0.5, 0.3, 0.2])
PENSIEVE = QPensieveConfig(sac=SAC, num_preferences=3, num_snapshots=2, push_after=0, push_period=10)
CFG = HybridConfig(("0.5,0.3,0.2",), switch_after=10, pensieve=PENSIEVE)


@cache
def _init(cfg: HybridConfig) -> hybrid_sac.State:
    return once(partial(hybrid_sac.init, cfg, SPEC))(jax.random.key(0), LAM)


@cache
def _step(cfg: HybridConfig) -> Any:
    draw = partial(hybrid_sac.draw, cfg)
    return jax.jit(lambda state, both, key, number: hybrid_sac.step(cfg, state, both, draw(both, key, number)))


def _both(i: int) -> Any:
    return transitions(i), transitions(50 + i)


def _run(cfg: HybridConfig, num: int, state: hybrid_sac.State | None = None, before: int = 0) -> hybrid_sac.State:
    now = state or _init(cfg)
    for i in range(num):
        now, _ = _step(cfg)(now, _both(i), jax.random.key(i), before + i)
    return now


@cache
def _sac_alone(num: int) -> sac.State:
    if num == 0:
        return once(partial(sac.init, CFG.single, SPEC))(jax.random.key(0), LAM)
    return _sac_step(_sac_alone(num - 1), transitions(num - 1), jax.random.key(num - 1))[0]


_sac_step = jax.jit(sac_update(CFG.single))
_draw = jax.jit(partial(hybrid_sac.draw, CFG))
_shared = jax.jit(hybrid_sac.shared_loss)


def _with_snapshots(state: hybrid_sac.State) -> hybrid_sac.State:
    """The same, with high-valued snapshots."""
    ring = pensieve_state(3, 2, 2).snapshots
    ring = eqx.tree_at(lambda ring: ring.critics.net.last.bias, ring, replace_fn=lambda bias: bias + 100.0)
    return replace(state, helper=replace(state.helper, snapshots=ring))


def _own(before: int, state: hybrid_sac.State) -> sac.State:
    """The SAC after one update, the number of updates `before` given: at 10 the switch is reached."""
    return _run(CFG, 1, state, before).own


def test_hybrid_sac_without_filled_snapshots_is_sac():
    assert_same_to_rounding(_run(CFG, 3).own, _sac_alone(3))


def test_without_snapshots_the_switch_changes_nothing():
    assert_trees_equal(_own(9, _init(CFG)), _own(10, _init(CFG)))


def test_before_the_switch_snapshots_change_nothing():
    assert_trees_equal(_own(9, _with_snapshots(_init(CFG))), _own(9, _init(CFG)))


def test_from_the_switch_on_only_the_policy_climbs_the_snapshots():
    helped, alone = _own(10, _with_snapshots(_init(CFG))), _own(10, _init(CFG))
    assert_trees_equal((helped.critic, helped.target), (alone.critic, alone.target))
    moved = np.abs(np.asarray(helped.actor.net.last.weight) - np.asarray(alone.actor.net.last.weight))
    assert moved.max() > 1e-4


def test_the_sac_forgets_the_snapshots_after_the_switch_and_its_helper_from_the_start():
    fading = replace(CFG, pensieve=replace(PENSIEVE, memory_updates=10))
    state = _with_snapshots(_init(CFG))
    of = lambda cfg, number: _run(cfg, 1, state, number).own
    assert_trees_equal(of(fading, 10), of(CFG, 10))  # no memory has faded at the switch
    assert_trees_equal(of(fading, 20), of(CFG, 9))  # all of it has, so the SAC learns as before the switch
    draws = jax.jit(partial(hybrid_sac.draw, fading))(_both(0), jax.random.key(0), 10)
    assert not draws.helper.has_memory


def test_the_helper_is_the_qpensieve_run_of_that_seed():
    state = _init(CFG).helper
    start = once(partial(qpensieve.init, PENSIEVE, SPEC))(jax.random.key(0))
    assert_same_to_rounding(state, start)
    step = jax.jit(pensieve_update(PENSIEVE))
    for i in range(3):
        state, _ = step(state, transitions(50 + i), jax.random.key(i))
    assert_same_to_rounding(_run(CFG, 3).helper, state)


def _offer(seed: int, filled: int = 2) -> Offer:
    ring = pensieve_state(seed, 2, filled).snapshots
    prefs = hybrid_sac.offered_preferences(LAM, sample_preferences(jax.random.key(seed), 2, 3))
    return Offer(ring, prefs, jnp.asarray(True))


def _query(seed: int) -> sac.Query:
    return sac.Query(jnp.asarray(0.5), transitions(seed).s, LAM, action_noise(seed))


def test_the_loss_takes_per_sample_the_best_of_own_value_and_every_snapshot_and_preference():
    offer, query = _offer(1), _query(2)
    own = random_like(_init(CFG).own, 5)
    loss, (logp, info) = _shared(offer, own.actor, own.critic, query)
    a, their_logp = jax.jit(sac.sample_actions)(own.actor, query.s, action_noise(2))
    best = np.asarray(sac.own_value(own.critic, query.s, a))
    candidates = [best]
    for k in range(2):
        critic = jax.tree.map(lambda leaf, k=k: leaf[k], offer.snapshots.critics)
        for pref in offer.prefs:
            q = mosac.twin_values(critic, query.s, a, jnp.broadcast_to(pref, (BATCH, 3)))
            candidates.append((np.asarray(q) @ np.asarray(LAM)).min(axis=0))
    expected = np.mean(0.5 * np.asarray(their_logp) - np.max(candidates, axis=0))
    np.testing.assert_allclose(loss, expected, rtol=1e-4)
    np.testing.assert_allclose(logp, their_logp, rtol=1e-5, atol=1e-6)
    assert 0.0 < float(info["snapshot_share"]) <= 1.0
    assert float(info["snapshot_share"]) == pytest.approx(np.mean(np.max(candidates[1:], axis=0) > best))


def test_snapshots_and_critics_get_no_gradient_and_the_policy_does():
    own = random_like(_init(CFG).own, 1)
    loss = lambda offer, actor, critic: hybrid_sac.hybrid_loss(offer, actor, critic, _query(1))[0]
    offer = _offer(1)
    by_critics = lambda critics, actor, critic: loss(
        replace(offer, snapshots=replace(offer.snapshots, critics=critics)), actor, critic
    )
    gradients = jax.jit(jax.grad(by_critics, argnums=(0, 1, 2)))(offer.snapshots.critics, own.actor, own.critic)
    biggest = [max(float(np.abs(leaf).max()) for leaf in jax.tree.leaves(g)) for g in gradients]
    assert biggest[0] == 0.0
    assert biggest[1] > 1e-3
    assert biggest[2] == 0.0


def test_lam_itself_is_offered_first_and_the_others_are_fresh():
    all_draws = [_draw(_both(0), jax.random.key(seed)) for seed in (0, 1)]
    prefs, other = (hybrid_sac.offered_preferences(LAM, draws.others) for draws in all_draws)
    assert prefs.shape == (3, 3)
    np.testing.assert_array_equal(prefs[0], LAM)
    np.testing.assert_allclose(prefs.sum(axis=1), 1.0, rtol=1e-6)
    assert (prefs[1:] != other[1:]).all()


def test_the_offered_preferences_share_no_key_with_the_noise_of_either_half():
    """A number from 0 to 1 and a normal one that were drawn with one key are each other's quantiles."""
    draws = _draw(_both(0), jax.random.key(0))
    noises = (draws.own.next_noise, draws.own.noise, draws.helper.next_noise, draws.helper.noise)
    for noise in noises:
        quantiles = stats.norm.cdf(np.ravel(noise)[: draws.others.size].reshape(draws.others.shape))
        assert np.abs(quantiles / quantiles.sum(axis=1, keepdims=True) - draws.others).max() > 0.01
    assert np.abs(draws.others - draws.helper.prefs[:2]).max() > 0.01


@pytest.mark.slow
def test_in_the_loop_both_halves_are_the_runs_they_would_be_alone():
    """Same seed, same block: the SAC is `sac`'s until the switch, the helper `qpensieve`'s throughout."""
    block = np.random.default_rng(0).normal(size=(2, 3, LAYOUT.width)).astype(np.float32)
    cfg = replace(CFG, switch_after=1000)
    algorithms = (hybrid_sac.make(cfg, SPEC), sac.make(cfg.single, SPEC), qpensieve.make(PENSIEVE, SPEC))
    learners = [make_learner(algorithm, LAYOUT, 64) for algorithm in algorithms]
    states = [learner.init(jnp.array([7])) for learner in learners]
    for i, lanes in enumerate((block, block[:1], block[1:])):
        states[i], _, _ = learners[i].learn(states[i], Block(jnp.asarray(lanes)))
    both, own, helper = (state.agent for state in states)
    assert_same_to_rounding(both.own, own)
    assert_same_to_rounding(both.helper, helper)


def test_the_snapshot_is_pushed_when_qpensieve_would():
    state = _run(CFG, 3)
    end = jax.jit(partial(hybrid_sac.end_block, CFG))
    assert not np.asarray(end(state, jnp.asarray(5)).helper.snapshots.filled).any()
    pushed = end(state, jnp.asarray(10)).helper.snapshots
    assert np.asarray(pushed.filled).tolist() == [True, False]
    assert_trees_equal(jax.tree.map(lambda leaf: leaf[0], pushed.critics), state.helper.sac.critic)


def test_only_the_figures_domains_have_preferences_of_their_own():
    with pytest.raises(ValueError, match=r"preferences must be given for test: .* for DST2d and HalfCheetah2d only"):
        hybrid_sac.make(replace(CFG, preferences=()), SPEC)
    dst = replace(SPEC, id="DST2d", objectives=("treasure", "time"))
    np.testing.assert_array_equal(
        hybrid_sac.make(replace(CFG, preferences=()), dst).preferences, [[0.9, 0.1], [0.8, 0.2]]
    )
