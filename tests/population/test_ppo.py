"""PPO with a vector critic against plain NumPy, numbers by hand, populations of it and a probe with a known answer."""

import re
from dataclasses import replace
from functools import cache, partial
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy import stats

from qpensieve.population import ppo
from qpensieve.types import EnvSpec
from tests.algos.problem import assert_trees_close, assert_trees_equal, random_like
from tests.oracles import ppo as oracle

SPEC = EnvSpec("test", 3, 2, ("one", "two", "three"), None, None)
CFG = ppo.PpoConfig(
    hidden=4,
    discount=0.9,
    gae_lambda=0.8,
    num_lanes=3,
    rollout_steps=8,
    epochs=2,
    minibatches=3,
    clip=0.1,
    value_coefficient=0.7,
    entropy_coefficient=0.05,
    max_gradient_norm=0.4,
    adam_epsilon=1e-3,
)
RATE = 0.05
NAMES = {"policy_loss", "value_loss", "kl", "clip_share", "std", "explained_variance"}


@cache
def _state(seed: int, cfg: ppo.PpoConfig = CFG, spec: EnvSpec = SPEC) -> ppo.State:
    """A state as after some training, its optimiser still fresh."""
    like = ppo.init(cfg, spec, np.random.default_rng(0))
    fresh = jax.tree.map(lambda leaf: jnp.zeros(leaf.shape, leaf.dtype), like.optimizer)
    return ppo.State(random_like(like.actor, 2 * seed), random_like(like.critic, 2 * seed + 1), fresh)


def _rollout(seed: int, cfg: ppo.PpoConfig = CFG, spec: EnvSpec = SPEC) -> ppo.Rollout:
    """Random steps; in every lane some episodes end and others meet the time limit, never both at once."""
    generator = np.random.default_rng(seed)
    shape = (cfg.rollout_steps, cfg.num_lanes)
    normal = lambda *sizes: jnp.asarray(generator.normal(size=sizes), jnp.float32)
    end = generator.random(shape)
    return ppo.Rollout(
        obs=normal(*shape, spec.obs_size),
        action=normal(*shape, spec.action_size),
        reward=normal(*shape, spec.num_objectives),
        terminated=jnp.asarray(end < 0.2),
        truncated=jnp.asarray(end > 0.8),
        last_obs=normal(cfg.num_lanes, spec.obs_size),
    )


def _goal(lam: Any = (0.2, 0.5, 0.3), scale: Any = (2.0, 0.5, 7.0), rate: float = RATE) -> ppo.Goal:
    return ppo.Goal(jnp.asarray(lam, jnp.float32), jnp.asarray(scale, jnp.float32), jnp.asarray(rate, jnp.float32))


@cache
def _update(cfg: ppo.PpoConfig = CFG) -> Any:
    """The update, compiled once for each configuration."""
    return jax.jit(partial(ppo.update, cfg))


@cache
def _estimate(cfg: ppo.PpoConfig = CFG) -> Any:
    return jax.jit(partial(ppo.returns_and_values, cfg))


_advantages = jax.jit(ppo.advantages)


# The policy


def test_the_log_probability_is_that_of_independent_normals():
    actor = _state(0).actor
    obs, action = jnp.array([0.3, -1.0, 2.0]), jnp.array([1.5, -0.2])
    mean = oracle.forward(oracle.net_of(actor.net), np.asarray(obs))
    expected = stats.norm.logpdf(np.asarray(action), mean, np.exp(np.asarray(actor.log_std))).sum()
    assert np.abs(actor.log_std).min() > 0.03
    assert float(jax.jit(ppo.log_prob)(actor, obs, action)) == pytest.approx(expected, rel=1e-5)


def test_the_entropy_is_that_of_independent_normals():
    actor = _state(0).actor
    expected = stats.norm.entropy(scale=np.exp(np.asarray(actor.log_std))).sum()
    assert float(jax.jit(ppo.entropy)(actor)) == pytest.approx(expected, rel=1e-5)


def test_a_member_starts_with_unit_noise_orthogonal_layers_and_a_fresh_optimiser():
    state = ppo.init(ppo.PpoConfig(), SPEC, np.random.default_rng(0))
    np.testing.assert_array_equal(state.actor.log_std, np.zeros(2))
    heads = [(state.actor.net, 2, 1.0), (state.critic, 3, 2.0)]
    for net, size, square in heads:
        assert net.first.weight.shape == (3, 64)
        gram = np.asarray(net.last.weight.T @ net.last.weight)
        np.testing.assert_allclose(gram, square * np.eye(size), atol=1e-5)
    assert not np.allclose(state.actor.net.second.weight, state.critic.second.weight)
    assert all(not np.any(leaf) for leaf in jax.tree.leaves(state.optimizer))


