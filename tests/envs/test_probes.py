"""The probes themselves, and that training finds their known answers."""

from typing import Any

import numpy as np
import pytest

from qpensieve.algos.mosac import SacConfig
from qpensieve.algos.qpensieve import QPensieveConfig
from qpensieve.config import RunConfig
from qpensieve.train.trainer import Trainer
from tests.oracles import mosac as oracle

ONE_STEP, TIME_LIMIT = "tests.probes:one_step", "tests.probes:time_limit"


def _config(source: str, num_updates: int, sac: SacConfig, algo: Any = "mosac", seeds: int = 1) -> RunConfig:
    agent = sac if algo == "mosac" else QPensieveConfig(sac, push_after=num_updates // 5)
    random_steps = 500
    return RunConfig(
        source, algo, seeds=seeds, steps=num_updates + random_steps, random_steps=random_steps, agent=agent
    )


def _train(config: RunConfig) -> Trainer:
    trainer = Trainer(config)
    while trainer.step < config.steps:
        trainer.advance()
    trainer.drain()
    return trainer


@pytest.mark.slow
def test_the_value_counts_on_beyond_a_time_limit():
    """Q comes out as r / (1 - gamma) = (10, 5); were a cut an end, as r / (1 - 0.8 gamma) = (3.6, 1.8)."""
    sac = SacConfig(hidden=32, batch_size=32, learning_rate=3e-3, discount=0.9, tau=0.05)
    trainer = _train(_config(TIME_LIMIT, 2000, sac))
    rows, _ = trainer.replay_rows()
    assert not np.asarray(trainer.layout.unpack(rows)[-1]).any()
    # The policy need not choose, so the temperature falls and the entropy adds next to nothing (0.02 when written).
    assert np.exp(trainer.parameters()[".log_alpha"][0]) < 0.02
    for lam_1 in (0.2, 0.5, 0.8):
        q = _value(trainer, np.zeros(1), np.zeros(1), np.array([lam_1, 1 - lam_1]))
        np.testing.assert_allclose(q, [[10.0, 5.0]] * 2, atol=0.3)
    trainer.close()


def _value(trainer: Trainer, s: np.ndarray, a: np.ndarray, lam: np.ndarray) -> np.ndarray:
    """The first seed's critics, read from the named parameters."""
    named = trainer.parameters()
    layer = lambda name, twin: tuple(named[f".critic.net.{name}.{part}"][0, twin] for part in ("weight", "bias"))
    nets = [[layer(name, twin) for name in ("first", "second", "last")] for twin in (0, 1)]
    return np.array([oracle.q_value(net, s, a, lam) for net in nets])


def _errors(trainer: Trainer) -> tuple[np.ndarray, np.ndarray]:
    """Distance of the deterministic action from lam_1 - lam_2, worst over |lam_1 - lam_2| <= 0.9 and over the rest."""
    lam_1 = np.linspace(0, 1, 101)
    lam = np.stack([lam_1, 1 - lam_1], axis=1).astype(np.float32)
    seeds = trainer.config.seeds
    obs = np.zeros((seeds, 101, 1), np.float32)
    action = trainer.predictor().act_all(obs, np.tile(lam, (seeds, 1, 1)))[..., 0]
    best = 2 * lam_1 - 1
    error, is_inside = np.abs(action - best), np.abs(best) <= 0.9 + 1e-9
    return error[:, is_inside].max(axis=1), error[:, ~is_inside].max(axis=1)


@pytest.mark.slow
@pytest.mark.parametrize("algo", ["mosac", "qpensieve"])
def test_after_20_000_updates_the_action_is_lam_1_minus_lam_2(algo: str):
    """The paper's settings but for smaller networks and batches, and snapshots from update 4000 on."""
    trainer = _train(_config(ONE_STEP, 20_000, SacConfig(hidden=64, batch_size=64), algo, seeds=2))
    inside, corners = _errors(trainer)
    trainer.close()
    assert inside.max() <= 0.05, (inside, corners)
    assert corners.max() <= 0.1, (inside, corners)
