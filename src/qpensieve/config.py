"""Configuration of a run: typed, frozen, one home for every number; checks; JSON there and back."""

import dataclasses
import difflib
import json
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Annotated, Any, Literal

import tyro

from qpensieve.algos import cnder, envelope, hybrid_sac, mosac, qpensieve, sac
from qpensieve.algos.cnder import CnDerConfig
from qpensieve.algos.envelope import EnvelopeConfig
from qpensieve.algos.hybrid_sac import HybridConfig
from qpensieve.algos.mosac import SacConfig
from qpensieve.algos.qpensieve import QPensieveConfig
from qpensieve.algos.sac import SingleSacConfig
from qpensieve.population import ppo
from qpensieve.population.pfa import PfaConfig
from qpensieve.population.pgmorl import PgmorlConfig
from qpensieve.population.stages import warmup_preferences
from qpensieve.preferences import Sampler, sac_preferences
from qpensieve.types import Algorithm, EnvSpec

PopulationConfig = PgmorlConfig | PfaConfig
AlgoConfig = (
    SacConfig | QPensieveConfig | SingleSacConfig | HybridConfig | CnDerConfig | EnvelopeConfig | PopulationConfig
)
ALGORITHMS: dict[str, tuple[type[AlgoConfig], Any]] = {
    "qpensieve": (QPensieveConfig, qpensieve.make),
    "mosac": (SacConfig, mosac.make),
    "sac": (SingleSacConfig, sac.make),
    "hybrid-sac": (HybridConfig, hybrid_sac.make),
    "cnder": (CnDerConfig, cnder.make),
    "envelope": (EnvelopeConfig, envelope.make),
    "pgmorl": (PgmorlConfig, None),
    "pfa": (PfaConfig, None),
}
"""Name -> its config and its `make(config, spec) -> Algorithm`; None: a population (`train/population.py`)."""

AlgoName = Literal["qpensieve", "mosac", "sac", "hybrid-sac", "cnder", "envelope", "pgmorl", "pfa"]
POPULATIONS: tuple[AlgoName, ...] = ("pgmorl", "pfa")
"""Algorithms that train a population of PPO policies and keep an archive."""

SEED_LIMIT = 2**31
"""Seeds are int32 on the device."""
MOST_OBJECTIVES = 5
"""That PGMORL searches with."""


@dataclass(frozen=True)
class RunConfig:
    """One training run: a domain, an algorithm, several seeds trained side by side."""

    domain: Annotated[str, tyro.conf.Positional, tyro.conf.arg(metavar="DOMAIN")]
    """A domain (`qpensieve domains`), a Gymnasium id, or module:factory."""
    algo: AlgoName = "qpensieve"
    """Algorithm."""
    seeds: int = 5
    """How many seeds train side by side; each behaves as if it were alone."""
    first_seed: int = 0
    """Number of the first seed; the others follow."""
    steps: int = 1_500_000
    """Environment steps of each seed; off-policy methods: one gradient step each after the random ones."""
    random_steps: int = 10_000
    """Off-policy methods: steps with uniformly random actions before learning starts."""
    block: int = 50
    """Off-policy methods: steps collected before the learner is called for as many updates; acting lags by at most two
    blocks."""
    replay_capacity: int = 1_000_000
    """Off-policy methods: transitions kept per seed."""
    eval_period: int = 50_000
    """Steps between short evaluations."""
    full_eval_period: int | None = None
    """Steps between full evaluations (whole test table, 10 episodes); None: one at the end."""
    log_period: int = 1_000
    """Steps between rows of training metrics."""
    checkpoint_seconds: float = 60.0
    """A checkpoint is written at every evaluation and at least this often."""
    parameters_period: int = 100_000
    """Steps between copies of the parameters that are kept for good."""
    keep_replay: Literal["on", "off"] = "on"
    """Off-policy methods: save the replay with checkpoints. Off, they are small, but a resumed run is no longer the
    same run."""
    num_threads: int | None = None
    """Threads of the simulator; None takes every core."""
    agent: AlgoConfig = dataclasses.field(default_factory=qpensieve.QPensieveConfig)
    """Settings of the algorithm."""

    @property
    def seed_list(self) -> list[int]:
        return list(range(self.first_seed, self.first_seed + self.seeds))

    @property
    def core(self) -> "Core":
        """What every algorithm has, wherever its config keeps it."""
        part = self.agent.sac if isinstance(self.agent, QPensieveConfig | HybridConfig) else self.agent
        assert not isinstance(part, PopulationConfig)
        # Agents without a preference input draw no preferences: any sampler will do for them.
        return Core(part.batch_size, part.discount, getattr(part, "sampler", "uniform-sum"))

    @property
    def capacity(self) -> int:
        """Rows the replay needs: no more than will be written, and whole blocks."""
        rows = min(self.replay_capacity, self.steps)
        return max(self.block, rows - rows % self.block)


