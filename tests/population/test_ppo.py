"""PPO with a vector critic against plain NumPy, numbers by hand, and populations of it.

All tests of an update share one compiled program, and those of what comes before the first step another.
"""

import re
from collections.abc import Iterator
from dataclasses import replace
from functools import cache, partial
from types import SimpleNamespace
from typing import Any

import equinox as eqx
import jax
import numpy as np
import pytest

from qpensieve.learning.streams import Purpose, generator
from qpensieve.population import ppo
from qpensieve.population.ppo import Place
from qpensieve.types import EnvSpec
from tests.algos.problem import assert_trees_close, assert_trees_equal, random_like
from tests.oracles import ppo as oracle

SPEC = EnvSpec("test", 3, 2, ("one", "two", "three"), None, None)
CFG = ppo.PpoConfig(
    hidden=4,
    discount=0.9,
    num_lanes=3,
    rollout_steps=8,
    epochs=2,
    minibatches=3,
)
CONSTANTS = {
    "GAE_LAMBDA": 0.8,
    "CLIP": 0.1,
    "VALUE_COEFFICIENT": 0.7,
    "MAX_GRADIENT_NORM": 0.4,
    "ADAM_EPSILON": 1e-2,  # rounding of tiny gradients must not decide the direction of a step
}
PLAIN = SimpleNamespace(**vars(CFG), **{name.lower(): value for name, value in CONSTANTS.items()})
"""What the oracle needs to know."""
RATE = 0.05
NAMES = {"policy_loss", "value_loss", "kl", "clip_share", "std", "explained_variance"}
K, L = CFG.rollout_steps, CFG.num_lanes


@pytest.fixture(scope="module", autouse=True)
def _constants() -> Iterator[None]:
    """Other constants than PPO's own, so that each shows in few steps."""
    with pytest.MonkeyPatch.context() as patch:
        for name, value in CONSTANTS.items():
            patch.setattr(ppo, name, value)
        yield


_f32 = lambda values: np.asarray(values, np.float32)
_update = jax.jit(eqx.debug.assert_max_traces(partial(ppo.update, CFG), max_traces=1))
_judge = jax.jit(partial(ppo.judge, CFG))
_loss = jax.jit(partial(ppo.loss, CFG))
_advantages = jax.jit(ppo.advantages)


@cache
def _state(seed: int) -> ppo.State:
    """A state as after some training, its optimiser still fresh."""
    like = ppo.init(CFG, SPEC, np.random.default_rng(0))
    fresh = jax.tree.map(lambda leaf: np.zeros(leaf.shape, leaf.dtype), like.optimizer)
    return ppo.State(random_like(like.actor, 2 * seed), random_like(like.critic, 2 * seed + 1), jax.device_put(fresh))


def _rollout(seed: int, **changes: Any) -> ppo.Rollout:
    """Random steps; in every lane some episodes end and others meet the time limit, never both at once."""
    stream = np.random.default_rng(seed)
    normal = lambda *sizes: stream.normal(size=sizes).astype(np.float32)
    end = stream.random((K, L))
    given = {"obs": normal(K, L, 3), "action": normal(K, L, 2), "reward": normal(K, L, 3), "terminated": end < 0.2}
    given |= {"truncated": end > 0.8, "last_obs": normal(L, 3)}
    return ppo.Rollout(**jax.device_put(given | changes))


def _goal(lam: Any = (0.2, 0.5, 0.3), scale: Any = (2.0, 0.5, 7.0), rate: float = RATE) -> ppo.Goal:
    return ppo.Goal(*jax.device_put((_f32(lam), _f32(scale), _f32(rate))))


def _returns(critic: Any, rollout: ppo.Rollout) -> tuple[np.ndarray, np.ndarray]:
    """Returns and values by step, lane and objective."""
    batch = _judge(replace(_state(0), critic=critic), rollout, _goal())
    return np.asarray(batch.returns).reshape(K, L, 3), np.asarray(batch.values).reshape(K, L, 3)


def _at(*places: tuple[int, int]) -> np.ndarray:
    flags = np.zeros((K, L), bool)
    for place in places:
        flags[place] = True
    return flags


# The start


