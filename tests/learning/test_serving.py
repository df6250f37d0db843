"""Rows are grouped by the policy that serves them, and every action comes back to its row."""

import numpy as np
import pytest

from qpensieve.learning.predictor import act_by_policy, even_batches, nearest, one_batch_each, share_means

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


@pytest.mark.parametrize(
    ("batches", "policies", "length"),
    [
        (
            one_batch_each(SERVED_BY, 7),
            [0, 1, 2, 3, 4, 5, 6],
            4,
        ),  # as long as the longest, also where there are no rows
        (even_batches(SERVED_BY), [0, 2, 2, 5], 3),  # seven rows of three policies: longer groups are cut
    ],
)
def test_all_policies_in_one_call(batches, policies: list[int], length: int):
    assert batches.policy.tolist() == policies
    assert batches.index.shape == (len(policies), length)
    actions = batches.gather(X) + 100 * batches.policy[:, None, None].astype(np.float32)
    np.testing.assert_array_equal(batches.scatter(actions, 7), EXPECTED)
    assert batches.is_used.sum() == 7


def test_rows_of_one_policy_share_its_episodes_mean():
    """Seed 0 has policies 0 and 1, seed 1 has policy 2: rows of others stay out of it."""
    returns = np.random.default_rng(0).normal(size=(2, 3, 4, 2))
    served_by = np.array([[0, 1, 0], [2, 2, 2]])
    shared = share_means(returns, served_by)
    np.testing.assert_allclose(shared[0, 0].mean(axis=0), returns[0, [0, 2]].mean(axis=(0, 1)))
    np.testing.assert_array_equal(shared[0, 2], shared[0, 0])
    np.testing.assert_array_equal(shared[0, 1], returns[0, 1])
    np.testing.assert_allclose(shared[1, 1].mean(axis=0), returns[1].mean(axis=(0, 1)))
    means = shared.mean(axis=2)
    assert len(np.unique(means[1], axis=0)) == 1  # to the bit: otherwise rounding would count as a front
    # What an average over rows leaves of the episodes' spread is the spread of such averages.
    np.testing.assert_allclose(shared[1, 0].std(axis=0), returns[1].mean(axis=0).std(axis=0))


def test_without_chance_sharing_changes_nothing():
    """Three times 0.1 divided by three is not 0.1 in floating point."""
    returns = np.broadcast_to(np.array([0.1, -7.3]), (1, 3, 10, 2)).copy()
    np.testing.assert_array_equal(share_means(returns, np.zeros((1, 3), np.int64)), returns)
