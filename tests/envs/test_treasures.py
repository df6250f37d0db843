"""The sea of both Deep Sea Treasures, and which treasures episodes ended at."""

import numpy as np
import pytest

from qpensieve.envs import DISCRETE, DOMAINS
from qpensieve.envs.treasures import SIZE, TREASURES, find_treasures, is_rock, is_water, share_found
from tests.envs.test_dst import MAP

DST = DOMAINS["DST2d"]


def test_every_cell_is_what_the_map_of_the_facts_says():
    words = [line.split() for line in MAP.strip().split("\n")]
    assert [len(line) for line in words] == [SIZE] * SIZE
    for row, column in np.ndindex(SIZE, SIZE):
        word = words[row][column]
        assert is_rock(row, column) == (word == "#")
        assert is_water(row, column) == (word == ".")
        assert TREASURES.get((row, column)) == (None if word in "#." else float(word))


def test_treasures_are_found_per_seed_by_value_and_by_share_of_the_front():
    returns = np.zeros((3, 2, 2, 2))
    # 14.0 is a treasure but not on the front; 23.7 comes back from float32; 8.3 and a rock are no treasures.
    returns[0, :, :, 0] = [[14.0, 0.7], [np.float32(23.7), 23.7]]
    returns[1, :, :, 0] = [[8.3, -10.0], [0.0, 0.0]]
    returns[2, 0, :, 0] = [8.2 + 9e-4, 8.2 - 2e-3]
    found = find_treasures(returns)
    assert found == (frozenset({14.0, 0.7, 23.7}), frozenset(), frozenset({8.2}))
    np.testing.assert_allclose(share_found(found, DST.front_treasures), [2 / 8, 0, 1 / 8])


def test_all_treasures_of_the_front_are_a_share_of_one():
    assert DST.exact is not None
    points = DST.exact.points
    assert share_found(find_treasures(points[None, :, None]), DST.front_treasures) == pytest.approx([1.0])
    assert DST.front_treasures == tuple(points[:, 0])


def test_both_seas_have_the_same_treasures():
    assert DISCRETE["DeepSeaTreasure"].treasures == DST.treasures == tuple(TREASURES.values())
    assert DISCRETE["DeepSeaTreasure"].front_treasures == ()
