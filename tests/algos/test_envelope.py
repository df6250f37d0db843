"""Envelope DQN against loops in NumPy, numbers by hand, its identities and the exact Deep Sea Treasure."""

from dataclasses import replace
from functools import cache, partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from qpensieve.algos import envelope
from qpensieve.learning.interface import Hints, PrioritizedLearning, Transition
from qpensieve.learning.losses import sample_preferences
from qpensieve.types import EnvSpec, Indices
from tests.algos.problem import assert_trees_close, assert_trees_equal, once, random_like, zeros_like
from tests.oracles import envelope as oracle
from tests.rounding import assert_largest, assert_same_to_rounding

SPEC = EnvSpec("test", 3, 1, ("one", "two", "three"), None, None)
BATCH, PREFS = 6, 4
CFG = replace(
    envelope.EnvelopeConfig(**envelope.AUTHORS),
    batch_size=BATCH,
    num_preferences=PREFS,
    bins=4,
    width_factors=(2, 1),
    discount=0.9,
    learning_rate=1e-2,
    target_period=2,
    anneal_steps=3,
)
CONTINUOUS = EnvSpec("continuous", 5, 2, ("one", "two"), None, None)
DISCRETE = EnvSpec("discrete", 5, 1, ("one", "two"), None, None, num_actions=7)


def _prefs(seed: int, num: int, num_objectives: int) -> np.ndarray:
    draws = np.random.default_rng(seed).exponential(size=(num, num_objectives))
    return (draws / draws.sum(axis=1, keepdims=True)).astype(np.float32)


