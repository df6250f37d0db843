"""Settings that came or went: how configurations of other versions compare with those of this one."""

from typing import Any

RETIRED: dict[str, Any] = {
    **{"target_steps": 1, "acting_share": 0.0, "preferences_per": "batch"},
    **{"critic_blocks": 0, "critic_hidden": None, "weight_decay": 0.0, "discount_end": None, "over_critics": "max"},
    **{"noise": "white", "policy_loss": "paper", "full_eval_stride": 1},
    **{"gap_factor": 0.0, "num_candidates": None, "value_low": [], "value_high": []},
}
"""Settings that are gone -> what every run does now. docs/tried.md says what other values did."""
ADDED: dict[str, Any] = {
    **RETIRED,
    "max_critic_gradient": None,
    "temperature_per": "run",
    "target_entropy": -1.0,
    "target_entropy_end": None,
    "anneal_updates": None,
    "temperature_gain": 0.0,
    "bounded_targets": "off",
    "pessimism": 1.0,
    **{"learning_rate_end": None, "tau": None, "acts_with": "newest", "twin": False, "scale_obs": False},
    **{"layer_norm": False, "loss_a": "squared", "priority_exponent": 1.0, "noise_for": "both"},
    "max_push_loss": None,
    "snapshot_margin": None,
}
"""Settings of algorithms that configurations of other versions lack -> what their runs did."""
OF_RUNS: dict[str, Any] = {
    **{"updates_per_step": 1, "target_steps": 1, "noise": "white", "random_noise": "white"},
    "noise_correlation": 0.8,
    **dict.fromkeys(("random_steps", "block", "replay_capacity")),
}
"""Settings of runs that change what is learned -> what runs of other versions did that lack them."""


def is_retired(name: str, value: Any) -> bool:
    """Whether this is a setting that is gone, with the value that every run has now."""
    return name in RETIRED and RETIRED[name] == value
