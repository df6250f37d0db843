"""Tests of the MOMDPs themselves."""

import numpy as np
import pytest

from qpensieve.theory.momdp import RandomSpec, chain, random_momdp


def test_a_random_momdp_has_the_asked_size_and_sparsity():
    spec = RandomSpec(30, 4, 3, num_successors=5, reward_density=0.25, end_probability=0.1)
    momdp = random_momdp(np.random.default_rng(0), spec)
    assert momdp.r.shape == (30, 4, 3)
    assert ((momdp.p_next > 0).sum(axis=-1) == 5).all()
    np.testing.assert_allclose(momdp.p_next.sum(axis=-1), 0.9)
    assert 0.15 < (momdp.r != 0).mean() < 0.35


def test_the_ends_of_the_chain_pay_and_end():
    momdp = chain(length=5, slip=0.0)
    assert momdp.r[0, 0].tolist() == [1.0, 0.0]
    assert momdp.r[4, 1].tolist() == [0.0, 1.0]
    assert momdp.p_next[0, 0].sum() == 0.0
    assert momdp.p_next[2, 1].tolist() == [0, 0, 0, 1, 0]


def test_impossible_sizes_are_refused():
    with pytest.raises(ValueError, match="discount"):
        chain(discount=1.0)
    with pytest.raises(ValueError, match="num_successors"):
        random_momdp(np.random.default_rng(0), RandomSpec(num_states=2, num_successors=3))
    with pytest.raises(ValueError, match="length"):
        chain(length=2)
