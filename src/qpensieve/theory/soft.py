"""Vector soft policy evaluation (eq. 9) by backup and by linear solve, and soft value iteration as the ground truth.

A preference-conditioned policy is its log-probabilities `logp` [m, s, a], one table per preference; its vector soft
Q-function is `q` [m, s, a, d]. `alpha` is the temperature. Minus infinity in `logp` is an action never taken.
"""

import numpy as np
from jaxtyping import Float64

from qpensieve.theory.momdp import Momdp

Prefs = Float64[np.ndarray, "m d"]
LogProbs = Float64[np.ndarray, "m s a"]
VectorQ = Float64[np.ndarray, "m s a d"]
ScalarQ = Float64[np.ndarray, "m s a"]

MOST_SWEEPS = 1_000_000
NEGLIGIBLE = -80.0
"""The linear solve ignores actions with a smaller log-probability: far below rounding; subnormal numbers are slow."""
EPSILON = float(np.finfo(np.float64).eps)


def scalarize(lam: Float64[np.ndarray, "..."], q: Float64[np.ndarray, "..."]) -> Float64[np.ndarray, "..."]:
    """Return lam . q over the last axis, summed in the order of the objectives: equal terms have equal sums."""
    total = lam[..., 0] * q[..., 0]
    for i in range(1, q.shape[-1]):
        total = total + lam[..., i] * q[..., i]
    return total


def scalarize_own(prefs: Prefs, q: VectorQ) -> ScalarQ:
    """Return the value lam . Q(s, a; lam) of every preference."""
    return scalarize(prefs[:, None, None, :], q)


def soft_policy(values: ScalarQ, alpha: float) -> LogProbs:
    """Return the log-probabilities of the policy proportional to exp(values / alpha)."""
    logits = (values - values.max(axis=-1, keepdims=True)) / alpha
    return logits - np.log(np.exp(logits).sum(axis=-1, keepdims=True))


def soft_maximum(values: ScalarQ, alpha: float) -> Float64[np.ndarray, "m s"]:
    """Return alpha log sum exp(values / alpha) over actions: the value of `soft_policy`, entropy included."""
    top = values.max(axis=-1)
    return top + alpha * np.log(np.exp((values - top[..., None]) / alpha).sum(axis=-1))


def uniform_policy(momdp: Momdp, num: int) -> LogProbs:
    """Return the uniform policy, for `num` preferences."""
    return np.full((num, momdp.num_states, momdp.num_actions), -np.log(momdp.num_actions))


def entropy(logp: LogProbs) -> Float64[np.ndarray, "m s"]:
    """Return the entropy of the policy at every state."""
    taken = np.isfinite(logp)
    return -(np.exp(logp) * np.where(taken, logp, 0.0)).sum(axis=-1)


def soft_value(q: VectorQ, logp: LogProbs, alpha: float) -> Float64[np.ndarray, "m s d"]:
    """Return the mean over a ~ pi of Q(s, a) - alpha log pi(a|s) 1_d: the entropy goes to every objective."""
    return (np.exp(logp)[..., None] * q).sum(axis=2) + alpha * entropy(logp)[..., None]


def backup(momdp: Momdp, q: VectorQ, logp: LogProbs, alpha: float) -> VectorQ:
    """Apply the multi-objective soft Bellman operator of the policy once (eq. 9)."""
    return look_ahead(momdp, soft_value(q, logp, alpha))


def look_ahead(momdp: Momdp, v: Float64[np.ndarray, "m s d"]) -> VectorQ:
    """Return reward and discounted expectation of the next state's value: r(s, a) + gamma E[v(s')]."""
    return momdp.r + momdp.discount * expect(momdp, v)


def expect(momdp: Momdp, v: Float64[np.ndarray, "m s d"]) -> VectorQ:
    """Return the expectation of the next state's value; an end is worth 0."""
    num, num_states, d = v.shape
    flat = momdp.p_next.reshape(-1, num_states) @ v.transpose(1, 0, 2).reshape(num_states, num * d)
    return flat.reshape(num_states, -1, num, d).transpose(2, 0, 1, 3)


def expect_scalar(momdp: Momdp, v: Float64[np.ndarray, "m s"]) -> ScalarQ:
    """Return `expect` of one number per state."""
    return expect(momdp, v[..., None])[..., 0]


def evaluate(momdp: Momdp, logp: LogProbs, alpha: float) -> VectorQ:
    """Return the vector soft Q-function of the policy: the fixed point of `backup`, by linear solve.

    With alpha = 0 it is the plain Q-function, without the entropy bonus.
    """
    return look_ahead(momdp, _state_values(momdp, logp, alpha))


def discounted_returns(momdp: Momdp, logp: LogProbs) -> Float64[np.ndarray, "m d"]:
    """Return the expected discounted return vector from the start, without the entropy bonus."""
    return np.einsum("s,msd->md", momdp.start, _state_values(momdp, logp, 0.0))


def _state_values(momdp: Momdp, logp: LogProbs, alpha: float) -> Float64[np.ndarray, "m s d"]:
    pi = np.exp(np.where(logp > NEGLIGIBLE, logp, -np.inf))
    p_policy = np.matmul(pi.transpose(1, 0, 2), momdp.p_next).transpose(1, 0, 2)
    gain = (pi[..., None] * momdp.r).sum(axis=2) + alpha * entropy(logp)[..., None]
    return np.linalg.solve(np.eye(momdp.num_states) - momdp.discount * p_policy, gain)


def soft_optimum(momdp: Momdp, prefs: Prefs, alpha: float, tolerance: float = 1e-10) -> ScalarQ:
    """Run soft value iteration on the scalar reward lam . r, for every preference separately, to `tolerance`.

    It uses no vectors, policies or snapshots, so it is an independent ground truth.
    """
    # Written out, without calls: this is the inner loop, thousands of sweeps at a discount near 1.
    p_flat, gamma = momdp.p_next.reshape(-1, momdp.num_states), momdp.discount
    r = scalarize(prefs[:, None, None, :], momdp.r)
    q = r
    for _ in range(MOST_SWEEPS):
        top = q.max(axis=-1)
        v = top + alpha * np.log(np.exp((q - top[..., None]) / alpha).sum(axis=-1))
        new = r + gamma * (v @ p_flat.T).reshape(r.shape)
        change, q = np.abs(new - q).max(), new
        if gamma * change <= (1 - gamma) * tolerance or change <= 4 * EPSILON * np.abs(q).max():
            return q
    raise RuntimeError(f"no fixed point within {MOST_SWEEPS} sweeps")