def _tables(seed: int, b: int, m: int, num_actions: int, d: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Values of two networks at the next states, and preferences, all with so few digits that nothing is rounded."""
    generator = np.random.default_rng(seed)
    short = lambda x, digits: (np.round(x * 2**digits) / 2**digits).astype(np.float32)
    online, target = short(generator.normal(size=(2, b, m, num_actions, d)), 10)
    return online, target, short(_prefs(seed, m, d), 8)


def _batch(seed: int, spec: EnvSpec = SPEC, num_actions: int = 4, num: int = BATCH) -> Transition:
    """Random transitions; every third one ends its episode."""
    generator = np.random.default_rng(seed)
    s, s_next = (jnp.asarray(generator.normal(size=(num, spec.obs_size)), jnp.float32) for _ in range(2))
    a = jnp.asarray(generator.integers(num_actions, size=(num, 1)), jnp.float32)
    r = jnp.asarray(generator.normal(size=(num, spec.num_objectives)), jnp.float32)
    return Transition(s, a, r, s_next, jnp.asarray(np.arange(num) % 3 == 0, jnp.float32))


@cache
def _state(seed: int, spec: EnvSpec = SPEC, cfg: envelope.EnvelopeConfig = CFG) -> envelope.State:
    """A state whose two networks differ, as between two copies."""
    like = jax.eval_shape(partial(envelope.init, cfg, spec), jax.random.key(0))
    return replace(zeros_like(like), net=random_like(like.net, 2 * seed), target=random_like(like.target, 2 * seed + 1))


def _hints(d: int = 3, fill: float = 0.0) -> Hints:
    return Hints(jnp.full(d, fill), jnp.zeros((0, d)))


def _drawn(key: jax.Array, num: int = PREFS, d: int = 3) -> np.ndarray:
    """The preferences of an update with that key."""
    return np.asarray(sample_preferences(key, num, d, "abs-normal"), np.float64)


@cache
def _step(cfg: envelope.EnvelopeConfig = CFG) -> Any:
    """The update, compiled once for each configuration."""
    return jax.jit(partial(envelope.update, cfg))


# The target


@pytest.mark.parametrize(
    ("b", "m", "num_actions", "d"), [(5, 4, 3, 2), (4, 4, 4, 4), (3, 6, 7, 5), (4, 3, 5, 1), (2, 5, 1, 3), (3, 1, 4, 2)]
)
def test_the_target_is_that_of_the_four_loops(b: int, m: int, num_actions: int, d: int):
    online, target, prefs = _tables(b + m, b, m, num_actions, d)
    choice = jax.jit(envelope.envelope_choice)(online, prefs)
    expected, winner = oracle.envelope_target(online, target, prefs)
    np.testing.assert_array_equal(envelope.chosen_values(jnp.asarray(target), choice), expected.astype(np.float32))
    np.testing.assert_array_equal(choice.preference, winner)


def test_the_target_by_hand():
    """Of two preferences and two actions; the target network's numbers say which pair was taken."""
    online = jnp.array([[[[1.0, 0.0], [0.0, 1.0]], [[3.0, -9.0], [-9.0, 2.0]]]])
    target = jnp.array([[[[10.0, 11.0], [12.0, 13.0]], [[14.0, 15.0], [16.0, 17.0]]]])
    prefs = jnp.array([[0.9, 0.1], [0.5, 0.5]])
    # First lam: .9, .1 under its own and 2.7 - .9 = 1.8, -7.9 under the other; second: .5, .5 (a tie) and -3, -3.5.
    best, own = (choose(online, prefs) for choose in (envelope.envelope_choice, envelope.own_choice))
    np.testing.assert_array_equal(envelope.chosen_values(target, best), [[[14.0, 15.0], [10.0, 11.0]]])
    np.testing.assert_array_equal(envelope.chosen_values(target, own), [[[10.0, 11.0], [14.0, 15.0]]])


def test_the_scores_of_all_preferences_and_actions_are_never_stored():
    """At the size of DST2d they would take 127 MB; the values themselves take 8."""
    shapes = (jax.ShapeDtypeStruct(shape, jnp.float32) for shape in ((256, 32, 121, 2), (32, 2)))
    memory = jax.jit(envelope.envelope_choice).lower(*shapes).compile().memory_analysis()
    assert memory is not None
    assert memory.temp_size_in_bytes < 40e6


def test_only_an_end_stops_the_bootstrap():
    state, batch, prefs = _state(0), _batch(1), _prefs(2, PREFS, 3)
    online, target = (
        oracle.every(oracle.net_of(net), np.asarray(batch.s_next), prefs) for net in (state.net, state.target)
    )
    bootstrap, _ = oracle.envelope_target(online, target, prefs)
    for terminated in (batch.terminated, jnp.zeros(BATCH)):
        rows = replace(batch, terminated=terminated)
        y, _ = jax.jit(partial(envelope.bellman_target, CFG))(state, rows, prefs)
        going_on = 1 - np.asarray(terminated)[:, None, None]
        np.testing.assert_allclose(y, np.asarray(batch.r)[:, None] + 0.9 * going_on * bootstrap, rtol=1e-5, atol=1e-5)
    assert (np.abs(bootstrap).max(axis=2) > 1e-2).all()


# What holds values down


def test_twins_share_a_target_that_the_first_chooses():
    cfg = replace(CFG, twin=True)
    twin = envelope.Twin(*(getattr(_state(5), name) for name in ("net", "target", "optimizer")))
    state, batch, prefs = replace(_state(0), twin=twin), _batch(0), _prefs(1, PREFS, 3)
    target_of = jax.jit(partial(envelope.bellman_target, cfg))
    y, choice = target_of(state, batch, prefs)
    both = []
    for target in (state.target, twin.target):
        alone, same = target_of(replace(state, target=target, twin=replace(twin, target=target)), batch, prefs)
        assert_trees_equal(choice, same)
        both.append(np.asarray(alone))
    is_first = (y == both[0]).all(axis=2)
    np.testing.assert_array_equal(y, np.where(is_first[..., None], *both))
    assert_largest([-np.sum(prefs[None] * one, axis=2) for one in both], (~is_first).astype(int))
    assert 0 < is_first.sum() < is_first.size
    after, _, _ = _step(cfg)(state, batch, _hints(), jax.random.key(0))
    assert after.twin is not None
    moved = [
        np.asarray(new.layers[0].weight - old.layers[0].weight)
        for new, old in ((after.net, state.net), (after.twin.net, twin.net))
    ]
    assert all((np.abs(step) > 0).any() for step in moved)
    assert (moved[0] != moved[1]).any()


def test_twins_begin_apart_and_the_first_as_it_would_alone():
    alone, both = (once(partial(envelope.init, cfg, SPEC))(jax.random.key(3)) for cfg in (CFG, replace(CFG, twin=True)))
    assert alone.twin is None
    assert both.twin is not None
    assert_same_to_rounding(alone.net, both.net)
    assert (both.net.layers[0].weight != both.twin.net.layers[0].weight).all()
    assert_trees_equal(both.twin.net, both.twin.target)


def test_a_soft_target_moves_a_share_of_the_way_at_every_update():
    state = _state(0)
    after, _, _ = _step(replace(CFG, tau=0.25))(state, _batch(0), _hints(), jax.random.key(0))
    expected = jax.tree.map(lambda old, new: 0.75 * old + 0.25 * new, state.target, after.net)
    assert_trees_close(after.target, expected, 1e-5)


@pytest.mark.parametrize("acts_with", ["newest", "target"])
def test_the_network_that_acts_is_the_one_asked_for(acts_with: Any):
    cfg, state = replace(CFG, acts_with=acts_with), _state(0)
    made = envelope.make(cfg, SPEC)
    net = state.target if acts_with == "target" else state.net
    assert_trees_equal(made.actor(state), net)
    s, lam, values = _batch(0).s, jnp.asarray(_prefs(1, BATCH, 3)), made.action_values
    assert values is not None
    best = [int(jnp.argmax(net(s[i], lam[i], is_normalized=False) @ lam[i])) for i in range(BATCH)]
    np.testing.assert_array_equal(values.act(state, s, lam, jnp.zeros((BATCH, 1)))[0][:, 0], best)
    own = values.values(state, s, _batch(0).a, lam)[0]
    np.testing.assert_allclose(own[2], net(s[2], lam[2], is_normalized=False)[int(_batch(0).a[2, 0])], rtol=1e-5)


def test_the_learning_rate_falls_on_a_line_to_its_end():
    """Adam's first step is the rate itself, in every entry with a gradient; so is each of equal gradients."""
    cfg = replace(CFG, learning_rate=0.3, learning_rate_end=0.1, anneal_steps=4)
    optimizer = envelope.make_optimizer(cfg)
    weights = jnp.zeros(2)
    state, moves = optimizer.init(weights), []
    for _ in range(6):
        move, state = optimizer.update(jnp.full(2, 0.5), state)
        moves.append(-float(jnp.asarray(move)[0]))
    np.testing.assert_allclose(moves, [0.3, 0.25, 0.2, 0.15, 0.1, 0.1], rtol=1e-4)


def test_observations_in_units_of_their_spread_are_learned_from_as_if_they_were_given_so():
    """One update with the scale of its batch equals a plain one on observations that were scaled by hand."""
    cfg = replace(CFG, scale_obs=True, twin=True)
    first = envelope.init(cfg, SPEC, jax.random.key(1))
    batch = _batch(0)
    batch = replace(batch, s=5.0 + 3.0 * batch.s, s_next=5.0 + 3.0 * batch.s_next)
    after, info, _ = _step(cfg)(first, batch, _hints(), jax.random.key(2))
    mean, spread = np.mean(batch.s, axis=0), np.std(batch.s, axis=0)
    scaled = replace(batch, s=(batch.s - mean[None]) / spread[None], s_next=(batch.s_next - mean[None]) / spread[None])
    plain = replace(first, scale=None)
    expected, told, _ = _step(replace(CFG, twin=True))(plain, scaled, _hints(), jax.random.key(2))
    assert {name: float(value) for name, value in info.items()} == pytest.approx(
        {name: float(value) for name, value in told.items()}, rel=1e-3
    )
    assert_trees_close(
        replace(after, scale=None, optimizer=(), twin=None), replace(expected, optimizer=(), twin=None), 1e-3
    )
    s, lam = batch.s[2], jnp.asarray(_prefs(1, 1, 3)[0])
    acting = envelope.make(cfg, SPEC).actor(after)
    np.testing.assert_allclose(acting(s, lam), after.net(scaled.s[2], lam), rtol=1e-3, atol=1e-4)
    unscaled = _step(replace(CFG, twin=True))(plain, batch, _hints(), jax.random.key(2))[1]
    assert float(unscaled["loss_a"]) != pytest.approx(float(told["loss_a"]), rel=0.1)


def test_indices_are_not_scaled():
    """A room that is hardly seen has a spread near 0, and would be blown up where it is."""
    cfg = envelope.EnvelopeConfig(width_factors=(2,))
    assert cfg.scale_obs
    assert envelope.init(cfg, DISCRETE, jax.random.key(0)).scale is not None
    rooms = replace(DISCRETE, obs_indices=Indices((5,), (0,)))
    assert envelope.init(cfg, rooms, jax.random.key(0)).scale is None


def test_the_scale_is_that_of_all_batches_seen():
    batches = [np.asarray(_batch(seed).s) * (seed + 1) for seed in range(3)]
    scale = envelope.new_scale(3)
    np.testing.assert_array_equal(scale.spread, np.ones(3))
    for batch in batches:
        scale = envelope.updated_scale(scale, jnp.asarray(batch))
    np.testing.assert_allclose(scale.mean, np.concatenate(batches).mean(axis=0), rtol=1e-5)
    np.testing.assert_allclose(scale.spread, np.concatenate(batches).std(axis=0), rtol=1e-5)
    still = envelope.updated_scale(envelope.new_scale(1), jnp.full((4, 1), 7.0))
    np.testing.assert_allclose(still.spread, [envelope.LEAST_SPREAD])


# Values and losses


@pytest.mark.parametrize("layer_norm", [False, True])
def test_the_taken_values_are_the_columns_of_the_taken_actions(layer_norm: bool):
    state, batch, prefs, cfg = _state(0), _batch(1), _prefs(2, PREFS, 3), replace(CFG, layer_norm=layer_norm)
    a = np.asarray(batch.a)[:, 0].astype(np.int32)
    q = np.asarray(jax.jit(partial(envelope.all_values, cfg))(state.net, batch.s, prefs))
    taken = jax.jit(partial(envelope.taken_values, cfg))(state.net, batch.s, prefs, a)
    np.testing.assert_allclose(taken, q[np.arange(BATCH), :, a], rtol=1e-5, atol=1e-5)
    assert len(set(a)) > 2


def test_a_standardised_network_by_hand():
    """Two hidden layers: what goes into each ReLU has mean 0 and variance 1 over the layer."""
    state, cfg = _state(0), replace(CFG, layer_norm=True)
    s, lam = np.array([0.3, -1.0, 2.0]), np.array([0.2, 0.3, 0.5])
    x, (*hidden, (weight, bias)) = np.concatenate([s, lam]), oracle.net_of(state.net)
    for w, b in hidden:
        x = x @ w + b
        x = np.maximum((x - x.mean()) / np.sqrt(x.var() + 1e-5), 0.0)
    got = state.net(jnp.asarray(s, jnp.float32), jnp.asarray(lam, jnp.float32), cfg.layer_norm)
    np.testing.assert_allclose(got, (x @ weight + bias).reshape(-1, 3), rtol=1e-4, atol=1e-5)


def test_indices_above_a_byte_keep_their_meaning():
    cfg = replace(CFG, bins=20)
    state, spec = _state(0, CONTINUOUS, cfg), CONTINUOUS
    batch = replace(_batch(1, spec), a=jnp.array([[0.0], [255.0], [256.0], [300.0], [398.0], [399.0]]))
    _, info, _ = _step(cfg)(state, batch, _hints(2), jax.random.key(3))
    prefs = _drawn(jax.random.key(3), d=2)
    q = oracle.every(oracle.net_of(state.net), np.asarray(batch.s, np.float64), prefs)
    expected = np.mean([prefs[i] @ q[j, i, int(batch.a[j, 0])] for j in range(BATCH) for i in range(PREFS)])
    assert float(info["q"]) == pytest.approx(expected, rel=1e-4)
    table = envelope.make(cfg, spec).acting.decode(np.asarray(batch.a))
    np.testing.assert_allclose(table[3], [-1 + 2 * 15 / 19, -1.0], rtol=1e-6)


def test_the_losses_by_hand():
    prefs = jnp.array([[0.25, 0.75], [0.5, 0.5]])
    q = jnp.array([[[1.0, 2.0], [0.0, 0.0]]])
    y = jnp.array([[[3.0, 2.0], [1.0, -1.0]]])
    # Differences (2, 0) and (1, -1): squares 4, 0, 1, 1; scalar .25 * 2 and 0, blind across the preference.
    a, b = jax.jit(partial(envelope.homotopy_loss, CFG))(q, y, prefs)
    assert (float(a), float(b)) == pytest.approx((6 / 4, 0.25 / 2))
    a, b = jax.jit(partial(envelope.homotopy_loss, replace(CFG, loss_b="absolute")))(q, y, prefs)
    assert (float(a), float(b)) == pytest.approx((6 / 4, 0.5 / 2))
    # Linear from 1 on: 2 costs 1.5, 1 costs 0.5.
    a, b = jax.jit(partial(envelope.homotopy_loss, replace(CFG, loss_a="huber", loss_b="huber")))(q, y, prefs)
    assert (float(a), float(b)) == pytest.approx((2.5 / 4, 0.125 / 2))


@pytest.mark.parametrize(
    ("share", "beta"), [(0.0, 0.011), (0.5, 0.0415), (0.75, 0.1865), (0.9, 0.5067), (1.0, 1.0), (1.5, 1.0)]
)
def test_the_homotopy_rises_as_in_the_authors_code(share: float, beta: float):
    cfg = envelope.EnvelopeConfig(anneal_steps=1000)
    got = jax.jit(partial(envelope.homotopy, cfg))(jnp.int32(1000 * share))
    assert float(got) == pytest.approx(beta, abs=1e-4)
    assert float(got) == pytest.approx(oracle.beta(0.01, int(1000 * share), 1000), rel=1e-5)


# The update


def test_three_updates_are_those_of_the_loops(monkeypatch: pytest.MonkeyPatch):
    """Losses, gradient by differences, cut, Adam, homotopy, and the target network copied after the second update."""
    monkeypatch.setattr(envelope, "GRADIENT_CLIP", 0.05)
    state, step = _state(0), jax.jit(partial(envelope.update, CFG))
    settings = oracle.Settings(1e-2, 0.9, 0.05, 2, 0.01, 3)
    learner = oracle.learner_of(state)
    for seed in range(3):
        batch = _batch(seed)
        state, info, priorities = step(state, batch, _hints(), jax.random.key(seed))
        expected, raw = oracle.update(settings, learner, oracle.batch_of(batch), _drawn(jax.random.key(seed)))
        assert priorities is None
        assert {name: float(value) for name, value in info.items()} == pytest.approx(expected, rel=1e-3)
        moments = state.optimizer[1][0]  # pyright: ignore[reportIndexIssue]
        for ours, theirs in ((state.net, learner.net), (state.target, learner.target), (moments.mu, learner.first)):
            assert_trees_close(oracle.net_of(ours), theirs, 2e-4)
        slopes = np.concatenate([part.ravel() for layer in raw for part in layer])
        assert (np.abs(slopes) > 0.05).any()
        assert ((np.abs(slopes) < 0.05) & (slopes != 0)).any()
    assert int(state.num_updates) == 3


def test_the_released_code_s_target_takes_part_in_the_update():
    infos = []
    for is_envelope in (True, False):
        step = _step(replace(CFG, envelope=is_envelope))
        infos.append(step(_state(0), _batch(0), _hints(), jax.random.key(0))[1])
    assert float(infos[1]["own_preference_share"]) == 1.0
    assert float(infos[0]["own_preference_share"]) < 1.0
    state, batch, prefs = _state(0), oracle.batch_of(_batch(0)), _drawn(jax.random.key(0))
    online, target = (oracle.every(oracle.net_of(net), batch.s_next, prefs) for net in (state.net, state.target))
    going_on = (1 - batch.terminated)[:, None, None]
    y = batch.r[:, None] + 0.9 * going_on * oracle.double_dqn_target(online, target, prefs)
    vector, scalar, _ = oracle.losses(oracle.net_of(state.net), batch, prefs, y)
    assert (float(infos[1]["loss_a"]), float(infos[1]["loss_b"])) == pytest.approx((vector, scalar), rel=1e-4)


# Priorities


def test_priorities_are_those_of_the_loops():
    state, batch, cfg = _state(0), _batch(1, num=9), CFG
    got = jax.jit(partial(envelope.priority, cfg))(state, batch, _many_hints(9), jax.random.key(4))
    lam = _drawn(jax.random.key(4), 9)
    expected = oracle.priority(oracle.net_of(state.net), oracle.batch_of(batch), lam, 0.9)
    np.testing.assert_allclose(got, expected, rtol=1e-4, atol=1e-6)
    assert len(np.unique(lam, axis=0)) == 9


def _many_hints(num: int, d: int = 3) -> Hints:
    return Hints(jnp.zeros((num, d)), jnp.zeros((num, 0, d)))


def test_a_transition_without_error_keeps_a_small_priority():
    zeros = jax.tree.map(jnp.zeros_like, _state(0))
    batch = replace(_batch(1), r=jnp.zeros((BATCH, 3)))
    got = jax.jit(partial(envelope.priority, CFG))(zeros, batch, _many_hints(BATCH), jax.random.key(0))
    np.testing.assert_allclose(got, 1e-5, rtol=1e-6)


def test_the_exponent_is_the_power_of_the_error_and_0_makes_all_alike():
    batch, powers = _batch(1), {}
    for power in (0.0, 1.0, 2.0):
        priority = jax.jit(partial(envelope.priority, replace(CFG, priority_exponent=power)))
        powers[power] = np.asarray(priority(_state(0), batch, _many_hints(BATCH), jax.random.key(4)))
    np.testing.assert_allclose(powers[0.0], 1.0, rtol=1e-4)
    np.testing.assert_allclose(powers[2.0], np.square(powers[1.0]), rtol=1e-2, atol=1e-3)
    assert powers[1.0].std() > 0.1


# Actions


def test_the_action_table_by_hand():
    np.testing.assert_array_equal(envelope.action_table(1, 5), np.array([[-1], [-0.5], [0], [0.5], [1]], np.float32))
    nine = [[-1, -1], [-1, 0], [-1, 1], [0, -1], [0, 0], [0, 1], [1, -1], [1, 0], [1, 1]]
    np.testing.assert_array_equal(envelope.action_table(2, 3), np.array(nine, np.float32), strict=True)


def test_bins_that_cannot_work_are_refused_with_advice():
    with pytest.raises(ValueError, match=r"bins must be 2 or more .* got 1"):
        envelope.action_table(2, 1)
    with pytest.raises(ValueError, match=r"5 bins on each of 8 action axes make 390625 .* set bins to 4 or fewer"):
        envelope.action_table(8, 5)
    assert len(envelope.action_table(8, 4)) == 65536
    with pytest.raises(ValueError, match="use an algorithm for continuous actions"):
        envelope.action_table(17, 2)


def test_the_network_has_the_authors_widths():
    cfg = envelope.EnvelopeConfig()
    dst = EnvSpec("dst", 2, 2, ("treasure", "time"), None, None)
    assert envelope.widths(cfg, dst) == (4, 64, 128, 256, 128, 242)
    hopper = EnvSpec("hopper", 11, 3, ("x", "z", "cost"), None, None)
    assert envelope.widths(cfg, hopper) == (14, 224, 448, 896, 448, 375)


def test_one_hot_observations_do_not_make_the_hidden_layers_wider_than_they_need():
    rooms = EnvSpec("Rooms", 500, 1, ("a", "b"), None, None, num_actions=4, obs_indices=Indices((500,), (0,)))
    assert envelope.widths(envelope.EnvelopeConfig(), rooms) == (502, 512, 1024, 2048, 1024, 8)
    few = replace(rooms, obs_size=5, obs_indices=Indices((5,), (0,)))
    assert envelope.widths(envelope.EnvelopeConfig(), few) == (7, 112, 224, 448, 224, 8)


def test_a_network_that_fits_no_memory_is_refused():
    pixels = EnvSpec("Pixels", 10_000, 1, ("a", "b"), None, None, num_actions=4)
    with pytest.raises(ValueError, match=r"at most 200,000,000 parameters, got .* set smaller ones, such as --width-f"):
        envelope.widths(envelope.EnvelopeConfig(), pixels)
    assert envelope.widths(envelope.EnvelopeConfig(width_factors=(1,)), pixels) == (10_002, 10_002, 8)


@pytest.mark.parametrize(("spec", "layer_norm"), [(CONTINUOUS, False), (DISCRETE, True)])
def test_acting_on_the_host_and_on_the_device_agree(spec: EnvSpec, layer_norm: bool):
    cfg = replace(CFG, bins=3, layer_norm=layer_norm)
    algorithm, state = envelope.make(cfg, spec), _state(3, spec, cfg)
    generator = np.random.default_rng(0)
    obs, lam = generator.normal(size=(1, 50, 5)).astype(np.float32), _prefs(1, 50, 2)[None]
    flat = np.concatenate([np.asarray(leaf).ravel() for leaf in jax.tree.leaves(algorithm.actor(state))])[None]
    policy = algorithm.acting.policy(flat)
    assert algorithm.action_values is not None
    best, _ = jax.jit(algorithm.action_values.act)(state, obs[0], lam[0], np.zeros((50, 1), np.float32))
    acts = policy.exploit(obs, lam)[0]
    np.testing.assert_array_equal(acts, algorithm.acting.decode(np.asarray(best)))
    net, table = oracle.net_of(state.net), envelope.actions_of(cfg, spec)
    for i in range(0 if layer_norm else 50):
        np.testing.assert_array_equal(acts[i], table[np.argmax(oracle.values(net, obs[0, i], lam[0, i]) @ lam[0, i])])
    assert len(np.unique(acts, axis=0)) > 2
    never = np.ones((1, 50, 2), np.float32)
    stored = policy.explore(obs, lam, never, 0)
    np.testing.assert_array_equal(algorithm.acting.decode(stored), policy.exploit(obs, lam))


def test_the_policy_explores_by_that_epsilon():
    cfg = replace(CFG, bins=3, anneal_steps=1000, epsilon_start=0.8, epsilon_end=0.2)
    algorithm, state = envelope.make(cfg, CONTINUOUS), _state(3, CONTINUOUS, cfg)
    flat = np.concatenate([np.asarray(leaf).ravel() for leaf in jax.tree.leaves(state.net)])[None]
    obs, lam = np.zeros((1, 3, 5), np.float32), np.full((1, 3, 2), 0.5, np.float32)
    noise = np.array([[[0.1, 0.999], [0.5, 0.999], [0.9, 0.999]]], np.float32)
    policy = algorithm.acting.policy(flat)
    best = int(policy.explore(obs, lam, np.ones_like(noise), 0)[0, 0, 0])
    assert best != 8
    for step, expected in ((0, [8, 8, best]), (500, [8, best, best]), (1000, [8, best, best]), (9000, [8, best, best])):
        np.testing.assert_array_equal(policy.explore(obs, lam, noise, step)[0, :, 0], expected)


def test_the_replay_keeps_the_newest_and_needs_no_hints():
    learning = envelope.make(CFG, SPEC).learning
    assert isinstance(learning, PrioritizedLearning)
    assert (learning.keeps, learning.forces_newest, learning.num_past) == ("newest", False, 0)
