"""Acting in plain NumPy on the host, so that it never waits for the device."""

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from functools import partial
from itertools import pairwise
from typing import Protocol, runtime_checkable

import numpy as np
from jaxtyping import Float32, Float64, Int64

from qpensieve.machine import one_blas_thread
from qpensieve.types import (
    Acting,
    Actions,
    EnvSpec,
    HostPolicy,
    Noise,
    Observations,
    Parameters,
    Preferences,
    StoredActions,
)

LOG_STD_RANGE = (-20.0, 2.0)
NORM_EPSILON = 1e-5
"""Added to the variance when a layer is standardised."""


@dataclass(frozen=True, eq=False)
class PolicyArrays:
    """Policies as arrays and words, for programs without this package.

    Attributes:
        head: How the output of the network becomes an action: `squashed gaussian`, `squashed`, `gaussian` or `greedy`.
        net: The network.
        is_conditioned: Whether the network gets the preference too.
        arrays: Arrays of the head, with an entry for each policy.
        shared: Arrays of the head that all policies share.
        epsilon: Share of random actions of a `greedy` head that samples.
    """

    head: str
    net: "HostMlp"
    is_conditioned: bool
    arrays: dict[str, np.ndarray] = field(default_factory=dict)
    shared: dict[str, np.ndarray] = field(default_factory=dict)
    epsilon: float = 0.0


@dataclass(frozen=True, eq=False)
class PolicySet:
    """Policies, and the rule that chooses the policy for a preference.

    Attributes:
        policies: The policies.
        preferences: Preference of each policy; the nearest is chosen. None: `returns` decide.
        returns: Return of each policy; the largest lam . return is chosen.
    """

    policies: PolicyArrays
    preferences: Float64[np.ndarray, "p d"] | None = None
    returns: Float64[np.ndarray, "p d"] | None = None


@runtime_checkable
class Exportable(Protocol):
    """Policies that can be exported to a file for programs without qpensieve."""

    def exported(self, step: int) -> PolicyArrays:
        """Return the policies with the exploration of an environment step."""
        ...


class HostMlp:
    """One network for n agents. Its parameters are views of flat parameters.

    Every agent has its own matrix products, so its numbers do not depend on the other agents in the call.

    Args:
        flat: Parameters in the order of the module's leaves: weight and bias of every layer.
        widths: Widths of input, hidden layers and output.
        is_normalized: Whether the input of a hidden ReLU is standardised over its layer.
        activation: Activation of the hidden layers, in place (x, out). None: ReLU.
    """

    def __init__(
        self,
        flat: Parameters,
        widths: tuple[int, ...],
        is_normalized: bool = False,
        activation: Callable[..., np.ndarray] | None = None,
    ):
        self._activation = activation or partial(np.maximum, 0.0)
        self.is_normalized, self.layers, start = is_normalized, [], 0
        for rows, columns in pairwise(widths):
            weight = flat[:, start : start + rows * columns].reshape(-1, rows, columns)
            start += rows * columns
            self.layers.append((weight, flat[:, None, start : start + columns]))
            start += columns
        self._hidden = self.layers[:-1]

    @property
    def is_tanh(self) -> bool:
        """Whether hidden layers have tanh instead of ReLU."""
        return self._activation is np.tanh

    @property
    def num_agents(self) -> int:
        return len(self.layers[0][0])

    @property
    def num_outputs(self) -> int:
        return self.layers[-1][0].shape[2]

    def __call__(self, x: Float32[np.ndarray, "n rows in"]) -> Float32[np.ndarray, "n rows out"]:
        with one_blas_thread():
            for weight, bias in self._hidden:
                x = x @ weight
                x += bias
                x = _standardize(x) if self.is_normalized else x
                x = self._activation(x, out=x)
            weight, bias = self.layers[-1]
            x = x @ weight
            x += bias
            return x


def _standardize(x: Float32[np.ndarray, "n rows hidden"]) -> Float32[np.ndarray, "n rows hidden"]:
    centred = x - x.mean(axis=-1, keepdims=True)
    return centred / np.sqrt(np.square(centred).mean(axis=-1, keepdims=True) + np.float32(NORM_EPSILON))


