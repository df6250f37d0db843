"""Forms of eq. (11) with one snapshot, against the loops of the oracle."""

from dataclasses import replace
from functools import cache, partial
from typing import Any, get_args

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from qpensieve.algos import fused, mosac, qpensieve
from qpensieve.algos.qpensieve import QPensieveConfig
from qpensieve.learning import snapshots
from qpensieve.learning.forms import Form, judge, preferences_of
from qpensieve.learning.improvement import Offer, judged_value
from tests.algos.problem import (
    BATCH,
    RESIDUAL,
    SAC,
    action_noise,
    assert_trees_close,
    assert_trees_equal,
    every,
    once,
    pensieve_state,
    preferences,
    question,
    random_like,
    sac_state,
    transitions,
)
from tests.oracles import forms as oracle
from tests.oracles.mosac import action, twins_of

FORMS = [form for form in get_args(Form) if form != "all"]
K = 4


@cache
def _critics(near: bool = True) -> Any:
    """A snapshot and the current critic; `near`: they differ a little, as critics of one run do."""
    current = sac_state(0).critic
    other = random_like(current, 7)
    snapshot = jax.tree.map(lambda x, y: x + 0.2 * y, current, other) if near else other
    return jax.tree.map(lambda x, y: jnp.stack([x, y]), snapshot, current)


def _ours(rule: tuple[Any, float | None], critics: Any, prefs: Any, batch: Any, filled: Any = (True, True)) -> Any:
    judged, offer = (
        partial(judge, *rule, jnp.array(filled)),
        Offer(critics, preferences_of(rule[0], prefs, 2), prefs[0]),
    )

    def total(a: Any) -> Any:
        value, winner = judged_value(offer, judged, batch.s, a)
        return jnp.sum(value), (value, winner)

    return once(jax.grad(total, has_aux=True))(batch.a)


@pytest.mark.parametrize("backend", ["cpu", "gpu"])
@pytest.mark.parametrize("per_sample", [False, True])
@pytest.mark.parametrize("margin", [None, 0.3])
@pytest.mark.parametrize("form", FORMS)
def test_value_winner_and_gradient_are_those_of_the_loops(form, margin, per_sample, backend, monkeypatch):
    monkeypatch.setattr(jax, "default_backend", lambda: backend)
    prefs, batch, seen = preferences(2, 2, per_sample), transitions(1), set()
    for near in (True, False):
        critics = _critics(near)
        gradient, (value, winner) = _ours((form, margin), critics, prefs, batch)
        plain = [np.asarray(x, np.float64) for x in (batch.s, batch.a)]
        expected = oracle.climb((form, margin), [twins_of(critics, k) for k in (0, 1)], every(prefs), *plain)
        np.testing.assert_allclose(value, expected.value, rtol=1e-4, atol=1e-5)
        np.testing.assert_allclose(gradient, expected.gradient, rtol=1e-4, atol=1e-5)
        preference = winner.critic == 0 if form == "pairs" else winner.preference
        for mine, other in zip((winner.critic, winner.twin, preference), expected[1:4], strict=True):
            np.testing.assert_array_equal(mine, other)
        seen |= set(zip(expected.critic, expected.preference, strict=True))
        assert len(set(zip(expected.critic, expected.preference, strict=True))) == 1 or form != "batch"
    assert len(seen) > 1 or form == "batch"


