"""How members and kept policies act on the host."""

import numpy as np

from qpensieve.learning.acting import num_parameters
from qpensieve.population.members import OBS_CLIP, KeptPolicy, MemberPolicy

WIDTHS = (3, 8, 8, 2)
RNG = np.random.default_rng(0)
FLAT = RNG.normal(scale=0.8, size=(2, num_parameters(WIDTHS) + 2)).astype(np.float32)


def test_members_explore_beyond_the_box_and_act_within_it():
    policy = MemberPolicy(FLAT, WIDTHS)
    obs = RNG.normal(size=(2, 50, 3)).astype(np.float32)
    noise = RNG.normal(size=(2, 50, 2)).astype(np.float32)
    mean, std = policy.explore(obs, np.zeros_like(noise)), np.exp(FLAT[:, None, -2:])
    np.testing.assert_allclose(policy.explore(obs, noise), mean + std * noise, rtol=1e-6)
    assert np.abs(policy.explore(obs, noise)).max() > 1.0
    np.testing.assert_array_equal(policy.exploit(obs), np.clip(mean, -1.0, 1.0))


def test_kept_policies_see_observations_as_their_member_did():
    mean, scale = RNG.normal(size=(2, 3)).astype(np.float32), np.full((2, 3), 0.5, np.float32)
    kept = KeptPolicy(np.concatenate([FLAT, mean, scale], axis=1), WIDTHS)
    obs = RNG.normal(scale=4.0, size=(2, 50, 3)).astype(np.float32)
    seen = np.clip((obs - mean[:, None]) / scale[:, None], -OBS_CLIP, OBS_CLIP)
    assert np.abs(seen).max() == OBS_CLIP
    np.testing.assert_array_equal(kept.exploit(obs), MemberPolicy(FLAT, WIDTHS).exploit(seen))
    noise = RNG.normal(size=(2, 50, 2)).astype(np.float32)
    assert np.abs(kept.explore(obs, noise)).max() <= 1.0
