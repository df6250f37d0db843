"""SAC for one preference: it is MO-SAC seen along lam, many at once are each alone, time limits are no ends."""

from dataclasses import replace
from functools import partial
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from qpensieve.algos import mosac, sac
from qpensieve.algos.sac import SingleSacConfig
from qpensieve.learning.nets import GaussianActor, Mlp
from qpensieve.preferences import sac_preferences
from qpensieve.replay.layout import layout_of
from qpensieve.train.learner import Block, make_learner
from qpensieve.types import EnvSpec
from tests.algos.problem import (
    BATCH,
    HIDDEN,
    SAC,
    SPEC,
    action_noise,
    assert_trees_close,
    sac_state,
    sac_update,
    transitions,
)
from tests.rounding import assert_same_to_rounding

CFG = SingleSacConfig(hidden=HIDDEN, batch_size=BATCH, discount=0.9, learning_rate=1e-2, tau=0.1)
TWO = replace(SPEC, objectives=("one", "two"))
LAM = jnp.array([0.5, 0.3, 0.2])


def _init(spec: EnvSpec, lam: Any, seed: int = 0) -> sac.State:
    return jax.jit(partial(sac.init, CFG, spec))(jax.random.key(seed), jnp.asarray(lam, jnp.float32))


_step = jax.jit(sac_update(CFG))
_soft_target = jax.jit(partial(sac.soft_target, CFG))


def _along(lam: np.ndarray, net: Any, inputs: int, readout: np.ndarray | None) -> Mlp:
    """The network with its preference input fixed to lam and its outputs, if `readout`, summed by it."""
    weight, bias, last = np.asarray(net.first.weight), np.asarray(net.first.bias), net.last
    changed = [weight[..., :inputs, :], bias + np.einsum("d,...dh->...h", lam, weight[..., inputs:, :])]
    changed += [last.weight, last.bias] if readout is None else [x[..., None] for x in _read(last, readout)]
    parts = lambda net: (net.first.weight, net.first.bias, net.last.weight, net.last.bias)
    return eqx.tree_at(parts, net, tuple(jnp.asarray(x) for x in changed))


