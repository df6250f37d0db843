"""Strict settings for every test: no silent rank promotion, no reused random key, compiled code kept between runs."""

import gc
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import jax
import pytest

import tests.checking  # noqa: F401  (checks the imports that follow)

# isort: split
from qpensieve import cli
from qpensieve.machine import available_cores
from qpensieve.report import drawing
from tests.train.kill_run import CACHE

try:
    import qpensieve.envs.lunar_lander  # noqa: F401  (loads Box2D safely before a test module does)

    NO_LANDER = ""
except ImportError as error:
    NO_LANDER = str(error)
"""Why tests of LunarLander are skipped here."""

EXIT_USAGE = 2
"""Where tyro refuses the words of a command."""
os.environ.update(CACHE)  # what the tests start keeps its programs where the tests do, not in the user's own folder
jax.config.update("jax_numpy_rank_promotion", "raise")
jax.config.update("jax_debug_key_reuse", True)
jax.config.update("jax_compilation_cache_dir", CACHE["JAX_COMPILATION_CACHE_DIR"])
jax.config.update("jax_persistent_cache_min_compile_time_secs", 0.0)  # what one worker compiled, the other reads
jax.config.update("jax_num_cpu_devices", 2)  # an even number of agents is spread over both, as it is for users


@pytest.fixture
def fail(capsys: pytest.CaptureFixture[str]) -> Callable[..., str]:
    """Run a command that has to fail; returns its few lines without boxes and line breaks."""

    def run(*arguments: object) -> str:
        with pytest.raises(SystemExit) as end:
            cli.main([str(one) for one in arguments])
        said = capsys.readouterr().err
        assert end.value.code in (cli.EXIT_FAILED, EXIT_USAGE), said
        assert "Traceback" not in said
        assert len(said.splitlines()) < 20
        return " ".join(word for word in said.split() if word != "│")

    return run


@pytest.fixture
def unrendered(monkeypatch: pytest.MonkeyPatch) -> None:
    """Figures are made and not painted: for tests that are about something else than their pictures."""

    def note(figure: Any, out: Path) -> Path:
        out.parent.mkdir(parents=True, exist_ok=True)
        out.write_text(f"a picture with {len(figure.axes)} axes")
        return out

    monkeypatch.setattr(drawing, "write_figure", note)


def pytest_collection_finish() -> None:
    """Spare the garbage collector what stays anyway: looking through modules, traces and tests took 5 % of the time."""
    gc.collect()
    gc.freeze()
    gc.set_threshold(100_000, 20, 50)


MOST_WORKERS = 8
"""Each worker holds JAX and compiled programs: a gigabyte of memory."""


@pytest.hookimpl(optionalhook=True)  # where xdist is switched off nobody knows it
def pytest_xdist_auto_num_workers() -> int:
    """Workers of `-n auto`: one for each core that this process may use."""
    return min(available_cores(), MOST_WORKERS)


SLOW_TIMEOUT = 1800
"""Seconds that a learning test may take; the others have the limit of pyproject.toml."""


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if item.get_closest_marker("slow") and not item.get_closest_marker("timeout"):
            item.add_marker(pytest.mark.timeout(SLOW_TIMEOUT))
        given = getattr(item, "callspec", None)
        named = given is not None and any("LunarLander" in str(value) for value in given.params.values())
        if NO_LANDER and (named or item.get_closest_marker("lander")):
            item.add_marker(pytest.mark.skip(reason=NO_LANDER))