def num_parameters(widths: tuple[int, ...]) -> int:
    return sum((rows + 1) * columns for rows, columns in pairwise(widths))


class GaussianPolicy:
    """Squashed Gaussian policies, conditioned on the preference or not."""

    def __init__(self, flat: Parameters, widths: tuple[int, ...], is_conditioned: bool):
        self._net, self._is_conditioned = HostMlp(flat, widths), is_conditioned

    def gaussian(self, obs: Observations, lam: Preferences) -> tuple[Actions, Actions]:
        """Return mean and log standard deviation before the squash."""
        out = self._net(np.concatenate([obs, lam], axis=2) if self._is_conditioned else obs)
        half = out.shape[2] // 2
        log_std = out[:, :, half:]
        # np.clip and np.split take three times as long, which matters with few rows.
        return out[:, :, :half], np.minimum(np.maximum(log_std, LOG_STD_RANGE[0]), LOG_STD_RANGE[1])

    def explore(self, obs: Observations, lam: Preferences, noise: Noise, step: int) -> StoredActions:
        del step
        mean, action = self.gaussian(obs, lam)
        np.exp(action, out=action)
        action *= noise
        action += mean
        return np.tanh(action, out=action)

    sample = explore

    def exploit(self, obs: Observations, lam: Preferences) -> Actions:
        return np.tanh(self.gaussian(obs, lam)[0])

    def exported(self, step: int) -> PolicyArrays:
        del step
        return PolicyArrays("squashed gaussian", self._net, self._is_conditioned)


class NoisyPolicy:
    """Deterministic squashed policies that explore with Gaussian noise on the action."""

    def __init__(self, flat: Parameters, widths: tuple[int, ...], noise_scale: float):
        self._net, self._noise_scale = HostMlp(flat, widths), noise_scale

    def explore(self, obs: Observations, lam: Preferences, noise: Noise, step: int) -> StoredActions:
        del step
        noisy = self.exploit(obs, lam) + np.float32(self._noise_scale) * noise
        return np.clip(noisy, -1.0, 1.0)

    sample = explore

    def exploit(self, obs: Observations, lam: Preferences) -> Actions:
        return np.tanh(self._net(np.concatenate([obs, lam], axis=2)))

    def exported(self, step: int) -> PolicyArrays:
        del step
        std = np.full((self._net.num_agents, self._net.num_outputs), self._noise_scale, np.float32)
        return PolicyArrays("squashed", self._net, True, {"std": std})


@dataclass(frozen=True)
class Greedy:
    """Description of an epsilon-greedy policy over a table of actions.

    Attributes:
        widths: Widths of the network.
        actions: Action of each index, as the environment takes it.
        epsilon: Environment step -> share of random actions.
        is_normalized: Whether the network standardises its hidden layers.
    """

    widths: tuple[int, ...]
    actions: Float32[np.ndarray, "actions act"]
    epsilon: Callable[[int], float]
    is_normalized: bool = False


class GreedyPolicy:
    """Epsilon-greedy policies on lam . Q(s, ., lam). The replay stores the index of the action."""

    def __init__(self, flat: Parameters, greedy: Greedy):
        self._net, self._greedy = HostMlp(flat, greedy.widths, greedy.is_normalized), greedy

    def explore(self, obs: Observations, lam: Preferences, noise: Noise, step: int) -> StoredActions:
        """Return epsilon-greedy indices. The first number of `noise` says whether to act at random, the second how."""
        random = np.floor(noise[..., 1] * len(self._greedy.actions)).astype(np.int64)
        chosen = np.where(noise[..., 0] < self._greedy.epsilon(step), random, self.best(obs, lam))
        return chosen[..., None].astype(np.float32)

    sample = explore

    def exploit(self, obs: Observations, lam: Preferences) -> Actions:
        return self._greedy.actions[self.best(obs, lam)]

    def best(self, obs: Observations, lam: Preferences) -> Int64[np.ndarray, "n rows"]:
        """Return the index of the best action."""
        q = self._net(np.concatenate([obs, lam], axis=2))
        q = q.reshape(*q.shape[:2], -1, lam.shape[2])
        return np.argmax(np.einsum("nrad,nrd->nra", q, lam), axis=2)

    def exported(self, step: int) -> PolicyArrays:
        greedy = self._greedy
        return PolicyArrays("greedy", self._net, True, shared={"actions": greedy.actions}, epsilon=greedy.epsilon(step))