def test_a_member_starts_with_unit_noise_orthogonal_layers_and_a_fresh_optimiser():
    state = ppo.init(ppo.PpoConfig(), SPEC, np.random.default_rng(0))
    np.testing.assert_array_equal(state.actor.log_std, np.zeros(2))
    for net, size, square in [(state.actor.net, 2, 1.0), (state.critic, 3, 2.0)]:
        assert net.first.weight.shape == (3, 64)
        last = np.asarray(net.last.weight)
        np.testing.assert_allclose(last.T @ last, square * np.eye(size), atol=1e-5)
    assert not np.allclose(state.actor.net.second.weight, state.critic.second.weight)
    assert all(not np.any(leaf) for leaf in jax.tree.leaves(state.optimizer))


# Returns and advantages


@pytest.mark.parametrize("seed", range(2))
def test_before_the_first_step_all_is_as_in_the_plain_loops(seed: int):
    state, rollout, goal = _state(seed), _rollout(seed), _goal()
    for flags in (rollout.terminated, rollout.truncated):
        assert np.asarray(flags)[1:-1].any()
    lam, scale = np.asarray(goal.lam, np.float64), np.asarray(goal.scale, np.float64)
    batch = _judge(state, rollout, goal)
    rows = oracle.judge(PLAIN, oracle.learner_of(state), oracle.rollout_of(rollout), lam, scale)
    for name, expected in vars(rows).items():
        np.testing.assert_allclose(getattr(batch, name), expected, rtol=1e-4, atol=1e-5, err_msg=name)


def test_returns_by_hand():
    """Values are all (1, 10, 0); discount 0.9, decay 0.72; an end, a step, a time limit, the last step."""
    zeros = jax.tree.map(np.zeros_like, _state(0).critic)
    critic = eqx.tree_at(lambda net: net.last.bias, zeros, _f32([1.0, 10.0, 0.0]))
    reward = np.zeros((K, L, 3), np.float32)
    reward[4:, 0, :2] = [[2.0, 0.0], [3.0, 1.0], [50.0, 60.0], [4.0, -1.0]]
    returns, values = _returns(critic, _rollout(0, reward=reward, terminated=_at((4, 0)), truncated=_at((6, 0))))
    np.testing.assert_array_equal(values[:, 0], [[1.0, 10.0, 0.0]] * K)
    # Bootstrapped with 0.9 and 9; the third is the value itself, whatever the reward; nothing flows into the first two.
    expected = [[2.0, 0.0], [3.9, 10.0], [1.0, 10.0], [4.9, 8.0]]
    np.testing.assert_allclose(returns[4:, 0, :2], expected, rtol=1e-6)


@pytest.mark.parametrize(
    ("scale", "returns", "values", "expected"),
    [
        # 0.5 x 10 x 2 - 0.5 x 4 x 1 = 8 and 0.5 x 4 x 1 = 2: mean 5, standard deviation 3.
        ([10.0, 4.0], [[3.0, 1.0], [1.0, 1.0]], [[1.0, 2.0], [1.0, 0.0]], [3 / (3 + 1e-5), -3 / (3 + 1e-5)]),
        ([1.0, 1.0], [[1.0, 1.0], [1.0, 1.0]], [[0.0, 0.0], [0.0, 0.0]], [0.0, 0.0]),
        # A step that gains 1 raw unit of the small objective and loses 10 of the large one is bad; on the scale of
        # normalised rewards it would be good.
        ([1.0, 100.0], [[1.0, -0.1], [0.0, 0.0]], [[0.0, 0.0], [0.0, 0.0]], [-1.0, 1.0]),
        ([1.0, 1.0], [[1.0, -0.1], [0.0, 0.0]], [[0.0, 0.0], [0.0, 0.0]], [1.0, -1.0]),
    ],
)
def test_advantages_by_hand(scale: Any, returns: Any, values: Any, expected: Any):
    tables = [np.array(table, np.float32)[:, None] for table in (returns, values)]
    ours = _advantages(_f32([0.5, 0.5]), _f32(scale), *tables)
    np.testing.assert_allclose(ours[:, 0], expected, rtol=1e-4)


# The loss