def test_the_first_matrices_are_made_on_the_host():
    """Starts sometimes hung, and several QR factorisations in one compiled program are the suspect."""
    program = str(jax.make_jaxpr(lambda: ppo.init(CFG, SPEC, np.random.default_rng(0)))())
    assert not re.search("qr|householder", program)


# Returns and advantages


@pytest.mark.parametrize("seed", range(3))
def test_returns_are_those_of_the_plain_sums_with_ends_and_time_limits_in_the_middle(seed: int):
    state, rollout = _state(seed), _rollout(seed)
    for flags in (rollout.terminated, rollout.truncated):
        assert np.asarray(flags)[1:-1].any()
    returns, values = _estimate()(state.critic, rollout)
    expected = oracle.returns(CFG, oracle.net_of(state.critic), oracle.rollout_of(rollout))
    np.testing.assert_allclose(returns, expected[0], rtol=1e-5, atol=1e-5)
    np.testing.assert_allclose(values, expected[1], rtol=1e-5, atol=1e-5)


def test_returns_by_hand():
    """Values are all (1, 10); discount 0.9, decay 0.9 x 0.8 = 0.72; an end, a step, a time limit, the last step."""
    zeros = jax.tree.map(jnp.zeros_like, _state(0, spec=EnvSpec("two", 3, 2, ("one", "two"), None, None)).critic)
    critic = eqx.tree_at(lambda net: net.last.bias, zeros, jnp.array([1.0, 10.0]))
    reward = jnp.array([[2.0, 0.0], [3.0, 1.0], [50.0, 60.0], [4.0, -1.0]])[:, None]
    flags = jnp.array([[True, False], [False, False], [False, True], [False, False]])[:, None]
    rollout = ppo.Rollout(
        jnp.ones((4, 1, 3)), jnp.ones((4, 1, 2)), reward, flags[..., 0], flags[..., 1], jnp.ones((1, 3))
    )
    returns, values = _estimate()(critic, rollout)
    np.testing.assert_array_equal(values[:, 0], [[1.0, 10.0]] * 4)
    # Bootstrapped with 0.9 and 9; the third is the value itself, whatever the reward; nothing flows into the first two.
    np.testing.assert_allclose(returns[:, 0], [[2.0, 0.0], [3.9, 10.0], [1.0, 10.0], [4.9, 8.0]], rtol=1e-6)


def test_without_ends_an_estimate_decays_through_the_steps_by_hand():
    """Of values zero: the sums of rewards with decay 0.72."""
    critic = jax.tree.map(jnp.zeros_like, _state(0).critic)
    rollout = replace(_rollout(0), reward=jnp.zeros((8, 3, 3)).at[2, 1, 0].set(1.0))
    rollout = replace(rollout, terminated=jnp.zeros((8, 3), bool), truncated=jnp.zeros((8, 3), bool))
    returns, _ = _estimate()(critic, rollout)
    expected = np.zeros((8, 3, 3))
    expected[:3, 1, 0] = 0.72**2, 0.72, 1.0
    np.testing.assert_allclose(returns, expected, rtol=1e-6)


def test_at_a_time_limit_the_return_is_the_value_and_nothing_later_reaches_earlier_steps():
    state, rollout = _state(1), _rollout(1)
    rollout = replace(rollout, terminated=jnp.zeros((8, 3), bool), truncated=jnp.zeros((8, 3), bool).at[4, 1].set(True))
    other = replace(rollout, reward=rollout.reward.at[4:, 1].add(100.0), obs=rollout.obs.at[5:, 1].add(1.0))
    (returns, values), (others, _) = _estimate()(state.critic, rollout), _estimate()(state.critic, other)
    np.testing.assert_array_equal(returns[4, 1], values[4, 1])
    np.testing.assert_allclose(returns[:5, 1], others[:5, 1], rtol=1e-6)
    assert (np.abs(returns[5:, 1] - others[5:, 1]) > 10).all()
    assert (np.abs(returns[:, [0, 2]] - values[:, [0, 2]]) > 1e-4).all()