@dataclass(frozen=True)
class Core:
    """Settings that a training loop reads, whatever the algorithm."""

    batch_size: int
    discount: float
    sampler: Sampler


def make_algorithm(config: RunConfig, spec: EnvSpec) -> Algorithm[Any]:
    """The algorithm of a run, for an environment; ValueError where they do not go together."""
    algorithm = ALGORITHMS[config.algo][1](config.agent, spec)
    if not algorithm.acting.is_discrete:
        _check_continuous(config, spec)
    return algorithm


def _check_continuous(config: RunConfig, spec: EnvSpec) -> None:
    if spec.num_actions is not None:
        raise ValueError(
            f"{spec.id} has discrete actions ({spec.num_actions} of them), {config.algo} needs continuous ones: "
            "use --algo envelope, or another domain"
        )


def iteration_steps(agent: PopulationConfig, num_tasks: int) -> int:
    """Steps of the budget that one iteration of a population takes."""
    per_task = agent.ppo.num_lanes * agent.ppo.rollout_steps
    return per_task * (num_tasks if agent.stages.total == "shared" else 1)


def check_population(config: RunConfig, spec: EnvSpec) -> None:
    """ValueError where a population's settings and an environment do not go together."""
    agent, d = config.agent, spec.num_objectives
    assert isinstance(agent, PopulationConfig)
    _check_continuous(config, spec)
    if isinstance(agent, PfaConfig) and d != 2:
        raise ValueError(f"pfa follows the front of two objectives, {spec.id} has {d}: use --algo pgmorl")
    if not 2 <= d <= MOST_OBJECTIVES:
        raise ValueError(f"pgmorl searches with two to {MOST_OBJECTIVES} objectives, {spec.id} has {d}")
    num_tasks = len(warmup_preferences(agent.stages, d))
    needed = iteration_steps(agent, num_tasks)
    if config.steps < needed:
        raise ValueError(
            f"steps is {config.steps}, but one iteration of {num_tasks} tasks x {agent.ppo.num_lanes} lanes x "
            f"{agent.ppo.rollout_steps} steps takes {needed}: raise steps, or lower rollout_steps"
        )


def lanes_per_seed(config: RunConfig) -> int:
    """Environments that each seed steps: one, unless preferences have agents of their own."""
    agent = config.agent
    if isinstance(agent, SingleSacConfig):
        return len(agent.preferences) or len(sac_preferences())
    return 2 * len(hybrid_cases(config)) if isinstance(agent, HybridConfig) else 1


def hybrid_cases(config: RunConfig) -> tuple[str, ...]:
    """Preferences of a hybrid SAC: those given, or those of the paper's figure."""
    assert isinstance(config.agent, HybridConfig)
    return config.agent.preferences or hybrid_sac.CASES.get(domain_name(config.domain), ())


def resolve(config: RunConfig) -> RunConfig:
    """The config with what depends on the length of the run filled in."""
    if isinstance(config.agent, EnvelopeConfig) and config.agent.anneal_steps is None:
        return replace(config, agent=replace(config.agent, anneal_steps=config.steps))
    return config


def check(config: RunConfig) -> None:
    """Refuse settings that contradict each other, saying which and what would be right."""
    problems = [*_positive(config), *_ranges(config), *_hybrid(config)]
    problems += _population(config) if config.algo in POPULATIONS else _multiples(config)
    if not isinstance(config.agent, ALGORITHMS[config.algo][0]):
        problems.append(f"agent settings are {type(config.agent).__module__}'s, but algo is {config.algo}")
    if problems:
        raise ValueError("these settings cannot run:\n  " + "\n  ".join(problems))


