"""Presets: the paper's settings, small ones for two cores, and the cases of the paper's figure."""

from dataclasses import replace
from typing import Any, Literal, get_args

from qpensieve.algos import hybrid_sac
from qpensieve.config import RunConfig, override, unscheduled
from qpensieve.envs import find_domain
from qpensieve.errors import UserError
from qpensieve.methods import METHODS, get_method

PresetName = Literal["paper", "quick", "robust", "figure-a", "figure-b", "figure-c", "figure-d"]
PRESETS: tuple[PresetName, ...] = get_args(PresetName)
FIGURE = {
    f"figure-{letter}": case
    for letter, case in zip(
        "abcd", [(domain, lam) for domain, lams in hybrid_sac.CASES.items() for lam in lams], strict=True
    )
}
"""Preset -> domain and preference of that part of the figure."""
FIGURE_METHODS = ("sac", "hybrid-sac")
"""The methods that the figure compares."""
QUICK_RUN: dict[str, Any] = {
    "seeds": 3,
    "steps": 35_000,
    "random_steps": 2_000,
    "eval_period": 5_000,
    "parameters_period": 10_000,
}
"""What `quick` changes in a run with a replay; each method adds its own (`Method.quick`)."""

EVAL_STRIDES = {5: 25}
"""Number of objectives -> `eval_stride`, where short evaluations of every fifth row would cost more than training."""


def default_config(domain: str, algo: str = "qpensieve", preset: str = "paper") -> RunConfig:
    """The settings of a preset: the paper's, `robust`, `quick` (for two cores), or a case of hybrid SAC's figure."""
    if preset not in PRESETS:
        raise UserError(f"unknown preset {preset!r}: use {', '.join(PRESETS)}")
    method, known = get_method(algo), find_domain(domain)
    config = replace(RunConfig(domain, algo, kernels="auto", agent=method.config()), **method.defaults)
    if known is not None and len(known.objectives) in EVAL_STRIDES:
        config = replace(config, eval_stride=EVAL_STRIDES[len(known.objectives)])
    if method.paper is not None:
        config = override(config, method.paper(config.domain_id))
    if preset == "quick":
        config = config if method.is_population else replace(config, **QUICK_RUN)
        config = override(config, dict(method.quick))
    if preset == "robust":
        if method.robust is None:
            able = ", ".join(name for name, one in METHODS.items() if one.robust is not None)
            raise UserError(f"preset robust is for {able}, got {algo}")
        config = override(unscheduled(config), dict(method.robust))
    if preset in FIGURE:
        if algo not in FIGURE_METHODS:
            raise UserError(f"preset {preset} needs the algorithm {' or '.join(FIGURE_METHODS)}, got {algo}")
        config = override(config, {"preferences": (FIGURE[preset][1],)})
    return config


def check_preset(preset: str, config: RunConfig) -> None:
    """Refuse a preset of the figure on another domain than the one it shows."""
    shown = FIGURE.get(preset)
    if shown and config.domain_id != shown[0]:
        raise UserError(f"preset {preset} needs the domain {shown[0]}, got {config.domain}")
