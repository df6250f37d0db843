"""Members on the host, archives against the double loop, buffers against sorted insertion, and acting with archives."""

from math import comb
from typing import Any

import numpy as np
import pytest

from qpensieve.learning.acting import num_parameters
from qpensieve.population import members
from qpensieve.population.members import (
    OBS_CLIP,
    Archive,
    ArchivePredictor,
    KeptPolicy,
    MemberPolicy,
    Policies,
    empty_archive,
)
from qpensieve.preferences import das_dennis
from tests.oracles import pareto as oracle

WIDTHS = (3, 8, 8, 2)
RNG = np.random.default_rng(0)
FLAT = RNG.normal(scale=0.8, size=(2, num_parameters(WIDTHS) + 2)).astype(np.float32)
DST = np.array([0.0, -50.0])
DST_FRONT = [[0.7, -2], [8.2, -3], [11.5, -4], [15.1, -5], [16.1, -6], [20.3, -8], [22.4, -10], [23.7, -11]]
ORIGIN = np.zeros(2)


def test_members_explore_beyond_the_box_and_act_within_it():
    policy = MemberPolicy(FLAT, WIDTHS)
    obs = RNG.normal(size=(2, 50, 3)).astype(np.float32)
    noise = RNG.normal(size=(2, 50, 2)).astype(np.float32)
    mean, std = policy.explore(obs, np.zeros_like(noise)), np.exp(FLAT[:, None, -2:])
    np.testing.assert_allclose(policy.explore(obs, noise), mean + std * noise, rtol=1e-6)
    assert np.abs(policy.explore(obs, noise)).max() > 1.0
    np.testing.assert_array_equal(policy.exploit(obs), np.clip(mean, -1.0, 1.0))


def test_kept_policies_normalise_observations_as_their_member_did():
    mean, scale = RNG.normal(size=(2, 3)).astype(np.float32), np.full((2, 3), 0.5, np.float32)
    kept = KeptPolicy(np.concatenate([FLAT, mean, scale], axis=1), WIDTHS)
    obs = RNG.normal(scale=4.0, size=(2, 50, 3)).astype(np.float32)
    seen = np.clip((obs - mean[:, None]) / scale[:, None], -OBS_CLIP, OBS_CLIP)
    assert np.abs(seen).max() == OBS_CLIP
    np.testing.assert_array_equal(kept.exploit(obs), MemberPolicy(FLAT, WIDTHS).exploit(seen))
    assert np.abs(kept.explore(obs, RNG.normal(size=(2, 50, 2)).astype(np.float32))).max() <= 1.0


# The archive


def _found(objs: Any, first: int = 0) -> Archive:
    """Policies with these objectives; all their other fields say which row they were."""
    objs = np.asarray(objs, np.float64)
    rows = first + np.arange(len(objs))
    return Archive(objs, np.stack([rows, -rows], axis=1).astype(np.float32), rows, np.stack([rows] * 2, 1) / 100.0)


def _archived(objs: Any, reference: np.ndarray = ORIGIN) -> Archive:
    return empty_archive(2, 2).updated(_found(objs), reference)


@pytest.mark.parametrize(
    ("objs", "reference", "kept", "volume"),
    [
        ([[3, 1], [1, 3], [0.5, 0.5]], ORIGIN, [0, 1], 5.0),
        ([[1, 2], [1, 2], [2, 1]], ORIGIN, [0, 2], 3.0),  # of equal objectives the first stays
        ([[5, -50], [0, -10], [5, -50.5], [-1, -10], [1, -49]], DST, [4], 1.0),  # above the reference in all objectives
        (DST_FRONT, DST, list(range(8)), 1055.0),
        (DST_FRONT, ORIGIN, [], 0.0),
        ([[3, -5], [5, -20]], DST, [0, 1], 195.0),
        ([[1, 5], [2, 1], [3, 4]], ORIGIN, [0, 2], 13.0),
    ],
)
def test_archives_by_hand(objs: Any, reference: np.ndarray, kept: list[int], volume: float):
    archive = _archived(objs, reference)
    assert archive.found_at.tolist() == kept
    np.testing.assert_array_equal(archive.policies, np.stack([kept, np.negative(kept)], axis=1))
    np.testing.assert_array_equal(archive.lam[:, 0], np.array(kept) / 100.0)
    assert archive.hypervolume(reference) == pytest.approx(volume, abs=1e-9)