@pytest.mark.parametrize("form", FORMS)
def test_of_residual_critics_the_gradient_is_that_of_the_winners_value(form):
    state = pensieve_state(0, 1, 1, RESIDUAL)
    critics, filled = snapshots.with_current(state.snapshots, state.sac.critic)
    prefs, batch = preferences(2, 2, False), transitions(1)
    gradient, (_, winner) = _ours((form, None), critics, prefs, batch, filled)
    read = (winner.critic == 0).astype(int) if form == "pairs" else winner.preference

    def of_winner(a: Any, critic: Any, twin: Any, pref: Any, s: Any) -> Any:
        net = jax.tree.map(lambda leaf: leaf[critic, twin], critics)
        return prefs[0, 0] @ net(s, a, prefs[pref, 0])

    expected = once(jax.vmap(jax.grad(of_winner)))(batch.a, winner.critic, winner.twin, read, batch.s)
    np.testing.assert_allclose(gradient, expected, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("form", FORMS)
def test_without_a_snapshot_only_the_current_critic_counts(form):
    prefs, batch = preferences(2, 2, False), transitions(1)
    _, (_, winner) = _ours((form, None), _critics(False), prefs, batch, (False, True))
    assert (np.asarray(winner.critic) == 1).all()


@pytest.mark.parametrize("form", FORMS)
def test_the_loss_is_that_of_the_loops_and_moves_only_the_policy(form):
    cfg = QPensieveConfig(SAC, num_preferences=2, num_snapshots=1, snapshot_margin=0.05, form=form)
    state, prefs = pensieve_state(0, 1, 1), preferences(2, 2, False)
    query = mosac.Query(jnp.full((), 0.5), transitions(1).s, prefs, action_noise(3))
    loss = lambda ring, actor, critic: qpensieve.pensieve_loss(ring, actor, critic, query, cfg)[0]
    of_loss = jax.value_and_grad(loss, argnums=(1, 2))
    value, (of_actor, of_critic) = once(of_loss)(state.snapshots, state.sac.actor, state.sac.critic)
    at = question(state.sac.actor, query.s, prefs, query.noise)
    acted = [action(at.actor, at.s[i], at.prefs[0, i], at.noise[i]) for i in range(BATCH)]
    a, logp = (np.array(part) for part in zip(*acted, strict=True))
    critics = [twins_of(state.snapshots.critics, 0), twins_of(state.sac.critic)]
    expected = oracle.climb((form, 0.05), critics, at.prefs, at.s, a)
    assert float(value) == pytest.approx(float(np.mean(0.5 * logp - expected.value)), rel=1e-4)
    assert all(np.any(leaf) for leaf in jax.tree.leaves(of_actor))
    assert not any(np.any(leaf) for leaf in jax.tree.leaves(of_critic))


@pytest.mark.parametrize("form", FORMS)
def test_seeds_side_by_side_learn_what_they_learn_alone(form, monkeypatch):
    monkeypatch.setattr(jax, "default_backend", lambda: "gpu")
    cfg = QPensieveConfig(replace(SAC, temperature_gain=1.0), num_preferences=2, snapshot_margin=0.05, form=form)
    states = [pensieve_state(seed, K, 3) for seed in (0, 1)]
    batches, keys = [transitions(1), transitions(2)], jax.random.split(jax.random.key(5))
    stack = lambda *trees: jax.tree.map(lambda *leaves: jnp.stack(leaves), *trees)
    update = partial(qpensieve.update, cfg)
    together, info = once(jax.vmap(update))(stack(*states), stack(*batches), keys)
    alone = once(update)
    for i in (0, 1):
        new, own = alone(states[i], batches[i], keys[i])
        assert_trees_close(jax.tree.map(lambda leaf, i=i: leaf[i], together.sac.actor), new.sac.actor, 1e-4)
        assert float(info["snapshot_share"][i]) == pytest.approx(float(own["snapshot_share"]))


def test_every_filled_snapshot_is_drawn_equally_often_and_no_other():
    cfg, batch = QPensieveConfig(SAC, num_preferences=2, form="few"), transitions(1)
    ring = pensieve_state(0, K, 3).snapshots
    draw = lambda key: getattr(qpensieve.draw_chance(cfg, batch, key), "recall")  # noqa: B009
    chance = jax.jit(jax.vmap(draw))(jax.random.split(jax.random.key(0), 3000))
    drawn = jax.jit(jax.vmap(partial(snapshots.draw_one, ring)))(chance)
    assert drawn.filled.shape == (3000, 1)
    assert np.asarray(drawn.filled).all()
    leaf, slots = (np.asarray(tree.critics.net.last.bias) for tree in (drawn, ring))
    counts = [(leaf[:, 0] == slot).all(axis=(1, 2)).sum() for slot in slots]
    assert sum(counts) == 3000
    assert counts[3] == 0
    assert min(counts[:3]) > 900
    edges = [snapshots.draw_one(ring, jnp.float32(x)).critics.net.last.bias[0] for x in (0.0, 1 / 3 + 1e-6, 1 - 2**-24)]
    np.testing.assert_array_equal(edges, slots[:3])


def test_of_an_empty_ring_no_snapshot_is_drawn():
    drawn = snapshots.draw_one(pensieve_state(0, K, 0).snapshots, jnp.float32(0.7))
    assert drawn.filled.tolist() == [False]


def test_the_draw_of_a_snapshot_leaves_the_other_draws_alone():
    batch, key = transitions(1), jax.random.key(9)
    few = qpensieve.draw_chance(QPensieveConfig(SAC, num_preferences=2, form="few"), batch, key)
    today = qpensieve.draw_chance(QPensieveConfig(SAC, num_preferences=2), batch, key)
    assert isinstance(few, qpensieve.Chance)
    assert type(today) is mosac.Chance
    for name, value in vars(today).items():
        np.testing.assert_array_equal(getattr(few, name), value)


def test_with_one_stored_critic_few_is_the_form_of_all():
    batch, key, state = transitions(1), jax.random.key(9), pensieve_state(0, 1, 1)
    cfg = QPensieveConfig(SAC, num_preferences=2, num_snapshots=1, snapshot_margin=0.05)
    results = [once(partial(qpensieve.update, c))(state, batch, key) for c in (cfg, replace(cfg, form="few"))]
    assert_trees_close(results[0], results[1], 1e-5)


def test_slots_of_spread_have_geometrically_growing_ages():
    cfg = QPensieveConfig(SAC, num_preferences=2, form="spread", push_after=100, push_period=100)
    end = jax.jit(partial(qpensieve.end_block, cfg))
    state, critic = pensieve_state(0, K, 0), sac_state(0).critic
    for number in range(50, 4001, 50):
        value = (number - 100) // 100  # this push, if it is one
        filled = jax.tree.map(lambda leaf, value=value: jnp.full(leaf.shape, float(value)), critic)
        state = end(replace(state, sac=replace(state.sac, critic=filled)), jnp.int32(number))
        pushes = max(0, number // 100 - 1)
        expected = oracle.slots_after(K, pushes)
        np.testing.assert_array_equal(state.snapshots.critics.net.last.bias[:, 0, 0], expected)
        np.testing.assert_array_equal(state.snapshots.filled, np.array(expected) > 0)


@pytest.mark.parametrize("form", [form for form in FORMS if form != "spread"])
def test_other_forms_push_as_today(form):
    state, cfg = pensieve_state(0, K, 3), QPensieveConfig(SAC, push_after=0, push_period=10, num_preferences=2)
    for number in (10, 20):
        ours, today = (qpensieve.end_block(c, state, jnp.int32(number)) for c in (replace(cfg, form=form), cfg))
        assert_trees_equal(ours, today)


def test_settings_that_do_not_fit_a_form_are_refused():
    cfg = QPensieveConfig(SAC, form="pairs", num_snapshots=0, over_critics="median")
    assert cfg.conflicts() == [
        "num_snapshots must be at least 1 with form pairs, got 0",
        "policy_loss and over_critics must be paper and max with form pairs, got paper and median",
        "num_preferences must be 2 with form pairs, got 5",
    ]
    assert not QPensieveConfig(SAC, form="few").conflicts()
    assert "form" in (fused.uncovered(QPensieveConfig(SAC, form="few")) or "")
