"""Running statistics against NumPy's of all samples at once."""

import numpy as np
import pytest

from qpensieve.population.moments import FIRST_COUNT, VARIANCE_EPSILON, standard


def test_batches_of_any_size_give_the_moments_of_all_samples():
    stream = np.random.default_rng(0)
    samples = stream.normal([3.0, -200.0], [0.1, 40.0], (3, 500, 2))
    moments = standard(3, 2)
    for rows in np.array_split(samples, [1, 5, 6, 200], axis=1):
        moments.merge(rows)
    np.testing.assert_allclose(moments.mean, samples.mean(axis=1), rtol=1e-6)
    np.testing.assert_allclose(moments.scale, np.sqrt(samples.var(axis=1) + VARIANCE_EPSILON), rtol=2e-4)
    np.testing.assert_allclose(moments.count, 500 + FIRST_COUNT)


def test_the_first_sample_all_but_replaces_the_start():
    moments = standard(1, 1)
    assert moments.scale == pytest.approx(1.0)
    moments.merge(np.full((1, 4, 1), 7.0))
    assert moments.mean[0, 0] == pytest.approx(7.0, rel=1e-4)
    assert 0 < moments.scale[0, 0] < 0.1


def test_some_columns_can_be_left_out():
    moments = standard(2, 3)
    moments.merge(np.ones((2, 4, 2)), slice(2))
    np.testing.assert_array_equal(moments.count[:, 2], FIRST_COUNT)
    np.testing.assert_array_equal(moments.mean[:, 2], 0.0)
    np.testing.assert_allclose(moments.mean[:, :2], 1.0, rtol=1e-4)


def test_members_keep_their_own():
    moments, alone = standard(2, 1), standard(1, 1)
    batch = np.array([[[1.0], [2.0]], [[50.0], [70.0]]])
    moments.merge(batch)
    alone.merge(batch[1:])
    np.testing.assert_array_equal(moments.scale[1:], alone.scale)
    assert moments.mean[0, 0] != moments.mean[1, 0]
