"""Runs with noise that is correlated in time: exact in every way that runs are, refused where it means nothing."""

from typing import Any

import numpy as np
import pytest

from qpensieve.config import default_config, override
from tests.train.kill_run import TINY, advance_to, assert_same_sessions
from tests.train.test_trainer import Trainer, tiny

RUN = ("steps", "random_steps", "block", "eval_period", "log_period", "parameters_period", "hidden", "batch_size")
CORRELATED: dict[str, Any] = {"random_noise": "ar1"}


def test_a_restored_run_continues_in_the_middle_of_a_noise_sequence():
    original, other = Trainer(tiny(**CORRELATED)), Trainer(tiny(**CORRELATED, num_threads=2))
    advance_to(original, 60)
    other.restore(original.arrays(), *original.replay_rows())  # among the random actions
    advance_to(original, 240)
    advance_to(other, 240)
    assert_same_sessions(other, original)
    fresh = Trainer(tiny(**CORRELATED))
    fresh.restore(original.arrays(), *original.replay_rows())  # while it learns
    advance_to(original, 300)
    advance_to(fresh, 300)
    assert_same_sessions(fresh, original)
    plain = Trainer(tiny())
    advance_to(plain, 300)
    assert (plain.replay_rows()[0] != original.replay_rows()[0]).any()
    other.close()


@pytest.mark.parametrize("noise_for", ["both", "helper"])
def test_the_helper_of_hybrid_sac_may_explore_alone(noise_for: str):
    """The SAC then has the random phase of the SAC that it is compared with, the helper always its own."""
    settings = {"seeds": 1, "preferences": ("0.9,0.1",), "random_noise": "ar1"} | {name: TINY[name] for name in RUN}
    rows = {}
    for algo, changes in (("hybrid-sac", {"noise_for": noise_for}), ("sac", {}), ("sac", {"random_noise": "white"})):
        trainer = Trainer(override(default_config("DST2d", algo), settings | changes))
        rows[algo, changes.get("random_noise", "ar1")] = trainer.advance()
    own, helper = rows["hybrid-sac", "ar1"]
    np.testing.assert_array_equal(own, rows["sac", "white" if noise_for == "helper" else "ar1"][0])
    np.testing.assert_array_equal(helper, rows["sac", "ar1"][0])
