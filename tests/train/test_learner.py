"""The device side of training: seeds that do not know of each other, blocks that are only a grouping of updates."""

from dataclasses import replace
from functools import cache, partial
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from qpensieve.algos import qpensieve
from qpensieve.algos.qpensieve import QPensieveConfig
from qpensieve.config import default_config
from qpensieve.envs.registry import spec_of
from qpensieve.errors import UserError
from qpensieve.learning.acting import GaussianPolicy
from qpensieve.learning.interface import Transition
from qpensieve.methods import METHODS, make_algorithm
from qpensieve.replay import ring
from qpensieve.replay.layout import layout_of
from qpensieve.train.learner import Block, Learner, TrainState, make_learner
from tests.algos.problem import (
    HIDDEN,
    LAYOUT,
    SAC,
    SPEC,
    assert_trees_close,
    assert_trees_equal,
    pensieve_update,
    random_like,
)
from tests.rounding import assert_same_to_rounding

CFG = QPensieveConfig(replace(SAC, batch_size=8), num_preferences=3, num_snapshots=2, push_after=0, push_period=4)
CAPACITY, BLOCK, HALF = 20, 4, 2
"""Tests share the programs of a block and of half a block."""
SEEDS = (4, 1, 9)
WIDTHS = (SPEC.obs_size + SPEC.num_objectives, HIDDEN, HIDDEN, 2 * SPEC.action_size)


@cache
def _learner(ratio: int = 1) -> Learner:
    return make_learner(qpensieve.make(CFG, SPEC), LAYOUT, CAPACITY, ratio)


def _rows(seed: int, num: int = BLOCK, block: int = 0) -> np.ndarray:
    """What one seed writes in one block."""
    rows = np.random.default_rng([seed, block]).normal(size=(num, LAYOUT.width)).astype(np.float32)
    rows[:, -1] = rows[:, -1] > 0.5
    return rows


def _stacked(seeds: tuple[int, ...], **kwargs: Any) -> jax.Array:
    return jnp.asarray(np.array([_rows(seed, **kwargs) for seed in seeds]))


def _block(seeds: tuple[int, ...], **kwargs: Any) -> Block:
    return Block(_stacked(seeds, **kwargs))


def _trained(seeds: tuple[int, ...], num_blocks: int = 4) -> tuple[TrainState, Any, Any]:
    """One block written, then `num_blocks` learned from."""
    learner = _learner()
    state = learner.write(learner.init(jnp.asarray(seeds)), _block(seeds, block=0))
    flat, info = None, None
    for i in range(num_blocks):
        state, flat, info = learner.learn(state, _block(seeds, block=1 + i))
    return state, flat, info


def test_priorities_need_one_update_for_each_step():
    with pytest.raises(UserError, match="updates_per_step must be 1 for methods with priorities, got 2"):
        make_learner(make_algorithm("cnder", METHODS["cnder"].config(), SPEC), LAYOUT, CAPACITY, 2)


def test_a_seed_does_not_depend_on_the_seeds_that_learn_with_it():
    """The same program with another seed in the middle."""
    first, other = _trained(SEEDS), _trained((SEEDS[0], 7, SEEDS[2]))
    for i in (0, 2):
        assert_trees_equal(*(jax.tree.map(lambda leaf, i=i: leaf[i], one) for one in (first, other)))
    assert np.any(np.asarray(first[1])[1] != np.asarray(other[1])[1])
    assert int(first[0].agent.snapshots.filled[0].sum()) == 2


def test_seeds_differ_from_each_other_from_the_start():
    learner = _learner()
    state = learner.init(jnp.asarray(SEEDS))
    flat = np.asarray(learner.flat_actors(state))
    assert len(np.unique(flat, axis=0)) == 3
    keys = np.asarray(jax.random.key_data(state.key))
    assert len(np.unique(keys, axis=0)) == 3
    np.testing.assert_array_equal(learner.flat_actors(learner.init(jnp.asarray(SEEDS[::-1]))), flat[::-1])


