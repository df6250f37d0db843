"""Noise that is correlated in time: its distribution is known, and any block of it can be had at any time."""

import math
from dataclasses import replace

import numpy as np
import pytest

from qpensieve.algos import mosac
from qpensieve.envs import DOMAINS
from qpensieve.learning.streams import (
    SEQUENCE,
    LaneNoise,
    Purpose,
    ar1,
    correlated_actions,
    derived_seed,
    generator,
    uniform,
)
from qpensieve.types import Behaviour

RHO, NUM, SIZE = 0.8, 1000, 400


def white(num: int = NUM, size: int = SIZE) -> np.ndarray:
    return np.random.default_rng(0).standard_normal((num, size))


def behaviour(correlation: float | None, domain: str = "DST2d") -> Behaviour:
    plain = mosac.make(mosac.SacConfig(hidden=16), DOMAINS[domain].spec).behaviour
    return replace(plain, random_correlation=correlation)


@pytest.mark.parametrize("num", [1, 2, 7, 64, 100])
def test_ar1_noise_is_its_recursion(num: int):
    e = white(num, 3)
    x = [e[0]]
    for t in range(1, num):
        x.append(RHO * x[-1] + math.sqrt(1 - RHO**2) * e[t])
    np.testing.assert_allclose(ar1(e, RHO), x, atol=1e-12)


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


def correlated(seed: int, number: int, domain: str = "DST2d", block: int = 50) -> np.ndarray:
    return correlated_actions(behaviour(RHO, domain), seed, number, block)


def lanes_noise(correlation: float | None, seed: int, number: int, is_random: bool) -> np.ndarray:
    return LaneNoise(behaviour(correlation), [seed], 50).draw(number, is_random)[0]


class TestBlocks:
    def test_blocks_of_correlated_actions_are_cut_from_sequences_in_any_order(self):
        num_blocks = SEQUENCE // 50
        blocks = [correlated(3, number, "Hopper3d") for number in range(2 * num_blocks)]
        for first in (0, num_blocks):
            e = generator(3, Purpose.RANDOM_SEQUENCE, first // num_blocks).standard_normal((SEQUENCE, 3))
            whole = uniform(ar1(e, RHO)).astype(np.float32)
            np.testing.assert_array_equal(np.concatenate(blocks[first : first + num_blocks]), whole)
        for number in (39, 3, 20, 19, 0):
            assert (correlated(4, number, "Hopper3d") != blocks[number]).any()
            np.testing.assert_array_equal(correlated(3, number, "Hopper3d"), blocks[number])
        assert np.unique(np.concatenate(blocks)).size > 0.99 * 6 * SEQUENCE  # no two sequences or axes are the same

    @pytest.mark.parametrize("block", [1, 60, 1000, 1500])
    def test_blocks_may_have_any_length(self, block: int):
        assert [correlated(0, number, block=block).shape for number in range(18)] == [(block, 2)] * 18

    @pytest.mark.parametrize("correlation", [None, RHO])
    def test_blocks_of_white_noise_depend_on_seed_and_number_alone(self, correlation: float | None):
        for number in (0, 7):
            noise = generator(5, Purpose.NOISE, number).standard_normal((50, 2)).astype(np.float32)
            actions = generator(5, Purpose.RANDOM_ACTION, number).uniform(-1.0, 1.0, (50, 2)).astype(np.float32)
            np.testing.assert_array_equal(lanes_noise(correlation, 5, number, is_random=False), noise)
            drawn = lanes_noise(correlation, 5, number, is_random=True)
            assert (drawn == actions).all() == (correlation is None)

    def test_lanes_of_one_seed_draw_the_same_and_white_lanes_stay_white(self):
        """Two agents of one seed and one of another, in two lanes each, the first of them white."""
        two = replace(behaviour(RHO), num_lanes=2, num_white_lanes=1)
        drawn = LaneNoise(two, [3, 3, 3, 3, 8, 8], 50).draw(7, is_random=True)
        for seed, lanes in ((3, (0, 2)), (8, (4,))):
            for lane in lanes:
                np.testing.assert_array_equal(drawn[lane], lanes_noise(None, seed, 7, is_random=True))
                np.testing.assert_array_equal(drawn[lane + 1], lanes_noise(RHO, seed, 7, is_random=True))


def test_streams_of_different_purpose_number_or_seed_differ():
    keys = [(seed, purpose, number) for seed in (0, 1) for purpose in Purpose for number in (0, 1, 2)]
    assert len({generator(*key).random() for key in keys}) == len(keys)
    assert len({derived_seed(*key) for key in keys}) == len(keys)
    assert generator(1, Purpose.NOISE, 2).random() == generator(1, Purpose.NOISE, 2).random()


def test_the_numbers_of_purposes_stay_as_they_are():
    """With others, runs would no longer be those of old folders."""
    assert {purpose.name: purpose.value for purpose in Purpose} == {
        "NOISE": 101,
        "PREFERENCE": 102,
        "RANDOM_ACTION": 103,
        "EVALUATION": 104,
        "PAST": 105,
        "CRITIC": 106,
        "RANDOM_SEQUENCE": 108,
        "CALIBRATION": 109,
        "ROLLOUT_NOISE": 201,
        "ROLLOUT_LANE": 202,
        "FITNESS": 203,
        "CANDIDATES": 204,
        "FIRST_PARAMETERS": 205,
    }
    sequence = np.random.SeedSequence(7, spawn_key=(203, 2, 5, 1))
    assert derived_seed(7, Purpose.FITNESS, 2, 5, 1) == sequence.generate_state(1)[0]
    plain = np.random.Generator(np.random.PCG64(sequence))
    assert generator(7, Purpose.FITNESS, 2, 5, 1).random() == plain.random()