@pytest.mark.parametrize("d", [2, 3, 5])
def test_generations_of_updates_keep_what_the_double_loop_keeps_and_the_volume_never_falls(d: int):
    rng = np.random.default_rng(d)
    reference, volume = np.full(d, -2.0), 0.0
    archive, seen = empty_archive(d, 1), []
    for generation in range(8):
        objs = rng.integers(-3, 3, size=(9, d)).astype(np.float64) * 0.5
        at = 9 * generation + np.arange(9)
        archive = archive.updated(Archive(objs, at[:, None].astype(np.float32), at, objs + 7.0), reference)
        seen += objs.tolist()
        inside = [i for i, point in enumerate(seen) if min(point) > -2.0]
        mask = oracle.is_non_dominated([seen[i] for i in inside])
        assert archive.found_at.tolist() == [i for i, kept in zip(inside, mask, strict=True) if kept]
        np.testing.assert_array_equal(archive.objs, np.array(seen)[archive.found_at])
        assert archive.hypervolume(reference) >= volume - 1e-9
        volume = archive.hypervolume(reference)
    assert volume > 0.0


@pytest.mark.parametrize("bad", [np.nan, np.inf])
def test_objectives_that_are_not_finite_are_refused(bad: float):
    with pytest.raises(ValueError, match=r"objs must be finite, row 1"):
        _archived([[1, 2], [bad, 1]])
    with pytest.raises(ValueError, match="objs must be finite"):
        members.survivors(np.array([[1.0, bad]]), ORIGIN, 4, 2)


def test_the_best_policy_of_a_preference_by_hand():
    """(23.7, -11) wins from a treasure weight of 0.4688 on, (0.7, -2) below 0.1176; the first wins a tie."""
    lam = np.array([[first, 1.0 - first] for first in (0.0, 0.11, 0.12, 0.46, 0.47, 1.0)])
    assert members.best_rows(np.array(DST_FRONT), lam).tolist() == [0, 0, 1, 5, 7, 7]
    ties = np.array([[0.0, 1.0], [2.0, 0.0], [0.0, 2.0], [2.0, 0.0]])
    assert members.best_rows(ties, np.array([[0.5, 0.5], [1.0, 0.0]])).tolist() == [1, 1]
    with pytest.raises(ValueError, match="the archive is empty"):
        members.best_rows(np.empty((0, 2)), lam)


# Buffers