def test_after_an_end_nothing_is_expected():
    state, rollout = _state(1), _rollout(1)
    rollout = replace(rollout, terminated=jnp.ones((8, 3), bool), truncated=jnp.zeros((8, 3), bool))
    returns, _ = _estimate()(state.critic, rollout)
    np.testing.assert_allclose(returns, rollout.reward, rtol=1e-5, atol=1e-6)


def test_the_first_observation_after_the_rollout_counts_only_where_no_episode_ended():
    state, rollout = _state(2), _rollout(2)
    last = (jnp.array([True, False, False]), jnp.array([False, True, False]))
    rollout = replace(
        rollout, terminated=rollout.terminated.at[-1].set(last[0]), truncated=rollout.truncated.at[-1].set(last[1])
    )
    other = replace(rollout, last_obs=rollout.last_obs + 1.0)
    ours, others = (np.asarray(_estimate()(state.critic, rows)[0])[-1] for rows in (rollout, other))
    np.testing.assert_array_equal(ours[:2], others[:2])
    assert (np.abs(ours[2] - others[2]) > 1e-2).all()


def test_advantages_are_scalarised_on_the_raw_scale_and_standardised():
    generator = np.random.default_rng(0)
    returns, values = generator.normal(size=(2, 5, 4, 3)).astype(np.float32)
    lam, scale = np.array([0.2, 0.5, 0.3], np.float32), np.array([2.0, 0.5, 7.0], np.float32)
    ours = np.asarray(_advantages(lam, scale, returns, values))
    np.testing.assert_allclose(ours, oracle.advantages(lam, scale, returns, values), rtol=1e-4, atol=1e-5)
    assert abs(ours.mean()) < 1e-6
    assert ours.std() == pytest.approx(1.0, abs=1e-4)


def test_advantages_by_hand():
    returns, values = jnp.array([[[3.0, 1.0]], [[1.0, 1.0]]]), jnp.array([[[1.0, 2.0]], [[1.0, 0.0]]])
    # 0.5 x 10 x 2 - 0.5 x 4 x 1 = 8 and 0.5 x 4 x 1 = 2: mean 5, standard deviation 3.
    ours = _advantages(jnp.array([0.5, 0.5]), jnp.array([10.0, 4.0]), returns, values)
    np.testing.assert_allclose(ours[:, 0], [3 / (3 + 1e-5), -3 / (3 + 1e-5)], rtol=1e-6)


def test_advantages_that_are_all_the_same_become_zero():
    ours = _advantages(jnp.array([0.5, 0.5]), jnp.ones(2), jnp.ones((3, 2, 2)), jnp.zeros((3, 2, 2)))
    np.testing.assert_array_equal(ours, np.zeros((3, 2)))


def test_the_scale_of_an_objective_can_turn_an_advantage_around():
    """Equal preference; a step that gains 1 raw unit of the small objective and loses 10 of the large one is bad.

    In normalised units it gains 1 and loses 0.1: who scalarises those calls it good.
    """
    scale = jnp.array([1.0, 100.0])
    returns = jnp.array([[[1.0, -0.1]], [[0.0, 0.0]]])
    ours = _advantages(jnp.array([0.5, 0.5]), scale, returns, jnp.zeros((2, 1, 2)))
    normalised = _advantages(jnp.array([0.5, 0.5]), jnp.ones(2), returns, jnp.zeros((2, 1, 2)))
    assert float(ours[0, 0]) < -0.9
    assert float(normalised[0, 0]) > 0.9


def test_an_update_follows_the_raw_scale():
    """Objective 1 pays for actions above the mean, 2 for those below; only the scale says which of them wins."""
    spec = EnvSpec("turn", 3, 1, ("one", "two"), None, None)
    cfg = replace(CFG, rollout_steps=64, entropy_coefficient=0.0)
    state, rollout = _state(0, cfg, spec), _rollout(0, cfg, spec)
    mean = jax.vmap(jax.vmap(state.actor.net))(rollout.obs)
    rollout = replace(
        rollout,
        reward=jnp.concatenate([rollout.action - mean, -0.5 * (rollout.action - mean)], axis=-1),
        terminated=jnp.ones_like(rollout.terminated),
        truncated=jnp.zeros_like(rollout.truncated),
    )
    for scale, sign in (((1.0, 1.0), 1), ((1.0, 9.0), -1)):
        new, _ = _update(cfg)(state, rollout, _goal((0.5, 0.5), scale), jax.random.key(0))
        moved = jax.vmap(jax.vmap(new.actor.net))(rollout.obs) - mean
        assert sign * float(jnp.mean(moved)) > 0.01


# The loss


