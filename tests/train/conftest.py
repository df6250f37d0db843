"""What tests of runs share: one run that nothing disturbed."""

from pathlib import Path

import pytest

from qpensieve.train import run as runs
from qpensieve.train.run_loop import Options
from tests.train.kill_run import complete, tiny_run


@pytest.fixture(scope="session")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run on DST2d that nothing disturbed and whose training waited for its evaluations."""
    folder = tmp_path_factory.mktemp("runs") / "whole"
    complete(runs.start(folder, tiny_run(), Options(quiet=True)))
    return folder
