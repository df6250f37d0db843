"""L_critic and its parts on values and returns with known answers."""

import numpy as np
import pytest

from qpensieve.metrics.critic import contrasts, critic_error

LAM = np.array([0.25, 0.75])


def test_without_noise_the_error_is_the_mean_distance():
    returns = np.zeros((2, 3, 2))
    values = np.array([[[3.0, 4.0], [0.0, -1.0]]])
    found = critic_error(values, returns, LAM)
    assert (found.error, found.noise, found.return_se, found.value) == (3.0, 0.0, 0.0, 0.0)
    assert found.rms == pytest.approx(np.sqrt(13.0))
    assert found.error_se == pytest.approx(2.0)  # 5 and 1
    np.testing.assert_allclose(found.bias, [1.5, 1.5])
    np.testing.assert_allclose(found.bias_se, [1.5, 2.5])
    assert found.scalar_bias == pytest.approx(1.5)
    assert found.scalar_bias_se == pytest.approx(2.25)


def test_the_twin_with_the_smaller_product_counts_for_each_pair():
    returns = np.ones((2, 2, 2))
    values = np.array([[[1.0, 1.0], [9.0, 1.0]], [[0.0, 5.0], [1.0, 2.0]]])  # lam . Q: 1 and 3; 3.75 and 1.75
    found = critic_error(values, returns, LAM)
    assert found.error == pytest.approx(0.5)
    np.testing.assert_allclose(found.twins, [4.0, (np.sqrt(17.0) + 1.0) / 2.0])


@pytest.mark.parametrize("rollouts", [2, 4])
def test_contrasts_have_the_covariance_of_the_mean(rollouts: int):
    noise = np.random.default_rng(0).standard_normal((40_000, rollouts, 2)) * np.array([1.0, 3.0])
    found = contrasts(noise + 100.0)
    assert found.shape == (40_000, rollouts - 1, 2)
    for c in range(rollouts - 1):
        np.testing.assert_allclose(np.cov(found[:, c].T), np.diag([1.0, 9.0]) / rollouts, atol=0.1)
    np.testing.assert_allclose(found.mean(axis=(0, 1)), 0.0, atol=0.1)


def test_noise_alone_is_seen_as_noise_and_taken_off():
    stream = np.random.default_rng(1)
    truth = 50.0 * stream.standard_normal((5_000, 2))
    returns = truth[:, None] + 8.0 * stream.standard_normal((5_000, 4, 2))
    exact, off = critic_error(truth[None], returns, LAM), critic_error(truth[None] + 3.0, returns, LAM)
    assert exact.error == pytest.approx(exact.noise, rel=0.03)
    assert exact.return_se == pytest.approx(4.0 * np.sqrt(2.0), rel=0.03)
    assert exact.rms < 1.0
    assert off.rms == pytest.approx(3.0 * np.sqrt(2.0), rel=0.05)
    assert off.error > off.rms
    assert off.noise == exact.noise
    assert abs(exact.scalar_bias) < 4.0 * exact.scalar_bias_se
    assert off.scalar_bias == pytest.approx(3.0 + exact.scalar_bias)


def test_a_single_return_shows_no_noise():
    found = critic_error(np.ones((1, 3, 2)), np.zeros((3, 1, 2)), LAM)
    assert (found.noise, found.return_se) == (0.0, 0.0)
    assert found.rms == found.error == pytest.approx(np.sqrt(2.0))