def _ranges(config: RunConfig) -> list[str]:
    values = settings(config.agent)
    rules = [
        (config.random_steps >= 1, f"random_steps is {config.random_steps}; at least one block, learning needs data"),
        (
            0 <= config.first_seed <= SEED_LIMIT - config.seeds,
            f"first_seed is {config.first_seed}; seeds are from 0 to {SEED_LIMIT - 1}",
        ),
        *[
            (_is_within(rule, values[name]), f"{name} is {values[name]}; {rule}")
            for name, rule in RULES
            if values.get(name) is not None
        ],
    ]
    return [message for is_right, message in rules if not is_right]


RULES = (
    ("discount", "between 0 and 1"),
    ("tau", "above 0 and at most 1"),
    ("learning_rate", "above 0"),
    ("num_preferences", "at least 1 (lam itself)"),
    ("num_snapshots", "0 or more"),
    ("push_after", "0 or more"),
    ("switch_after", "0 or more"),
    ("noise_scale", "0 or more"),
    ("priority_offset", "above 0"),
    ("priority_exponent", "0 or more"),
    ("target_period", "at least 1"),
    ("gradient_clip", "above 0"),
    ("epsilon_start", "from 0 to 1"),
    ("epsilon_end", "from 0 to 1"),
    ("homotopy_start", "from 0 to 1"),
    ("generation_iterations", "at least 1"),
    ("fitness_episodes", "at least 1"),
    ("divisions", "at least 1"),
    ("num_buffers", "at least 1"),
    ("buffer_size", "at least 1"),
    ("num_candidates", "at least 2"),
    ("gae_lambda", "from 0 to 1"),
    ("epochs", "at least 1"),
    ("clip", "above 0"),
    ("value_coefficient", "0 or more"),
    ("max_gradient_norm", "above 0"),
    ("adam_epsilon", "above 0"),
)
"""Setting of an algorithm -> what is right for it."""


def _is_within(rule: str, value: float | int) -> bool:
    return {
        "between 0 and 1": 0.0 < value < 1.0,
        "above 0 and at most 1": 0.0 < value <= 1.0,
        "from 0 to 1": 0.0 <= value <= 1.0,
        "above 0": value > 0.0,
        "0 or more": value >= 0.0,
        "at least 1": value >= 1,
        "at least 2": value >= 2,
        "at least 1 (lam itself)": value >= 1,
    }[rule]


def _positive(config: RunConfig) -> list[str]:
    fields = ["seeds", "steps", "block", "replay_capacity", "eval_period", "log_period", "parameters_period"]
    values = {name: getattr(config, name) for name in fields}
    known = settings(config.agent)
    values |= {name: known[name] for name in ("batch_size", "hidden") if name in known}
    return [f"{name} is {value}; at least 1" for name, value in values.items() if value < 1]


def _multiples(config: RunConfig) -> list[str]:
    names = ["steps", "random_steps", "eval_period", "full_eval_period", "log_period", "parameters_period"]
    values = {name: getattr(config, name) or 0 for name in names}
    values |= {name: value for name, value in settings(config.agent).items() if name == "push_period"}
    block = max(config.block, 1)
    return [
        f"{name} is {value}, not a multiple of block ({block}); the nearest is {max(1, round(value / block)) * block}"
        for name, value in values.items()
        if value % block
    ]


def _population(config: RunConfig) -> list[str]:
    agent, fresh = config.agent, RunConfig(config.domain)
    if not isinstance(agent, PopulationConfig):
        return []
    unused = ("random_steps", "block", "replay_capacity", "keep_replay")
    problems = [
        f"{name} is {getattr(config, name)}, but {config.algo} has no replay: leave it out"
        for name in unused
        if getattr(config, name) != getattr(fresh, name)
    ]
    warmup, generation = agent.stages.warmup_iterations, agent.stages.generation_iterations
    if generation >= 1 and (warmup < 1 or warmup % generation):
        nearest = max(1, round(warmup / generation)) * generation
        problems.append(
            f"warmup_iterations is {warmup}, not a multiple of generation_iterations ({generation}), so the warm-up's "
            f"last policies would not enter the graph; the nearest is {nearest}"
        )
    if isinstance(agent, PgmorlConfig) and agent.sparsity_weight < 0:
        problems.append(
            f"sparsity_weight is {agent.sparsity_weight:g}, which would reward gaps in the front; the paper's table "
            f"prints it negative for a criterion that adds it, here it is {-agent.sparsity_weight:g}"
        )
    try:
        ppo.check_sizes(agent.ppo)
    except ValueError as error:
        problems.append(str(error))
    return problems


