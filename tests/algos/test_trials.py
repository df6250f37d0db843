"""Settings on trial: each does what it says, and nothing while it is off."""

from dataclasses import replace
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from qpensieve.algos import mosac, qpensieve
from qpensieve.algos.qpensieve import QPensieveConfig
from qpensieve.learning import trials
from qpensieve.learning.losses import flatten
from tests.algos.problem import (
    BATCH,
    SAC,
    SPEC,
    action_noise,
    assert_trees_close,
    assert_trees_equal,
    mosac_update,
    preferences,
    question,
    sac_state,
    transitions,
)
from tests.oracles import mosac as oracle


@pytest.mark.parametrize("cost", [2.0, 4.0])
def test_an_end_costs_mean_sizes_of_the_targets_of_each_objective(cost: float):
    state, batch, lam, noise = sac_state(0), transitions(1), preferences(2, BATCH), action_noise(3)
    y = jax.jit(partial(mosac.soft_target, replace(SAC, end_cost=cost)))(state, batch, lam, noise)
    ends = np.asarray(batch.terminated)
    at = question(state.actor, batch.s_next, lam[None], noise)
    expected = oracle.target(oracle.twins_of(state.target), at, np.asarray(batch.r), ends, 0.9)
    sizes = [sum(abs(expected[i, j]) for i in range(BATCH)) / BATCH for j in range(3)]
    for i in range(BATCH):
        for j in range(3):
            expected[i, j] -= 0.9 * cost * sizes[j] if ends[i] else 0.0  # not where a time limit cut
    np.testing.assert_allclose(y, expected, rtol=1e-5, atol=1e-5)
    assert 0 < ends.sum() < BATCH


def _updated(cfg: mosac.SacConfig, first: Any, num: int = 3) -> list[Any]:
    update, states = jax.jit(mosac_update(cfg)), [first]
    for i in range(num):
        states.append(update(states[-1], transitions(i), jax.random.key(i), i)[0])
    return states


def _first(cfg: mosac.SacConfig) -> mosac.State:
    return jax.jit(partial(mosac.init, cfg, SPEC))(jax.random.key(0))


def test_the_average_follows_the_policy_and_acts_in_evaluations():
    cfg = replace(SAC, actor_average=0.25)
    states = _updated(cfg, _first(cfg))
    assert_trees_equal(states[-1].actor, _updated(SAC, _first(SAC))[-1].actor)
    expected = states[0].actor
    for state in states[1:]:
        expected = jax.tree.map(lambda one, new: 0.75 * one + 0.25 * new, expected, state.actor)
    assert_trees_close(states[-1].average, expected, 1e-5)
    algorithm = mosac.make(cfg, SPEC)
    policy = algorithm.acting.policy(np.asarray(flatten(algorithm.actor(states[-1])))[None])
    given = transitions(5).s, preferences(5, BATCH)
    s, lam = (np.asarray(x)[None] for x in given)
    mean = lambda actor: np.tanh(actor(*given)[0])
    np.testing.assert_allclose(policy.exploit(s, lam)[0], mean(states[-1].average), atol=1e-5)
    explored = policy.explore(s, lam, np.zeros((1, BATCH, 2), np.float32), 0)
    np.testing.assert_allclose(explored[0], mean(states[-1].actor), atol=1e-5)
    assert np.abs(mean(states[-1].average) - mean(states[-1].actor)).max() > 1e-3


def test_the_policy_learns_in_every_second_update_with_the_step_size_of_that_update():
    cfg = replace(SAC, policy_period=2, learning_rate_end=1e-4, anneal_updates=4)
    zero, one, two, three = _updated(cfg, _first(cfg))
    kept = lambda state: (state.actor, state.log_alpha, state.optimizers.actor, state.optimizers.temperature)
    assert_trees_equal(kept(one), kept(two))
    for before, after in ((zero, one), (one, two), (two, three)):
        moved = jax.tree.map(lambda a, b: np.abs(a - b).max(), before.critic, after.critic)
        assert min(jax.tree.leaves(moved)) > 0
    moved = lambda before, after: np.abs(np.asarray(after.actor.net.last.bias - before.actor.net.last.bias)).max()
    assert moved(zero, one) == pytest.approx(1e-2, rel=1e-2)  # Adam's first step
    every = _updated(replace(cfg, policy_period=1), _first(cfg))
    assert_trees_equal(every[1].actor, one.actor)
    assert 0 < moved(two, three) < 1.5 * (0.5 * 1e-2)  # halfway down the line


def test_normalised_observations_are_those_of_all_batches():
    cfg = replace(SAC, normalize=True)
    states = _updated(cfg, _first(cfg))
    every = np.concatenate([transitions(i).s for i in range(3)])
    np.testing.assert_allclose(states[-1].seen.mean, every.mean(axis=0), atol=1e-3)
    np.testing.assert_allclose(trials.deviation(states[-1].seen), every.std(axis=0), rtol=1e-3)
    # The same update without the setting, on a batch that was normalised by hand.
    s = np.asarray(transitions(0).s)
    by_hand = lambda x: jnp.asarray((np.asarray(x) - s.mean(axis=0)) / np.sqrt(s.var(axis=0) + 1e-4))
    batch = replace(transitions(0), s=by_hand(transitions(0).s), s_next=by_hand(transitions(0).s_next))
    plain, _ = jax.jit(mosac_update(SAC))(_first(SAC), batch, jax.random.key(0))
    assert_trees_close(states[1].critic, plain.critic, 1e-4)
    assert_trees_close(states[1].actor, plain.actor, 1e-4)


@pytest.mark.parametrize("average", [None, 0.5])
def test_the_host_acts_on_raw_observations(average: float | None):
    cfg = QPensieveConfig(replace(SAC, normalize=True, actor_average=average), num_snapshots=2)
    state = jax.jit(partial(qpensieve.init, cfg, SPEC))(jax.random.key(0))
    seen = trials.with_observations(state.sac.seen, 5.0 + 3.0 * transitions(1).s)
    state = replace(state, sac=replace(state.sac, seen=seen))
    algorithm = qpensieve.make(cfg, SPEC)
    policy = algorithm.acting.policy(np.asarray(flatten(algorithm.actor(state)))[None])
    s, lam = 5.0 + 3.0 * transitions(2).s, preferences(5, BATCH)
    expected = jnp.tanh(state.sac.actor(trials.normalized(seen, s), lam)[0])
    np.testing.assert_allclose(policy.exploit(np.asarray(s)[None], np.asarray(lam)[None])[0], expected, atol=1e-5)
    assert np.abs(expected - jnp.tanh(state.sac.actor(s, lam)[0])).max() > 1e-2
