"""Learning of the baselines on Deep Sea Treasure: short runs on the CPU, where a run is the same every time."""

from typing import Any

import numpy as np
import pytest

from qpensieve import preferences
from qpensieve.config import default_config, override
from qpensieve.envs.deep_sea import find_treasures
from qpensieve.records.search import SearchRecord
from qpensieve.train.population import PopulationTrainer
from qpensieve.train.trainer import Trainer

pytestmark = pytest.mark.slow


def test_cnder_reaches_three_treasures_across_preferences():
    """Measured when written: four and three treasures, UT 5.4 and 2.4 on the 19 preferences."""
    settings = {"seeds": 2, "steps": 30_000, "random_steps": 5_000}
    trainer = Trainer(override(default_config("DST2d", "cnder", "quick"), settings))
    while trainer.step < 30_000:
        trainer.advance()
    found = find_treasures(trainer.evaluate(preferences.sac_preferences(), 1))
    assert min(map(len, found)) >= 3


def test_sac_improves_towards_the_best_return_of_its_preference():
    """At (0.9, 0.1) the best is 20.23, by way of 23.7; 16.1 in seven steps is worth 13.8, idling -5."""
    settings = {"seeds": 2, "steps": 20_000, "preferences": ("0.9,0.1",)}
    trainer = Trainer(override(default_config("DST2d", "sac", "quick"), settings))
    lam = np.array([[0.9, 0.1]])
    before = trainer.evaluate(lam, 1) @ lam[0]
    while trainer.step < 20_000:
        trainer.advance()
    after = trainer.evaluate(lam, 1) @ lam[0]
    assert (before < 0).all()
    assert (after > 10).any()
    assert (after <= 20.23 + 1e-6).all()


@pytest.mark.timeout(900)
def test_envelope_finds_nine_treasures_of_the_grid_on_its_way():
    """The operator of the paper, some seed at some evaluation of a run of 45 000 steps.

    It does not hold them, and which seed has them when depends on how the processor rounds: when written one seed had
    ten at 15 000 and ended with eight (results/cpu/DeepSeaTreasure-envelope.json), on another processor two of four
    had nine at 30 000 and six or seven at 15 000.
    """
    settings = {
        "seeds": 4,
        "steps": 45_000,
        "anneal_steps": 45_000,
        "random_steps": 1_000,
        "replay_capacity": 100_000,
        "learning_rate": 3e-4,
        "batch_size": 128,
        "num_preferences": 16,
        "width_factors": (16, 32, 16),
        "epsilon_start": 1.0,
        "epsilon_end": 0.2,
    }
    plain = {"discount": 0.99, "twin": False, "tau": None, "acts_with": "newest", "scale_obs": False}
    settings |= plain | {"learning_rate_end": None}
    trainer = Trainer(override(default_config("DeepSeaTreasure", "envelope"), settings))
    most = 0
    while trainer.step < trainer.goal and most < 9:
        trainer.advance()
        if trainer.step % 5_000 == 0:
            most = max(map(len, find_treasures(trainer.evaluate(preferences.test_table(2), 1))))
    assert most >= 9


def test_pgmorl_grows_its_archive_over_generations():
    """Stages of 8 and 4 iterations, small rollouts; measured when written: HV 651 to 735, and 34 to 920."""
    record = searched("pgmorl", warmup_iterations=8, generation_iterations=4, steps=25_600)
    assert record.generation_ends() == [8, 12, 16, 20, 24, 28, 32, 36, 40]
    for seed in range(2):
        volumes = [record.hypervolume_of(seed, end) for end in record.generation_ends()]
        assert volumes == sorted(volumes)
        assert volumes[-1] > volumes[0]
        assert volumes[-1] <= 1055.0 + 1e-6


def test_pfa_makes_the_archive_denser_than_the_warm_up_did():
    """And every task ends at the preference its right neighbour began with. When written: 4 to 7, 1 to 5 policies."""
    record = searched("pfa", warmup_iterations=8, generation_iterations=4, steps=25_600)
    ends = record.generation_ends()
    sizes = [[len(record.archive_of(seed, end)) for seed in range(2)] for end in (ends[0], ends[-1])]
    assert sum(sizes[1]) > sum(sizes[0])
    np.testing.assert_allclose(record.lam[-1, 0, :-1], record.lam[0, 0, 1:])
    assert max(record.hypervolume_of(seed) for seed in range(2)) <= 1055.0 + 1e-6


def searched(algo: str, **settings: Any) -> SearchRecord:
    trainer = PopulationTrainer(override(default_config("DST2d", algo, "quick"), {"seeds": 2} | settings))
    while trainer.step < trainer.goal:
        trainer.advance()
    return trainer.search_record()
