"""The sum tree: sums that agree with the leaves, draws in proportion and in order, never a slot of priority 0.

Trees have two or three levels (300 or 20 000 slots) and samples 4096 draws, so that tests share compiled programs.
"""

from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from qpensieve.replay import priorities
from qpensieve.replay.priorities import LARGEST, SMALLEST, Priorities

SET = jax.jit(priorities.set_at)
NUM = 4096
SAMPLE = jax.jit(partial(priorities.sample, num=NUM))


def _tree(leaves: np.ndarray) -> Priorities:
    return SET(priorities.empty(len(leaves)), jnp.arange(len(leaves)), jnp.asarray(leaves, jnp.float32))


def _leaves(tree: Priorities) -> np.ndarray:
    return np.asarray(tree.levels[0]).reshape(-1)[: int(tree.capacity)]


def _assert_sums_agree(tree: Priorities) -> None:
    """Every entry above the leaves is the sum of its 128 children and of nothing else, zeros where there are none."""
    for below, above in zip(tree.levels, tree.levels[1:], strict=False):
        sums = np.zeros(above.size)
        sums[: len(below)] = np.asarray(below, np.float64).sum(axis=1)
        np.testing.assert_allclose(np.asarray(above).reshape(-1), sums, rtol=1e-5)
    np.testing.assert_allclose(float(priorities.total(tree)), _leaves(tree).sum(dtype=np.float64), rtol=1e-5)


@pytest.mark.parametrize(
    ("capacity", "num_groups"),
    [
        (1, [1]),
        (128, [1]),
        (129, [2, 1]),
        (16_385, [129, 2, 1]),
        (10**6, [7813, 62, 1]),
    ],
)
def test_levels_shrink_by_128_down_to_a_single_group(capacity: int, num_groups: list[int]):
    tree = jax.eval_shape(partial(priorities.empty, capacity))
    assert [level.shape for level in tree.levels] == [(num, 128) for num in num_groups]


@pytest.mark.parametrize("capacity", [300, 20_000])
def test_sums_agree_with_the_leaves_after_many_writes(capacity: int):
    generator, tree, expected = np.random.default_rng(0), priorities.empty(capacity), np.zeros(capacity)
    for _ in range(3):
        slots = generator.permutation(capacity)[:64]
        values = generator.exponential(size=len(slots)) ** 4
        tree = SET(tree, jnp.asarray(slots), jnp.asarray(values, jnp.float32))
        expected[slots] = values
        _assert_sums_agree(tree)
    np.testing.assert_allclose(_leaves(tree), expected, rtol=1e-6)


def test_duplicates_leave_one_of_their_values_and_right_sums():
    tree = _tree(np.ones(300))
    tree = SET(tree, jnp.array([7, 7, 7, 290, 8, 290]), jnp.array([1.0, 2.0, 4.0, 8.0, 16.0, 8.0]))
    _assert_sums_agree(tree)
    leaves = _leaves(tree)
    assert leaves[7] in {1.0, 2.0, 4.0}
    assert (leaves[8], leaves[290]) == (16.0, 8.0)
    assert float(priorities.total(tree)) == 297 + leaves[7] + 16 + 8


def test_slots_out_of_range_are_dropped():
    """Also those in the padding behind the last slot, and negative ones, which elsewhere count from the end."""
    capacity = 20_000
    tree = _tree(np.full(capacity, 2.0))
    slots = jnp.array([capacity, capacity + 1, -1, -capacity, 128 * 128 * 128, 2**31 - 1, -(2**31), 0])
    after = SET(tree, slots, jnp.array([50.0] * 7 + [3.0]))
    assert _leaves(after).tolist() == [3.0] + [2.0] * (capacity - 1)
    assert float(priorities.total(after)) == 2 * capacity + 1
    assert not np.asarray(after.levels[0]).reshape(-1)[capacity:].any()
    _assert_sums_agree(after)