def _insert_all(objs: np.ndarray, reference: np.ndarray, num_buffers: int, size: int) -> list[int]:
    """Survivors by insertion: a buffer is a list from far to near, cut to its size after every sample."""
    kept: dict[int, list[tuple[float, int]]] = {}
    for row, f in enumerate(objs - reference):
        if min(f) < 1e-7:
            continue
        far = float(np.sqrt(np.sum(f**2)))
        if len(f) == 2:
            number = int(np.arccos(f[1] / far) // (np.pi / 2 / num_buffers))
        else:
            number = int(np.argmax([vector @ f for vector in members.directions(len(f), num_buffers)]))
        buffer = kept.setdefault(number, [])
        place = next((i for i, (other, _) in enumerate(buffer) if other < far), len(buffer))
        buffer.insert(place, (far, row))
        del buffer[size:]
    return [row for number in sorted(kept) for _, row in kept[number]]


@pytest.mark.parametrize(
    ("d", "asked", "count"), [(3, 200, 210), (3, 199, 190), (3, 190, 190), (4, 400, 364), (5, 400, 330), (3, 1, 3)]
)
def test_directions_are_the_grid_with_the_nearest_number_of_points_and_at_a_tie_the_larger(d, asked, count):
    vectors = members.directions(d, asked)
    assert vectors.shape == (count, d)
    np.testing.assert_allclose(np.sum(vectors**2, axis=1), 1.0, rtol=1e-12)
    assert {tuple(row) for row in np.eye(d)} <= {tuple(row) for row in vectors}
    counts = [comb(divisions + d - 1, d - 1) for divisions in range(1, 40)]
    assert abs(count - asked) == min(abs(other - asked) for other in counts)
    # A point along a direction is in its buffer, at any distance.
    nudged = vectors + 0.001 * np.random.default_rng(0).normal(size=vectors.shape)
    np.testing.assert_array_equal(members.buffer_of(70.0 * nudged, asked), np.arange(count))


def test_two_objectives_have_sectors_instead_of_directions():
    """Sectors of 22.5 degrees, counted from the second axis; the last has its far border too."""
    angles = np.deg2rad([1.0, 22.0, 23.0, 44.0, 46.0, 67.0, 68.0, 89.0])
    f = 3.0 * np.stack([np.sin(angles), np.cos(angles)], axis=1)
    assert members.buffer_of(f, 4).tolist() == [0, 0, 1, 1, 2, 2, 3, 3]
    borders = np.array([[1.0, 1.0], [1e-7, 1e4], [1e4, 1e-7], [1e300, 1e-7]])
    assert members.buffer_of(borders, 100).tolist() == [50, 0, 99, 99]


@pytest.mark.parametrize(("num_buffers", "size", "kept"), [(3, 2, [2, 6, 4, 5, 1]), (3, 1, [2, 4, 5]), (1, 2, [2, 5])])
def test_the_farthest_of_a_buffer_stay_from_far_to_near(num_buffers: int, size: int, kept: list[int]):
    objs = np.array([[1, 9], [9, 1], [1.1, 11], [0.9, 8], [5, 5], [10, 1.2], [1, 10]])
    assert members.survivors(objs, ORIGIN, num_buffers, size).tolist() == kept


@pytest.mark.parametrize(("d", "num_buffers", "size"), [(2, 10, 2), (2, 30, 1), (3, 15, 2), (4, 20, 3), (5, 35, 2)])
def test_survivors_are_those_of_sorted_insertion_in_any_order_and_wherever_the_reference_is(d, num_buffers, size):
    rng = np.random.default_rng(d)
    for reference in (rng.normal(size=d), -np.arange(40.0, 40.0 + d)):
        objs = reference + rng.uniform(-0.1, 1.0, size=(80, d))
        got = members.survivors(objs, reference, num_buffers, size)
        assert got.tolist() == _insert_all(objs, reference, num_buffers, size)
        order = rng.permutation(80)
        np.testing.assert_array_equal(order[members.survivors(objs[order], reference, num_buffers, size)], got)
        assert 0 < len(got) < 80


# Acting


def test_large_archives_act_as_each_policy_alone():
    """One policy serves most preferences, many serve few: groups are cut and padded, actions stay the same."""
    stream = np.random.default_rng(0)
    objs = np.stack([np.linspace(0, 1, 40), 1 - np.linspace(0, 1, 40) ** 3], axis=1)
    size = num_parameters(WIDTHS) + 2 + 6
    known = [Policies(objs * (i + 1), stream.normal(1, 0.3, (40, size)).astype(np.float32)) for i in range(2)]
    lam = np.concatenate([das_dennis(2, 50), np.tile([[1.0, 0.0]], (300, 1))])
    obs = stream.normal(size=(2, len(lam), 3)).astype(np.float32)
    predictor = ArchivePredictor(known, WIDTHS)
    together = predictor.player(lam, 1)(slice(None))(obs, np.tile(lam.astype(np.float32), (2, 1, 1)))
    for seed in range(2):
        np.testing.assert_allclose(together[seed], predictor.act(seed, obs[seed], lam), rtol=1e-5, atol=1e-6)


def test_rows_of_one_policy_share_its_episodes_mean():
    """Seed 0 has policies 0 and 1, seed 1 has policy 2: rows of others stay out of it."""
    returns = np.random.default_rng(0).normal(size=(2, 3, 4, 2))
    shared = members.share_means(returns, np.array([[0, 1, 0], [2, 2, 2]]))
    np.testing.assert_allclose(shared[0, 0].mean(axis=0), returns[0, [0, 2]].mean(axis=(0, 1)))
    np.testing.assert_array_equal(shared[0, 2], shared[0, 0])
    np.testing.assert_array_equal(shared[0, 1], returns[0, 1])
    np.testing.assert_allclose(shared[1, 1].mean(axis=0), returns[1].mean(axis=(0, 1)))
    assert len(np.unique(shared.mean(axis=2)[1], axis=0)) == 1  # to the bit: otherwise rounding would count as a front
    # What an average over rows leaves of the episodes' spread is the spread of such averages.
    np.testing.assert_allclose(shared[1, 0].std(axis=0), returns[1].mean(axis=0).std(axis=0))
    # Three times 0.1 divided by three is not 0.1 in floating point.
    equal = np.broadcast_to(np.array([0.1, -7.3]), (1, 3, 10, 2)).copy()
    np.testing.assert_array_equal(members.share_means(equal, np.zeros((1, 3), np.int64)), equal)
