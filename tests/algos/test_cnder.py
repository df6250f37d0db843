"""CN-DER against loops in NumPy, hand-computed numbers, scalar DDPG, and what it is for: not to forget."""

from dataclasses import replace
from functools import cache, partial

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from qpensieve.algos import cnder
from qpensieve.algos.cnder import CnDerConfig
from qpensieve.learning.interface import Hints, PrioritizedLearning, Transition
from qpensieve.types import EnvSpec
from tests.algos.problem import (
    BATCH,
    SPEC,
    assert_trees_close,
    random_like,
    transitions,
    zeros_like,
)
from tests.oracles import cnder as oracle
from tests.oracles.mosac import Net, adam_step, net_of

HIDDEN = 8
CFG = CnDerConfig(
    hidden=HIDDEN,
    batch_size=BATCH,
    discount=0.9,
    learning_rate=1e-2,
    tau=0.1,
    layer_norm=False,
    priority_exponent=2.0,
)
ONE_STEP = EnvSpec("one-step", 1, 1, ("right", "left"), None, None)
UPDATE = jax.jit(cnder.update, static_argnums=0)


@cache
def _state(seed: int, spec: EnvSpec = SPEC) -> cnder.State:
    """A state as after some training: four different networks, optimisers still fresh."""
    like = jax.eval_shape(partial(cnder.init, CFG, spec), jax.random.key(0))
    nets = (like.actor, like.target_actor, like.critic, like.target_critic)
    actor, target_actor, critic, target_critic = (random_like(net, 10 * seed + i) for i, net in enumerate(nets))
    return cnder.State(actor, target_actor, critic, target_critic, zeros_like(like.optimizers))


@cache
def _hints(seed: int, num_objectives: int = 3, num: int = BATCH) -> Hints:
    """A current preference and `num` earlier ones."""
    prefs = np.random.default_rng(seed).dirichlet(np.ones(num_objectives), num + 1)
    return Hints(jnp.asarray(prefs[0], jnp.float32), jnp.asarray(prefs[1:], jnp.float32))


def _prefs(hints: Hints) -> np.ndarray:
    """Current and past preference of every row, for the oracle."""
    return np.stack([np.tile(np.asarray(hints.lam, np.float64), (len(hints.past), 1)), np.asarray(hints.past)])


def _expected_targets(state: cnder.State, batch: Transition, prefs: np.ndarray) -> np.ndarray:
    return oracle.targets(net_of(state.target_actor.net), net_of(state.target_critic.net), batch, prefs, 0.9)


def _update(
    state: cnder.State, batch: Transition, hints: Hints, cfg: CnDerConfig = CFG
) -> tuple[cnder.State, dict[str, float], np.ndarray]:
    new, info, priority = UPDATE(cfg, state, batch, hints, jax.random.key(0))
    return new, {name: float(value) for name, value in info.items()}, np.asarray(priority)


def test_targets_are_vectors_under_both_preferences_of_each_transition():
    state, batch, prefs = _state(0), transitions(1), _prefs(_hints(2))
    y = np.asarray(jax.jit(partial(cnder.targets, CFG))(state, batch, jnp.asarray(prefs, jnp.float32)))
    np.testing.assert_allclose(y, _expected_targets(state, batch, prefs), rtol=1e-5, atol=1e-5)
    going_on = np.asarray(batch.terminated) == 0
    bootstrap = (y - np.asarray(batch.r)[None])[:, going_on]
    # Neither preference's target is the other's, and no objective's is a copy of another's.
    assert (np.abs(bootstrap[0] - bootstrap[1]).max(axis=1) > 1e-3).all()
    assert (np.abs(np.diff(bootstrap, axis=2)) > 1e-4).all()


def test_the_priority_by_hand():
    priority = cnder.priority_of_errors(CFG, jnp.array([0.0, 0.99, 2.99]))
    np.testing.assert_allclose(priority, [1e-4, 1.0, 9.0], rtol=1e-5)
    other = replace(CFG, priority_exponent=0.5)
    np.testing.assert_allclose(cnder.priority_of_errors(other, jnp.array([0.0, 3.99])), [0.1, 2.0], rtol=1e-6)


