"""Folders to watch, made without training: a few numbers are enough for a policy."""

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from qpensieve import config as configs
from qpensieve.config import RunConfig, default_config
from qpensieve.learning.acting import num_parameters
from qpensieve.records import checkpoint, evaluations, folder
from qpensieve.records.log import SHORT, MetricsLog
from qpensieve.watch.server import Server
from tests.watch.client import serving

HIDDEN = 8
STEPS = (1000, 2000)


def actor(config: RunConfig, step: int) -> dict[str, np.ndarray]:
    """Parameters of a MO-SAC policy for every seed; those of each step and seed differ."""
    spec = configs.spec_of(config)
    width = num_parameters((spec.obs_size + spec.num_objectives, HIDDEN, HIDDEN, 2 * spec.action_size))
    draws = np.random.default_rng(step).standard_normal((config.seeds, width))
    return {"policy/flat": draws.astype(np.float32)}


def make_run(path: Path, domain: str = "Hopper2d", seeds: int = 2, steps: tuple[int, ...] = STEPS) -> Path:
    """A run folder of MO-SAC with parameters at some steps, evaluated at the first."""
    path.mkdir()
    config = default_config(domain, "mosac", "quick")
    config = replace(config, seeds=seeds, steps=10_000, agent=replace(config.agent, hidden=HIDDEN))
    configs.save(config, path / folder.CONFIG)
    for step in steps:
        checkpoint.save_parameters(path, step, actor(config, step))
    add_evaluation(path, config, steps[0])
    return path


def add_evaluation(path: Path, config: RunConfig, step: int) -> None:
    """One more short evaluation of two preferences."""
    d, file = configs.spec_of(config).num_objectives, path / folder.EVALUATIONS
    table = np.eye(d)[:2]
    found = evaluations.load(file) if file.exists() else evaluations.empty(config.seeds, table, table[:0], table)
    returns = np.arange(config.seeds * 2 * 2 * d, dtype=np.float64).reshape(config.seeds, 2, 2, d) + step
    evaluations.save(file, evaluations.append_short(found, step, returns, returns[:, :0]))
    log = MetricsLog(path / folder.METRICS)
    log.write(SHORT, step, {"ut_short": np.ones(config.seeds), "hv_short": np.ones(config.seeds)})
    log.close()


def make_archive(path: Path, points: tuple[tuple[float, float], ...] = ((1.0, 0.0), (0.0, 1.0))) -> Path:
    """A run folder of PGMORL with an archive of a policy for each of the points that it brings."""
    path.mkdir()
    config = replace(default_config("Hopper2d", "pgmorl", "quick"), seeds=1)
    configs.save(config, path / folder.CONFIG)
    spec, hidden = configs.spec_of(config), config.agent.ppo.hidden
    size = num_parameters((spec.obs_size, hidden, hidden, spec.action_size)) + spec.action_size + 2 * spec.obs_size
    policies = np.random.default_rng(0).uniform(0.1, 0.2, (len(points), size)).astype(np.float32)
    policies[:, -spec.obs_size :] = 1.0
    arrays = {"policy/0/objs": np.array(points), "policy/0/flat": policies}
    checkpoint.save_parameters(path, 500, arrays)
    return path


@pytest.fixture(scope="session")
def hopper(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_run(tmp_path_factory.mktemp("watched") / "hopper")


@pytest.fixture(scope="session")
def sea(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_run(tmp_path_factory.mktemp("watched") / "sea", "DST2d")


@pytest.fixture(scope="session")
def archive(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_archive(tmp_path_factory.mktemp("watched") / "archive")


@pytest.fixture(scope="module")
def server(hopper: Path, archive: Path) -> Iterator[Server]:
    """A server of a run, and of an archive to show beside it."""
    with serving(hopper, archive) as running:
        yield running
