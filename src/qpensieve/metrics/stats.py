"""Statistics over seeds and tasks (Agarwal et al., 2021, rliable).

Scores are [seed], or [seed, task] where tasks share a scale (`normalize`). A bootstrap redraws seeds within each task;
where a statistic is a sum over runs, it is computed from how often each run was drawn, for all resamples at once.
"""

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from jaxtyping import Float64, Int64

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


@dataclass(frozen=True, eq=False)
class Profile:
    """A performance profile: for every threshold the share of runs that score above it, with its interval."""

    taus: Float64[np.ndarray, " tau"]
    """Thresholds."""
    share: Float64[np.ndarray, " tau"]
    """Share of runs (seed and task) with a score greater than the threshold."""
    low: Float64[np.ndarray, " tau"]
    """Lower ends of the bootstrap intervals, each of one threshold."""
    high: Float64[np.ndarray, " tau"]
    """Upper ends."""


@dataclass(frozen=True)
class Difference:
    """Scores of two methods with the same seeds, seed by seed."""

    mean: float
    """Mean of x - y over seeds and tasks."""
    low: float
    """Lower end of the mean's bootstrap interval; pairs are redrawn, never split."""
    high: float
    """Upper end of the same interval."""
    probability: float
    """Share of pairs with x > y; a tie counts a half."""
    probability_low: float
    """Lower end of the bootstrap interval of that share."""
    probability_high: float
    """Upper end of the same interval."""
    num_pairs: int
    """Number of seeds, which both methods have."""


def summarize(scores: ArrayLike) -> Summary:
    """Return all statistics of one set of scores."""
    mean, std = mean_std(scores)
    low, high = bootstrap_interval(scores)
    return Summary(mean, std, iqm(scores), low, high, num_seeds=len(_check_scores(scores)))


def mean_std(scores: ArrayLike) -> tuple[float, float]:
    """Return mean and standard deviation over seeds, of the mean over tasks.

    The deviation has divisor n (ddof=0), NumPy's default; the paper does not say which it prints.
    """
    per_seed = _check_scores(scores).mean(axis=1)
    return float(per_seed.mean()), float(per_seed.std())


def iqm(scores: ArrayLike) -> float:
    """Return the interquartile mean: of all n scores without the int(n / 4) lowest and the int(n / 4) highest."""
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
    """Return the percentile bootstrap interval of `statistic`, stratified: seeds are redrawn within each task.

    With one seed the interval is a point. Equal arguments return equal intervals.

    Args:
        scores: [seed] or [seed, task].
        statistic: Function of an array [seed, task].
        confidence: Share of the resampled statistics between the two ends.
        num_resamples: Number of bootstrap draws.
        seed: Seed of the draws.

    Raises:
        ValueError: Scores are missing or not finite, or a setting is out of range.
    """
    _check_bootstrap(confidence, num_resamples)
    checked = _check_scores(scores)
    resamples = checked[_draw(checked, num_resamples, np.random.default_rng(seed)), np.arange(checked.shape[1])]
    values = _iqm_each(resamples) if statistic is iqm else [statistic(resample) for resample in resamples]
    return _interval(values, confidence)


def probability_of_improvement(x: ArrayLike, y: ArrayLike) -> float:
    """Return the mean over tasks of P(X > Y) + P(X = Y) / 2, over all pairs of a seed of `x` and a seed of `y`."""
    return float(_wins(*_check_pair(x, y)).mean())


def improvement_interval(
    x: ArrayLike, y: ArrayLike, confidence: float = 0.95, num_resamples: int = 2000, seed: int = 0
) -> Interval:
    """Return the bootstrap interval of `probability_of_improvement`; both sides are redrawn within each task."""
    _check_bootstrap(confidence, num_resamples)
    generator = np.random.default_rng(seed)
    pair = _check_pair(x, y)
    ours, theirs = (_counts(_draw(scores, num_resamples, generator)) for scores in pair)
    wins = _wins(*pair)
    against_each = np.einsum("rxt,xyt->ryt", ours, wins)
    return _interval((against_each * theirs).sum(axis=(1, 2)) / wins.size, confidence)


