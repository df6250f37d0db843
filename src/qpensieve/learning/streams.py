"""Random streams on the host: each is derived from a seed, a purpose and numbers, such as those of lane and episode.

So no generator has a state that must be saved, and its draws do not depend on any other generator.
"""

from enum import IntEnum

import numpy as np


class Purpose(IntEnum):
    """What a stream of a seed is for. The numbers decide the results of runs: they never change."""

    NOISE = 101
    """Exploration, by block."""
    PREFERENCE = 102
    """The preference to act under, by episode."""
    RANDOM_ACTION = 103
    """Uniformly random actions before learning starts, by block."""
    EVALUATION = 104
    """Lanes of an evaluation, by row of the preference table and episode."""
    PAST = 105
    """Which earlier preferences go with a transition, by block."""
    CRITIC = 106
    """Where critics are compared with returns, by what is drawn, seed, row of the preferences and pair."""
    RANDOM_SEQUENCE = 108
    """Random actions before learning starts that are correlated in time, by sequence. (107 is retired.)"""
    CALIBRATION = 109
    """Lanes of a calibration, by row of the preference table and episode."""
    ROLLOUT_NOISE = 201
    """Exploration of a population's member, by task and iteration."""
    ROLLOUT_LANE = 202
    """Lanes that a member trains in, by task and lane."""
    FITNESS = 203
    """Lanes in which a member is measured, by task, iteration and episode."""
    CANDIDATES = 204
    """Preferences to try for the next generation, by generation."""
    FIRST_PARAMETERS = 205
    """Networks that a member starts with, by task."""


def generator(seed: int, purpose: Purpose, *numbers: int) -> np.random.Generator:
    """The generator of a seed for one purpose; `numbers` are those of the lane, block, episode, ... it is for."""
    return np.random.Generator(np.random.PCG64(_sequence(seed, purpose, *numbers)))


def derived_seed(seed: int, purpose: Purpose, *numbers: int) -> int:
    """An integer seed for one purpose, for lanes, which take a seed and not a generator."""
    return int(_sequence(seed, purpose, *numbers).generate_state(1)[0])


def _sequence(seed: int, purpose: Purpose, *numbers: int) -> np.random.SeedSequence:
    return np.random.SeedSequence(seed, spawn_key=(int(purpose), *numbers))
