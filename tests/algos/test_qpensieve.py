"""Q-Pensieve: the identities that tie it to MO-SAC and to its plain form, and its ring of snapshots."""

from dataclasses import replace
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from benchmarks import plain
from qpensieve.algos import mosac, qpensieve
from qpensieve.algos.qpensieve import QPensieveConfig
from qpensieve.learning.snapshots import Snapshots
from tests.algos.problem import (
    BATCH,
    SAC,
    SPEC,
    action_noise,
    assert_trees_close,
    assert_trees_equal,
    mosac_update,
    once,
    pensieve_state,
    pensieve_update,
    preferences,
    question,
    sac_state,
    transitions,
)
from tests.oracles import mosac as oracle
from tests.rounding import assert_same_to_rounding

K = 4
"""Slots of the ring."""


def _query(num_preferences: int, seed: int = 3) -> mosac.Query:
    prefs = preferences(2, num_preferences)
    return mosac.Query(jnp.full((), 0.5), transitions(1).s, prefs, action_noise(seed))


def _run_updates(update: Any, state: Any, num: int = 3) -> Any:
    """`num` updates in one scan, each with a batch of its own."""
    batches = [transitions(10 + i) for i in range(num)]
    stacked = jax.tree.map(lambda *leaves: jnp.stack(leaves), *batches)
    keys = jax.random.split(jax.random.key(0), num)
    body = lambda state, inputs: update(state, *inputs)
    return jax.jit(lambda state: jax.lax.scan(body, state, (stacked, keys)))(state)


def test_one_preference_and_no_snapshots_is_mosac():
    cfg = QPensieveConfig(SAC, num_preferences=1, num_snapshots=0)
    first = sac_state(0)
    ours, info = _run_updates(pensieve_update(cfg), pensieve_state(0, num_snapshots=0, num_filled=0))
    theirs, their_info = _run_updates(mosac_update(SAC), first)
    assert_same_to_rounding(ours.sac, theirs)
    assert_same_to_rounding({name: info[name] for name in their_info}, their_info)
    assert all(np.any(a != b) for a, b in zip(jax.tree.leaves(theirs.actor), jax.tree.leaves(first.actor), strict=True))


def test_both_algorithms_start_from_the_same_networks():
    ours = once(partial(qpensieve.init, QPensieveConfig(SAC), SPEC))(jax.random.key(1))
    assert_same_to_rounding(ours.sac, once(partial(mosac.init, SAC, SPEC))(jax.random.key(1)))
    assert not np.any(ours.snapshots.filled)


_graded = lambda loss: jax.jit(jax.value_and_grad(loss, argnums=1, has_aux=True))
_fast, _plain = _graded(qpensieve.pensieve_loss), _graded(plain.pensieve_loss)


def _loss(ring: Snapshots, actor: Any, critic: Any, query: mosac.Query) -> Any:
    """Loss (11) with its auxiliary values."""
    return _fast(ring, actor, critic, query)[0]


def _critics(state: qpensieve.State, num_filled: int) -> list[oracle.Twins]:
    snapshots = [oracle.twins_of(state.snapshots.critics, k) for k in range(num_filled)]
    return [*snapshots, oracle.twins_of(state.sac.critic)]


@pytest.mark.parametrize("num_filled", [0, 2])
def test_the_policy_loss_is_that_of_the_loops(num_filled: int):
    state, query = pensieve_state(0, K, num_filled), _query(5)
    loss, _ = _loss(state.snapshots, state.sac.actor, state.sac.critic, query)
    at = question(state.sac.actor, query.s, query.prefs, query.noise)
    expected, _ = oracle.policy_loss(_critics(state, num_filled), at)
    assert float(loss) == pytest.approx(expected, rel=1e-5)