def test_the_ratio_stops_counting_only_where_that_lowers_the_gain():
    ratio, advantage = _f32([1.5, 0.5, 1.5, 0.5, 1.1]), _f32([2.0, 2.0, -2.0, -2.0, 1.0])
    # 1.2 x 2, 0.5 x 2, 1.5 x -2, 0.8 x -2 and 1.1 unclipped: 2.4 + 1 - 3 - 1.6 + 1.1 = -0.1.
    value, slope = jax.jit(jax.value_and_grad(partial(ppo.policy_loss, 0.2)))(ratio, advantage)
    assert float(value) == pytest.approx(0.1 / 5, abs=1e-6)
    np.testing.assert_allclose(slope, [0.0, -2 / 5, 2 / 5, 0.0, -1 / 5], rtol=1e-6)


def test_the_value_error_is_the_larger_of_the_free_and_the_held_one():
    values, old = _f32([[1.0, 1.0], [-0.1, 2.0]]), _f32([[0.0, 0.0], [0.0, 3.0]])
    returns = _f32([[1.0, 2.0], [1.0, 4.0]])
    # Held values: 0.2, 0.2, -0.1 (within reach) and 2.8. Errors 0.64, 3.24, 1.21 and 4, the free one.
    value, slope = jax.jit(jax.value_and_grad(partial(ppo.value_loss, 0.2)))(values, old, returns)
    assert float(value) == pytest.approx(0.5 * (0.64 + 3.24 + 1.21 + 4.0) / 4, rel=1e-6)
    np.testing.assert_allclose(slope, [[0.0, 0.0], [-1.1 / 4, -2.0 / 4]], rtol=1e-6)


def test_the_loss_is_that_of_the_plain_loops():
    """Old numbers that are another network's, so that ratios and values lie on both sides of their bounds."""
    state, batch = _state(0), _judge(_state(1), _rollout(0), _goal())
    rows = oracle.Rows(*(np.asarray(leaf, np.float64) for leaf in vars(batch).values()))
    total, info = _loss((state.actor, state.critic), batch)
    expected, expected_info = oracle.loss(PLAIN, oracle.learner_of(state), rows)
    assert 0.2 < expected_info["clip_share"] < 1.0
    assert float(total) == pytest.approx(expected, rel=1e-5)
    assert {name: float(value) for name, value in info.items()} == pytest.approx(expected_info, rel=1e-4)


# The update


def test_two_updates_are_those_of_the_plain_loops():
    """Gradients of both networks shortened together, Adam's moments carried on, values and ratios held near."""
    state, learner, goal = _state(0), oracle.learner_of(_state(0)), _goal()
    lam, scale = np.asarray(goal.lam, np.float64), np.asarray(goal.scale, np.float64)
    permutation = jax.jit(ppo.permutation, static_argnums=1)
    for seed in range(2):
        key = jax.random.key(seed)
        orders = [np.asarray(permutation(k, K * L)) for k in jax.random.split(jax.random.clone(key), CFG.epochs)]
        rows = oracle.judge(PLAIN, learner, oracle.rollout_of(_rollout(seed)), lam, scale)
        expected, norms = oracle.update(PLAIN, learner, rows, RATE, orders)
        state, info = _update(state, _rollout(seed), goal, key)
        assert min(norms) < PLAIN.max_gradient_norm < max(norms)
        assert expected["clip_share"] > 0.05
        model = (state.actor, state.critic)
        assert_trees_close(model, jax.tree.unflatten(jax.tree.structure(model), learner.arrays), 2e-4)
        assert {name: float(info[name]) for name in expected} == pytest.approx(expected, rel=1e-3, abs=1e-5)
        assert float(info["std"]) == pytest.approx(np.exp(learner.log_std).mean(), rel=1e-4)
        left, all_of_it = (np.var(x, axis=0).sum() for x in (rows.returns - rows.values, rows.returns))
        assert float(info["explained_variance"]) == pytest.approx(1 - left / all_of_it, rel=1e-4)
        assert set(info) == NAMES


def test_a_permutation_of_many_numbers_does_not_overflow():
    """In each of the three orders two numbers would on average, were the random words as large as 2^32."""
    orders = jax.jit(jax.vmap(lambda key: ppo.permutation(key, 200_003)))(jax.random.split(jax.random.key(0), 3))
    np.testing.assert_array_equal(np.sort(orders, axis=1), np.tile(np.arange(200_003), (3, 1)))