def test_a_standardised_critic_by_hand():
    """What goes into each ReLU has mean 0 and variance 1 over the layer."""
    critic, cfg = _state(0).critic, replace(CFG, layer_norm=True)
    step, lam = jax.tree.map(lambda leaf: leaf[0], transitions(1)), jnp.array([0.2, 0.3, 0.5])
    x, (*hidden, (weight, bias)) = np.concatenate([step.s, step.a, lam]), net_of(critic.net)
    for w, b in hidden:
        x = x @ w + b
        x = np.maximum((x - x.mean()) / np.sqrt(x.var() + 1e-5), 0.0)
    np.testing.assert_allclose(cnder.value(cfg, critic, step.s, step.a, lam), x @ weight + bias, rtol=1e-4, atol=1e-5)


def test_the_critic_goes_down_the_gradient_of_the_loops_loss():
    """Adam's first moment after one step is a tenth of the gradient, so the gradient can be read off."""
    state, batch, hints = _state(0), transitions(1), _hints(2)
    new, info, _ = _update(state, batch, hints)
    prefs = _prefs(hints)
    y, critic = _expected_targets(state, batch, prefs), net_of(state.critic.net)
    assert info["critic_loss"] == pytest.approx(oracle.critic_loss(critic, batch, prefs, y), rel=1e-5)
    expected = oracle.gradient(lambda net: oracle.critic_loss(net, batch, prefs, y), critic)
    moments = jax.tree.leaves(new.optimizers.critic[0].mu)  # pyright: ignore[reportIndexIssue, reportAttributeAccessIssue]
    assert_trees_close([10 * moment for moment in moments], expected, 1e-4)
    stepped = [adam_step(p, g, 1e-2) for p, g in zip(_leaves(critic), expected, strict=True)]
    certain = [np.abs(g) > 1e-3 for g in expected]  # where the gradient's sign is beyond doubt, so is Adam's first step
    for leaf, other, mask in zip(jax.tree.leaves(new.critic), stepped, certain, strict=True):
        np.testing.assert_allclose(np.asarray(leaf)[mask], other[mask], rtol=1e-4, atol=1e-4)


def _leaves(net: Net) -> list[np.ndarray]:
    return [parameter for layer in net for parameter in layer]


def test_the_policy_climbs_the_updated_critic_with_each_rows_own_preference():
    state, batch, hints = _state(0), transitions(1), _hints(2)
    new, info, _ = _update(state, batch, hints)
    s, prefs = np.asarray(batch.s, np.float64), _prefs(hints)
    actor, critic = net_of(state.actor.net), net_of(new.critic.net)
    loss = oracle.policy_loss(actor, critic, s, prefs)
    assert info["policy_loss"] == pytest.approx(loss, rel=1e-5)
    assert abs(loss - oracle.policy_loss(actor, net_of(state.critic.net), s, prefs)) > 1e-3
    expected = oracle.gradient(lambda net: oracle.policy_loss(net, critic, s, prefs), actor)
    moments = jax.tree.leaves(new.optimizers.actor[0].mu)  # pyright: ignore[reportIndexIssue, reportAttributeAccessIssue]
    assert_trees_close([10 * moment for moment in moments], expected, 1e-4)
    after = oracle.policy_loss(net_of(new.actor.net), critic, s, prefs)
    assert after < loss - 1e-3


def test_new_priorities_come_from_the_errors_before_the_step():
    state, batch, hints = _state(0), transitions(1), _hints(2)
    new, info, priority = _update(state, batch, hints)
    prefs = _prefs(hints)
    y = _expected_targets(state, batch, prefs)
    expected = oracle.priorities(net_of(state.critic.net), batch, prefs, y)
    np.testing.assert_allclose(priority, expected, rtol=1e-4)
    assert not np.allclose(expected, oracle.priorities(net_of(new.critic.net), batch, prefs, y), rtol=1e-3)
    errors = oracle.errors(net_of(state.critic.net), batch, prefs, y)
    assert info["td_error"] == pytest.approx(np.abs(errors).mean(), rel=1e-5)
    assert info["q"] == pytest.approx(float((prefs * (errors + y)).sum(axis=2).mean()), rel=1e-4)
    assert info["priority"] == pytest.approx(expected.mean(), rel=1e-4)
    assert info["priority_max"] == pytest.approx(expected.max(), rel=1e-4)