def _read(last: Any, readout: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    return np.asarray(last.weight) @ readout, np.asarray(last.bias) @ readout


def _seen_along(state: mosac.State, lam: Any) -> sac.State:
    """The scalar SAC that an MO-SAC is for one preference."""
    lam = np.asarray(lam)
    actor = GaussianActor(SPEC.obs_size, SPEC.action_size, 0, HIDDEN, key=jax.random.key(0))
    actor = eqx.tree_at(lambda actor: actor.net, actor, _along(lam, state.actor.net, SPEC.obs_size, None))
    inputs = SPEC.obs_size + SPEC.action_size
    critic, target = (_along(lam, twins.net, inputs, lam) for twins in (state.critic, state.target))
    fresh = _init(SPEC, lam)
    return replace(fresh, actor=actor, critic=critic, target=target, log_alpha=state.log_alpha)


def test_the_target_is_mosacs_vector_target_along_lam():
    state, batch = sac_state(1), transitions(2)
    lam = jnp.broadcast_to(LAM, batch.r.shape)
    vector = jax.jit(partial(mosac.soft_target, SAC))(state, batch, lam, action_noise(3))
    scalar = _soft_target(_seen_along(state, LAM), batch, action_noise(3))
    np.testing.assert_allclose(scalar, np.asarray(vector) @ np.asarray(LAM), rtol=1e-6, atol=1e-6)


def test_the_losses_are_mosacs_along_lam_too():
    state, batch = sac_state(1), transitions(2)
    single = _seen_along(state, LAM)
    alpha = jnp.exp(state.log_alpha)
    query = mosac.Query(alpha, batch.s, LAM[None], action_noise(4))
    theirs, (their_logp, _) = jax.jit(mosac.single_preference_loss)(state.actor, state.critic, query)
    ours, (logp, _) = jax.jit(sac.own_loss)(
        single.actor, single.critic, sac.Query(alpha, batch.s, LAM, action_noise(4))
    )
    np.testing.assert_allclose(ours, theirs, rtol=1e-5)
    np.testing.assert_allclose(logp, their_logp, rtol=1e-4, atol=1e-5)
    y = np.linspace(-1, 1, BATCH).astype(np.float32)
    q = jax.jit(mosac.twin_values)(state.critic, batch.s, batch.a, jnp.broadcast_to(LAM, batch.r.shape))
    q = np.asarray(q) @ np.asarray(LAM)
    loss, mean = jax.jit(sac.critic_loss)(single.critic, batch, jnp.asarray(y))
    np.testing.assert_allclose(loss, np.square(q - y).mean(axis=1).sum(), rtol=1e-5)
    np.testing.assert_allclose(mean, q[0].mean(), rtol=1e-5, atol=1e-6)


def test_nineteen_in_one_batch_are_each_of_them_alone():
    lams = jnp.asarray(sac_preferences(), jnp.float32)
    start = lambda seed, lam: sac.init(CFG, TWO, jax.random.key(seed), lam)
    first = together = jax.jit(jax.vmap(start))(np.arange(19), lams)
    cut = lambda leaf: np.asarray(leaf).reshape(19, BATCH, *leaf.shape[1:])
    batches = [jax.tree.map(cut, transitions(i, TWO, 19 * BATCH)) for i in range(3)]
    keys = [jax.random.split(jax.random.key(100 + i), 19) for i in range(3)]
    step = jax.jit(jax.vmap(sac_update(CFG)))
    for batch, key in zip(batches, keys, strict=True):
        together, _ = step(together, batch, jnp.copy(key))
    of_agent = lambda tree, i: jax.tree.map(lambda leaf: jnp.asarray(np.asarray(leaf)[i]), tree)
    for i in (0, 7, 18):
        alone = of_agent(first, i)
        for batch, key in zip(batches, keys, strict=True):
            alone, _ = _step(alone, of_agent(batch, i), jax.random.clone(key[i]))
        assert_trees_close(alone, of_agent(together, i), 1e-4)


@pytest.mark.slow
def test_in_the_learner_an_agent_is_the_same_whichever_preferences_run_beside_it():
    rows = np.random.default_rng(0).normal(size=(2, 3, 2 * 4 + 2 + 2 + 1)).astype(np.float32)
    agents = {}
    for words in (("0.9,0.1", "0.25,0.75"), ("0.25,0.75",)):
        algorithm = sac.make(replace(CFG, preferences=words), TWO)
        learner = make_learner(algorithm, layout_of(TWO, algorithm.behaviour), 64)
        state = learner.init(jnp.arange(2))
        state, _, _ = learner.learn(state, Block(jnp.asarray(np.repeat(rows, len(words), axis=0))))
        agents[words] = state.agent
    both, alone = agents.values()
    assert both.lam.shape == (4, 2)
    assert_same_to_rounding(jax.tree.map(lambda leaf: leaf[1::2], both), alone)


class TestPreferences:
    def test_no_given_preferences_are_the_papers_nineteen(self):
        np.testing.assert_array_equal(sac.parse_preferences((), TWO), sac_preferences())

    def test_preferences_are_read_from_text(self):
        np.testing.assert_array_equal(sac.parse_preferences(("0.9,0.1", "0,1"), TWO), [[0.9, 0.1], [0, 1]])

    @pytest.mark.parametrize(
        ("words", "spec", "message"),
        [
            ((), SPEC, "preferences must be given for test: .* it has 3; use --preferences ...,...,..."),
            (("0.9;0.1",), TWO, "numbers separated by commas, such as 0.9,0.1; got '0.9;0.1'"),
            (("0.9,0.2",), TWO, "'0.9,0.2': preference must sum to 1, got 1.1"),
            (("1",), TWO, "'1': preference must have 2 entries"),
            (("0.9,0.1", "0,1", "0.90,0.10"), TWO, "must differ, or an agent is trained twice; got 0.90,0.10 again"),
        ],
    )
    def test_impossible_preferences_are_refused(self, words: tuple[str, ...], spec: EnvSpec, message: str):
        with pytest.raises(ValueError, match=message):
            sac.parse_preferences(words, spec)