def test_a_tree_forgets_what_was_overwritten_to_the_last_bit():
    """An adjusted sum would keep the rounding error of 1e9 + 1 - 1e9."""
    tree = _tree(np.ones(300))
    tree = SET(SET(tree, jnp.array([5]), jnp.array([1e9])), jnp.array([5]), jnp.array([1.0]))
    assert float(priorities.total(tree)) == 300.0


def test_bad_values_count_as_the_nearest_good_one():
    values = np.ones(300)
    values[:8] = [np.nan, -1.0, np.inf, -np.inf, 1e-35, SMALLEST, 1.0, LARGEST]
    expected = np.array([0.0, 0.0, LARGEST, 0.0, 0.0, SMALLEST, 1.0, LARGEST], np.float32)
    np.testing.assert_array_equal(_leaves(_tree(values))[:8], expected)
    full = _tree(np.full(20_000, np.inf))
    assert np.isfinite(float(priorities.total(full)))
    assert len(np.unique(SAMPLE(full, jax.random.key(0)))) > 0.9 * NUM


@pytest.mark.parametrize("capacity", [300, 20_000])
def test_slots_are_drawn_in_proportion_to_their_priorities(capacity: int):
    """With many equal parts of the mass, a slot's count is within 2 of its share: the parts that its mass touches."""
    generator = np.random.default_rng(1)
    leaves = np.zeros(capacity)
    leaves[generator.permutation(capacity)[: min(capacity, 150)]] = generator.exponential(size=min(capacity, 150)) + 0.1
    slots = np.asarray(SAMPLE(_tree(leaves), jax.random.key(0)))
    counts = np.bincount(slots, minlength=capacity)
    assert len(counts) == capacity
    # Rounding moves an edge by 1e-6 of the mass or so, far below a part, which is 2e-4 of it.
    assert np.abs(counts - NUM * leaves / leaves.sum()).max() <= 2.0


def test_each_equal_part_of_the_mass_gives_one_draw():
    """Of 16 384 equal slots and 4096 draws, draw i comes from slots 4 i to 4 i + 3, anywhere among them."""
    tree = _tree((np.arange(20_000) < 4 * NUM).astype(float))
    slots = np.stack([np.asarray(SAMPLE(tree, jax.random.key(seed))) for seed in range(10)])
    off = slots // 4 - np.arange(NUM)
    assert np.abs(off).max() <= 1  # by rounding, at an edge
    assert (off != 0).mean() < 1e-3
    assert set((slots % 4).ravel().tolist()) == set(range(4))
    assert len(np.unique(slots[0] % 4 - slots[0, ::-1] % 4)) > 5, "the draws of the parts are independent"


def _zeros_but(capacity: int, at: dict[int, float]) -> np.ndarray:
    leaves = np.zeros(capacity)
    leaves[list(at)] = list(at.values())
    return leaves


def _mostly_zero(capacity: int, spread: float) -> np.ndarray:
    """One slot in ten has a priority, of very different sizes."""
    generator = np.random.default_rng(capacity)
    return (generator.random(capacity) < 0.1) * np.exp(spread * generator.normal(size=capacity))


@pytest.mark.parametrize(
    "leaves",
    [
        _zeros_but(300, {0: 1e-20, 64: 1e25}),
        _zeros_but(20_000, {0: 1.0, 127: 1e-12, 128: 1e20, 129: 1e-12, 19_999: 1e-12}),
        _zeros_but(20_000, {16_383: 3e-30, 16_384: 3e-30}),
        _mostly_zero(20_000, 12.0),
        np.where(np.arange(20_000) % 2, 0.1, 0.0),
    ],
)
def test_a_slot_of_priority_zero_is_never_drawn(leaves: np.ndarray):
    tree = _tree(leaves)
    for seed in range(3):
        slots = np.asarray(SAMPLE(tree, jax.random.key(seed)))
        assert (slots >= 0).all()
        assert (slots < len(leaves)).all()
        assert (leaves[slots] > 0).all()
