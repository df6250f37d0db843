"""The exact soft values of the probe `Walk` under a Gaussian policy that does not look at the position."""

from dataclasses import dataclass

import numpy as np
from jaxtyping import Float64

from tests.probes import WALK_LENGTH

MEAN, SLOPE, LOG_STD = -0.2, 1.0, -0.7
"""The policy: a = tanh(u), u normal with mean MEAN + SLOPE lam_1."""


@dataclass(frozen=True)
class WalkValues:
    """The values for one preference; `num_left` counts the steps to the end, or is None where there is none."""

    lam: tuple[float, float]
    discount: float
    temperature: float

    def of(self, a: float, num_left: int | None) -> Float64[np.ndarray, "2"]:
        """Q(s, a): the reward of `a`, then discounted rewards and bonuses of as many actions as are left."""
        action, bonus = self.expected
        if num_left is None:
            later = self.discount / (1.0 - self.discount)
        else:
            later = sum(self.discount**k for k in range(1, num_left))
        return np.array([1.0, a]) + later * (np.array([1.0, action]) + bonus)

    @property
    def expected(self) -> tuple[float, float]:
        """Mean action, and temperature times the entropy of an action, by quadrature."""
        nodes, weights = np.polynomial.hermite_e.hermegauss(120)
        weights = weights / weights.sum()
        std = np.exp(LOG_STD)
        u = MEAN + SLOPE * self.lam[0] + std * nodes
        entropy = 0.5 * np.log(2.0 * np.pi * np.e * std**2) + weights @ np.log(1.0 - np.tanh(u) ** 2)
        return float(weights @ np.tanh(u)), float(self.temperature * entropy)


def actor_leaves(hidden: int) -> dict[str, Float64[np.ndarray, "..."]]:
    """Layers of the policy's network (inputs: position, lam)."""
    first, second, last = np.zeros((3, hidden)), np.eye(hidden), np.zeros((hidden, 2))
    first[1, 0], last[0, 0] = 1.0, SLOPE
    return _leaves(first, np.zeros(hidden), second, last, np.array([MEAN, LOG_STD]))


def critic_leaves(values: WalkValues, is_endless: bool, hidden: int) -> dict[str, Float64[np.ndarray, "..."]]:
    """Layers of a network (inputs: position, action, lam) that equals the values at every position."""
    first, bias, last = np.zeros((4, hidden)), np.zeros(hidden), np.zeros((hidden, 2))
    first[1, 0], bias[0], last[0, 1] = 1.0, 1.0, 1.0  # relu(a + 1) is a + 1
    at = [values.of(0.0, None if is_endless else WALK_LENGTH - i) for i in range(WALK_LENGTH)]
    slopes = np.diff(np.diff(at, axis=0, prepend=at[:1]) * WALK_LENGTH, axis=0)
    for i, change in enumerate(slopes):  # a kink at every position makes any function of positions
        first[0, i + 1], bias[i + 1], last[i + 1] = 1.0, -i / WALK_LENGTH, change
    return _leaves(first, bias, np.eye(hidden), last, at[0] - np.array([0.0, 1.0]))


def _leaves(
    first: np.ndarray, bias: np.ndarray, second: np.ndarray, last: np.ndarray, last_bias: np.ndarray
) -> dict[str, np.ndarray]:
    weights = {"first": (first, bias), "second": (second, np.zeros(len(bias))), "last": (last, last_bias)}
    return {
        f".net.{layer}.{name}": leaf.astype(np.float32)
        for layer, pair in weights.items()
        for name, leaf in zip(("weight", "bias"), pair, strict=True)
    }
