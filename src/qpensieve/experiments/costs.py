"""The time of a plan: a model of one run, fitted to measured runs, and of many runs on several cards.

A run steps and learns at the same time, so a step takes the longer of two times: the update of all its agents on the
card, or the physics of their lanes on the host's cores. Evaluations are added. Several runs that share a card are
faster than one after the other, by a measured factor, as long as the cores keep up. docs/scale.md compares the model
with measurements.
"""

import math
from collections.abc import Iterable, Sequence

from qpensieve import machine
from qpensieve.config import RunConfig, spec_of
from qpensieve.envs import find_domain
from qpensieve.envs.base import SHORT_EPISODES
from qpensieve.preferences import test_table

UNKNOWN_STEP_US = 250.0
"""Microseconds of a step on domains that were not measured."""
UNKNOWN_LENGTH = 1000
"""Steps of an episode if the environment has no limit."""
NUM_AGENTS = {"sac": 19, "hybrid-sac": 2}
"""Method -> agents of a seed, if there are several and the configuration names no preferences."""


CARD = "H200"
"""The card that was measured."""
CORES = 16
"""Cores for each card."""
START_SECONDS = 45.0
"""Seconds until a run learns."""
UPDATE_US = {
    "qpensieve": (98.0, 38.0),
    "mosac": (133.0, 14.0),
    "sac": (102.0, 13.0),
    "hybrid-sac": (338.0, 80.0),
    "cnder": (215.0, 8.8),
    "envelope": (187.0, 162.0),
}
"""Method -> microseconds of an update: a fixed part, and a part for each agent. From the benchmarks `update` and
`methods` in results/h200."""
STEP_US = {
    **{"DST2d": 30.0, "HalfCheetah2d": 90.0, "Walker2d": 280.0},
    **dict.fromkeys(("Hopper2d", "Hopper3d", "Hopper5d"), 239.0),
    **dict.fromkeys(("Ant2d", "Ant3d"), 391.0),
    **dict.fromkeys(("LunarLander4d", "LunarLander5d"), 105.0),
}
"""Domain -> microseconds of one core for a step of one lane, acting included. Hopper2d, Ant2d and HalfCheetah2d from
`blocks` in results/h200; the others by their ratio to Hopper2d in results/cpu/lanes.json."""
ROLLOUT_US = 60.0
"""Microseconds of one core for learning from a step in a population; measured on a CPU."""
AT_ONCE, GAIN = 4, 2.3
"""Runs that share a card, and how many times faster they are together than one after the other
(results/h200/speed.json)."""


def is_measured_here() -> bool:
    """Return whether this machine has a card like the measured one."""
    return bool(machine.gpus()) and any(CARD in name for name in machine.gpu_names())


def run_seconds(config: RunConfig) -> float:
    """Estimate the seconds of a run that has a card and its cores for itself."""
    seeds, step = config.seeds, STEP_US.get(config.domain_id, UNKNOWN_STEP_US)
    if config.method.is_population:
        per_step = seeds * (step + ROLLOUT_US) / CORES
    else:
        agents = seeds * _agents(config)
        fixed, each = UPDATE_US.get(config.algo, UPDATE_US["qpensieve"])
        lanes = math.ceil(agents / (CORES - 1))
        per_step = max((fixed + each * agents) * config.updates_per_step, lanes * step * 1.6)
    return START_SECONDS + (config.steps * per_step + _evaluation_us(config)) / 1e6


def wall_seconds(configs: Iterable[RunConfig], num_cards: int) -> float:
    """Estimate the seconds of a plan: its work spread over the cards, but at least its longest run on a shared card."""
    each = [run_seconds(config) for config in configs]
    if not each:
        return 0.0
    on_card = min(float(AT_ONCE), max(1.0, len(each) / num_cards))
    gain = 1 + (GAIN - 1) * (on_card - 1) / (AT_ONCE - 1)
    return max(sum(each) / (gain * min(num_cards, len(each))), max(each) * on_card / gain)


def _agents(config: RunConfig) -> int:
    """Return the number of agents of one seed."""
    own: Sequence[str] = getattr(config.agent, "preferences", ())
    return len(own) or NUM_AGENTS.get(config.algo, 1)


def _evaluation_us(config: RunConfig) -> float:
    """Estimate the microseconds of all evaluations of a run, whose episodes share the cores."""
    spec = spec_of(config)
    rows = _agents(config) if config.algo in NUM_AGENTS else len(test_table(spec.num_objectives))
    short = math.ceil(rows / config.eval_stride) * SHORT_EPISODES * (config.steps // config.eval_period)
    full = math.ceil(rows / config.full_eval_stride) * config.full_eval_episodes
    times = 1 if config.full_eval_period is None else max(1, config.steps // config.full_eval_period)
    known = find_domain(config.domain)
    length = min((known.max_steps if known else None) or UNKNOWN_LENGTH, config.max_eval_steps)
    step = STEP_US.get(config.domain_id, UNKNOWN_STEP_US)
    return (short + full * times) * config.seeds * length * step / (CORES * 0.6)
