"""Noise that is correlated in time: its distribution is known, and any block of it can be had at any time."""

import math
from dataclasses import replace

import numpy as np
import pytest

from qpensieve.algos import mosac
from qpensieve.envs import DOMAINS
from qpensieve.host_types import Behaviour, Colour, Exploration
from qpensieve.learning.noise import SEQUENCE, LaneNoise, acting_noise, ar1, pink, random_actions, uniform
from qpensieve.learning.streams import Purpose, generator

RHO, NUM, SIZE = 0.8, 1000, 400


def white(num: int = NUM, size: int = SIZE) -> np.ndarray:
    return np.random.default_rng(0).standard_normal((num, size))


def behaviour(colour: Colour, domain: str = "DST2d") -> Behaviour:
    plain = mosac.make(mosac.SacConfig(hidden=16), DOMAINS[domain].spec).behaviour
    return replace(plain, exploration=Exploration(colour, colour, RHO))


class TestAr1:
    @pytest.mark.parametrize("num", [1, 2, 7, 64, 100])
    def test_is_its_recursion(self, num: int):
        e = white(num, 3)
        x = [e[0]]
        for t in range(1, num):
            x.append(RHO * x[-1] + math.sqrt(1 - RHO**2) * e[t])
        np.testing.assert_allclose(ar1(e, RHO), x, atol=1e-12)

    def test_has_variance_1_at_every_step_and_its_correlation_between_steps(self):
        x, num = ar1(white(), RHO), NUM * SIZE
        lag_1 = np.mean(x[1:] * x[:-1])
        # Five standard errors of the moments of an AR(1) process (Bartlett).
        assert abs(np.mean(x**2) - 1) < 5 * math.sqrt(2 / num * (1 + RHO**2) / (1 - RHO**2))
        assert abs(lag_1 / np.mean(x**2) - RHO) < 5 * math.sqrt((1 - RHO**2) / num)
        by_step = np.mean(x**2, axis=1)  # chi-squared each; at the first step as later
        assert abs(by_step - 1).max() < 6 * math.sqrt(2 / SIZE)
        assert abs(np.mean(x[:, :-1] * x[:, 1:])) < 5 * math.sqrt((1 + RHO**2) / (1 - RHO**2) / num)


class TestPink:
    @pytest.mark.parametrize("num", [2, 3, 50, 51, 1000])
    def test_its_filter_has_power_1_over_frequency_and_keeps_the_variance(self, num: int):
        filter_of = pink(np.eye(num))
        np.testing.assert_allclose(np.square(filter_of).sum(axis=1), 1.0, atol=1e-12)  # variance of every step
        power = np.square(np.abs(np.fft.rfft(filter_of[:, 0])))
        frequencies = np.arange(1, num // 2 + 1)
        assert power[0] < 1e-20
        np.testing.assert_allclose(power[1:] * frequencies, power[1], rtol=1e-9)

    def test_its_spectrum_falls_with_slope_minus_1(self):
        frequencies = np.arange(1, NUM // 2)  # the last one has another distribution
        power = np.square(np.abs(np.fft.rfft(pink(white()), axis=0)))[1:-1]
        logs, x = np.log(power).mean(axis=1), np.log(frequencies)
        slope = np.polyfit(x, logs, 1)[0]
        # A logarithm of a periodogram has variance pi^2 / 6, whatever the spectrum.
        error = math.sqrt(math.pi**2 / 6 / SIZE / np.square(x - x.mean()).sum())
        assert abs(slope + 1) < 5 * error
        assert error < 0.01

    def test_a_single_step_is_a_number_like_others(self):
        np.testing.assert_array_equal(pink(white(1, 4)), white(1, 4))


def test_uniform_is_the_distribution_function():
    np.testing.assert_allclose(
        uniform(np.array([[0.0, 1.959964], [-0.6744898, 9.0]])), [[0, 0.95], [-0.5, 1]], atol=1e-6
    )
    sorted_ = np.sort(
        uniform(
            white(),
        ).ravel()
    )
    distance = np.abs(sorted_ - np.linspace(-1, 1, sorted_.size)).max() / 2
    assert distance < 1.95 / math.sqrt(sorted_.size)  # Kolmogorov and Smirnov, one in a thousand


class TestBlocks:
    @pytest.mark.parametrize("colour", ["ar1", "pink"])
    def test_are_cut_from_sequences_that_go_on_and_can_be_had_in_any_order(self, colour: Colour):
        block, num_blocks = 50, SEQUENCE // 50
        of = behaviour(colour, "Hopper3d")
        draw, again = acting_noise(of, block, colour), acting_noise(of, block, colour)
        blocks = [draw(3, number) for number in range(2 * num_blocks)]
        for first in (0, num_blocks):
            e = generator(3, Purpose.NOISE_SEQUENCE, first // num_blocks).standard_normal((SEQUENCE, 3))
            whole = pink(e) if colour == "pink" else ar1(e, RHO)
            np.testing.assert_array_equal(np.concatenate(blocks[first : first + num_blocks]), whole.astype(np.float32))
        for number in (39, 3, 20, 19, 0):
            again(4, number)
            np.testing.assert_array_equal(again(3, number), blocks[number])
        assert np.unique(np.concatenate(blocks)).size > 0.99 * 6 * SEQUENCE  # no two sequences or axes are the same

    @pytest.mark.parametrize("block", [1, 60, 1000, 1500])
    def test_may_have_any_length(self, block: int):
        draw = random_actions(behaviour("pink"), block, "pink")
        assert [draw(0, number).shape for number in range(18)] == [(block, 2)] * 18

    def test_without_correlation_are_what_they_always_were(self):
        of = behaviour("white")
        for number in (0, 7):
            noise = generator(5, Purpose.NOISE, number).standard_normal((50, 2)).astype(np.float32)
            actions = generator(5, Purpose.RANDOM_ACTION, number).uniform(-1.0, 1.0, (50, 2)).astype(np.float32)
            np.testing.assert_array_equal(acting_noise(of, 50, "white")(5, number), noise)
            np.testing.assert_array_equal(random_actions(of, 50, "white")(5, number), actions)

    def test_lanes_of_one_seed_draw_the_same_and_white_ones_what_they_always_did(self):
        """Two agents of one seed and one of another, in two lanes each, the first of them white."""
        two = replace(behaviour("ar1"), num_lanes=2, num_white_lanes=1)
        for is_random, colours in ((True, random_actions), (False, acting_noise)):
            noise = LaneNoise(two, [3, 3, 3, 3, 8, 8], 50).draw(7, is_random)
            for seed, lanes in ((3, (0, 2)), (8, (4,))):
                for lane in lanes:
                    np.testing.assert_array_equal(noise[lane], colours(two, 50, "white")(seed, 7))
                    np.testing.assert_array_equal(noise[lane + 1], colours(two, 50, "ar1")(seed, 7))

    @pytest.mark.parametrize("colour", ["ar1", "pink"])
    def test_random_actions_are_uniform_and_follow_each_other(self, colour: Colour):
        draw = random_actions(behaviour(colour), 50, colour)
        actions = np.concatenate([draw(seed, number) for seed in range(20) for number in range(20)])
        assert actions.dtype == np.float32
        assert 0.99 < np.abs(actions).max() <= 1.0
        np.testing.assert_allclose(np.histogram(actions, 4, (-1, 1))[0] / actions.size, 0.25, atol=0.03)
        assert np.corrcoef(actions[1:, 0], actions[:-1, 0])[0, 1] > 0.7  # of a copula: 6 / pi arcsin(rho / 2) = 0.786