def test_the_ratio_stops_counting_only_where_that_lowers_the_gain():
    ratio, advantage = jnp.array([1.5, 0.5, 1.5, 0.5, 1.1]), jnp.array([2.0, 2.0, -2.0, -2.0, 1.0])
    # 1.2 x 2, 0.5 x 2, 1.5 x -2, 0.8 x -2 and 1.1 unclipped: 2.4 + 1 - 3 - 1.6 + 1.1 = -0.1.
    value, slope = jax.value_and_grad(partial(ppo.policy_loss, 0.2))(ratio, advantage)
    assert float(value) == pytest.approx(0.1 / 5, abs=1e-6)
    np.testing.assert_allclose(slope, [0.0, -2 / 5, 2 / 5, 0.0, -1 / 5], rtol=1e-6)


def test_the_value_error_is_the_larger_of_the_free_and_the_held_one():
    values, old = jnp.array([[1.0, 1.0], [-0.1, 2.0]]), jnp.array([[0.0, 0.0], [0.0, 3.0]])
    returns = jnp.array([[1.0, 2.0], [1.0, 4.0]])
    # Held values: 0.2, 0.2, -0.1 (within reach) and 2.8. Errors 0.64, 3.24, 1.21 and 4, the free one.
    value, slope = jax.value_and_grad(partial(ppo.value_loss, 0.2))(values, old, returns)
    assert float(value) == pytest.approx(0.5 * (0.64 + 3.24 + 1.21 + 4.0) / 4, rel=1e-6)
    np.testing.assert_allclose(slope, [[0.0, 0.0], [-1.1 / 4, -2.0 / 4]], rtol=1e-6)


def test_the_loss_is_that_of_the_plain_loops():
    """Old numbers that are another network's, so that ratios and values lie on both sides of their bounds."""
    cfg, state, other = CFG, _state(0), _state(1)
    batch = jax.jit(partial(ppo.judge, cfg))(other, _rollout(0), _goal())
    rows = oracle.Rows(*(np.asarray(leaf, np.float64) for leaf in vars(batch).values()))
    total, info = jax.jit(partial(ppo.loss, cfg))((state.actor, state.critic), batch)
    expected, expected_info = oracle.loss(cfg, oracle.learner_of(state), rows)
    assert 0.2 < expected_info["clip_share"] < 1.0
    assert float(total) == pytest.approx(expected, rel=1e-5)
    assert {name: float(value) for name, value in info.items()} == pytest.approx(expected_info, rel=1e-4)


def test_where_the_policy_is_still_the_one_that_acted_nothing_is_clipped():
    state = _state(0)
    batch = jax.jit(partial(ppo.judge, CFG))(state, _rollout(0), _goal())
    _, info = jax.jit(partial(ppo.loss, CFG))((state.actor, state.critic), batch)
    error = np.asarray(batch.values - batch.returns)
    assert float(info["clip_share"]) == 0.0
    assert abs(float(info["kl"])) < 1e-6
    assert abs(float(info["policy_loss"])) < 1e-5
    assert float(info["value_loss"]) == pytest.approx(0.5 * np.mean(error**2), rel=1e-5)


# The update


def test_what_is_known_before_the_first_step_is_that_of_the_plain_loops():
    state, rollout, goal = _state(0), _rollout(0), _goal()
    batch = jax.jit(partial(ppo.judge, CFG))(state, rollout, goal)
    lam, scale = np.asarray(goal.lam, np.float64), np.asarray(goal.scale, np.float64)
    rows = oracle.judge(CFG, oracle.learner_of(state), oracle.rollout_of(rollout), lam, scale)
    for name, expected in vars(rows).items():
        np.testing.assert_allclose(getattr(batch, name), expected, rtol=1e-4, atol=1e-5, err_msg=name)


def test_two_updates_are_those_of_the_plain_loops():
    """Gradients shortened together, Adam's moments carried on, values and ratios held near the old ones."""
    state, learner, goal = _state(0), oracle.learner_of(_state(0)), _goal()
    lam, scale = np.asarray(goal.lam, np.float64), np.asarray(goal.scale, np.float64)
    for seed in range(2):
        key = jax.random.key(seed)
        orders = [np.asarray(ppo.permutation(k, 24)) for k in jax.random.split(jax.random.clone(key), CFG.epochs)]
        rows = oracle.judge(CFG, learner, oracle.rollout_of(_rollout(seed)), lam, scale)
        expected, norms = oracle.update(CFG, learner, rows, RATE, orders)
        state, info = _update()(state, _rollout(seed), goal, key)
        assert min(norms) < CFG.max_gradient_norm < max(norms)
        assert expected["clip_share"] > 0.05
        assert_trees_close((state.actor, state.critic), _like(state, learner), 2e-4)
        assert {name: float(info[name]) for name in expected} == pytest.approx(expected, rel=1e-3, abs=1e-5)
        assert float(info["std"]) == pytest.approx(np.exp(learner.log_std).mean(), rel=1e-4)
        left, all_of_it = (np.var(x, axis=0).sum() for x in (rows.returns - rows.values, rows.returns))
        assert float(info["explained_variance"]) == pytest.approx(1 - left / all_of_it, rel=1e-4)
        assert set(info) == NAMES


