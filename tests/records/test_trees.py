"""Trees of arrays as named arrays, there and back."""

from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jaxtyping import Array

from qpensieve.records.checkpoint import CheckpointError
from qpensieve.records.trees import arrays_to_tree, tree_to_arrays
from tests.records.test_checkpoint import assert_same_arrays


class Layer(eqx.Module):
    weight: Array
    bias: Array | None


class State(eqx.Module):
    net: Layer
    key: Array
    count: Array
    host: Any


def make_state() -> State:
    keys = jax.random.split(jax.random.key(5), 3)
    return State(Layer(jnp.arange(6.0).reshape(2, 3), None), keys, jnp.array(4), {"best": np.array([1e13, 2.0])})


def test_a_tree_becomes_arrays_named_by_their_paths():
    arrays = tree_to_arrays(make_state(), "agent")
    assert list(arrays) == ["agent.net.weight", "agent.key", "agent.count", "agent.host['best']"]
    assert arrays["agent.key"].shape == (3, 2)


def test_a_tree_comes_back_equal_with_working_random_keys():
    state = make_state()
    back = arrays_to_tree(state, tree_to_arrays(state))
    assert_same_arrays(tree_to_arrays(back), tree_to_arrays(state))
    assert isinstance(back.host["best"], np.ndarray)
    assert back.host["best"].dtype == np.float64
    assert isinstance(back.net.weight, jax.Array)
    assert back.key.dtype == state.key.dtype
    assert jax.random.normal(back.key[1]) == jax.random.normal(jax.random.clone(state.key)[1])


def test_shapes_alone_are_enough_to_rebuild_a_tree():
    make = lambda: {"key": jax.random.key(1, impl="rbg"), "x": jnp.ones(3)}
    back = arrays_to_tree(jax.eval_shape(make), tree_to_arrays(make()))
    assert jax.random.key_impl(back["key"]) == "rbg"
    np.testing.assert_array_equal(back["x"], np.ones(3))


def test_taking_arrays_does_not_keep_a_state_from_being_donated():
    x = jnp.arange(1000.0)
    arrays = tree_to_arrays({"x": x})
    jax.jit(lambda x: x + 1, donate_argnums=0)(x)
    assert x.is_deleted()
    np.testing.assert_array_equal(arrays["['x']"], np.arange(1000.0))


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda arrays: arrays.pop("agent.net.weight"), r"leaf agent\.net\.weight is missing"),
        (lambda arrays: arrays.update({"agent.more": np.zeros(1)}), r"unexpected leaf agent\.more"),
        (
            lambda arrays: arrays.update({"agent.net.weight": np.zeros((3, 2), np.float32)}),
            r"net\.weight has shape \(3, 2\)",
        ),
        (lambda arrays: arrays.update({"agent.count": np.zeros((), np.int64)}), r"count has dtype int64, not int32"),
        (
            lambda arrays: arrays.update({"agent.key": np.zeros((3, 4), np.uint32)}),
            r"key has shape \(3, 4\), not \(3, 2\)",
        ),
    ],
)
def test_a_leaf_that_does_not_fit_is_named(change, message: str):
    state = make_state()
    arrays = tree_to_arrays(state, "agent")
    change(arrays)
    with pytest.raises(CheckpointError, match=message):
        arrays_to_tree(state, arrays, "agent")


@pytest.mark.parametrize("leaf", [1.5, jnp.ones(2, jnp.bfloat16), np.array([object()])])
def test_a_leaf_that_a_file_cannot_hold_is_refused_by_name(leaf: Any):
    with pytest.raises(TypeError, match=r"leaf \['x'\]"):
        tree_to_arrays({"x": leaf})