def test_updates_in_one_call_are_the_updates_of_as_many_calls():
    """The replay is full, and every block writes again what lies there, so that all calls sample the same rows."""
    learner, rows = _learner(), _stacked(SEEDS, num=CAPACITY)
    full = lambda: learner.write(learner.init(jnp.asarray(SEEDS)), Block(rows))
    together, _, long_info = learner.learn(full(), Block(rows[:, :BLOCK]))
    short, infos = full(), []
    for k in (0, HALF):
        short, _, short_info = learner.learn(short, Block(rows[:, k : k + HALF]))
        infos.append(short_info)
    np.testing.assert_array_equal(together.replay.rows, rows)
    assert_same_to_rounding(short, together)
    # The log of a block is the mean over its updates, and the largest of their losses; looks differ: one per block.
    updates = ("critic_loss", "policy_loss", "q", "entropy", "temperature", "snapshot_share", "other_preference_share")
    mean = {name: np.mean([info[name] for info in infos], axis=0) for name in updates}
    assert_same_to_rounding(mean, {name: np.asarray(long_info[name]) for name in updates})
    largest = np.max([info["critic_loss_max"] for info in infos], axis=0)
    assert_same_to_rounding(largest, np.asarray(long_info["critic_loss_max"]))


def test_several_updates_per_row_are_those_of_a_longer_block_on_the_same_replay():
    """The replay is full, and what is written again lies there already."""
    learner, twice, rows = _learner(), _learner(ratio=2), _stacked(SEEDS, num=CAPACITY)
    full = lambda: learner.write(learner.init(jnp.asarray(SEEDS)), Block(rows))
    long, *_ = learner.learn(full(), Block(rows[:, :BLOCK]))
    short, _, info = twice.learn(full(), Block(rows[:, :HALF]))
    assert short.num_updates.tolist() == [BLOCK] * 3
    assert_trees_close(short.agent, long.agent, 1e-5)
    assert int(short.agent.snapshots.filled[0].sum()) == 1
    assert short.replay.written.tolist() == [CAPACITY + HALF] * 3
    assert np.isfinite(info["critic_gradient_max"]).all()


def test_update_i_uses_the_key_folded_from_the_runs_key_and_i():
    """Written out by hand: what a run does depends on its key and the number of the update, not on the block."""
    learner = _learner()
    state = learner.write(learner.init(jnp.asarray(SEEDS)), _block(SEEDS, num=CAPACITY))
    agent, buffer = jax.jit(partial(jax.tree.map, jnp.copy))((state.agent, state.replay))
    key_data = np.asarray(jax.random.key_data(state.key))[1]
    for start in (0, BLOCK):  # writes again what lies there
        state, *_ = learner.learn(state, Block(_stacked(SEEDS, num=CAPACITY)[:, start : start + BLOCK]))
    second = jax.jit(partial(jax.tree.map, lambda leaf: leaf[1]))
    by_hand = second(agent)
    update = jax.jit(pensieve_update(CFG))
    for i in range(2 * BLOCK):
        key_batch, key_update = jax.random.split(jax.random.fold_in(jax.random.wrap_key_data(key_data), i))
        rows = ring.sample(buffer, jnp.asarray(1), key_batch, CFG.sac.batch_size)
        by_hand, _ = update(by_hand, Transition(*LAYOUT.unpack(rows)), key_update)
        if i + 1 in (BLOCK, 2 * BLOCK):
            by_hand = qpensieve.end_block(CFG, by_hand, jnp.asarray(i + 1))
    assert_trees_close(second(state.agent), by_hand, 1e-5)
    assert by_hand.snapshots.filled.all()


def test_the_new_rows_are_there_for_the_first_update_of_their_block():
    """The replay holds nothing but the block just handed over, whose rewards of 1000 show in the loss."""
    learner = _learner()
    rows = np.array(_stacked(SEEDS))
    rows[..., LAYOUT.reward] = 1000.0
    _, _, info = learner.learn(learner.init(jnp.asarray(SEEDS)), Block(jnp.asarray(rows)))
    # Each twin is 1000 away in every objective; the preference sums to 1.
    np.testing.assert_allclose(info["critic_loss"], 2e6, rtol=0.2)


