"""A policy as a C header, compiled with the system's compiler."""

import shutil
import subprocess
from pathlib import Path

import numpy as np
import pytest

from qpensieve import zoo
from qpensieve.deploy import write_header
from qpensieve.deploy.qpensieve_policy import Policy, load

COMPILER = shutil.which("gcc") or shutil.which("cc")
MAIN = """
#include <stdio.h>
#include "policy.h"
int main(void) {
  float obs[QP_OBS], preference[QP_OBJECTIVES], action[QP_ACTIONS];
  for (;;) {
    for (int i = 0; i < QP_OBS; i++) if (scanf("%f", &obs[i]) != 1) return 0;
    for (int i = 0; i < QP_OBJECTIVES; i++) if (scanf("%f", &preference[i]) != 1) return 1;
    qp_act(obs, preference, action);
    for (int i = 0; i < QP_ACTIONS; i++) printf("%.9g ", action[i]);
  }
}
"""


@pytest.fixture
def policy() -> Policy:
    """The policy of DST2d in a box of its own, so that the scaling of actions shows."""
    known = load(zoo.find(Path("zoo:DST2d")))
    return Policy(known.about | {"low": [-2.0, 0.0], "high": [4.0, 1.0]}, known.arrays)


@pytest.mark.skipif(COMPILER is None, reason="there is no C compiler")
def test_the_compiled_header_acts_as_the_loader_does(policy: Policy, tmp_path: Path):
    write_header(policy, tmp_path / "policy.h")
    (tmp_path / "main.c").write_text(MAIN)
    flags = ["-std=c99", "-O2", "-Wall", "-Wextra", "-Werror"]
    command = [str(COMPILER), *flags, "main.c", "-o", "main", "-lm"]
    subprocess.run(command, cwd=tmp_path, check=True, timeout=120)
    rng = np.random.default_rng(0)
    obs, lam = rng.uniform(0, 11, (50, 2)).astype(np.float32), rng.dirichlet([1, 1], 50).astype(np.float32)
    asked = "\n".join(" ".join(map(str, row)) for row in np.concatenate([obs, lam], axis=1).tolist())
    done = subprocess.run([str(tmp_path / "main")], input=asked, capture_output=True, text=True, check=True, timeout=60)
    expected = policy.act(obs, lam)
    assert np.ptp(expected, axis=0).min() > 0.5  # else any constant would pass
    np.testing.assert_allclose(np.array(done.stdout.split(), np.float64).reshape(50, 2), expected, rtol=1e-4, atol=1e-4)


def test_a_policy_of_another_kind_is_refused(policy: Policy, tmp_path: Path):
    greedy = Policy(policy.about | {"head": "greedy", "algo": "envelope"}, policy.arrays)
    with pytest.raises(ValueError, match="not of envelope"):
        write_header(greedy, tmp_path / "policy.h")
    assert not (tmp_path / "policy.h").exists()
