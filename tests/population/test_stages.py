"""The warm-up's grid and the point that objectives count from."""

import numpy as np
import pytest

from qpensieve.population.stages import StagesConfig, reference_of, spacing, warmup_preferences
from qpensieve.types import EnvSpec


def spec(d: int, reference: tuple[float, ...] | None) -> EnvSpec:
    return EnvSpec("Somewhere", 3, 1, tuple("abcde"[:d]), reference, 100)


@pytest.mark.parametrize(("d", "num_tasks", "gap"), [(2, 5, 1 / 4), (3, 15, 1 / 4), (4, 35, 1 / 4), (5, 35, 1 / 3)])
def test_there_are_as_many_tasks_as_in_the_papers_table(d: int, num_tasks: int, gap: float):
    grid = warmup_preferences(StagesConfig(), d)
    assert len(np.unique(grid, axis=0)) == len(grid) == num_tasks
    np.testing.assert_allclose(grid.sum(axis=1), 1.0)
    assert (grid >= 0).all()
    assert spacing(StagesConfig(), d) == gap
    np.testing.assert_allclose(np.round(grid / gap), grid / gap, atol=1e-9)


def test_divisions_can_be_chosen():
    assert warmup_preferences(StagesConfig(divisions=5), 2)[:, 0].tolist() == [0.0, 0.2, 0.4, 0.6, 0.8, 1.0]


def test_policies_must_exceed_a_point_and_someone_must_set_it():
    np.testing.assert_array_equal(reference_of(spec(2, (0.0, -50.0))), [0.0, -50.0])
    with pytest.raises(ValueError, match=r"reference must be given for Somewhere, .* \(--reference\) to 3 numbers"):
        reference_of(spec(3, None))
