"""One block of every method, compiled as users compile it: the numbers are those of code that is not optimised."""

from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from qpensieve.config import default_config, override
from qpensieve.envs.registry import spec_of
from qpensieve.learning.interface import Hints, PrioritizedLearning
from qpensieve.methods import METHODS, make_algorithm
from qpensieve.population import ppo
from qpensieve.replay.layout import layout_of
from qpensieve.settings import flat
from qpensieve.train.learner import Block, make_learner
from tests.algos.problem import OPTIMISED, PLAIN
from tests.population import test_ppo as members
from tests.rounding import assert_same_to_rounding

SMALL: dict[str, Any] = {
    **{"hidden": 8, "batch_size": 8, "num_snapshots": 2, "num_preferences": 3, "push_after": 0, "push_period": 3},
    **{"preferences": ("0.9,0.1",), "switch_after": 1, "bins": 3, "width_factors": (4,)},
}
UPDATES, CAPACITY = 3, 20


@pytest.mark.parametrize("name", [name for name, method in METHODS.items() if method.make])
def test_a_block_gives_the_same_numbers(name: str):
    config, spec = default_config("DST2d", name), spec_of("DST2d")
    known = flat(config.agent)
    agent = override(config, {key: value for key, value in SMALL.items() if key in known}).agent
    algorithm = make_algorithm(name, agent, spec)
    layout = layout_of(spec, algorithm.behaviour)
    learner = make_learner(algorithm, layout, CAPACITY)
    shape = (algorithm.num_lanes, UPDATES, layout.width)
    rows = np.random.default_rng(0).uniform(0.0, 1.0, shape).astype(np.float32)
    block = Block(jnp.asarray(rows))
    if isinstance(algorithm.learning, PrioritizedLearning):
        past = np.full((1, UPDATES, algorithm.learning.num_past, 2), 0.5, np.float32)
        hints = Hints(jnp.full((1, UPDATES, 2), 0.5), jnp.asarray(past))
        block = Block(block.rows, jnp.arange(UPDATES, dtype=jnp.int32)[None], hints)
    start = lambda: learner.init(jnp.zeros(1, jnp.int32))
    lowered = learner.learn.lower(start(), block)  # pyright: ignore[reportFunctionMemberAccess]
    optimised, plain = (lowered.compile(options)(start(), block) for options in (OPTIMISED, PLAIN))
    assert_same_to_rounding(optimised, plain)


def test_an_iteration_of_a_member_gives_the_same_numbers():
    given = members._state(0), members._rollout(0), members._goal(), jax.random.key(0)
    lowered = jax.jit(partial(ppo.update, members.CFG)).lower(*given)
    optimised, plain = (lowered.compile(options)(*given) for options in (OPTIMISED, PLAIN))
    assert_same_to_rounding(optimised, plain)
