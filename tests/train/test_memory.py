"""What cannot fit into memory is refused before it is made."""

import math
from pathlib import Path

import jax
import numpy as np
import pytest

from qpensieve import config as configs
from qpensieve import machine
from qpensieve.config import RunConfig, default_config, override
from qpensieve.methods import make_algorithm
from qpensieve.replay.layout import layout_of
from qpensieve.train.learner import make_learner
from qpensieve.train.memory import ENVIRONMENT_BYTES, check_memory, check_population
from qpensieve.train.population import PopulationTrainer
from qpensieve.train.trainer import Trainer

SMALL = {"steps": 1000, "replay_capacity": 800, "random_steps": 100, "hidden": 16}


def small(algo: str, seeds: int) -> RunConfig:
    return override(default_config("DST2d", algo), SMALL | {"seeds": seeds})


@pytest.mark.parametrize("algo", ["qpensieve", "sac", "cnder"])
def test_what_is_made_is_what_was_reckoned_with(algo: str, monkeypatch: pytest.MonkeyPatch):
    """Up to keys, counters and the tree of priorities, which the bound leaves out."""
    config, seeds = small(algo, 1), 100
    spec = configs.spec_of(config)
    algorithm = make_algorithm(config.algo, config.agent, spec)
    layout = layout_of(spec, algorithm.behaviour)
    state = jax.eval_shape(make_learner(algorithm, layout, 800).init, jax.ShapeDtypeStruct((seeds,), np.int32))
    made = {"agent": state.agent, "rows": state.replay.rows}
    num = sum(math.prod(leaf.shape) * leaf.dtype.itemsize for leaf in jax.tree.leaves(made))
    monkeypatch.setattr(machine, "memory", lambda: num)
    check_memory(algorithm, layout, 800, seeds)
    with pytest.raises(MemoryError, match=f"at most {seeds} seeds or a replay_capacity of 7\\d\\d can fit"):
        check_memory(algorithm, layout, 800, seeds + 1)
    monkeypatch.setattr(machine, "memory", lambda: None)  # nobody knows
    check_memory(algorithm, layout, 800, seeds + 1)


def test_foreign_environments_take_memory_of_the_host(monkeypatch: pytest.MonkeyPatch):
    """Two seeds step one each, and ten episodes of twelve preferences are played at once."""
    config = override(default_config("tests.envs.foreign:PointMass", "mosac"), SMALL | {"seeds": 2})
    monkeypatch.setattr(machine, "memory", lambda: 242 * ENVIRONMENT_BYTES + 1000)
    with pytest.raises(MemoryError, match=r"this machine with 242 environments has 0\.0 GiB: not even one seed can"):
        Trainer(config)


@pytest.mark.parametrize("algo", ["pgmorl", "pfa"])
def test_what_a_population_makes_is_what_was_reckoned_with(algo: str, monkeypatch: pytest.MonkeyPatch):
    """Up to a few counters of its members, and flags of its rollouts."""
    few = {"seeds": 2, "steps": 10_000, "rollout_steps": 256, "minibatches": 4, "hidden": 16, "num_lanes": 2}
    config = override(default_config("DST2d", algo, "quick"), few)
    spec, made = configs.spec_of(config), []
    trainer = PopulationTrainer(config)
    collect = trainer._collector.collect  # pyright: ignore[reportPrivateUsage]
    monkeypatch.setattr(trainer._collector, "collect", lambda *args: made.append(collect(*args)) or made[0])  # pyright: ignore[reportPrivateUsage]
    trainer.advance()
    leaves = [*jax.tree.leaves(trainer._state), made[0].obs, made[0].action, made[0].reward]  # pyright: ignore[reportPrivateUsage]
    num = sum(leaf.nbytes for leaf in leaves if leaf.ndim > 1)
    trainer.close()
    monkeypatch.setattr(machine, "memory", lambda: num)
    check_population(config.agent, spec, 2)
    said = (
        r"rollouts and networks of 3 seeds with 5 tasks each need .*: at most 2 seeds or rollout_steps of 1\d\d can fit"
    )
    with pytest.raises(MemoryError, match=said):
        check_population(config.agent, spec, 3)
    monkeypatch.setattr(machine, "memory", lambda: num - 1)
    with pytest.raises(MemoryError, match=r"of 2 seeds"):
        PopulationTrainer(config)


def test_memory_is_the_machines_or_the_containers(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(machine, "LIMITS", (tmp_path / "max",))
    whole = machine.memory()
    assert whole is not None
    assert whole > 2**28
    for text, memory in (("max\n", whole), ("4096\n", 4096), (f"{2**62}\n", whole)):
        (tmp_path / "max").write_text(text)
        assert machine.memory() == memory
