"""Tests of the preference samplers, grids, tables and checks."""

import hashlib
import math

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from qpensieve import preferences
from qpensieve.learning.losses import sample_preferences
from qpensieve.preferences import check_preference, das_dennis, draw_preferences, spaced_grid

SAMPLERS = ["uniform-sum", "dirichlet"]
NUM_DRAWS = 20_000
# Variance of the first entry of two. Dirichlet(1): that of U(0, 1). Uniform-sum: integral of (t - 1/2)^2 over the
# density 1 / (2 (1 - t)^2) on [0, 1/2], twice.
VARIANCE = {"dirichlet": 1 / 12, "uniform-sum": 3 / 4 - math.log(2)}
# Five standard errors of a variance from 20 000 draws of U(0, 1) (0.00053 each); the two variances differ by 0.0265.
VARIANCE_MARGIN = 0.003

TABLE_SHA256 = {
    1: "b42a73dadec1c669cf9f985d24d8be5e91e302c8b1941a91d30d5f278aa72fcf",
    2: "73b8aa720ec455318757e838d778b5361becc6ae83cf2bcaf54be00006f5f5da",
    3: "e2fd01946dd88f5166456e44f8b329d80d876fb0a2d9e0aeff2058c056faab66",
    4: "30254b4723e6e6b5133d21d2efde968313c04dfc21309d3e0dc0df52ba50329a",
    5: "b1ad4d64a158162e6de4ce279d7082b1b55499233e64cb8a0777e55ec66710d7",
    6: "ae205153bc0568a10e5d22b7c505f0e05fe30215afd80c25d1026f0e603ec29b",
}


def on_device(num, num_objectives, sampler, seed=0):
    draw = jax.jit(sample_preferences, static_argnums=(1, 2, 3))
    return np.asarray(draw(jax.random.key(seed), num, num_objectives, sampler))


def on_host(num, num_objectives, sampler, seed=0):
    return draw_preferences(np.random.default_rng(seed), num, num_objectives, sampler)


@pytest.mark.parametrize("draw", [on_device, on_host])
@pytest.mark.parametrize("sampler", SAMPLERS)
@pytest.mark.parametrize("num_objectives", [1, 2, 5])
def test_draws_lie_on_the_simplex(draw, sampler, num_objectives):
    draws = draw(1000, num_objectives, sampler)
    assert draws.shape == (1000, num_objectives)
    assert draws.min() >= 0
    np.testing.assert_allclose(draws.sum(axis=1), 1, rtol=0, atol=1e-6)


@pytest.mark.parametrize("draw", [on_device, on_host])
@pytest.mark.parametrize("sampler", SAMPLERS)
def test_two_objectives_have_the_variance_of_the_named_distribution(draw, sampler):
    draws = draw(NUM_DRAWS, 2, sampler)
    assert draws[:, 0].var() == pytest.approx(VARIANCE[sampler], abs=VARIANCE_MARGIN)


@pytest.mark.parametrize("draw", [on_device, on_host])
def test_dirichlet_of_five_objectives_has_the_known_mean_and_variance_everywhere(draw):
    draws = draw(NUM_DRAWS, 5, "dirichlet")
    # Standard errors: 0.0012 of the mean, about 0.0004 of the variance.
    np.testing.assert_allclose(draws.mean(axis=0), 1 / 5, rtol=0, atol=0.006)
    np.testing.assert_allclose(draws.var(axis=0), 4 / 150, rtol=0, atol=0.002)


def test_draws_depend_on_the_seed_and_are_uniform_sum_by_default():
    key, host = jax.random.key(3), np.random.default_rng(3)
    np.testing.assert_array_equal(sample_preferences(jax.random.clone(key), 4, 3), on_device(4, 3, "uniform-sum", 3))
    np.testing.assert_array_equal(draw_preferences(host, 4, 3), on_host(4, 3, "uniform-sum", 3))
    assert (on_device(2, 2, "dirichlet").dtype, on_host(2, 2, "dirichlet").dtype) == (np.float32, np.float64)


@pytest.mark.parametrize("array", [np.array, jnp.array])
def test_a_draw_of_zeros_becomes_the_centre_and_leaves_other_rows_alone(array):
    rows = preferences.normalize(array([[0.0, 0.0, 0.0, 0.0], [0.0, 1.0, 1.0, 2.0]]))
    np.testing.assert_array_equal(rows, [[0.25, 0.25, 0.25, 0.25], [0, 0.25, 0.25, 0.5]])


