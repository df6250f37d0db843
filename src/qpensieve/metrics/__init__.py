"""Scores of return vectors: fronts, hypervolume, utility, dominance and statistics over seeds."""

from qpensieve.metrics.fronts import hypervolume, hypervolume_gain, is_non_dominated, non_dominated, sparsity
from qpensieve.metrics.references import REFERENCE_VERSION, REFERENCES, Reference, check_reference, reference_point
from qpensieve.metrics.stats import (
    Difference,
    Profile,
    Summary,
    bootstrap_interval,
    improvement_interval,
    iqm,
    mean_std,
    normalize,
    paired_difference,
    performance_profile,
    probability_of_improvement,
    summarize,
)
from qpensieve.metrics.utility import (
    best_single,
    episodic_dominance,
    expected_utility,
    preference_correlation,
    utility,
)

__all__ = [
    "REFERENCES",
    "REFERENCE_VERSION",
    "Difference",
    "Profile",
    "Reference",
    "Summary",
    "best_single",
    "bootstrap_interval",
    "check_reference",
    "episodic_dominance",
    "expected_utility",
    "hypervolume",
    "hypervolume_gain",
    "improvement_interval",
    "iqm",
    "is_non_dominated",
    "mean_std",
    "non_dominated",
    "normalize",
    "paired_difference",
    "performance_profile",
    "preference_correlation",
    "probability_of_improvement",
    "reference_point",
    "sparsity",
    "summarize",
    "utility",
]
