"""Rows are grouped by the policy that serves them, and every action comes back to its row."""

import numpy as np

from qpensieve.learning.predictor import act_by_policy, nearest

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
