"""Where settings start from: the paper's, small ones for two cores, the cases of the paper's figure."""

from dataclasses import replace
from typing import Any, Literal, get_args

from qpensieve.algos import hybrid_sac
from qpensieve.config import ALGORITHMS, POPULATIONS, AlgoName, RunConfig, domain_name, override

POPULATION: dict[str, tuple[int, int, int, int, float]] = {
    "DST2d": (1_500_000, 80, 20, 100, 1.0),
    "LunarLander4d": (7_500_000, 40, 10, 400, 1e6),
    "LunarLander5d": (7_500_000, 40, 10, 400, 1e6),
    "HalfCheetah2d": (15_000_000, 80, 20, 100, 1.0),
    "Hopper2d": (4_500_000, 200, 40, 100, 1.0),
    "Hopper3d": (15_000_000, 200, 40, 200, 1e6),
    "Ant3d": (15_000_000, 200, 40, 200, 1e6),
    "Hopper5d": (7_500_000, 200, 40, 400, 1e6),
    "Ant2d": (15_000_000, 200, 40, 100, 1.0),
    "Walker2d": (4_500_000, 80, 20, 100, 1.0),
}
"""The Q-Pensieve paper's table for PGMORL and PFA: domain -> steps, iterations of the warm-up and of a generation,
number of buffers, sparsity weight. Our sign: gaps count against (the paper prints it negative, D26)."""

PresetName = Literal["paper", "quick", "figure-a", "figure-b", "figure-c", "figure-d"]
PRESETS: tuple[PresetName, ...] = get_args(PresetName)
FIGURE = {
    f"figure-{letter}": case
    for letter, case in zip(
        "abcd", [(domain, lam) for domain, lams in hybrid_sac.CASES.items() for lam in lams], strict=True
    )
}
"""Preset -> domain and preference of that part of the figure."""
ENVELOPE_RANDOM_STEPS = 1_000
QUICK_RUN: dict[str, Any] = {
    "seeds": 3,
    "steps": 35_000,
    "random_steps": 2_000,
    "eval_period": 5_000,
    "parameters_period": 10_000,
}
_QUICK_NETS: dict[str, Any] = {"hidden": 64, "batch_size": 128, "learning_rate": 1e-3}
_QUICK_PENSIEVE: dict[str, Any] = {"push_after": 4_000, "push_period": 1_000}
_QUICK_POPULATION: dict[str, Any] = {
    "seeds": 3,
    "steps": 200_000,
    "eval_period": 20_000,
    "parameters_period": 50_000,
    "rollout_steps": 32,
    "minibatches": 4,
    "learning_rate": 1e-3,
    "warmup_iterations": 80,
    "generation_iterations": 20,
}
QUICK: dict[str, dict[str, Any]] = {
    "qpensieve": {**_QUICK_NETS, **_QUICK_PENSIEVE},
    "mosac": _QUICK_NETS,
    "sac": {**_QUICK_NETS, "seeds": 1},
    "hybrid-sac": {**_QUICK_NETS, **_QUICK_PENSIEVE, "switch_after": 10_000, "seeds": 2},
    "cnder": {**_QUICK_NETS, "replay_capacity": 20_000},
    "envelope": {"batch_size": 64, "num_preferences": 8, "random_steps": 500, "replay_capacity": 20_000},
    "pgmorl": _QUICK_POPULATION,
    "pfa": _QUICK_POPULATION,
}
"""What `quick` changes in each algorithm, beside `QUICK_RUN`."""


def default_config(domain: str, algo: AlgoName = "qpensieve", preset: str = "paper") -> RunConfig:
    """The settings of a preset: the paper's, `quick` (small enough for two cores), or a case of hybrid SAC's figure."""
    if preset not in PRESETS:
        raise ValueError(f"unknown preset {preset!r}: use {', '.join(PRESETS)}")
    make_config = ALGORITHMS[algo][0]
    config = RunConfig(domain, algo, agent=make_config())
    if algo in POPULATIONS:
        config = _population_config(config)
    if algo == "envelope":  # its authors learn once a batch is there
        config = replace(config, random_steps=ENVELOPE_RANDOM_STEPS)
    if preset == "quick":
        changes = {} if algo in POPULATIONS else QUICK_RUN
        config = override(replace(config, **changes), QUICK[algo])
    if preset in FIGURE:
        if algo not in ("sac", "hybrid-sac"):
            raise ValueError(f"preset {preset} is of the figure that compares sac and hybrid-sac, not of {algo}")
        config = override(config, {"preferences": (FIGURE[preset][1],)})
    return config


def _population_config(config: RunConfig) -> RunConfig:
    """The row of the paper's table for the domain; where it has none, that of two objectives."""
    row = POPULATION.get(domain_name(config.domain), POPULATION["Hopper2d"])
    steps, warmup, generation, num_buffers, sparsity = row
    changes: dict[str, Any] = {
        "warmup_iterations": warmup,
        "generation_iterations": generation,
        "steps": steps,
        "eval_period": 200_000,
    }
    if config.algo == "pgmorl":
        changes |= {"num_buffers": num_buffers, "sparsity_weight": sparsity}
    if domain_name(config.domain) == "DST2d":  # nothing is random there but the policy
        changes["fitness_episodes"] = 1
    return override(config, changes)
