"""How large an experiment is made: as in the paper, a tenth of it, or just large enough to see that all of it works."""

from dataclasses import dataclass, replace
from typing import Any, Literal, get_args

from qpensieve import settings
from qpensieve.config import RunConfig, override, spec_of
from qpensieve.errors import UserError
from qpensieve.population.plan import iteration_steps
from qpensieve.population.stages import warmup_preferences

ScaleName = Literal["paper", "short", "smoke"]
SCALES: tuple[ScaleName, ...] = get_args(ScaleName)
COUNTS = ("random_steps", "push_after", "push_period", "switch_after", "replay_capacity")
"""Settings that count steps or updates; a shorter run divides them."""
SMALL_POPULATION: dict[str, Any] = {"minibatches": 4, "warmup_iterations": 8, "generation_iterations": 4}
SMOKE: dict[str, Any] = {
    "hidden": 16,
    "batch_size": 16,
    "width_factors": (1,),
    "bins": 3,
    "num_candidates": 3,
    "num_buffers": 10,
    "rollout_steps": 4,
    "epochs": 1,
    "warmup_iterations": 2,
    "generation_iterations": 1,
    "minibatches": 2,
    "fitness_episodes": 1,
    "eval_stride": 50,
    "full_eval_stride": 25,
    "eval_episodes": 1,
    "full_eval_episodes": 1,
    "max_eval_steps": 20,
}
"""Tiny networks and thin evaluations; the names that a run has."""
SMOKE_ITERATIONS = 3
"""Iterations of a population's shorter run; the longer one has twice as many."""


@dataclass(frozen=True)
class Scale:
    """A size of the whole plan.

    Attributes:
        seeds: Seeds of each run, where the artefact does not say.
        divisor: What numbers of steps are divided by.
        steps: Steps of runs with a replay.
    """

    seeds: int
    divisor: int
    steps: int


_TABLE: dict[ScaleName, Scale] = {
    "paper": Scale(5, 1, 1_500_000),
    "short": Scale(3, 10, 150_000),
    "smoke": Scale(2, 100, 400),
}


def scale_of(name: ScaleName) -> Scale:
    """The size of a name.

    Raises:
        ValueError: There is no such name; lists those there are.
    """
    if name not in _TABLE:
        raise UserError(f"unknown scale {name!r}: use {', '.join(SCALES)}")
    return _TABLE[name]


def scaled(config: RunConfig, name: ScaleName, steps: int | None = None) -> RunConfig:
    """A run of the paper's size, made as large as a scale says.

    Args:
        config: The run as in the paper.
        name: The scale.
        steps: Steps to take in the place of 1 500 000; runs of other lengths keep their ratio to that.
    """
    scale, full = scale_of(name), _TABLE["paper"].steps
    if name == "paper":
        return config if steps is None else replace(config, steps=_whole(config, steps * config.steps / full))
    goal = scale.steps if steps is None else steps
    if config.method.is_population:
        return _population(config, name, goal * config.steps / full, is_given=steps is not None)
    periods = {"eval_period": 10_000, "parameters_period": 10_000}
    if name == "smoke":
        periods = {"eval_period": 100, "parameters_period": 100, "log_period": 50}
    shared = {key: _whole(config, value) for key, value in periods.items()} | {"steps": _whole(config, goal)}
    counts = {key: _whole(config, value / scale.divisor) for key, value in _present(config, COUNTS).items()}
    if name == "smoke":
        counts |= dict.fromkeys(("random_steps", "push_after", "switch_after"), 100) | {"replay_capacity": 1_000}
        if "push_period" in counts:
            counts["push_period"] = _whole(config, settings.flat(config)["push_period"] / 10)
    return _change(config, shared | counts | (SMOKE if name == "smoke" else {}))


def _population(config: RunConfig, name: ScaleName, goal: int | float, is_given: bool) -> RunConfig:
    if name == "short":
        config = _change(config, SMALL_POPULATION | {"rollout_steps": 64, "eval_period": 20_000})
        return _change(config, {"steps": round(goal), "parameters_period": 50_000})
    config = _change(config, SMOKE)
    num_tasks = len(warmup_preferences(config.agent.stages, spec_of(config).num_objectives))
    one = iteration_steps(config.agent, num_tasks)
    is_long = config.steps > _TABLE["paper"].steps
    steps = round(goal) if is_given else one * SMOKE_ITERATIONS * (2 if is_long else 1)
    return _change(config, {"steps": max(steps, one), "eval_period": 2 * one, "parameters_period": 4 * one})


def _present(config: RunConfig, names: tuple[str, ...]) -> dict[str, Any]:
    """Return the settings that the run has and that do not follow its length, with their values."""
    values = settings.flat(config)
    return {name: values[name] for name in names if values.get(name) is not None}


def _change(config: RunConfig, changes: dict[str, Any]) -> RunConfig:
    """The run with those changes that it has settings for."""
    known = settings.flat(config)
    return override(config, {name: value for name, value in changes.items() if name in known})


def _whole(config: RunConfig, steps: int | float) -> int:
    """The nearest number of whole blocks, at least one; of a population just the nearest number."""
    if config.method.is_population:
        return max(1, round(steps))
    return max(1, round(steps / config.block)) * config.block