REFUSED = {
    "num_objectives must be 1 or more, got 0": (
        lambda: sample_preferences(jax.random.key(0), 3, 0),
        lambda: das_dennis(0, 3),
        lambda: preferences.test_table(0),
    ),
    "num must be 0 or more preferences, got -1": (lambda: draw_preferences(np.random.default_rng(0), -1, 2),),
    "num must be 2 or more to hold both ends of the grid, got 1": (lambda: spaced_grid(1),),
    "divisions must be 1 or more, got 0": (lambda: das_dennis(2, 0),),
    "version of the test table must be 1, got 2": (lambda: preferences.test_table(2, version=2),),
}


@pytest.mark.parametrize("message", REFUSED)
def test_impossible_sizes_and_versions_are_refused(message):
    for call in REFUSED[message]:
        with pytest.raises(ValueError, match=message):
            call()


def test_spaced_grid_runs_from_the_second_objective_to_the_first():
    np.testing.assert_array_equal(spaced_grid(5), [[0, 1], [0.25, 0.75], [0.5, 0.5], [0.75, 0.25], [1, 0]])


def test_das_dennis_of_three_objectives_and_two_divisions_by_hand():
    expected = [[0, 0, 1], [0, 0.5, 0.5], [0, 1, 0], [0.5, 0, 0.5], [0.5, 0.5, 0], [1, 0, 0]]
    np.testing.assert_array_equal(das_dennis(3, 2), expected)


@pytest.mark.parametrize(("num_objectives", "divisions"), [(1, 4), (2, 7), (3, 10), (4, 6), (5, 5)])
def test_das_dennis_holds_every_multiple_once_in_lexicographic_order(num_objectives, divisions):
    grid = das_dennis(num_objectives, divisions)
    counts = np.rint(grid * divisions).astype(int)
    assert len(grid) == math.comb(divisions + num_objectives - 1, num_objectives - 1)
    assert (counts.sum(axis=1) == divisions).all()
    np.testing.assert_array_equal(grid, counts / divisions)
    rows = [tuple(row) for row in counts.tolist()]
    assert rows == sorted(set(rows))


def test_table_of_two_objectives_starts_at_the_second_objective_and_stops_short_of_the_first():
    table = preferences.test_table(2)
    i = np.arange(100)
    np.testing.assert_allclose(table, np.stack([i / 100, 1 - i / 100], axis=1), rtol=0, atol=1e-12)
    np.testing.assert_array_equal(table[[0, -1]], [[0, 1], [0.99, 0.01]])


@pytest.mark.parametrize("num_objectives", sorted(TABLE_SHA256))
def test_table_is_the_published_one(num_objectives):
    rows = preferences.test_table(num_objectives, version=1)
    text = "\n".join(",".join(f"{entry:.6f}" for entry in row) for row in rows)
    assert hashlib.sha256(text.encode()).hexdigest() == TABLE_SHA256[num_objectives]


def test_table_is_shared_and_cannot_be_written():
    table = preferences.test_table(3)
    assert preferences.test_table(3) is table
    with pytest.raises(ValueError, match="read-only"):
        table[0, 0] = 0.5


@pytest.mark.parametrize("kind", [list, tuple, np.array, jnp.array])
def test_a_right_preference_comes_back_as_float64(kind):
    lam = check_preference(kind([0.25, 0.0, 0.75]), 3)
    assert lam.dtype == np.float64
    np.testing.assert_array_equal(lam, [0.25, 0, 0.75])


@pytest.mark.parametrize(
    ("preference", "message"),
    [
        ([0.5, float("nan")], "preference entries must be finite, got nan at index 1"),
        ([[0.5, 0.5], [float("inf"), 0]], r"preference entries must be finite, got inf at index \(1, 0\)"),
        ([1.2, -0.2], "preference entries must be 0 or more, got -0.2 at index 1"),
        ([0.5, 0.25], "preference must sum to 1, got 0.75; divide it by its sum"),
        ([0.5, 0.5 + 1.1e-6], "preference must sum to 1, got 1.0000011"),
        ([[0.5, 0.5], [0.5, 1.5]], "preference must sum to 1, got 2 at row 1"),
        ([[[0.5, 0.5], [0, 0]]], r"preference must sum to 1, got 0 at row \(0, 1\)"),
        ([0.2, 0.3, 0.5], r"preference must have 2 entries, one per objective, got 3 \(shape \(3,\)\)"),
        (np.array(1.0), r"preference must have 2 entries, one per objective, got a single number"),
        ([], "preference must have 2 entries, one per objective, got 0"),
        ("0.5,0.5", "preference must be 2 numbers, one per objective, or rows of them, got '0.5,0.5'"),
        ([[0.5, 0.5], [1]], r"preference must be 2 numbers, .*, got \[\[0.5, 0.5\], \[1\]\]"),
    ],
)
def test_a_wrong_preference_is_refused_with_what_is_wrong(preference, message):
    with pytest.raises(ValueError, match=message):
        check_preference(preference, 2)