@pytest.mark.parametrize("call", ["learn", "write"])
def test_the_old_state_is_given_up_and_the_new_one_whole(call: str):
    """The replay fills the memory: a copy of it at every block would not fit twice."""
    learner = _learner()
    state = learner.init(jnp.asarray(SEEDS))
    result = getattr(learner, call)(state, _block(SEEDS))
    new, others = (result[0], result[1:]) if call == "learn" else (result, ())
    assert state.replay.rows.is_deleted()
    assert state.agent.sac.target.net.first.weight.is_deleted()
    assert not any(leaf.is_deleted() for leaf in jax.tree.leaves((new, others)))
    # The flat actors are handed to the host while the next block already takes the state over.
    learner.learn(new, _block(SEEDS, block=1))
    assert not any(leaf.is_deleted() for leaf in jax.tree.leaves(others))


def _random_actors() -> TrainState:
    """A state whose actors have biases of their own, which at the start are all zero."""
    state = _learner().init(jnp.asarray(SEEDS))
    actor = lambda state: state.agent.sac.actor
    return eqx.tree_at(actor, state, random_like(actor(state), seed=0))


def test_the_host_policy_is_the_actor():
    state = _random_actors()
    policy = GaussianPolicy(np.asarray(_learner().flat_actors(state)), WIDTHS, True)
    generator = np.random.default_rng(0)
    obs = generator.normal(scale=2.0, size=(3, 7, SPEC.obs_size)).astype(np.float32)
    lam = generator.dirichlet(np.ones(3), size=(3, 7)).astype(np.float32)
    noise = generator.normal(size=(3, 7, SPEC.action_size)).astype(np.float32)
    mean, log_std = policy.gaussian(obs, lam)
    actions = policy.explore(obs, lam, noise, 0)
    expected_mean, expected_log_std = jax.jit(jax.vmap(jax.vmap(lambda actor, s, pref: actor(s, pref), (None, 0, 0))))(
        state.agent.sac.actor, obs, lam
    )
    expected = np.tanh(expected_mean + np.exp(expected_log_std) * noise)
    assert_same_to_rounding((mean, log_std, actions), (expected_mean, expected_log_std, expected))
    assert np.ptp(mean, axis=0).min() > 1e-2
    for seed in range(3):
        own = GaussianPolicy(np.asarray(_learner().flat_actors(state))[seed : seed + 1], WIDTHS, True)
        own_obs, own_lam, own_noise = (x[seed : seed + 1] for x in (obs, lam, noise))
        alone = own.explore(own_obs, own_lam, own_noise, 0)
        assert_same_to_rounding(alone[0], actions[seed])


def test_the_host_policy_clips_the_standard_deviation_as_the_actor_does():
    flat = np.asarray(_learner().flat_actors(_random_actors()))
    obs = np.full((3, 1, SPEC.obs_size), 1e3, np.float32)
    lam = np.full((3, 1, 3), 1 / 3, np.float32)
    _, log_std = GaussianPolicy(flat, WIDTHS, True).gaussian(obs, lam)
    assert set(log_std.ravel().tolist()) <= {-20.0, 2.0}


@pytest.mark.slow
@pytest.mark.parametrize("name", [name for name, method in METHODS.items() if method.make])
def test_first_parameters_do_not_depend_on_how_far_their_program_is_optimised(name: str):
    spec = spec_of("DST2d")
    algorithm = make_algorithm(name, default_config("DST2d", name, "quick").agent, spec)
    learner, seeds = make_learner(algorithm, layout_of(spec, algorithm.behaviour), 10), jnp.asarray(SEEDS)
    optimised = learner.init.lower(seeds).compile({"xla_backend_optimization_level": 3})  # pyright: ignore[reportFunctionMemberAccess]
    assert_same_to_rounding(learner.init(seeds), optimised(seeds))


def test_updates_are_compiled_with_the_options_of_updates(monkeypatch: pytest.MonkeyPatch):
    """An option that no compiler knows shows that options arrive."""
    monkeypatch.setattr("qpensieve.train.learner.options_of_updates", lambda: {"xla_no_such_option": "1"})
    made = make_learner.__wrapped__(qpensieve.make(CFG, SPEC), LAYOUT, CAPACITY)
    with pytest.raises(jax.errors.JaxRuntimeError, match="No such compile option: 'xla_no_such_option'"):
        made.learn(made.init(jnp.asarray(SEEDS)), _block(SEEDS))
