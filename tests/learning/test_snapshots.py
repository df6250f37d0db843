"""The Q replay buffer: first in first out, and untouched where nothing is due."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from qpensieve.learning import snapshots
from qpensieve.learning.nets import Critic
from tests.algos.problem import assert_trees_equal


def _twins(value: float) -> Critic:
    """Twins whose every number is `value`, the second's negative."""
    like = jax.eval_shape(lambda key: Critic(2, 1, 2, 4, key=key), jax.random.key(0))
    return jax.tree.map(lambda leaf: jnp.stack([jnp.full(leaf.shape, value), jnp.full(leaf.shape, -value)]), like)


def _contents(ring: snapshots.Snapshots) -> list[float]:
    """The value of every slot; all leaves must agree on it."""
    columns = [np.asarray(leaf).reshape(len(leaf), 2, -1) for leaf in jax.tree.leaves(ring.critics)]
    numbers = np.concatenate(columns, axis=2)
    assert (numbers == numbers[:, :1, :1] * np.array([1, -1])[None, :, None]).all()
    return numbers[:, 0, 0].tolist()


def test_a_new_ring_is_empty():
    ring = snapshots.empty(_twins(5.0), 3)
    assert _contents(ring) == [0, 0, 0]
    assert ring.filled.tolist() == [False] * 3
    assert [leaf.shape[:2] for leaf in jax.tree.leaves(ring.critics)] == [(3, 2)] * 6


def test_the_oldest_snapshot_makes_room():
    ring = snapshots.empty(_twins(0.0), 3)
    seen = []
    for value in range(1, 6):
        ring = snapshots.push(ring, _twins(float(value)))
        seen.append((_contents(ring), ring.filled.tolist()))
    assert [contents for contents, _ in seen] == [[1, 0, 0], [1, 2, 0], [1, 2, 3], [4, 2, 3], [4, 5, 3]]
    assert [sum(filled) for _, filled in seen] == [1, 2, 3, 3, 3]
    assert seen[0][1] == [True, False, False]
    assert int(ring.cursor) == 2


@pytest.mark.parametrize("num_pushed", [0, 1, 2, 3, 5])
def test_a_push_that_is_not_due_changes_not_a_bit(num_pushed: int):
    ring = snapshots.empty(_twins(0.0), 3)
    for value in range(num_pushed):
        ring = snapshots.push(ring, _twins(value + 1.0))
    push_if = jax.jit(snapshots.push_if)
    assert_trees_equal(push_if(jnp.asarray(False), ring, _twins(9.0)), ring)
    assert_trees_equal(push_if(jnp.asarray(True), ring, _twins(9.0)), snapshots.push(ring, _twins(9.0)))


@pytest.mark.parametrize("due", [False, True])
def test_a_ring_without_slots_stays_so(due: bool):
    ring = snapshots.empty(_twins(0.0), 0)
    assert_trees_equal(jax.jit(snapshots.push_if)(jnp.asarray(due), ring, _twins(9.0)), ring)
    critics, filled = snapshots.with_current(ring, _twins(9.0))
    assert filled.tolist() == [True]
    assert jax.tree.leaves(critics)[0].shape[0] == 1


def _drawn_slots(filled: list[bool], order: list[float], num: int) -> list[int]:
    """Filled slots by falling number, then empty ones, in plain Python."""
    ranked = sorted(range(len(order)), key=lambda slot: -order[slot])
    return ([slot for slot in ranked if filled[slot]] + [slot for slot in range(len(order)) if not filled[slot]])[:num]


@pytest.mark.parametrize("num", [1, 2])
def test_drawn_are_the_filled_snapshots_with_the_largest_numbers(num: int):
    ring, generator = snapshots.empty(_twins(0.0), 4), np.random.default_rng(0)
    draw = jax.jit(lambda ring, order: snapshots.pick(ring, order, num))
    for num_filled in range(5):
        for order in generator.random((10, 4), np.float32):
            drawn, filled = draw(ring, order), ring.filled.tolist()
            slots = _drawn_slots(filled, order.tolist(), num)
            assert _contents(drawn) == [_contents(ring)[slot] for slot in slots]
            assert drawn.filled.tolist() == [filled[slot] for slot in slots]
        ring = snapshots.push(ring, _twins(num_filled + 1.0))


def test_the_current_critic_is_the_last_candidate_and_always_exists():
    ring = snapshots.push(snapshots.empty(_twins(0.0), 2), _twins(1.0))
    critics, filled = snapshots.with_current(ring, _twins(9.0))
    assert _contents(snapshots.Snapshots(critics, filled, ring.cursor)) == [1, 0, 9]
    assert filled.tolist() == [True, False, True]