def test_every_transition_is_relabelled_with_the_current_preference_and_its_own_past_one():
    state, batch, hints = _state(0), transitions(1), _hints(2)
    _, _, priority = _update(state, batch, hints)
    _, _, other_current = _update(state, batch, replace(hints, lam=hints.past[3]))
    assert (np.abs(other_current / priority - 1) > 1e-4).all()
    _, _, other_past = _update(state, batch, replace(hints, past=hints.past.at[4].set(hints.past[5])))
    np.testing.assert_array_equal(np.flatnonzero(np.abs(other_past / priority - 1) > 1e-4), [4])


def test_new_transitions_get_the_priority_of_their_own_two_preferences():
    state, batch = _state(0), transitions(1)
    lam, past = _hints(2).past, jnp.stack([_hints(3).past, _hints(4).past], axis=1)
    first = jax.jit(partial(cnder.priority, CFG))
    priority = np.asarray(first(state, batch, Hints(lam, past), jax.random.key(0)))
    prefs = np.stack([np.asarray(lam, np.float64), np.asarray(past[:, 0])])
    y = _expected_targets(state, batch, prefs)
    np.testing.assert_allclose(priority, oracle.priorities(net_of(state.critic.net), batch, prefs, y), rtol=1e-4)


def test_both_target_networks_follow_the_updated_ones():
    state = _state(0)
    new, _, _ = _update(state, transitions(1), _hints(2))
    mixed = lambda old, online: jax.tree.map(lambda t, o: 0.9 * np.asarray(t) + 0.1 * np.asarray(o), old, online)
    assert_trees_close(new.target_actor, mixed(state.target_actor, new.actor), 1e-6)
    assert_trees_close(new.target_critic, mixed(state.target_critic, new.critic), 1e-6)


def test_cnder_learns_from_a_diverse_replay_with_the_newest_transition_forced_in():
    learning = cnder.make(CFG, SPEC).learning
    assert isinstance(learning, PrioritizedLearning)
    assert (learning.keeps, learning.forces_newest, learning.num_past) == ("diverse", True, BATCH)


FIRST, SECOND = jnp.array([0.9, 0.1]), jnp.array([0.1, 0.9])


def _learn(cfg: CnDerConfig, state: cnder.State, hints: Hints, seed: int) -> cnder.State:
    """300 updates on random actions of the one-step problem r = (-(a - 1)^2, -(a + 1)^2) under one preference."""

    def body(state: cnder.State, key: jax.Array) -> tuple[cnder.State, None]:
        a = jax.random.uniform(key, (cfg.batch_size, 1), minval=-1.0, maxval=1.0)
        s, r = jnp.zeros_like(a), jnp.concatenate([-jnp.square(a - 1.0), -jnp.square(a + 1.0)], axis=1)
        batch = Transition(s, a, r, s, jnp.ones(cfg.batch_size))
        return cnder.update(cfg, state, batch, hints, jax.random.key(0))[0], None

    return jax.lax.scan(body, state, jax.random.split(jax.random.key(seed), 300))[0]


def _return_after_the_switch_back(seed: int) -> tuple[float, float, float]:
    """Scalarised return of the first preference before and after the second was learnt, and of the second then."""
    cfg = CnDerConfig(hidden=32, batch_size=64, learning_rate=3e-3, tau=0.05)
    repeat = lambda lam: jnp.tile(lam[None], (cfg.batch_size, 1))
    learn = jax.jit(partial(_learn, cfg))
    before = learn(cnder.init(cfg, ONE_STEP, jax.random.key(seed)), Hints(FIRST, repeat(FIRST)), seed)
    after = learn(before, Hints(SECOND, repeat(FIRST)), seed + 100)

    def value(state: cnder.State, lam: jax.Array) -> float:
        a = state.actor(jnp.zeros(1), lam)[0]
        return float(-lam[0] * (a - 1.0) ** 2 - lam[1] * (a + 1.0) ** 2)

    return value(before, FIRST), value(after, FIRST), value(after, SECOND)


@pytest.mark.slow
def test_an_old_preference_is_not_forgotten_while_another_is_learnt():
    """The best action is lam_1 - lam_2, worth -0.36 under both preferences; -2.92 is the other one's best action."""
    for seed in range(2):
        before, after, of_second = _return_after_the_switch_back(seed)
        assert min(before, after, of_second) > -0.45
