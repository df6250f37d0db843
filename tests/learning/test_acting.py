"""Acting on the host: noise, greed, and many agents shared among threads."""

from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest

from qpensieve.learning.acting import (
    Greedy,
    HostMlp,
    SharedPolicy,
    gaussian_acting,
    greedy_acting,
    noisy_acting,
    num_parameters,
)
from qpensieve.learning.predictor import act_by_policy, nearest
from qpensieve.types import EnvSpec

SPEC = EnvSpec("test", 3, 2, ("one", "two"), None, None)
RNG = np.random.default_rng(0)


def parameters(widths: tuple[int, ...], num_agents: int) -> np.ndarray:
    return RNG.normal(size=(num_agents, num_parameters(widths)), scale=0.5).astype(np.float32)


def asked(num_agents: int, lanes: int, noise: int = 2) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    obs = RNG.normal(size=(num_agents, lanes, 3)).astype(np.float32)
    lam = RNG.dirichlet(np.ones(2), (num_agents, lanes)).astype(np.float32)
    return obs, lam, RNG.normal(size=(num_agents, lanes, noise)).astype(np.float32)


def test_a_network_of_many_agents_is_each_of_them():
    widths = (3, 4, 5, 2)
    flat, x = parameters(widths, 3), RNG.normal(size=(3, 6, 3)).astype(np.float32)
    together = HostMlp(flat, widths)(x)
    for i in range(3):
        start, y = 0, x[i].astype(np.float64)
        for layer, (rows, columns) in enumerate(((3, 4), (4, 5), (5, 2))):
            weight = flat[i, start : start + rows * columns].reshape(rows, columns)
            bias = flat[i, start + rows * columns : start + (rows + 1) * columns]
            start += (rows + 1) * columns
            y = y @ weight + bias
            y = np.maximum(y, 0) if layer < 2 else y
        np.testing.assert_allclose(together[i], y, rtol=1e-5, atol=1e-6)


class TestNoisy:
    acting = noisy_acting(SPEC, 8, 0.1)
    policy = acting.policy(parameters((5, 8, 8, 2), 2))

    def test_a_noisy_policy_explores_around_its_action_within_the_box(self):
        obs, lam, noise = asked(2, 400)
        best, tried = self.policy.exploit(obs, lam), self.policy.explore(obs, lam, noise, 0)
        inside = np.abs(tried) < 1.0
        np.testing.assert_allclose((tried - best)[inside], (0.1 * noise)[inside], atol=1e-6)
        assert np.abs(tried).max() <= 1.0


class TestGreedy:
    table = np.array([[-1.0, -1.0], [0.0, 0.0], [1.0, 1.0]], np.float32)
    epsilon = staticmethod(lambda step: 0.5 if step < 10 else 0.0)
    acting = greedy_acting(Greedy((5, 8, 6), table, epsilon))
    policy = acting.policy(parameters((5, 8, 6), 2))

    def test_half_of_the_actions_are_random_while_epsilon_is_a_half_and_none_later(self):
        obs, lam, _ = asked(2, 3000)
        noise = RNG.random((2, 3000, 2)).astype(np.float32)
        best = self.policy.explore(obs, lam, noise, 10)
        np.testing.assert_array_equal(self.acting.decode(best), self.policy.exploit(obs, lam))
        tried = self.policy.explore(obs, lam, noise, 0)
        assert (tried != best).mean() == pytest.approx(1 / 3, abs=0.03)  # a random one is the best a third of the time
        assert set(np.unique(tried[noise[..., 0] < 0.5]).tolist()) == {0.0, 1.0, 2.0}

    def test_what_is_stored_is_an_index_and_random_ones_are_uniform(self):
        stored = self.acting.draw_actions(np.random.default_rng(0), 3000)
        assert stored.shape == (3000, self.acting.action_size)
        np.testing.assert_allclose(np.bincount(stored[:, 0].astype(int)) / 3000, 1 / 3, atol=0.03)
        np.testing.assert_array_equal(self.acting.decode(np.array([[2], [0]], np.float32)), self.table[[2, 0]])


@pytest.mark.parametrize(("num_threads", "num_rows"), [(2, 1), (3, 4), (7, 50)])
def test_agents_shared_among_threads_act_the_same(num_threads: int, num_rows: int):
    """Exactly: a run may be resumed with another number of threads."""
    acting = gaussian_acting(SPEC, 256, True)
    flat, given = parameters((5, 256, 256, 4), 19), asked(19, num_rows)
    with ThreadPoolExecutor(num_threads) as pool:
        shared = SharedPolicy(acting, flat, pool, num_threads).explore(*given, 0)
    np.testing.assert_array_equal(shared, acting.policy(flat).explore(*given, 0))


SERVED_BY = np.array([2, 0, 2, 5, 2, 2, 0])
X = np.arange(14.0, dtype=np.float32).reshape(7, 2)
EXPECTED = X + 100 * SERVED_BY[:, None].astype(np.float32)
"""What the policies of these tests do: each adds a hundred times its number."""


def test_the_nearest_preference_serves():
    own = np.array([[0.9, 0.1], [0.5, 0.5], [0.1, 0.9]])
    lam = np.array([[1.0, 0.0], [0.6, 0.4], [0.0, 1.0], [0.4, 0.6]])
    assert nearest(own, lam).tolist() == [0, 1, 2, 1]


def test_one_policy_at_a_time():
    asked: list[int] = []

    def act(policy: int, rows: np.ndarray) -> np.ndarray:
        asked.append(policy)
        return X[rows] + np.float32(100 * policy)

    np.testing.assert_array_equal(act_by_policy(SERVED_BY, act), EXPECTED)
    assert asked == [0, 2, 5]