def paired_difference(
    x: ArrayLike, y: ArrayLike, confidence: float = 0.95, num_resamples: int = 2000, seed: int = 0
) -> Difference:
    """Return the difference of two methods whose rows are the same seeds in the same order.

    Args:
        x: Scores [seed] or [seed, task].
        y: Scores of the other method.
        confidence: Share of the resampled statistics between the two ends.
        num_resamples: Number of bootstrap draws.
        seed: Seed of the draws.

    Raises:
        ValueError: x and y differ in shape, scores are missing or not finite, or a setting is out of range.
    """
    _check_bootstrap(confidence, num_resamples)
    ours, theirs = _check_pair(x, y)
    if len(ours) != len(theirs):
        raise ValueError(f"x and y must have the same seeds to be paired, got {len(ours)} and {len(theirs)}")
    gaps = ours - theirs
    wins = (np.sign(gaps) + 1) / 2
    counts = _counts(_draw(gaps, num_resamples, np.random.default_rng(seed))).reshape(num_resamples, -1)
    ends = [_interval(counts @ each.reshape(-1) / each.size, confidence) for each in (gaps, wins)]
    return Difference(float(gaps.mean()), *ends[0], float(wins.mean()), *ends[1], num_pairs=len(gaps))


def performance_profile(
    scores: ArrayLike, taus: ArrayLike, confidence: float = 0.95, num_resamples: int = 2000, seed: int = 0
) -> Profile:
    """Return the performance profile: per threshold the share of runs that score more, with bootstrap bands.

    Args:
        scores: [seed] or [seed, task], on one scale.
        taus: Thresholds.
        confidence: Share of the resampled statistics between the two ends, at each threshold.
        num_resamples: Number of bootstrap draws.
        seed: Seed of the draws.

    Raises:
        ValueError: Scores are missing or not finite, thresholds are not a list of finite numbers, or a setting is out
            of range.
    """
    _check_bootstrap(confidence, num_resamples)
    checked, at = _check_scores(scores), np.asarray(taus, np.float64)
    if at.ndim != 1 or not len(at) or not np.isfinite(at).all():
        raise ValueError(f"taus must be a list of finite numbers, got shape {at.shape}")
    is_above = (checked.reshape(-1, 1) > at).astype(np.float64)
    counts = _counts(_draw(checked, num_resamples, np.random.default_rng(seed))).reshape(num_resamples, -1)
    low, high = _percentiles(counts @ is_above / checked.size, confidence)
    return Profile(at, is_above.mean(axis=0), low, high)


def normalize(scores: ArrayLike, scale: ArrayLike) -> Scores:
    """Divide scores by the scale of their task, so that tasks can be put together: 1 is the scale itself.

    Raises:
        ValueError: There is not one scale per task, or a scale is not above 0: better scores would become worse.
    """
    checked, sizes = _check_scores(scores), np.atleast_1d(np.asarray(scale, np.float64))
    if sizes.shape != checked.shape[1:]:
        raise ValueError(f"scale must have one number per task ({checked.shape[1]}), got shape {sizes.shape}")
    if not (np.isfinite(sizes) & (sizes > 0)).all():
        raise ValueError(f"scale must be finite and above 0 for every task, got {sizes.tolist()}")
    return checked / sizes


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


def _draw(
    scores: Float64[np.ndarray, "n task"], num_resamples: int, generator: np.random.Generator
) -> Int64[np.ndarray, "resample n task"]:
    """Draw the seeds of each resample, for every task separately."""
    return generator.integers(len(scores), size=(num_resamples, *scores.shape))


def _counts(rows: Int64[np.ndarray, "resample n task"]) -> Float64[np.ndarray, "resample n task"]:
    """Count how often each seed of each task was drawn."""
    each = [(rows == i).sum(axis=1) for i in range(rows.shape[1])]
    return np.stack(each, axis=1).astype(np.float64)


def _iqm_each(resamples: Float64[np.ndarray, "resample seed task"]) -> Float64[np.ndarray, " resample"]:
    """Return `iqm` of every resample."""
    ordered = np.sort(resamples.reshape(len(resamples), -1), axis=1)
    cut = int(0.25 * ordered.shape[1])
    return ordered[:, cut : ordered.shape[1] - cut].mean(axis=1)


def _interval(values: ArrayLike, confidence: float) -> Interval:
    low, high = _percentiles(np.asarray(values, np.float64), confidence)
    return float(low), float(high)


def _percentiles(
    values: Float64[np.ndarray, "resample *rest"], confidence: float
) -> tuple[Float64[np.ndarray, "*rest"], Float64[np.ndarray, "*rest"]]:
    """Return lower and upper ends over the resamples."""
    tail = 50 * (1 - confidence)
    low, high = np.percentile(values, [tail, 100 - tail], axis=0)
    return np.asarray(low), np.asarray(high)


def _wins(x: Scores, y: Float64[np.ndarray, "other task"]) -> Float64[np.ndarray, "seed other task"]:
    """Return 1 where x is greater, a half where both are equal, 0 elsewhere."""
    return (np.sign(x[:, None, :] - y[None, :, :]) + 1) / 2
