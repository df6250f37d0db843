"""Presets: the paper's settings, small ones for two cores, and guarded ones for new problems."""

from dataclasses import replace
from typing import Literal, get_args

from qpensieve.config import RunConfig, override, unscheduled
from qpensieve.envs import find_domain
from qpensieve.errors import UserError
from qpensieve.methods import METHODS, get_method

PresetName = Literal["paper", "quick", "robust"]
PRESETS: tuple[PresetName, ...] = get_args(PresetName)
QUICK_RUN: dict[str, object] = {
    "seeds": 1,
    "steps": 35_000,
    "random_steps": 2_000,
    "eval_period": 5_000,
    "parameters_period": 10_000,
}
"""What `quick` changes in a run with a replay; each method adds its own (`Method.quick`)."""

EVAL_STRIDES = {5: 25}
"""Number of objectives -> `eval_stride`, where short evaluations of every fifth row would cost more than training."""


def default_config(domain: str, algo: str = "qpensieve", preset: str = "paper") -> RunConfig:
    """The settings of a preset: the paper's, `robust`, or `quick` (for two cores)."""
    if preset not in PRESETS:
        raise UserError(f"unknown preset {preset!r}: use {', '.join(PRESETS)}")
    method, known = get_method(algo), find_domain(domain)
    config = replace(RunConfig(domain, algo, agent=method.config()), **method.defaults)
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
    return config
