"""Runs do not depend on how many threads BLAS has."""

import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from qpensieve.config import default_config, override
from qpensieve.train import run as runs
from qpensieve.train.run import Options
from tests.train.kill_run import CACHE, ROOT, assert_same_run
from tests.train.test_population import TINY

WIDE: dict[str, Any] = {
    "seeds": 1,
    "steps": 200,
    "parameters_period": 96,
    "hidden": 256,
    "full_eval_stride": 20,
    "max_eval_steps": 100,
}
"""Products of networks of this width are shared among threads."""
HASWELL = {"OPENBLAS_CORETYPE": "Haswell"}
"""Kernels that round differently with another number of threads; a processor without AVX2 takes others."""


@pytest.mark.filterwarnings("ignore:.*did not end within")
def test_a_population_resumed_with_another_number_of_blas_threads_ends_the_same(tmp_path: Path):
    """Its returns in Hopper2d show the smallest difference of an action."""
    config = override(default_config("Hopper2d", "pgmorl"), TINY | WIDE)
    run = runs.start(tmp_path / "1", config, Options(quiet=True))
    run.session.advance()
    run.save()
    run.close()
    shutil.copytree(tmp_path / "1", tmp_path / "2")
    resume = [sys.executable, "-m", "tests.train.kill_run", "never", "0", "resume"]
    programs = [
        subprocess.Popen(
            [*resume, str(tmp_path / threads)],
            cwd=ROOT,
            env=os.environ | CACHE | HASWELL | {"OPENBLAS_NUM_THREADS": threads},
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )
        for threads in ("1", "2")
    ]
    for program in programs:
        said, _ = program.communicate()
        assert program.returncode == 0, said
    assert_same_run(tmp_path / "1", tmp_path / "2")
