"""The sliding preferences of PFA against the worked example and the formula."""

import numpy as np
import pytest

from qpensieve.population import pfa

BASE = np.array([0.0, 0.25, 0.5, 0.75, 1.0])


@pytest.mark.parametrize(
    ("iteration", "first"),
    [
        (80, [0.0175, 0.2675, 0.5175, 0.7675, 1.0]),
        (100, [0.0350, 0.2850, 0.5350, 0.7850, 1.0]),
        (340, [0.2448, 0.4948, 0.7448, 0.9948, 1.0]),
        (360, [0.25, 0.5, 0.75, 1.0, 1.0]),
    ],
)
def test_the_worked_example(iteration: int, first: list[float]):
    """366 iterations, 80 of them warm-up, 20 a generation: the first share is 20 / 286, the 15th and last is 1."""
    lam = pfa.schedule(iteration, 80, 20, 366, BASE, 0.25)
    np.testing.assert_allclose(lam[:, 0], first, atol=5e-5)
    np.testing.assert_allclose(lam.sum(axis=1), 1.0, rtol=1e-15)


def test_every_generation_follows_the_formula():
    for generation in range(15):
        start = 80 + 20 * generation
        share = min(1.0, (start + 20 - 80) / (366 - 80))
        expected = [[min(1.0, i + share * 0.25), 1.0 - min(1.0, i + share * 0.25)] for i in BASE.tolist()]
        np.testing.assert_allclose(pfa.schedule(start, 80, 20, 366, BASE, 0.25), expected, atol=1e-12)


def test_in_the_last_generation_a_task_has_its_right_neighbour_s_first_preference():
    lam = pfa.schedule(180, 40, 20, 200, BASE, 0.25)
    np.testing.assert_array_equal(lam[:, 0], [0.25, 0.5, 0.75, 1.0, 1.0])
    np.testing.assert_array_equal(lam[:, 1], [0.75, 0.5, 0.25, 0.0, 0.0])


def test_tasks_keep_their_places():
    shuffled = np.array([3, 0, 4, 1, 2])
    lam = pfa.schedule(100, 80, 20, 366, BASE, 0.25)
    np.testing.assert_array_equal(pfa.schedule(100, 80, 20, 366, BASE[shuffled], 0.25), lam[shuffled])


def test_without_spacing_preferences_stay():
    lam = pfa.schedule(200, 80, 20, 366, BASE, 0.0)
    np.testing.assert_array_equal(lam, np.stack([BASE, 1.0 - BASE], axis=1))


@pytest.mark.parametrize(("iteration", "total"), [(80, 80), (80, 36), (0, 36), (0, 366), (60, 366)])
def test_warm_up_has_the_preferences_of_the_grid(iteration: int, total: int):
    """Also where the whole run is warm-up, whose length would be divided by otherwise."""
    lam = pfa.schedule(iteration, 80, 20, total, BASE, 0.25)
    np.testing.assert_array_equal(lam, np.stack([BASE, 1.0 - BASE], axis=1))
