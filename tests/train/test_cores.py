"""Agents spread over CPU devices: the same numbers to rounding, and how many devices."""

import os
import subprocess
import sys
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from qpensieve import machine
from qpensieve.algos import cnder, qpensieve
from qpensieve.algos.envelope import EnvelopeConfig
from qpensieve.envs.registry import spec_of
from qpensieve.learning.interface import Algorithm, Hints
from qpensieve.methods import make_algorithm
from qpensieve.replay.layout import layout_of
from qpensieve.train.learner import Block, make_learner, spread
from tests.algos.problem import LAYOUT, SAC, SPEC
from tests.rounding import assert_same_to_rounding

SEEDS, BLOCK, CAPACITY = (4, 1, 9, 2), 3, 20


@pytest.mark.parametrize(
    ("num_agents", "num_cores", "parts"),
    [
        (4, 2, 2),
        (1, 8, 1),
        (5, 16, 5),
        (12, 5, 6),
        (95, 2, 5),
        (37, 2, 1),
    ],
)
def test_agents_are_split_evenly_and_no_core_is_left_without_one(num_agents: int, num_cores: int, parts: int):
    assert machine.num_parts(num_agents, num_cores) == parts


def blocks(hinted: bool) -> list[Block]:
    draw = np.random.default_rng(0)
    rows = draw.normal(size=(2, len(SEEDS), BLOCK, LAYOUT.width)).astype(np.float32)
    lam = np.full((len(SEEDS), BLOCK, SPEC.num_objectives), 1 / SPEC.num_objectives, np.float32)
    hints = Hints(jnp.asarray(lam), jnp.asarray(np.repeat(lam[:, :, None], CNDER.batch_size, axis=2)))
    slots = [jnp.tile(jnp.arange(i * BLOCK, (i + 1) * BLOCK, dtype=jnp.int32), (len(SEEDS), 1)) for i in range(2)]
    return [Block(jnp.asarray(r), slots[i] if hinted else None, hints if hinted else None) for i, r in enumerate(rows)]


def trained(algorithm: Algorithm[Any], hinted: bool, is_spread: bool) -> Any:
    learner = make_learner(algorithm, layout_of(SPEC, algorithm.behaviour), CAPACITY)
    learner = spread(learner, len(SEEDS)) if is_spread else learner
    first, second = blocks(hinted)
    state = learner.write(learner.init(jnp.asarray(SEEDS)), first)
    devices = {len(leaf.sharding.device_set) for leaf in jax.tree.leaves(state)}
    assert devices == {jax.device_count() if is_spread else 1}
    state, flat, info = learner.learn(learner.place(state), second)
    if hinted:
        state = learner.free(state, jnp.zeros((len(SEEDS), 2), jnp.int32))
    return jax.device_get((state, flat, info, learner.flat_actors(state)))


CNDER = cnder.CnDerConfig(hidden=8, batch_size=4)
QPENSIEVE = qpensieve.QPensieveConfig(SAC, num_preferences=3, num_snapshots=2, push_after=0, push_period=5)


@pytest.mark.slow
@pytest.mark.parametrize("name", ["qpensieve", "cnder"])
def test_numbers_do_not_depend_on_it(name: str):
    hinted = name == "cnder"
    algorithm = cnder.make(CNDER, SPEC) if hinted else qpensieve.make(QPENSIEVE, SPEC)
    assert jax.device_count() == 2  # conftest
    assert_same_to_rounding(trained(algorithm, hinted, is_spread=True), trained(algorithm, hinted, is_spread=False))


def test_first_priorities_do_not_depend_on_how_many_agents_share_a_core():
    """They are computed between blocks, outside the loop of updates."""
    spec, num_rows = spec_of("DST2d"), 20
    algorithm = make_algorithm("envelope", EnvelopeConfig(bins=3, width_factors=(4,), num_preferences=2), spec)
    layout, written = layout_of(spec, algorithm.behaviour), []
    learner = make_learner(algorithm, layout, 200)
    for num in (1, 2):
        draw, state = np.random.default_rng(0), learner.init(jnp.zeros(num, jnp.int32))
        for first in (0, num_rows):
            rows = draw.normal(size=(1, num_rows, layout.width)).astype(np.float32).repeat(num, axis=0)
            slots = jnp.tile(jnp.arange(first, first + num_rows, dtype=jnp.int32), (num, 1))
            hints = Hints(jnp.full((num, num_rows, 2), 0.5), jnp.zeros((num, num_rows, 0, 2)))
            state = learner.write(state, Block(jnp.asarray(rows), slots, hints))
        written.append(state)
    alone, both = (jax.tree.map(lambda leaf: leaf[:1], state.replay.priorities.levels) for state in written)
    assert_same_to_rounding(alone, both)
    assert float(alone[-1].sum()) > 0


def test_an_odd_number_of_agents_or_one_device_changes_nothing(monkeypatch: pytest.MonkeyPatch):
    learner = make_learner(qpensieve.make(QPENSIEVE, SPEC), LAYOUT, CAPACITY)
    assert spread(learner, 3) is learner
    monkeypatch.setattr(jax, "local_devices", lambda: jax.devices()[:1])
    assert spread(learner, 4) is learner


CODE = "import jax; from qpensieve import machine; {} print(jax.device_count())"


@pytest.mark.parametrize(
    ("before", "flags", "count"),
    [
        ("machine.make_devices(3);", "", 3),
        ("jax.devices(); machine.make_devices(3);", "", 1),
        ("jax.config.update('jax_num_cpu_devices', 2); machine.make_devices(3);", "", 2),
        ("machine.make_devices(3);", "--xla_force_host_platform_device_count=4", 4),
    ],
    ids=["first", "jax has started", "the user's number", "the user's flag"],
)
def test_devices_are_made_unless_it_is_too_late_or_the_user_has(before: str, flags: str, count: int):
    environment = os.environ | {"XLA_FLAGS": flags, "JAX_PLATFORMS": "cpu"}
    words = [sys.executable, "-c", CODE.format(before)]
    done = subprocess.run(words, env=environment, capture_output=True, text=True, check=True)
    assert int(done.stdout) == count
