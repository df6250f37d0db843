"""Episodes in which members are measured."""

from qpensieve.population.fitness import Fitness
from qpensieve.population.rollout import Place


def test_episodes_differ_between_seeds_tasks_iterations_and_episodes():
    places = tuple(Place(seed, task) for seed in range(2) for task in range(3))
    fitness = Fitness("DST2d", places, 3, num_threads=None)
    seeds = [seed for number in range(3) for seed in fitness.lane_seeds(number)]
    assert len(set(seeds)) == len(seeds) == 54
