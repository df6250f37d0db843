"""The device side of a population: whose key an update has."""

import jax
import numpy as np

from qpensieve.population.learner import INIT, member_key


def test_minibatches_differ_between_iterations_tasks_and_seeds():
    keys = {
        np.asarray(jax.random.key_data(member_key(seed, task, number))).tobytes()
        for seed in range(3)
        for task in range(3)
        for number in (0, 1, 2, INIT)
    }
    assert len(keys) == 36