@pytest.mark.parametrize("num_filled", [0, 3])
def test_an_update_climbs_one_drawn_snapshot_and_the_current_critic(num_filled: int):
    cfg = QPensieveConfig(SAC, num_preferences=2, num_snapshots=K, snapshots_per_update=1)
    state, batch, seen = pensieve_state(0, K, num_filled), transitions(1), set()
    for key in jax.random.split(jax.random.key(4), 12):
        draws = _few_draws(cfg, batch, jax.random.clone(key))
        new, info = _few_step(cfg, state, batch, draws)
        at = question(state.sac.actor, batch.s, draws.prefs, draws.noise)
        critics = _critics(state, num_filled)
        critics[-1] = oracle.twins_of(new.sac.critic)
        slot = max(range(num_filled), key=lambda slot: float(draws.order[slot]), default=num_filled)
        expected, _ = oracle.policy_loss([critics[slot], critics[-1]], at)
        assert float(info["policy_loss"]) == pytest.approx(expected, rel=1e-5)
        assert_trees_equal(new.snapshots, state.snapshots)
        for name, value in vars(_sac_draws(SAC, 2, batch, key)).items():
            np.testing.assert_array_equal(getattr(draws, name), value)
        seen.add(slot)
    assert seen == (set(range(num_filled)) or {0})


def test_memory_fades_from_all_updates_to_none():
    cfg = QPensieveConfig(SAC, num_preferences=2, num_snapshots=K, snapshots_per_update=1, memory_updates=100)
    always, batch = replace(cfg, memory_updates=0), transitions(1)
    draw_all = jax.jit(
        lambda cfg, keys, number: jax.vmap(lambda key: qpensieve.draw(cfg, batch, key, number))(keys), static_argnums=0
    )
    for number, share in {0: 1.0, 25: 0.75, 99: 0.01, 100: 0.0, 1_000: 0.0}.items():
        ours, usual = (draw_all(c, jax.random.split(jax.random.key(7), 400), number) for c in (cfg, always))
        has_memory = np.asarray(ours.has_memory)
        assert has_memory.mean() == pytest.approx(share, abs=3 * np.sqrt(share * (1 - share) / 400))
        np.testing.assert_array_equal(ours.order, usual.order)
        expected = np.where(has_memory[:, None, None], usual.prefs, usual.prefs[:, :1])
        np.testing.assert_array_equal(ours.prefs, expected)


