"""Acting with archives."""

import numpy as np

from qpensieve.learning.acting import num_parameters
from qpensieve.population.answering import ArchivePredictor, Policies, act_as, who_answers
from qpensieve.preferences import das_dennis


def test_large_archives_act_as_each_policy_alone():
    """One policy serves most preferences, many serve few: groups are cut and padded, actions stay the same."""
    stream, widths = np.random.default_rng(0), (3, 8, 8, 2)
    objs = np.stack([np.linspace(0, 1, 40), 1 - np.linspace(0, 1, 40) ** 3], axis=1)
    size = num_parameters(widths) + 2 + 6
    known = [Policies(objs * (i + 1), stream.normal(1, 0.3, (40, size)).astype(np.float32)) for i in range(2)]
    lam = np.concatenate([das_dennis(2, 50), np.tile([[1.0, 0.0]], (300, 1))])
    obs = stream.normal(size=(2, len(lam), 3)).astype(np.float32)
    together = act_as(known, who_answers(known, lam), widths)(obs, np.tile(lam.astype(np.float32), (2, 1, 1)))
    one_by_one = ArchivePredictor(known, widths)
    for seed in range(2):
        np.testing.assert_allclose(together[seed], one_by_one.act(seed, obs[seed], lam), rtol=1e-5, atol=1e-6)
