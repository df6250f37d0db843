"""Strict settings for every test: no silent rank promotion, no reused random key, compiled code kept between runs."""

import gc
import os
from pathlib import Path

import jax
import pytest

import qpensieve.envs.lunar_lander  # noqa: F401  (loads Box2D safely before a test module does)
from qpensieve.records.trust import DATA_VARIABLE

jax.config.update("jax_numpy_rank_promotion", "raise")
jax.config.update("jax_debug_key_reuse", True)
jax.config.update("jax_compilation_cache_dir", str(Path(__file__).parents[1] / ".cache" / "jax"))
jax.config.update("jax_persistent_cache_min_compile_time_secs", 0.0)  # what one worker compiled, the other reads
jax.config.update("jax_num_cpu_devices", 2)  # an even number of agents is spread over both, as it is for users


@pytest.fixture(scope="session", autouse=True)
def _own_data_folder(tmp_path_factory: pytest.TempPathFactory) -> None:
    """Tests leave the user's own data folder alone."""
    os.environ[DATA_VARIABLE] = str(tmp_path_factory.mktemp("data"))


def pytest_collection_finish() -> None:
    """Spare the garbage collector what stays anyway: looking through modules, traces and tests took 5 % of the time."""
    gc.collect()
    gc.freeze()
    gc.set_threshold(100_000, 20, 50)


SLOW_TIMEOUT = 1800
"""Seconds that a learning test may take; the others have the limit of pyproject.toml."""


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if item.get_closest_marker("slow") and not item.get_closest_marker("timeout"):
            item.add_marker(pytest.mark.timeout(SLOW_TIMEOUT))