@pytest.mark.parametrize("backend", ["cpu", "gpu"])
def test_an_update_without_memory_is_mosacs_and_one_with_memory_as_always(
    backend: str, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(jax, "default_backend", lambda: backend)
    cfg = QPensieveConfig(SAC, num_preferences=2, num_snapshots=K, snapshots_per_update=1, memory_updates=100)
    state, batch = pensieve_state(0, K, 3), transitions(1)
    step = jax.jit(lambda draws: qpensieve.step(cfg, state, batch, draws))
    draws = _few_draws(cfg, batch, jax.random.key(8), 0)
    with_memory, _ = step(draws)
    usual = replace(draws, has_memory=None)
    assert_trees_close(with_memory, _few_step(replace(cfg, memory_updates=0), state, batch, usual)[0], 1e-3)
    draws = _few_draws(cfg, batch, jax.random.key(8), 100)
    new, info = step(draws)
    alone = mosac.Draws(draws.prefs[:1], draws.next_noise, draws.noise, draws.num_updates)
    theirs, their_info = jax.jit(mosac.step, static_argnums=0)(SAC, state.sac, batch, alone)
    assert_trees_close(new.sac, theirs, 1e-3)
    assert float(info["policy_loss"]) == pytest.approx(float(their_info["policy_loss"]), rel=1e-5)
    assert float(info["snapshot_share"]) == float(info["other_preference_share"]) == 0


_few_draws, _few_step = jax.jit(qpensieve.draw, static_argnums=0), jax.jit(qpensieve.step, static_argnums=0)
_sac_draws = jax.jit(mosac.draw, static_argnums=(0, 1))


def _moved(ring: Snapshots, by: float) -> Snapshots:
    """The ring with all its critics' answers raised by `by`."""
    last = ring.critics.net.last
    lifted = jax.tree.map(lambda leaf: leaf + by if leaf is last.bias else leaf, ring.critics)
    return Snapshots(lifted, ring.filled, ring.cursor)


@pytest.mark.parametrize(("by", "share"), [(100.0, 1.0), (-100.0, 0.0)])
def test_the_log_says_how_many_samples_climb_a_snapshot(by: float, share: float):
    state = pensieve_state(0, K, 2)
    ring = _moved(state.snapshots, by)
    _, (_, info) = _loss(ring, state.sac.actor, state.sac.critic, _query(5))
    assert float(info["snapshot_share"]) == share


def test_the_log_says_how_many_samples_climb_another_preference():
    state, shares = pensieve_state(0, K, 0), []
    for m in (1, 5):
        _, (logp, info) = _loss(state.snapshots, state.sac.actor, state.sac.critic, _query(m))
        assert logp.shape == (BATCH,)
        shares.append(float(info["other_preference_share"]))
    assert shares[0] == 0.0
    assert 0.2 < shares[1] <= 1.0
    assert float(info["snapshot_share"]) == 0.0


def test_with_the_papers_settings_the_first_snapshot_is_taken_at_update_21000():
    """More than 20 000 updates and a multiple of 1000: not at 20 000."""
    state = pensieve_state(0, K, 0)
    numbers = jnp.arange(0, 30_001, 50)
    count = lambda number: qpensieve.end_block(QPensieveConfig(), state, number).snapshots.filled.sum()
    pushed = np.asarray(jax.jit(jax.vmap(count))(numbers))
    np.testing.assert_array_equal(numbers[pushed == 1], np.arange(21_000, 30_001, 1000))


def test_end_block_pushes_the_critic_of_that_moment():
    state, cfg = pensieve_state(0, K, 1), QPensieveConfig(push_after=10, push_period=5)
    end_block = jax.jit(partial(qpensieve.end_block, cfg))
    for early in (5, 10, 13):
        assert_trees_equal(end_block(state, jnp.asarray(early)), state)
    new = end_block(state, jnp.asarray(15))
    assert_trees_equal(new.sac, state.sac)
    assert_trees_equal(jax.tree.map(lambda leaf: leaf[1], new.snapshots.critics), state.sac.critic)
    np.testing.assert_array_equal(new.snapshots.filled, [True, True, False, False])


def test_no_snapshot_is_taken_while_the_loss_is_above_its_median():
    cfg = QPensieveConfig(replace(SAC, guards=True), num_snapshots=K, push_after=0, push_period=10)
    state = replace(pensieve_state(0, K, 0), loss_track=qpensieve.start_loss_track())
    end = jax.jit(partial(qpensieve.end_block, cfg))
    quiet, loud = (qpensieve.LossTrack(jnp.zeros(()), jnp.log(times)) for times in (1.9, 2.1))
    assert end(replace(state, loss_track=quiet), jnp.int32(10)).snapshots.filled.tolist() == [True, False, False, False]
    assert not end(replace(state, loss_track=loud), jnp.int32(10)).snapshots.filled.any()
    assert not end(replace(state, loss_track=quiet), jnp.int32(11)).snapshots.filled.any()
    start = jax.jit(partial(qpensieve.init, cfg, SPEC))(jax.random.key(0))
    new, info = jax.jit(pensieve_update(cfg))(start, transitions(1), jax.random.key(0))
    np.testing.assert_allclose([new.loss_track.recent, new.loss_track.median], np.log(info["critic_loss"]), rtol=1e-4)


def test_a_margin_keeps_the_policy_near_what_the_critic_itself_says():
    query, state = _query(5), pensieve_state(0, K, 3)
    given = (state.snapshots, state.sac.actor, state.sac.critic, query)
    limited = lambda margin: jax.jit(partial(qpensieve.pensieve_loss, margin=margin))(*given)
    alone = jax.jit(mosac.single_preference_loss)(state.sac.actor, state.sac.critic, query)[0]
    (free, (_, shares)), (none, (_, no_shares)), (some, _) = _loss(*given), limited(0.0), limited(0.1)
    np.testing.assert_allclose(none, alone, rtol=1e-5)
    assert shares["snapshot_share"] > 0.5
    assert no_shares["snapshot_share"] == 0
    assert free < some < none
