"""Random streams of the host: same place, same numbers; another place, others."""

import numpy as np

from qpensieve.learning.streams import Purpose, derived_seed, generator


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
