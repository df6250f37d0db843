"""Policy files of every format that was ever frozen: this version must read them and act as they did."""

import json
from pathlib import Path

import numpy as np
import pytest

from qpensieve.deploy.qpensieve_policy import load

FILES = sorted((Path(__file__).parent / "policies").glob("*.npz"))


def test_there_are_files():
    assert FILES


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.stem)
def test_acts_asks_and_values_as_when_it_was_written(path: Path):
    policy, then = load(path), json.loads(path.with_suffix(".json").read_text())
    obs, lam = np.array(then["obs"]), np.array(then["preferences"])
    actions = policy.act(obs, lam)
    np.testing.assert_allclose(actions, then["actions"], rtol=1e-5, atol=1e-6)
    np.testing.assert_allclose([policy.ask(one) for one in lam], then["asked"], rtol=1e-6)
    np.testing.assert_allclose(policy.value(obs, actions, lam), then["values"], rtol=1e-4, atol=1e-5)
    assert policy.objectives == then["objectives"]
