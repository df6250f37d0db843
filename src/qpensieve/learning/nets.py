"""Networks as Equinox modules with arrays as leaves: policies pi(s, lam), vector critics Q(s, a; lam), Q(s, .; lam)."""

from itertools import pairwise
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Float64, Key

from qpensieve.learning.acting import LOG_STD_RANGE, NORM_EPSILON
from qpensieve.machine import one_blas_thread

NARROW = 32
"""Most outputs of a layer that counts as narrow."""


class Linear(eqx.Module):
    """Affine map; Xavier-uniform weight, zero bias."""

    weight: Float[Array, "in out"]
    bias: Float[Array, " out"]

    def __init__(self, size_in: int, size_out: int, *, key: Key[Array, ""]):
        bound = (6.0 / (size_in + size_out)) ** 0.5
        self.weight = jax.random.uniform(key, (size_in, size_out), minval=-bound, maxval=bound)
        self.bias = jnp.zeros(size_out)

    def __call__(self, x: Float[Array, "*batch in"]) -> Float[Array, "*batch out"]:
        if x.ndim == 1:
            return x @ self.weight + self.bias
        return _batch_product(x, self.weight) + jnp.expand_dims(self.bias, range(x.ndim - 1))


@jax.custom_vjp
def _batch_product(x: Float[Array, "b in"], weight: Float[Array, "in out"]) -> Float[Array, "b out"]:
    """Multiply. The gradient of a narrow layer's weight is computed as (g^T x)^T, ten times faster on a CPU.

    XLA would transpose x, which is much larger than g. The barrier keeps XLA from doing so.
    """
    return x @ weight


def _forward(x: Any, weight: Any) -> Any:
    return x @ weight, (x, weight)


def _backward(kept: Any, by_product: Any) -> Any:
    x, weight = kept
    is_narrow = weight.shape[1] <= NARROW and jax.default_backend() == "cpu"
    transposed = jax.lax.optimization_barrier(by_product.T @ x) if is_narrow else by_product.T @ x
    return by_product @ weight.T, transposed.T


_batch_product.defvjp(_forward, _backward)


class OrthogonalLinear(Linear):
    """Affine map with zero bias. The rows or columns of the weight, whichever are fewer, are orthonormal times a gain.

    The weight is drawn on the host, because starts of PGMORL on the device sometimes hung, perhaps in the QR
    factorisation.
    """

    def __init__(self, size_in: int, size_out: int, gain: float, *, stream: np.random.Generator):
        self.weight = jnp.asarray(gain * _orthonormal(size_in, size_out, stream), jnp.float32)
        self.bias = jnp.zeros(size_out)


def _orthonormal(rows: int, columns: int, stream: np.random.Generator) -> Float64[np.ndarray, "rows columns"]:
    """Draw orthonormal rows or columns, whichever are fewer, uniformly (Haar's measure)."""
    with one_blas_thread():
        q, r = np.linalg.qr(stream.standard_normal((max(rows, columns), min(rows, columns))))
    q = q * np.sign(np.diag(r))  # QR fixes the signs, so that some matrices would be more likely
    return q if rows >= columns else q.T


def hidden(layer: Linear, x: Float[Array, "*batch in"], is_normalized: bool) -> Float[Array, "*batch out"]:
    """Apply a hidden layer with ReLU; if normalised, standardise its input sums over the layer's units first."""
    x = layer(x)
    return jax.nn.relu(jax.nn.standardize(x, epsilon=NORM_EPSILON) if is_normalized else x)


class Mlp(eqx.Module):
    """Two hidden layers with ReLU, for one input or for a batch."""

    first: Linear
    second: Linear
    last: Linear

    def __init__(self, size_in: int, hidden: int, size_out: int, *, key: Key[Array, ""]):
        key_first, key_second, key_last = jax.random.split(key, 3)
        self.first = Linear(size_in, hidden, key=key_first)
        self.second = Linear(hidden, hidden, key=key_second)
        self.last = Linear(hidden, size_out, key=key_last)

    def __call__(self, x: Float[Array, "*batch in"], is_normalized: bool = False) -> Float[Array, "*batch out"]:
        for layer in (self.first, self.second):
            x = hidden(layer, x, is_normalized)
        return self.last(x)


