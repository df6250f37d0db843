"""One whole update against golden data (`tests/golden/make_qpensieve_update.py`): losses, gradients, new state."""

from dataclasses import replace
from functools import cache, partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from qpensieve.algos import mosac, qpensieve
from qpensieve.learning import snapshots
from qpensieve.learning.interface import Transition
from qpensieve.types import EnvSpec
from tests.algos.problem import OPTIMISED, assert_trees_equal
from tests.golden import make_qpensieve_update as golden

SPEC = EnvSpec("golden", golden.OBS, golden.ACT, ("one", "two"), None, None)
SAC = mosac.SacConfig(
    hidden=golden.HIDDEN, learning_rate=golden.LEARNING_RATE, discount=golden.DISCOUNT, tau=golden.TAU
)
CFG = qpensieve.QPensieveConfig(SAC, golden.NUM_PREFERENCES, golden.NUM_SNAPSHOTS)
TOLERANCE = 1e-4


@cache
def _data() -> dict[str, np.ndarray]:
    with np.load(golden.PATH) as file:
        return dict(file)


def _network(like: Any, prefix: str) -> Any:
    """The network whose numbers the data holds under `prefix`, in the order of the module's leaves."""
    names = [f"{prefix}_{part}{i}" for i in range(3) for part in ("weight", "bias")]
    return jax.tree.unflatten(jax.tree.structure(like), [jnp.asarray(_data()[name], jnp.float32) for name in names])


def _state() -> qpensieve.State:
    like = jax.eval_shape(partial(qpensieve.init, CFG, SPEC), jax.random.key(0))
    fresh = jax.tree.map(lambda leaf: jnp.zeros(leaf.shape, leaf.dtype), like.sac.optimizers)
    actor = _network(like.sac.actor, "actor")
    critic, target = (_network(like.sac.critic, name) for name in ("critic", "target"))
    past = _network(like.sac.critic, "snapshots")
    ring = snapshots.Snapshots(past, jnp.ones(golden.NUM_SNAPSHOTS, bool), jnp.zeros((), jnp.int32))
    log_alpha = jnp.asarray(np.log(golden.ALPHA), jnp.float32)
    return qpensieve.State(mosac.State(actor, critic, target, log_alpha, fresh), ring)


def _batch() -> Transition:
    return Transition(*(jnp.asarray(_data()[name]) for name in ("s", "a", "r", "s_next", "terminated")))


def _prefs() -> jax.Array:
    """Preferences [m, d]; the data holds one set for each batch, [m, 1, d]."""
    return jnp.asarray(_data()["prefs"][:, 0])


def test_one_update_compiled_as_users_do_gives_the_golden_numbers():
    state = _state()
    noises = (jnp.asarray(_data()[name]) for name in ("noise_next", "noise"))
    draws = qpensieve.Draws(_prefs(), *noises, order=jnp.zeros(golden.NUM_SNAPSHOTS))
    new, info = jax.jit(partial(qpensieve.step, CFG), compiler_options=OPTIMISED)(state, _batch(), draws)
    for name in ("critic_loss", "policy_loss", "entropy"):
        assert float(info[name]) == pytest.approx(float(_data()[f"expected_{name}"]), rel=TOLERANCE)
    assert float(new.sac.log_alpha) == pytest.approx(float(_data()["expected_new_log_alpha"]), rel=TOLERANCE)
    for name in ("actor", "critic", "target"):
        _assert_close(getattr(new.sac, name), f"expected_new_{name}")
    assert_trees_equal(new.snapshots, state.snapshots)
    # Adam's first moment after one step is a tenth of the gradient.
    for name in ("actor", "critic"):
        moment = getattr(new.sac.optimizers, name)[0].mu
        _assert_close(jax.tree.map(lambda leaf: 10.0 * leaf, moment), f"expected_{name}_gradient")


def test_the_data_is_what_its_script_makes():
    given = golden.inputs()
    for name, value in given.items():
        np.testing.assert_array_equal(value, _data()[name])
    for name, value in golden.update(given).items():
        np.testing.assert_allclose(value, _data()[f"expected_{name}"], rtol=1e-6, atol=1e-6)


def test_the_data_tells_the_right_update_from_its_neighbours():
    """Were snapshots ignored, or the critics of before the step used, the golden policy loss would be another."""
    data = _data()
    expected = float(data["expected_policy_loss"])
    state = _state()
    query = mosac.Query(jnp.full((), golden.ALPHA), _batch().s, _prefs(), jnp.asarray(data["noise"]))
    new_critic = _network(state.sac.critic, "expected_new_critic")
    empty = replace(state.snapshots, filled=jnp.zeros(golden.NUM_SNAPSHOTS, bool))
    loss_of = jax.jit(lambda ring, critic: qpensieve.pensieve_loss(ring, state.sac.actor, critic, query)[0])
    assert float(loss_of(state.snapshots, new_critic)) == pytest.approx(expected, rel=TOLERANCE)
    assert abs(float(loss_of(empty, new_critic)) - expected) > 1e-2
    assert abs(float(loss_of(state.snapshots, state.sac.critic)) - expected) > 1e-3


def _assert_close(tree: Any, prefix: str) -> None:
    for leaf, expected in zip(jax.tree.leaves(tree), jax.tree.leaves(_network(tree, prefix)), strict=True):
        np.testing.assert_allclose(leaf, expected, rtol=TOLERANCE, atol=TOLERANCE, err_msg=prefix)
