"""Exact fronts: searched once, and nothing scores more than they do."""

import numpy as np
import pytest

from qpensieve.envs.exact import ExactFront

POINTS = np.array([[0.0, 4.0], [3.0, 3.0], [4.0, 0.0]])
LAM = np.array([[1.0, 0.0], [0.5, 0.5]])


def test_the_front_is_searched_once_and_cannot_be_changed():
    searched: list[int] = []

    def search() -> np.ndarray:
        searched.append(1)
        return POINTS.copy()

    front = ExactFront(search)
    assert front.points is front.points
    assert searched == [1]
    with pytest.raises(ValueError, match="read-only"):
        front.points[0] = 7.0


def test_ceilings_are_what_the_front_scores():
    ceilings = ExactFront(POINTS.copy).ceilings(LAM, np.zeros(2))
    assert ceilings.utility == pytest.approx((4 + 3) / 2)
    assert ceilings.best_single == pytest.approx(0.75 * 3 + 0.25 * 3)
    assert ceilings.hypervolume == pytest.approx(9.0)
