"""Acting with archives."""

import numpy as np

from qpensieve.learning.acting import num_parameters
from qpensieve.population.answering import ArchivePredictor, Policies, act_as, even_batches, share_means, who_answers
from qpensieve.preferences import das_dennis


def test_large_archives_act_as_each_policy_alone():
    """One policy serves most preferences, many serve few: groups are cut and padded, actions stay the same."""
    stream, widths = np.random.default_rng(0), (3, 8, 8, 2)
    objs = np.stack([np.linspace(0, 1, 40), 1 - np.linspace(0, 1, 40) ** 3], axis=1)
    size = num_parameters(widths) + 2 + 6
    known = [Policies(objs * (i + 1), stream.normal(1, 0.3, (40, size)).astype(np.float32)) for i in range(2)]
    lam = np.concatenate([das_dennis(2, 50), np.tile([[1.0, 0.0]], (300, 1))])
    obs = stream.normal(size=(2, len(lam), 3)).astype(np.float32)
    together = act_as(known, who_answers(known, lam), widths)(obs, np.tile(lam.astype(np.float32), (2, 1, 1)))
    one_by_one = ArchivePredictor(known, widths)
    for seed in range(2):
        np.testing.assert_allclose(together[seed], one_by_one.act(seed, obs[seed], lam), rtol=1e-5, atol=1e-6)


def test_all_policies_act_in_one_call_and_longer_groups_are_cut():
    """Seven rows of three policies, each of which adds a hundred times its number."""
    served_by, x = np.array([2, 0, 2, 5, 2, 2, 0]), np.arange(14.0, dtype=np.float32).reshape(7, 2)
    batches = even_batches(served_by)
    assert batches.policy.tolist() == [0, 2, 2, 5]
    assert batches.index.shape == (4, 3)
    actions = batches.gather(x) + 100 * batches.policy[:, None, None].astype(np.float32)
    np.testing.assert_array_equal(batches.scatter(actions, 7), x + 100 * served_by[:, None].astype(np.float32))
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