def _like(state: ppo.State, learner: oracle.Learner) -> Any:
    """The learner's arrays in the order of the state's leaves."""
    model = (state.actor, state.critic)
    return jax.tree.unflatten(jax.tree.structure(model), [jnp.asarray(array, jnp.float32) for array in learner.arrays])


def test_gradients_of_policy_and_critic_are_shortened_together():
    """The critic's is so long here that next to it the policy's all but vanishes, in Adam's first moment too."""
    cfg = replace(CFG, epochs=1, minibatches=1, max_gradient_norm=0.1)
    ratios = []
    for size in (1.0, 100.0):
        rollout = _rollout(0)
        new, _ = _update(cfg)(_state(0), replace(rollout, reward=size * rollout.reward), _goal(), jax.random.key(0))
        actor, critic = new.optimizer[1].mu  # pyright: ignore
        norm = lambda tree: np.sqrt(sum(np.sum(np.square(leaf)) for leaf in jax.tree.leaves(tree)))
        assert np.hypot(norm(actor), norm(critic)) == pytest.approx(0.1 * 0.1, rel=1e-4)
        ratios.append(norm(actor) / norm(critic))
    assert ratios[1] < 0.1 * ratios[0]


def test_a_learning_rate_of_zero_changes_only_adam_s_moments():
    state = _state(0)
    new, _ = _update()(state, _rollout(0), _goal(rate=0.0), jax.random.key(0))
    assert_trees_equal((new.actor, new.critic), (state.actor, state.critic))
    adam = new.optimizer[1]  # pyright: ignore
    assert int(adam.count) == CFG.epochs * CFG.minibatches
    assert all(np.any(leaf) for leaf in jax.tree.leaves((adam.mu, adam.nu)))


def test_another_learning_rate_or_preference_needs_no_new_compilation():
    update = jax.jit(eqx.debug.assert_max_traces(partial(ppo.update, CFG), max_traces=1))
    news = [update(_state(0), _rollout(0), _goal(rate=rate), jax.random.key(0))[0] for rate in (0.01, 0.02)]
    update(_state(0), _rollout(0), _goal((1.0, 0.0, 0.0)), jax.random.key(0))
    first, second = (np.asarray(new.actor.log_std - _state(0).actor.log_std) for new in news)
    assert (np.abs(second) > 1.2 * np.abs(first)).all()


def test_minibatches_are_stretches_of_the_order():
    batch = jax.jit(partial(ppo.judge, CFG))(_state(0), _rollout(0), _goal())
    order = np.random.default_rng(0).permutation(24)
    minibatches = jax.jit(ppo.deal, static_argnums=2)(batch, order, 3)
    for i, rows in enumerate(np.split(order, 3)):
        for name, leaf in vars(minibatches).items():
            np.testing.assert_array_equal(leaf[i], getattr(batch, name)[rows], strict=True)


@pytest.mark.parametrize("num", [1, 2, 7, 24, 8188, 8192])
def test_a_permutation_holds_every_number_once(num: int):
    order = np.asarray(jax.jit(ppo.permutation, static_argnums=1)(jax.random.key(num), num))
    np.testing.assert_array_equal(np.sort(order), np.arange(num))


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


def _stack(trees: list[Any]) -> Any:
    return jax.tree.map(lambda *leaves: jnp.stack(leaves), *trees)


