"""The device side of a population: how members start, and whose key an update has."""

import jax
import numpy as np

from qpensieve.learning.streams import Purpose, generator
from qpensieve.population import ppo
from qpensieve.population.learner import make_learner, member_key
from qpensieve.population.rollout import Place
from qpensieve.types import EnvSpec

SPEC = EnvSpec("test", 3, 2, ("one", "two"), None, None)
CFG = ppo.PpoConfig(hidden=4)


def test_minibatches_differ_between_iterations_tasks_and_seeds():
    keys = {
        np.asarray(jax.random.key_data(member_key(seed, task, number))).tobytes()
        for seed in range(3)
        for task in range(3)
        for number in (0, 1, 2)
    }
    assert len(keys) == 27


def test_a_members_start_is_its_places_alone():
    """Whatever runs beside it, bit for bit; and no two are alike."""
    places = (Place(4, 0), Place(4, 1), Place(5, 1))
    together = make_learner(CFG, SPEC, places).init()
    for row, place in enumerate(places):
        alone = ppo.init(CFG, SPEC, generator(place.seed, Purpose.FIRST_PARAMETERS, place.task))
        for ours, theirs in zip(jax.tree.leaves(together), jax.tree.leaves(alone), strict=True):
            assert np.asarray(ours[row]).tobytes() == np.asarray(theirs).tobytes()
    weights = np.asarray(together.actor.net.second.weight)
    assert len(np.unique(weights.reshape(3, -1), axis=0)) == 3