def _hybrid(config: RunConfig) -> list[str]:
    if not isinstance(config.agent, HybridConfig) or hybrid_cases(config):
        return []
    shown = " and ".join(hybrid_sac.CASES)
    return [f"preferences are missing: hybrid-sac has the figure's for {shown} only; for {config.domain} give some"]


def domain_name(domain: str) -> str:
    """`Hopper2d` of `qpensieve/Hopper2d-v0`."""
    return domain.removeprefix("qpensieve/").removesuffix("-v0")


def override(config: RunConfig, changes: dict[str, Any]) -> RunConfig:
    """The config with settings changed by field name, wherever the field lives: run, algorithm or its SAC part."""
    for name, value in changes.items():
        config = _override(config, name, value)
    return config


def _override(config: RunConfig, name: str, value: Any) -> RunConfig:
    if name in _names(config):
        return replace(config, **{name: value})
    agent = _replaced(config.agent, name, value)
    if agent is not None:
        return replace(config, agent=agent)
    known = _names(config) | settings(config.agent).keys()
    near = ", ".join(difflib.get_close_matches(name, known, n=3, cutoff=0.4)) or ", ".join(sorted(known))
    raise ValueError(f"unknown setting {name!r}; near it: {near}")


def _replaced(part: Any, name: str, value: Any) -> Any:
    """The part with a field changed, its own or of a part of it; None where there is no such field."""
    if name in _names(part):
        return replace(part, **{name: value})
    for inner in _parts(part):
        changed = _replaced(getattr(part, inner), name, value)
        if changed is not None:
            return replace(part, **{inner: changed})
    return None


def settings(part: Any) -> dict[str, Any]:
    """Every setting of an algorithm by name, those of its parts included."""
    values = {name: getattr(part, name) for name in _names(part)}
    for inner in _parts(part):
        values |= settings(values.pop(inner))
    return values


def _parts(part: Any) -> list[str]:
    """Names of the fields that hold settings of their own."""
    return [name for name in sorted(_names(part)) if dataclasses.is_dataclass(getattr(part, name))]


def _names(config: Any) -> set[str]:
    return {field.name for field in dataclasses.fields(config)}


def to_dict(config: RunConfig) -> dict[str, Any]:
    return dataclasses.asdict(config)


def from_dict(values: dict[str, Any]) -> RunConfig:
    """The config that `to_dict` gave; unknown or missing fields are named."""
    values = dict(values)
    missing = [name for name in ("domain", "algo", "agent") if name not in values]
    if missing:
        raise ValueError(f"field {missing[0]} is missing in the configuration")
    if values["algo"] not in ALGORITHMS:
        raise ValueError(f"unknown algorithm {values['algo']!r} in the configuration; known: {', '.join(ALGORITHMS)}")
    make_config = ALGORITHMS[values["algo"]][0]
    agent = _build(make_config, dict(values.pop("agent")), "agent.")
    return _build(RunConfig, values | {"agent": agent}, "")


def save(config: RunConfig, path: Path) -> None:
    path.write_text(json.dumps(to_dict(config), indent=2) + "\n")


def load(path: Path) -> RunConfig:
    """The config that `save` wrote; ValueError names the file where it is none."""
    try:
        return from_dict(json.loads(path.read_text()))
    except ValueError as error:
        raise ValueError(f"cannot read {path}: {error}") from error


def _build(cls: Any, values: dict[str, Any], prefix: str) -> Any:
    known = {field.name: field for field in dataclasses.fields(cls)}
    unknown = sorted(set(values) - known.keys())
    if unknown:
        raise ValueError(f"unknown field {prefix}{unknown[0]} in the configuration; known: {', '.join(sorted(known))}")
    built = dict(values)
    for name, value in values.items():
        factory = known[name].default_factory
        if isinstance(value, dict) and factory is not dataclasses.MISSING:
            built[name] = _build(factory, value, f"{prefix}{name}.")
        elif isinstance(value, list):  # JSON knows no tuples
            built[name] = tuple(value)
    return cls(**built)