def test_all_permutations_are_equally_likely():
    """Of 3 numbers, 6000 times: 1000 each, within five standard deviations of 29."""
    keys = jax.random.split(jax.random.key(0), 6000)
    orders = np.asarray(jax.jit(jax.vmap(lambda key: ppo.permutation(key, 3)))(keys))
    _, counts = np.unique(orders, axis=0, return_counts=True)
    assert len(counts) == 6
    assert np.abs(counts - 1000).max() < 145


# Members of a population


PLACES = (Place(4, 0), Place(4, 1), Place(5, 1))


def test_members_learn_in_a_population_what_they_learn_alone():
    stack = lambda trees: jax.tree.map(lambda *leaves: np.stack(leaves), *trees)
    members = [(_state(i), _rollout(i), _goal(np.eye(3)[i], (1.0 + i, 2.0, 0.5), 0.01 * (i + 1))) for i in range(3)]
    states, rollouts, goals = map(stack, zip(*members, strict=True))
    together, info = ppo.Learner(CFG, SPEC, PLACES).update(states, rollouts, goals, 7)
    for i, (member, place) in enumerate(zip(members, PLACES, strict=True)):
        alone, expected = _update(*member, ppo.member_key(place.seed, place.task, 7))
        assert_trees_close(jax.tree.map(lambda leaf, i=i: leaf[i], (together, info)), (alone, expected), 1e-5)


def test_a_members_start_is_its_places_alone():
    """Whatever runs with it, bit for bit; and no two are alike."""
    together = ppo.Learner(CFG, SPEC, PLACES).init()
    for row, place in enumerate(PLACES):
        alone = ppo.init(CFG, SPEC, generator(place.seed, Purpose.FIRST_PARAMETERS, place.task))
        assert_trees_equal(jax.tree.map(lambda leaf, row=row: np.asarray(leaf)[row], together), alone)
    weights = np.asarray(together.actor.net.second.weight)
    assert len(np.unique(weights.reshape(3, -1), axis=0)) == 3


def test_minibatches_differ_between_iterations_tasks_and_seeds():
    key_of = jax.jit(lambda *place: jax.random.key_data(ppo.member_key(*place)))
    places = np.ndindex(3, 3, 3)
    assert len({np.asarray(key_of(*place)).tobytes() for place in places}) == 27


# Running statistics


def test_batches_of_any_size_give_the_moments_of_all_samples_of_each_member():
    samples = np.random.default_rng(0).normal([3.0, -200.0], [0.1, 40.0], (3, 500, 2))
    moments = ppo.standard(3, 2)
    np.testing.assert_allclose(moments.scale, 1.0, rtol=1e-6)
    for rows in np.array_split(samples, [1, 5, 6, 200], axis=1):
        moments.merge(rows)
    np.testing.assert_allclose(moments.mean, samples.mean(axis=1), rtol=1e-6)
    np.testing.assert_allclose(moments.scale, np.sqrt(samples.var(axis=1) + ppo.VARIANCE_EPSILON), rtol=2e-4)
    np.testing.assert_allclose(moments.count, 500 + ppo.FIRST_COUNT)


def test_some_columns_can_be_left_out_and_equal_samples_all_but_replace_the_start():
    moments = ppo.standard(2, 3)
    moments.merge(np.full((2, 4, 2), 7.0), slice(2))
    np.testing.assert_array_equal(moments.count[:, 2], ppo.FIRST_COUNT)
    np.testing.assert_array_equal(moments.mean[:, 2], 0.0)
    np.testing.assert_allclose(moments.mean[:, :2], 7.0, rtol=1e-4)
    assert (moments.scale[:, :2] < 0.1).all()


# Sizes


def test_sizes_that_do_not_divide_are_refused_with_sizes_that_do():
    (problem,) = ppo.PpoConfig(rollout_steps=2047).conflicts()
    assert re.search(r"4 lanes x 2047 .* 8188 .* 32 .* minibatches to 23, .* multiple of 8", problem)
    for right in (ppo.PpoConfig(), ppo.PpoConfig(rollout_steps=2047, minibatches=23), ppo.PpoConfig(rollout_steps=8)):
        assert right.conflicts() == []
    for name in ("num_lanes", "rollout_steps", "minibatches"):
        assert "must be at least 1" in replace(ppo.PpoConfig(), **{name: 0}).conflicts()[0]
