"""Several steps as one, against loops over what was written."""

from dataclasses import replace
from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from qpensieve.replay import ring as replay
from qpensieve.replay.ahead import fold
from qpensieve.replay.layout import RowLayout

LAYOUT = RowLayout(1, 1, 2)
CAPACITY, DISCOUNT = 12, 0.9


def _written(num: int) -> np.ndarray:
    """Rows of episodes of 4 steps; every second one ends by the time limit, whose last row is not terminated."""
    rows = np.zeros((num, LAYOUT.width), np.float32)
    for i in range(num):
        is_end = i % 4 == 3
        s_next = 1000 + i if is_end else i + 1
        rows[i] = [i, 0.5, i + 0.25, -2.0 * i, s_next, float(is_end and i % 8 == 7)]
    return rows


def _expected(rows: np.ndarray, first: int, n: int) -> tuple[float, float, float, float]:
    """Rewards, state reached, and what a target multiplies its value by besides the discount."""
    r, factor = np.zeros(2), 1.0
    for k in range(n):
        row = rows[first + k]
        r += factor * row[2:4]
        is_last = k == n - 1 or first + k == len(rows) - 1 or (first + k) % 4 == 3
        if is_last:
            return r[0], r[1], row[4], factor * (1.0 - row[5])
        factor *= DISCOUNT
    raise AssertionError


@pytest.mark.parametrize("num_rows", [6, 12, 16, 20])
@pytest.mark.parametrize("n", [2, 3, 5])
def test_folded_samples_are_those_of_the_loops(num_rows: int, n: int):
    rows, ring = _written(num_rows), replay.empty(LAYOUT, CAPACITY)
    for start in range(0, num_rows, 2):
        ring = replay.add(ring, jnp.asarray(rows[start : start + 2]))
    stacked = jax.tree.map(lambda leaf: leaf[None], ring)

    def draw(stacked: replay.Replay, key: jax.Array) -> tuple:
        taken, is_there = replay.sample_ahead(stacked, jnp.asarray(0), key, 200, n)
        return fold(LAYOUT.unpack(taken), is_there, DISCOUNT), replay.sample(
            stacked, jnp.asarray(0), jax.random.clone(key), 200
        )

    batch, single = jax.jit(draw)(stacked, jax.random.key(1))
    first = np.asarray(batch.s)[:, 0].astype(int)
    np.testing.assert_array_equal(first, np.asarray(single)[:, 0])  # the same draw as single steps take
    assert set(first) == set(range(max(0, num_rows - CAPACITY), num_rows))
    expected = np.array([_expected(rows, i, n) for i in first])
    np.testing.assert_allclose(batch.r, expected[:, :2], rtol=1e-5)
    np.testing.assert_array_equal(np.asarray(batch.s_next)[:, 0], expected[:, 2])
    np.testing.assert_allclose(1.0 - np.asarray(batch.terminated), expected[:, 3], rtol=1e-5, atol=1e-6)


def test_one_step_is_the_step_itself():
    rows = jnp.asarray(_written(8))
    steps = LAYOUT.unpack(rows[:, None])
    folded = jax.jit(partial(fold, discount=DISCOUNT))(steps, jnp.ones((8, 1), bool))
    for ours, theirs in zip(jax.tree.leaves(folded), jax.tree.leaves(LAYOUT.unpack(rows)), strict=True):
        np.testing.assert_array_equal(ours, theirs)


def test_several_steps_are_of_the_preference_of_the_first():
    """Every row has its own here, so that no other can be taken for it."""
    rows = np.concatenate([_written(8), np.arange(16.0).reshape(8, 2)], axis=1).astype(np.float32)
    steps = RowLayout(1, 1, 2, preference_size=2).unpack(jax.device_put(np.stack([rows[0:3], rows[2:5], rows[5:8]])))
    folded = jax.jit(partial(fold, discount=DISCOUNT))(steps, jax.device_put(np.ones((3, 3), bool)))
    np.testing.assert_array_equal(folded.lam, [[0, 1], [4, 5], [10, 11]])
    # Another preference is another episode, also where that begins in the place at which this one ended.
    np.testing.assert_array_equal(folded.r, steps.r[:, 0])
    together = replace(steps, lam=jnp.ones((3, 3, 2)))
    assert (jax.jit(partial(fold, discount=DISCOUNT))(together, jnp.ones((3, 3), bool)).r != steps.r[:, 0]).any()
