"""What the run of a population needs before it starts: the paper's settings per domain, and the steps it takes."""

from collections.abc import Mapping
from typing import NamedTuple

from qpensieve.errors import UserError
from qpensieve.population.pgmorl import PfaConfig, PopulationConfig, num_tasks
from qpensieve.types import EnvSpec

MOST_OBJECTIVES = 5
"""PGMORL supports at most this many objectives."""


class PaperRow(NamedTuple):
    """A row of the Q-Pensieve paper's table for PGMORL and PFA; the last column is ours."""

    steps: int
    warmup_iterations: int
    generation_iterations: int
    num_buffers: int
    sparsity_weight: float
    """Positive, because it is subtracted; the paper prints it negative (D26)."""
    fitness_episodes: int = 4
    """One is enough if the environment is deterministic."""


PAPER: dict[str, PaperRow] = {
    "DST2d": PaperRow(1_500_000, 80, 20, 100, 1.0, fitness_episodes=1),
    "LunarLander4d": PaperRow(7_500_000, 40, 10, 400, 1e6),
    "LunarLander5d": PaperRow(7_500_000, 40, 10, 400, 1e6),
    "HalfCheetah2d": PaperRow(15_000_000, 80, 20, 100, 1.0),
    "Hopper2d": PaperRow(4_500_000, 200, 40, 100, 1.0),
    "Hopper3d": PaperRow(15_000_000, 200, 40, 200, 1e6),
    "Ant3d": PaperRow(15_000_000, 200, 40, 200, 1e6),
    "Hopper5d": PaperRow(7_500_000, 200, 40, 400, 1e6),
    "Ant2d": PaperRow(15_000_000, 200, 40, 100, 1.0),
    "Walker2d": PaperRow(4_500_000, 80, 20, 100, 1.0),
}
"""By domain id."""
UNLISTED = PAPER["Hopper2d"]
"""Settings of domains that are not in the table."""
EVAL_PERIOD = 200_000
"""Steps between short evaluations; large, because runs of populations are long."""


def pgmorl_paper_settings(domain_id: str) -> Mapping[str, object]:
    """The paper's settings of PGMORL for a domain."""
    return PAPER.get(domain_id, UNLISTED)._asdict() | {"eval_period": EVAL_PERIOD}


def pfa_paper_settings(domain_id: str) -> Mapping[str, object]:
    """The same without the columns that only PGMORL has."""
    changes = pgmorl_paper_settings(domain_id)
    return {name: value for name, value in changes.items() if name not in ("num_buffers", "sparsity_weight")}


def iteration_steps(agent: PopulationConfig, num_tasks: int) -> int:
    """Steps of the budget that one iteration takes."""
    per_task = agent.ppo.num_lanes * agent.ppo.rollout_steps
    return per_task * (num_tasks if agent.stages.total == "shared" else 1)


def check_environment(agent: PopulationConfig, steps: int, spec: EnvSpec) -> None:
    """Refuse an environment that the search cannot handle, or a budget below one iteration.

    Raises:
        ValueError: Says which of the two, and what would work.
    """
    d = spec.num_objectives
    if isinstance(agent, PfaConfig) and d != 2:
        raise UserError(f"pfa needs two objectives, but {spec.id} has {d}: use --algo pgmorl")
    if not 2 <= d <= MOST_OBJECTIVES:
        raise UserError(
            f"pgmorl needs two to {MOST_OBJECTIVES} objectives, but {spec.id} has {d}: use another domain or algorithm"
        )
    tasks = num_tasks(agent.stages, d)
    needed = iteration_steps(agent, tasks)
    if steps < needed:
        raise UserError(
            f"steps must be at least {needed}, got {steps}: one iteration is {tasks} tasks x "
            f"{agent.ppo.num_lanes} lanes x {agent.ppo.rollout_steps} steps; raise steps, or lower rollout_steps"
        )
