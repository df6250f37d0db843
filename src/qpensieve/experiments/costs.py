"""What a plan costs: a model of one run, fitted to measured ones, and the time of many runs on several cards.

A run steps and learns side by side, so a step takes the longer of both: the update of all its agents on the card, or
the physics of their lanes on the host's cores. Evaluations come on top. Several runs share a card; together they are
faster than one after the other by a measured factor, as long as the cores keep up. docs/scale.md shows how well it
fits.
"""

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from qpensieve import machine as machines
from qpensieve.config import RunConfig, spec_of
from qpensieve.envs import find_domain
from qpensieve.preferences import test_table

POPULATIONS = ("pgmorl", "pfa")
UNKNOWN_STEP_US = 250.0
"""Microseconds of a step on domains that were not measured."""
UNKNOWN_LENGTH = 1000
"""Steps of an episode where the environment names no limit."""
NUM_AGENTS = {"sac": 19, "hybrid-sac": 2}
"""Agents of a seed, where there are several and the configuration names no preferences."""


@dataclass(frozen=True)
class Machine:
    """What was measured of a kind of machine.

    Attributes:
        card: Its card.
        cores: Cores for each card.
        start: Seconds until a run learns.
        update_us: Method -> microseconds of an update: of any number of agents, and more for each of them.
        step_us: Domain -> microseconds of one core for a step of one lane, acting included.
        rollout_us: Method with a population -> microseconds of one core for learning from a step.
        at_once: Runs that share a card.
        gain: How many times as fast these are together as one of them alone.
    """

    card: str
    cores: int
    start: float
    update_us: dict[str, tuple[float, float]]
    step_us: dict[str, float]
    rollout_us: float
    at_once: int
    gain: float


H200 = Machine(
    "H200",
    cores=16,
    start=45.0,
    update_us={
        "qpensieve": (102.0, 20.0),
        "mosac": (97.0, 12.0),
        "sac": (102.0, 13.0),
        "hybrid-sac": (338.0, 80.0),
        "cnder": (215.0, 8.8),
        "envelope": (187.0, 162.0),
    },
    step_us={
        **{"DST2d": 30.0, "HalfCheetah2d": 90.0, "Walker2d": 280.0},
        **dict.fromkeys(("Hopper2d", "Hopper3d", "Hopper5d"), 239.0),
        **dict.fromkeys(("Ant2d", "Ant3d"), 391.0),
        **dict.fromkeys(("LunarLander4d", "LunarLander5d"), 105.0),
    },
    rollout_us=60.0,
    at_once=4,
    gain=2.3,
)
"""Updates: benchmarks `update` and `methods` in results/h200; steps: `blocks` there (Hopper2d, Ant2d,
HalfCheetah2d), the other domains by their ratio to Hopper2d in results/cpu/lanes.json; gain: four domains at once
against one (results/h200/speed.json). Populations were not timed there: theirs is the CPU's."""


def this_machine() -> Machine | None:
    """What was measured of a machine like this one; None if no such machine was measured."""
    return H200 if machines.gpus() and any(H200.card in name for name in machines.gpu_names()) else None


@dataclass(frozen=True)
class Cost:
    """What a plan takes.

    Attributes:
        num_runs: Number of runs.
        run_seconds: Sum over runs of the time each would take alone on a card.
        longest: Time of the longest run, alone on its card.
    """

    num_runs: int
    run_seconds: float
    longest: float


def run_seconds(config: RunConfig, machine: Machine = H200) -> float:
    """Seconds of a run that has a card and its cores for itself."""
    seeds, step = config.seeds, machine.step_us.get(config.domain_id, UNKNOWN_STEP_US)
    if config.algo in POPULATIONS:
        per_step = seeds * (step / machine.cores + machine.rollout_us / machine.cores)
    else:
        agents = seeds * _agents(config)
        fixed, each = machine.update_us[config.algo]
        lanes = math.ceil(agents / (machine.cores - 1))
        per_step = max((fixed + each * agents) * config.updates_per_step, lanes * step * 1.6)
    return machine.start + (config.steps * per_step + _evaluation_us(config, machine)) / 1e6


def cost_of(configs: Iterable[RunConfig], machine: Machine = H200) -> Cost:
    """What some runs take together."""
    each = [run_seconds(config, machine) for config in configs]
    return Cost(len(each), sum(each, 0.0), max(each, default=0.0))


def wall_seconds(cost: Cost, num_cards: int, machine: Machine = H200) -> float:
    """Time of a plan on some cards: the work shared evenly, but no less than the longest run with its neighbours."""
    if not cost.num_runs:
        return 0.0
    on_card = min(float(machine.at_once), max(1.0, cost.num_runs / num_cards))
    gain = 1 + (machine.gain - 1) * (on_card - 1) / (machine.at_once - 1)
    return max(cost.run_seconds / (gain * min(num_cards, cost.num_runs)), cost.longest * on_card / gain)


def _agents(config: RunConfig) -> int:
    """Agents of one seed."""
    own: Sequence[str] = getattr(config.agent, "preferences", ())
    return len(own) or NUM_AGENTS.get(config.algo, 1)


def _evaluation_us(config: RunConfig, machine: Machine) -> float:
    """Microseconds of all evaluations of a run; episodes share the cores."""
    spec = spec_of(config)
    rows = _agents(config) if config.algo in NUM_AGENTS else len(test_table(spec.num_objectives))
    short = math.ceil(rows / config.eval_stride) * config.eval_episodes * (config.steps // config.eval_period)
    full = math.ceil(rows / config.full_eval_stride) * config.full_eval_episodes
    times = 1 if config.full_eval_period is None else max(1, config.steps // config.full_eval_period)
    known = find_domain(config.domain)
    length = min((known.max_steps if known else None) or UNKNOWN_LENGTH, config.max_eval_steps)
    step = machine.step_us.get(config.domain_id, UNKNOWN_STEP_US)
    return (short + full * times) * config.seeds * length * step / (machine.cores * 0.6)