class TanhMlp(eqx.Module):
    """Two hidden layers with tanh and orthogonal weights of gain sqrt 2; the gain of the last layer is given."""

    first: OrthogonalLinear
    second: OrthogonalLinear
    last: OrthogonalLinear

    def __init__(self, size_in: int, hidden: int, size_out: int, last_gain: float, *, stream: np.random.Generator):
        self.first = OrthogonalLinear(size_in, hidden, 2.0**0.5, stream=stream)
        self.second = OrthogonalLinear(hidden, hidden, 2.0**0.5, stream=stream)
        self.last = OrthogonalLinear(hidden, size_out, last_gain, stream=stream)

    def __call__(self, x: Float[Array, " in"]) -> Float[Array, " out"]:
        return self.last(jnp.tanh(self.second(jnp.tanh(self.first(x)))))


class Critic(eqx.Module):
    """Vector action value Q(s, a; lam)."""

    net: Mlp

    def __init__(self, obs_size: int, action_size: int, num_objectives: int, hidden: int, *, key: Key[Array, ""]):
        self.net = Mlp(obs_size + action_size + num_objectives, hidden, num_objectives, key=key)

    def __call__(
        self, s: Float[Array, "*batch obs"], a: Float[Array, "*batch act"], lam: Float[Array, "*batch d"]
    ) -> Float[Array, "*batch d"]:
        return self.net(jnp.concatenate([s, a, lam], axis=-1))


class GaussianActor(eqx.Module):
    """Mean and log standard deviation of the Gaussian that tanh squashes into an action."""

    net: Mlp

    def __init__(self, obs_size: int, action_size: int, num_objectives: int, hidden: int, *, key: Key[Array, ""]):
        self.net = Mlp(obs_size + num_objectives, hidden, 2 * action_size, key=key)

    def __call__(
        self, s: Float[Array, "*batch obs"], lam: Float[Array, "*batch d"]
    ) -> tuple[Float[Array, "*batch act"], Float[Array, "*batch act"]]:
        mean, log_std = jnp.split(self.net(jnp.concatenate([s, lam], axis=-1)), 2, axis=-1)
        return mean, jnp.clip(log_std, *LOG_STD_RANGE)


class DeterministicActor(eqx.Module):
    """Action for a state and a preference, squashed by tanh."""

    net: Mlp

    def __init__(self, obs_size: int, action_size: int, num_objectives: int, hidden: int, *, key: Key[Array, ""]):
        self.net = Mlp(obs_size + num_objectives, hidden, action_size, key=key)

    def __call__(self, s: Float[Array, " obs"], lam: Float[Array, " d"]) -> Float[Array, " act"]:
        return jnp.tanh(self.net(jnp.concatenate([s, lam])))


class QHead(eqx.Module):
    """Vector values of all discrete actions, Q(s, .; lam), from hidden layers of any widths with ReLU."""

    layers: tuple[Linear, ...]

    def __init__(self, widths: tuple[int, ...], *, key: Key[Array, ""]):
        """Make layers with the widths of input (obs + d), hidden layers and output (actions x d)."""
        keys = jax.random.split(key, len(widths) - 1)
        self.layers = tuple(Linear(*sizes, key=k) for sizes, k in zip(pairwise(widths), keys, strict=True))

    def __call__(
        self, s: Float[Array, " obs"], lam: Float[Array, " d"], is_normalized: bool = False
    ) -> Float[Array, "actions d"]:
        return self.layers[-1](self.features(jnp.concatenate([s, lam]), is_normalized)).reshape(-1, lam.shape[0])

    def features(self, x: Float[Array, " in"], is_normalized: bool) -> Float[Array, " hidden"]:
        """Return the output of the last hidden layer."""
        for layer in self.layers[:-1]:
            x = hidden(layer, x, is_normalized)
        return x
