"""L_critic, the mean distance between values of a critic and Monte-Carlo returns, and its parts."""

from dataclasses import dataclass

import numpy as np
from jaxtyping import Float64

Returns = Float64[np.ndarray, "pairs rollouts d"]


@dataclass(frozen=True, eq=False)
class CriticError:
    """The error of one critic under one preference, over independent pairs (s, a).

    The value of a pair comes from the twin with the smaller lam . Q. Its return is the mean over rollouts.

    Attributes:
        error: L_critic: mean of ||Q - return||. The noise of the returns adds to it.
        error_se: Standard error of `error` over pairs.
        noise: Expected `error` of an exact critic, from the noise of the returns alone.
        rms: Root of the mean squared distance, less the share of the noise: 0 if there is no more than noise.
        value: Mean of ||return||.
        return_se: Standard error of a pair's return, as root mean square over pairs of its norm.
        bias: Mean of Q - return, for each objective: above 0 the critic overestimates.
        bias_se: Standard error of `bias`.
        scalar_bias: Mean of lam . (Q - return).
        scalar_bias_se: Standard error of `scalar_bias`.
        twins: L_critic of each twin alone.
    """

    error: float
    error_se: float
    noise: float
    rms: float
    value: float
    return_se: float
    bias: Float64[np.ndarray, " d"]
    bias_se: Float64[np.ndarray, " d"]
    scalar_bias: float
    scalar_bias_se: float
    twins: Float64[np.ndarray, " twins"]


def critic_error(
    values: Float64[np.ndarray, "twins pairs d"], returns: Returns, lam: Float64[np.ndarray, " d"]
) -> CriticError:
    """Compare the values of twins with returns; all results are 0 if they agree and there is no noise.

    Args:
        values: Q(s, a; lam) of each twin, or of the only critic.
        returns: Returns of every pair, from independent rollouts. A single rollout shows no noise.
        lam: The preference.
    """
    mean = returns.mean(axis=1)
    used = np.take_along_axis(values, (values @ lam).argmin(axis=0)[None, :, None], axis=0)[0]
    difference = used - mean
    distance = np.linalg.norm(difference, axis=1)
    noise = contrasts(returns)
    variance = np.square(noise).sum(axis=2).mean(axis=1) if noise.size else np.zeros(len(mean))
    scalar = difference @ lam
    return CriticError(
        error=float(distance.mean()),
        error_se=float(_standard_error(distance)),
        noise=float(np.linalg.norm(noise, axis=2).mean()) if noise.size else 0.0,
        rms=float(np.sqrt(max(0.0, np.square(distance).mean() - variance.mean()))),
        value=float(np.linalg.norm(mean, axis=1).mean()),
        return_se=float(np.sqrt(variance.mean())),
        bias=difference.mean(axis=0),
        bias_se=_standard_error(difference),
        scalar_bias=float(scalar.mean()),
        scalar_bias_se=float(_standard_error(scalar)),
        twins=np.linalg.norm(values - mean[None], axis=2).mean(axis=1),
    )


def contrasts(returns: Returns) -> Float64[np.ndarray, "pairs contrasts d"]:
    """Return sums of rollouts whose weights add up to 0, with the covariance of the noise of the rollouts' mean.

    There is one sum less than rollouts. The sums do not contain the value of the pair, so their norms show noise alone.
    """
    num = returns.shape[1]
    # Helmert's contrasts: rollout k against the mean of those before it; orthonormal, so uncorrelated with each other.
    weights = np.zeros((num - 1, num))
    for k in range(1, num):
        weights[k - 1, :k], weights[k - 1, k] = -1.0, k
        weights[k - 1] /= np.sqrt(k * (k + 1))
    return np.einsum("cr,prd->pcd", weights, returns) / np.sqrt(num)


def _standard_error(samples: Float64[np.ndarray, "pairs *rest"]) -> Float64[np.ndarray, "*rest"]:
    return np.asarray(samples.std(axis=0, ddof=1) / np.sqrt(len(samples)))
