"""Statistics over seeds and tasks (Agarwal et al., 2021, rliable).

Scores are [seed], or [seed, task] where tasks share a scale.
"""

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from jaxtyping import Float64

from qpensieve.preferences import ArrayLike

Scores = Float64[np.ndarray, "seed task"]
Interval = tuple[float, float]
"""Lower and upper end."""


@dataclass(frozen=True)
class Summary:
    """The statistics of one set of scores that a results table shows."""

    mean: float
    """Mean over seeds."""
    std: float
    """Standard deviation over seeds, divisor n."""
    iqm: float
    """Interquartile mean."""
    low: float
    """Lower end of the 95 % bootstrap interval of the interquartile mean."""
    high: float
    """Upper end of the same interval."""
    num_seeds: int
    """Number of seeds."""


def summarize(scores: ArrayLike) -> Summary:
    """All statistics of one set of scores."""
    mean, std = mean_std(scores)
    low, high = bootstrap_interval(scores)
    return Summary(mean, std, iqm(scores), low, high, num_seeds=len(_check_scores(scores)))


def mean_std(scores: ArrayLike) -> tuple[float, float]:
    """Mean and standard deviation over seeds of a seed's mean over tasks.

    The deviation has divisor n (ddof=0), NumPy's default; the paper does not say which it prints.
    """
    per_seed = _check_scores(scores).mean(axis=1)
    return float(per_seed.mean()), float(per_seed.std())


def iqm(scores: ArrayLike) -> float:
    """Interquartile mean: mean of all n scores without the int(n / 4) lowest and the int(n / 4) highest."""
    ordered = np.sort(_check_scores(scores), axis=None)
    cut = int(0.25 * ordered.size)
    return float(ordered[cut : ordered.size - cut].mean())


def bootstrap_interval(
    scores: ArrayLike,
    statistic: Callable[[Scores], float] = iqm,
    confidence: float = 0.95,
    num_resamples: int = 2000,
    seed: int = 0,
) -> Interval:
    """Percentile bootstrap interval of `statistic`, stratified: seeds are redrawn within each task.

    With one seed the interval is a point. Equal arguments return equal intervals.

    Args:
        scores: [seed] or [seed, task].
        statistic: Function of an array [seed, task].
        confidence: Share of the resampled statistics between the two ends.
        num_resamples: Number of bootstrap draws.
        seed: Seed of the draws.

    Raises:
        ValueError: If scores are missing or not finite, or a setting is out of range.
    """
    _check_bootstrap(confidence, num_resamples)
    resamples = _resample(_check_scores(scores), num_resamples, np.random.default_rng(seed))
    return _percentiles([statistic(resample) for resample in resamples], confidence)


def probability_of_improvement(x: ArrayLike, y: ArrayLike) -> float:
    """Mean over tasks of P(X > Y) + P(X = Y) / 2 over all pairs of a seed of `x` and a seed of `y`."""
    return _improvement(*_check_pair(x, y))


def improvement_interval(
    x: ArrayLike, y: ArrayLike, confidence: float = 0.95, num_resamples: int = 2000, seed: int = 0
) -> Interval:
    """Percentile bootstrap interval of `probability_of_improvement`; both sides are redrawn within each task."""
    _check_bootstrap(confidence, num_resamples)
    generator = np.random.default_rng(seed)
    x_draws, y_draws = (_resample(scores, num_resamples, generator) for scores in _check_pair(x, y))
    return _percentiles([_improvement(*pair) for pair in zip(x_draws, y_draws, strict=True)], confidence)


def _check_scores(scores: ArrayLike, name: str = "scores") -> Scores:
    array = np.asarray(scores, dtype=np.float64)
    if array.ndim not in (1, 2):
        raise ValueError(f"{name} must be [seed] or [seed, task], got shape {array.shape}")
    if array.size == 0:
        raise ValueError(f"{name} is empty (shape {array.shape}); at least one seed and one task are needed")
    wrong = np.argwhere(~np.isfinite(array))
    if len(wrong):
        index = tuple(wrong[0].tolist())
        raise ValueError(f"{name} must be finite, the score at {index} is {array[index]}")
    return array.reshape(len(array), -1)


def _check_pair(x: ArrayLike, y: ArrayLike) -> tuple[Scores, Float64[np.ndarray, "other task"]]:
    x_scores, y_scores = _check_scores(x, "x"), _check_scores(y, "y")
    if x_scores.shape[1] != y_scores.shape[1]:
        raise ValueError(f"x and y must have the same tasks, got {x_scores.shape[1]} and {y_scores.shape[1]}")
    return x_scores, y_scores


def _check_bootstrap(confidence: float, num_resamples: int) -> None:
    if not 0 < confidence < 1:
        raise ValueError(f"confidence must be between 0 and 1, got {confidence}")
    if num_resamples < 1:
        raise ValueError(f"num_resamples must be 1 or more, got {num_resamples}")


def _resample(
    scores: Scores, num_resamples: int, generator: np.random.Generator
) -> Float64[np.ndarray, "resample seed task"]:
    num_seeds, num_tasks = scores.shape
    rows = generator.integers(num_seeds, size=(num_resamples, num_seeds, num_tasks))
    return scores[rows, np.arange(num_tasks)]


def _percentiles(values: list[float], confidence: float) -> Interval:
    tail = 50 * (1 - confidence)
    low, high = np.percentile(values, [tail, 100 - tail])
    return float(low), float(high)


def _improvement(x: Scores, y: Float64[np.ndarray, "other task"]) -> float:
    difference = x[:, None, :] - y[None, :, :]
    return float(((np.sign(difference) + 1) / 2).mean())
