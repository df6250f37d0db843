"""The replay: a ring that forgets the oldest and samples what was written."""

from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from qpensieve.replay.layout import RowLayout
from qpensieve.replay.ring import Replay, add, empty, sample

LAYOUT = RowLayout(1, 1, 1)
WIDTH = 5
ADD, SAMPLE = jax.jit(add), jax.jit(partial(sample, num=6000))


def _block(first: int, size: int) -> jax.Array:
    """Rows that hold their number."""
    return jnp.asarray(np.tile(np.arange(first, first + size, dtype=np.float32)[:, None], (1, WIDTH)))


def _numbers(ring: Replay) -> list[int]:
    return np.asarray(ring.rows)[:, 0].astype(int).tolist()


def test_blocks_overwrite_the_oldest_rows():
    ring = empty(LAYOUT, 6)
    ring = ADD(ADD(ring, _block(1, 2)), _block(3, 2))
    assert _numbers(ring) == [1, 2, 3, 4, 0, 0]
    assert int(ring.written) == 4
    ring = ADD(ADD(ring, _block(5, 2)), _block(7, 2))
    assert _numbers(ring) == [7, 8, 3, 4, 5, 6]
    assert int(ring.written) == 8


@pytest.mark.parametrize("num_blocks", [1, 4])
def test_samples_are_uniform_among_the_written_rows_alone(num_blocks: int):
    ring = empty(LAYOUT, 6)
    for i in range(num_blocks):
        ring = ADD(ring, _block(1 + 2 * i, 2))
    stacked = jax.tree.map(lambda leaf: leaf[None], ring)
    rows, again, other = (np.asarray(SAMPLE(stacked, jnp.asarray(0), jax.random.key(seed))) for seed in (0, 0, 1))
    np.testing.assert_array_equal(rows, again)
    assert not np.array_equal(rows, other)
    assert rows.shape == (6000, WIDTH)
    values, counts = np.unique(rows[:, 0], return_counts=True)
    there = [n for n in range(1, 2 * num_blocks + 1) if n > 2 * num_blocks - 6]
    assert values.tolist() == there
    # Six standard deviations of a binomial.
    share = 1 / len(there)
    np.testing.assert_allclose(counts / 6000, share, atol=6 * np.sqrt(share * (1 - share) / 6000))


def test_a_lane_samples_its_own_rows():
    """Lanes may also have written different numbers of rows."""
    rings = [ADD(empty(LAYOUT, 6), _block(10 * lane, 2)) for lane in (1, 2, 3)]
    rings[1] = ADD(rings[1], _block(22, 2))
    stacked = jax.tree.map(lambda *leaves: jnp.stack(leaves), *rings)
    seen = [set(np.asarray(SAMPLE(stacked, jnp.asarray(i), jax.random.key(0)))[:, 0].astype(int)) for i in range(3)]
    assert seen == [{10, 11}, {20, 21, 22, 23}, {30, 31}]