AGENTS_PER_THREAD = 8
"""Agents per thread. The parameters of more agents, about 270 kB each, do not fit into a cache."""


class SharedPolicy:
    """Policies of many agents that explore in several threads. NumPy releases Python's lock in matrix products.

    The numbers of an agent do not depend on the number of threads.
    """

    def __init__(self, acting: Acting, flat: Parameters, pool: ThreadPoolExecutor, num: int):
        self._pool = pool
        edges = np.linspace(0, len(flat), num + 1).astype(int)
        self._parts = [slice(*edge) for edge in pairwise(edges.tolist())]
        self._policies = [acting.policy(flat[part]) for part in self._parts]

    def explore(self, obs: Observations, lam: Preferences, noise: Noise, step: int) -> StoredActions:
        given = [
            (policy, obs[part], lam[part], noise[part])
            for policy, part in zip(self._policies, self._parts, strict=True)
        ]
        return np.concatenate(list(self._pool.map(lambda each: each[0].explore(*each[1:], step), given)))


def gaussian_acting(spec: EnvSpec, hidden: int, is_conditioned: bool) -> Acting:
    """Describe how SAC and related algorithms act."""
    size_in = spec.obs_size + (spec.num_objectives if is_conditioned else 0)
    widths = (size_in, hidden, hidden, 2 * spec.action_size)
    return continuous_acting(spec, partial(GaussianPolicy, widths=widths, is_conditioned=is_conditioned))


def noisy_acting(spec: EnvSpec, hidden: int, noise_scale: float) -> Acting:
    """Describe how DDPG and related algorithms act."""
    widths = (spec.obs_size + spec.num_objectives, hidden, hidden, spec.action_size)
    return continuous_acting(spec, partial(NoisyPolicy, widths=widths, noise_scale=noise_scale))


def continuous_acting(spec: EnvSpec, policy: Callable[[Parameters], HostPolicy]) -> Acting:
    """Describe acting in [-1, 1] with standard normal noise. It can be pickled if `policy` can."""
    return Acting(
        policy=policy,
        draw_noise=partial(_draw_normal, size=spec.action_size),
        draw_actions=partial(_draw_uniform, size=spec.action_size),
        decode=_as_stored,
        action_size=spec.action_size,
    )


def _draw_normal(generator: np.random.Generator, num: int, size: int) -> Float32[np.ndarray, "num size"]:
    return generator.standard_normal((num, size)).astype(np.float32)


def _draw_uniform(generator: np.random.Generator, num: int, size: int) -> Float32[np.ndarray, "num size"]:
    return generator.uniform(-1.0, 1.0, (num, size)).astype(np.float32)


def _as_stored(stored: Float32[np.ndarray, "*batch a"]) -> Float32[np.ndarray, "*batch a"]:
    return stored


def greedy_acting(greedy: Greedy) -> Acting:
    """Describe how DQN and related algorithms act. The replay stores indices, which are exact below 2^24."""
    return Acting(
        policy=partial(GreedyPolicy, greedy=greedy),
        draw_noise=_draw_two,
        draw_actions=partial(_draw_indices, num_actions=len(greedy.actions)),
        decode=partial(_decode_indices, actions=greedy.actions),
        action_size=1,
        is_discrete=True,
    )


def _draw_two(generator: np.random.Generator, num: int) -> Float32[np.ndarray, "num 2"]:
    return generator.random((num, 2), dtype=np.float32)


def _draw_indices(generator: np.random.Generator, num: int, num_actions: int) -> Float32[np.ndarray, "num 1"]:
    return generator.integers(num_actions, size=(num, 1)).astype(np.float32)


def _decode_indices(
    stored: Float32[np.ndarray, "*batch 1"], actions: Float32[np.ndarray, "actions act"]
) -> Float32[np.ndarray, "*batch act"]:
    return actions[stored[..., 0].astype(np.int64)]