@pytest.mark.parametrize("axis", ["vmap", "map"])
def test_a_member_learns_in_a_population_what_it_learns_alone(axis: str):
    cfg = replace(CFG, adam_epsilon=1e-2)  # rounding of tiny gradients must not decide the direction of a step
    lams = np.eye(3)[[0, 1, 2, 0, 1]] * 0.5 + 0.5 / 3
    members = [(_state(i), _rollout(i), _goal(lams[i], (1.0 + i, 2.0, 0.5), 0.01 * (i + 1))) for i in range(5)]
    keys = jax.random.split(jax.random.key(0), 5)
    step = partial(ppo.update, cfg)
    population = jax.vmap(step) if axis == "vmap" else lambda *args: jax.lax.map(lambda member: step(*member), args)
    together = jax.jit(population)(*_stack(members), keys)
    for i, member in enumerate(members):
        alone = _update(cfg)(*member, jax.random.clone(keys)[i])
        mine = jax.tree.map(lambda leaf, i=i: leaf[i], together)
        assert_trees_close(mine, alone, 1e-5)


def test_a_copy_of_a_member_learns_bit_for_bit_the_same():
    state, _ = _update()(_state(0), _rollout(0), _goal(), jax.random.key(0))
    copy = jax.tree.map(lambda leaf: jnp.asarray(np.array(leaf)), state)
    pair = [_update()(member, _rollout(1), _goal(), jax.random.key(1)) for member in (state, copy)]
    assert_trees_equal(*pair)
    forgetful = replace(state, optimizer=_state(0).optimizer)
    other, _ = _update()(forgetful, _rollout(1), _goal(), jax.random.key(1))
    assert not np.allclose(other.actor.log_std, pair[0][0].actor.log_std, rtol=1e-4)


# Sizes


def test_sizes_that_do_not_divide_are_refused_with_sizes_that_do():
    (problem,) = ppo.PpoConfig(rollout_steps=2047).conflicts()
    assert re.search(r"4 lanes x 2047 .* 8188 .* 32 .* minibatches to 23, .* multiple of 8", problem)
    for right in (ppo.PpoConfig(), ppo.PpoConfig(rollout_steps=2047, minibatches=23), ppo.PpoConfig(rollout_steps=8)):
        assert right.conflicts() == []


@pytest.mark.parametrize("name", ["num_lanes", "rollout_steps", "minibatches"])
def test_sizes_of_nothing_are_refused(name: str):
    assert "must be at least 1" in replace(ppo.PpoConfig(), **{name: 0}).conflicts()[0]


# Learning


PROBE = EnvSpec("probe", 1, 1, ("right", "left"), None, None)
PROBE_CFG = ppo.PpoConfig(hidden=16, num_lanes=4, rollout_steps=64, epochs=4, minibatches=4)
PROBE_ITERATIONS = 60


def _learn_probe(state: ppo.State, lam: Any) -> float:
    """The mean action after PPO on one-step episodes with r = (-(a - 1)^2, -(a + 1)^2)."""
    shape = (PROBE_CFG.rollout_steps, PROBE_CFG.num_lanes, 1)

    def iterate(state: ppo.State, now: Any) -> tuple[ppo.State, None]:
        index, key = now
        key_noise, key_update = jax.random.split(key)
        obs = jnp.ones(shape)
        mean = jax.vmap(jax.vmap(state.actor.net))(obs)
        action = mean + jnp.exp(state.actor.log_std)[None, None] * jax.random.normal(key_noise, shape)
        raw = jnp.concatenate([-jnp.square(action - 1.0), -jnp.square(action + 1.0)], axis=-1)
        scale = jnp.std(raw, axis=(0, 1))
        ends = jnp.ones(shape[:2], bool)
        rollout = ppo.Rollout(obs, action, raw / scale[None, None], ends, ~ends, jnp.ones((shape[1], 1)))
        rate = 5e-3 * (1.0 - index / PROBE_ITERATIONS)
        return ppo.update(PROBE_CFG, state, rollout, ppo.Goal(lam, scale, rate), key_update)[0], None

    inputs = (jnp.arange(PROBE_ITERATIONS), jax.random.split(jax.random.key(1), PROBE_ITERATIONS))
    end, _ = jax.lax.scan(iterate, state, inputs)
    return end.actor.net(jnp.ones(1))[0]  # pyright: ignore[reportReturnType]


def test_from_the_same_state_each_preference_finds_its_own_action():
    """The best action is lam_1 - lam_2; 0.1 is about what the noise of the last samples leaves."""
    state = ppo.init(PROBE_CFG, PROBE, np.random.default_rng(0))
    lams = jnp.array([[1.0, 0.0], [0.0, 1.0], [0.5, 0.5]])
    means = jax.jit(jax.vmap(_learn_probe, in_axes=(None, 0)))(state, lams)
    np.testing.assert_allclose(means, [1.0, -1.0, 0.0], atol=0.1)
