"""The grid Deep Sea Treasure, exact coverage sets, and soft policies as the temperature falls."""

from itertools import product

import gymnasium
import numpy as np
import pytest

from qpensieve.theory import coverage, soft
from qpensieve.theory.momdp import Momdp, RandomSpec, chain, deep_sea_treasure, random_momdp, two_armed
from tests.oracles.deep_sea import grid_returns

RETURNS = grid_returns(0.99)
TEMPERATURES = (1.0, 0.1, 0.01, 1e-3, 1e-4, 1e-5)


def _grid(margin: float = 5e-4) -> np.ndarray:
    """Preferences every 0.005 that keep away from ties of two neighbours; each treasure has some."""
    gained, lost = np.diff(RETURNS[:, 0]), -np.diff(RETURNS[:, 1])
    first = np.linspace(0, 1, 201)
    first = first[np.abs(first[:, None] - lost / (gained + lost)).min(axis=1) > margin]
    return np.stack([first, 1 - first], axis=1)


@pytest.mark.filterwarnings("ignore:.*precision lowered.*")
def test_the_grid_moves_as_in_mo_gymnasium():
    pytest.importorskip("mo_gymnasium")  # registers the environments
    momdp = deep_sea_treasure()
    env = gymnasium.make("deep-sea-treasure-v0", disable_env_checker=True).unwrapped
    cells = [cell for cell in product(range(11), range(11)) if env.sea_map[cell] == 0]  # pyright: ignore[reportAttributeAccessIssue]
    assert len(cells) == momdp.num_states
    for i, a in product(range(len(cells)), range(4)):
        env.reset()
        env.current_state = np.array(cells[i], dtype=np.int32)  # pyright: ignore[reportAttributeAccessIssue]
        reached, r, terminated, _, _ = env.step(a)
        np.testing.assert_allclose(momdp.r[i, a], np.asarray(r), rtol=1e-6)
        expected = np.zeros(len(cells)) if terminated else np.eye(len(cells))[cells.index(tuple(reached))]
        np.testing.assert_array_equal(momdp.p_next[i, a], expected)


def test_the_coverage_set_of_the_grid_is_all_ten_treasures():
    vertices = coverage.coverage_set(deep_sea_treasure())
    np.testing.assert_allclose(vertices, RETURNS, atol=1e-10)


@pytest.mark.slow
def test_as_the_temperature_falls_the_grid_shows_all_ten_treasures():
    momdp, prefs = deep_sea_treasure(), _grid()
    fronts = [coverage.trace_front(momdp, prefs, alpha, RETURNS) for alpha in TEMPERATURES]
    for front in fronts:
        assert (front.loss < front.bound).all()
        assert (front.loss > -1e-9).all()
    best = RETURNS[(prefs @ RETURNS.T).argmax(axis=1)]
    assert len(np.unique(best, axis=0)) == 10
    np.testing.assert_allclose(fronts[-1].returns, best, rtol=0, atol=1e-6)
    worst = [front.loss.max() for front in fronts]
    assert worst == sorted(worst, reverse=True)


def test_a_policy_at_too_high_a_temperature_does_not_trace_the_front():
    front = coverage.trace_front(deep_sea_treasure(), _grid(), 0.1, RETURNS)
    assert np.abs(front.returns[:, None] - RETURNS).max(axis=-1).min(axis=1).max() > 0.1


@pytest.mark.parametrize("seed", range(2))
def test_the_coverage_set_equals_all_deterministic_policies(seed):
    momdp = random_momdp(np.random.default_rng(seed), RandomSpec(5, 2, 2, num_successors=2))
    vertices = coverage.coverage_set(momdp)
    choices = np.array(list(product(range(2), repeat=5)))
    logp = np.where(np.arange(2) == choices[..., None], 0.0, -np.inf)
    returns = soft.discounted_returns(momdp, logp)
    first = np.linspace(1e-6, 1 - 1e-6, 300)
    prefs = np.stack([first, 1 - first], axis=1)
    np.testing.assert_allclose(coverage.hard_value(vertices, prefs), (prefs @ returns.T).max(axis=1), atol=1e-8)


def test_coverage_sets_by_hand():
    np.testing.assert_allclose(coverage.coverage_set(two_armed(4.0, 3.0)), [[0, 3], [4, 0]])
    only = Momdp("one best", np.zeros((1, 2, 1)), np.array([[[1.0, 1.0], [0.0, 0.0]]]), np.ones(1), 0.9)
    np.testing.assert_allclose(coverage.coverage_set(only), [[1, 1]])
    symmetric = coverage.coverage_set(chain(length=7))
    np.testing.assert_allclose(symmetric, symmetric[::-1, ::-1], atol=1e-9)


def test_a_random_momdp_has_the_asked_size_and_sparsity():
    spec = RandomSpec(30, 4, 3, num_successors=5, reward_density=0.25, end_probability=0.1)
    momdp = random_momdp(np.random.default_rng(0), spec)
    assert momdp.r.shape == (30, 4, 3)
    assert ((momdp.p_next > 0).sum(axis=-1) == 5).all()
    np.testing.assert_allclose(momdp.p_next.sum(axis=-1), 0.9)
    assert 0.15 < (momdp.r != 0).mean() < 0.35


def test_the_ends_of_the_chain_pay_and_end():
    momdp = chain(length=5, slip=0.0)
    assert momdp.r[0, 0].tolist() == [1.0, 0.0]
    assert momdp.r[4, 1].tolist() == [0.0, 1.0]
    assert momdp.p_next[0, 0].sum() == 0.0
    assert momdp.p_next[2, 1].tolist() == [0, 0, 0, 1, 0]
