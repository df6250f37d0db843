"""A tree of arrays (a state, a network) as named arrays, and back."""

from collections.abc import Mapping
from typing import Any, TypeVar

import jax
import jax.numpy as jnp
import numpy as np

from qpensieve.records.checkpoint import CheckpointError
from qpensieve.records.files import Expected, Header, headers_of

Tree = TypeVar("Tree")


def tree_to_arrays(tree: Any, prefix: str = "") -> dict[str, np.ndarray]:
    """Return name -> array for every leaf, such as `.agent.critic.net.first.weight`; random keys as their raw data.

    The arrays are copies: with views, JAX could not donate the state to the next step.
    """
    arrays: dict[str, np.ndarray] = {}
    for name, leaf in _named(tree, prefix).items():
        if not hasattr(leaf, "dtype"):
            raise TypeError(f"leaf {name} is a {type(leaf).__name__}, not an array")
        arrays[name] = np.array(jax.random.key_data(leaf) if _is_random_key(leaf) else leaf)
        if arrays[name].dtype.kind not in "biufc":
            raise TypeError(f"leaf {name} has dtype {leaf.dtype}, which a .npy file cannot hold")
    return arrays


def arrays_to_tree(like: Tree, arrays: Mapping[str, np.ndarray], prefix: str = "") -> Tree:
    """Return a tree of the structure of `like` with its leaves taken from `arrays`.

    Args:
        like: A tree of arrays or of `jax.ShapeDtypeStruct`; its NumPy leaves come back as NumPy, others as JAX arrays.
        arrays: What `tree_to_arrays` returned; it may include arrays with other prefixes.
        prefix: The prefix given to `tree_to_arrays`.

    Raises:
        CheckpointError: A leaf is missing, unexpected, or has another shape or dtype; the message names each.
    """
    named = _named(like, prefix)
    # `env.x` and `env[0]` are below `env`, `env2.x` is not.
    is_ours = lambda name: prefix == "" or name == prefix or name.startswith((prefix + ".", prefix + "["))
    ours = {name: array for name, array in arrays.items() if is_ours(name)}
    if problems := Expected({name: _header(leaf) for name, leaf in named.items()}).problems(headers_of(ours)):
        raise CheckpointError("the checkpoint does not fit this program's state: " + "; ".join(problems))
    leaves = [_array_to_leaf(leaf, arrays[name]) for name, leaf in named.items()]
    return jax.tree_util.tree_unflatten(jax.tree_util.tree_structure(like), leaves)


def under(arrays: Mapping[str, np.ndarray], prefix: str) -> dict[str, np.ndarray]:
    """Return the arrays whose names begin with `prefix`, without it."""
    return {name.removeprefix(prefix): value for name, value in arrays.items() if name.startswith(prefix)}


def _named(tree: Any, prefix: str) -> dict[str, Any]:
    return {prefix + jax.tree_util.keystr(path): leaf for path, leaf in jax.tree_util.tree_leaves_with_path(tree)}


def _is_random_key(leaf: Any) -> bool:
    return jnp.issubdtype(leaf.dtype, jax.dtypes.prng_key)


def _header(leaf: Any) -> Header:
    """Return shape and type of a leaf in a file."""
    kept = jax.eval_shape(jax.random.key_data, leaf) if _is_random_key(leaf) else leaf
    return Header(kept.shape, np.dtype(kept.dtype))


def _array_to_leaf(leaf: Any, array: np.ndarray) -> Any:
    if not _is_random_key(leaf):
        return np.array(array) if isinstance(leaf, np.ndarray) else jnp.array(array)
    kinds = []  # of generators; traced, because `key_impl` refuses a `ShapeDtypeStruct`
    jax.eval_shape(lambda key: kinds.append(jax.random.key_impl(key)), leaf)
    return jax.random.wrap_key_data(jnp.array(array), impl=kinds[0])
