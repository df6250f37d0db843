"""Configuration of a run: typed, frozen, one home for every number; presets per domain; JSON there and back."""

import dataclasses
import difflib
import json
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Annotated, Any, Literal

import tyro

from qpensieve.algos import mosac, qpensieve

AlgoConfig = mosac.SacConfig | qpensieve.QPensieveConfig
ALGORITHMS: dict[str, tuple[type[AlgoConfig], Any]] = {
    "qpensieve": (qpensieve.QPensieveConfig, qpensieve.make),
    "mosac": (mosac.SacConfig, mosac.make),
}
"""Name -> its config and its `make(config, spec) -> Algorithm`."""

AlgoName = Literal["qpensieve", "mosac"]

SEED_LIMIT = 2**31
"""Seeds are int32 on the device."""


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
    """Environment steps of each seed; one gradient step each after the random ones."""
    random_steps: int = 10_000
    """Steps with uniformly random actions before learning starts."""
    block: int = 50
    """Steps collected before the learner is called for as many updates; acting lags by at most two blocks."""
    replay_capacity: int = 1_000_000
    """Transitions kept per seed."""
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
    """Save the replay with checkpoints. Off, they are small, but a resumed run is no longer the same run."""
    num_threads: int | None = None
    """Threads of the simulator; None takes every core."""
    agent: AlgoConfig = dataclasses.field(default_factory=qpensieve.QPensieveConfig)
    """Settings of the algorithm."""

    @property
    def seed_list(self) -> list[int]:
        return list(range(self.first_seed, self.first_seed + self.seeds))

    @property
    def sac(self) -> mosac.SacConfig:
        return self.agent.sac if isinstance(self.agent, qpensieve.QPensieveConfig) else self.agent

    @property
    def capacity(self) -> int:
        """Rows the replay needs: no more than will be written, and whole blocks."""
        rows = min(self.replay_capacity, self.steps)
        return max(self.block, rows - rows % self.block)


def default_config(domain: str, algo: AlgoName = "qpensieve", preset: str = "paper") -> RunConfig:
    """The settings of a preset: `paper` (the paper's), or `quick` (small enough for two cores)."""
    make_config = ALGORITHMS[algo][0]
    config = RunConfig(domain, algo, agent=make_config())
    if preset == "paper":
        return config
    if preset != "quick":
        raise ValueError(f"unknown preset {preset!r}: use paper or quick")
    sac = replace(config.sac, **QUICK_SAC)
    agent = (
        replace(config.agent, sac=sac, **QUICK_PENSIEVE) if isinstance(config.agent, qpensieve.QPensieveConfig) else sac
    )
    return replace(config, agent=agent, **QUICK_RUN)


QUICK_RUN: dict[str, Any] = {
    "seeds": 3,
    "steps": 35_000,
    "random_steps": 2_000,
    "eval_period": 5_000,
    "parameters_period": 10_000,
}
QUICK_SAC: dict[str, Any] = {"hidden": 64, "batch_size": 128, "learning_rate": 1e-3}
QUICK_PENSIEVE: dict[str, Any] = {"push_after": 4_000, "push_period": 1_000}


def check(config: RunConfig) -> None:
    """Refuse settings that contradict each other, saying which and what would be right."""
    problems = [*_positive(config), *_multiples(config), *_ranges(config)]
    if not isinstance(config.agent, ALGORITHMS[config.algo][0]):
        problems.append(f"agent settings are {type(config.agent).__module__}'s, but algo is {config.algo}")
    if problems:
        raise ValueError("these settings cannot run:\n  " + "\n  ".join(problems))


def _ranges(config: RunConfig) -> list[str]:
    sac, agent = config.sac, config.agent
    rules = [
        (config.random_steps >= 1, f"random_steps is {config.random_steps}; at least one block, learning needs data"),
        (
            0 <= config.first_seed <= SEED_LIMIT - config.seeds,
            f"first_seed is {config.first_seed}; seeds are from 0 to {SEED_LIMIT - 1}",
        ),
        (0.0 < sac.discount < 1.0, f"discount is {sac.discount}; between 0 and 1"),
        (0.0 < sac.tau <= 1.0, f"tau is {sac.tau}; above 0 and at most 1"),
        (sac.learning_rate > 0.0, f"learning_rate is {sac.learning_rate}; above 0"),
    ]
    if isinstance(agent, qpensieve.QPensieveConfig):
        rules += [
            (agent.num_preferences >= 1, f"num_preferences is {agent.num_preferences}; at least 1 (lam itself)"),
            (agent.num_snapshots >= 0, f"num_snapshots is {agent.num_snapshots}; 0 or more"),
        ]
    return [message for is_right, message in rules if not is_right]


def _positive(config: RunConfig) -> list[str]:
    fields = ["seeds", "steps", "block", "replay_capacity", "eval_period", "log_period", "parameters_period"]
    values = {name: getattr(config, name) for name in fields}
    values |= {name: getattr(config.sac, name) for name in ("batch_size", "hidden")}
    return [f"{name} is {value}; at least 1" for name, value in values.items() if value < 1]


def _multiples(config: RunConfig) -> list[str]:
    names = ["steps", "random_steps", "eval_period", "full_eval_period", "log_period", "parameters_period"]
    values = {name: getattr(config, name) or 0 for name in names}
    if isinstance(config.agent, qpensieve.QPensieveConfig):
        values["push_period"] = config.agent.push_period
    block = max(config.block, 1)
    return [
        f"{name} is {value}, not a multiple of block ({block}); the nearest is {max(1, round(value / block)) * block}"
        for name, value in values.items()
        if value % block
    ]


def override(config: RunConfig, settings: dict[str, Any]) -> RunConfig:
    """The config with settings changed by field name, wherever the field lives: run, algorithm or its SAC part."""
    for name, value in settings.items():
        config = _override(config, name, value)
    return config


def _override(config: RunConfig, name: str, value: Any) -> RunConfig:
    if name in _names(config):
        return replace(config, **{name: value})
    if name in _names(config.agent):
        return replace(config, agent=replace(config.agent, **{name: value}))
    if isinstance(config.agent, qpensieve.QPensieveConfig) and name in _names(config.agent.sac):
        return replace(config, agent=replace(config.agent, sac=replace(config.agent.sac, **{name: value})))
    known = _names(config) | _names(config.agent) | _names(config.sac)
    near = ", ".join(difflib.get_close_matches(name, known, n=3, cutoff=0.4)) or ", ".join(sorted(known))
    raise ValueError(f"unknown setting {name!r}; near it: {near}")


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
    agent = dict(values.pop("agent"))
    if "sac" in agent:
        agent["sac"] = _build(mosac.SacConfig, agent["sac"], "agent.sac.")
    return _build(RunConfig, values | {"agent": _build(make_config, agent, "agent.")}, "")


def save(config: RunConfig, path: Path) -> None:
    path.write_text(json.dumps(to_dict(config), indent=2) + "\n")


def load(path: Path) -> RunConfig:
    """The config that `save` wrote; ValueError names the file where it is none."""
    try:
        return from_dict(json.loads(path.read_text()))
    except ValueError as error:
        raise ValueError(f"cannot read {path}: {error}") from error


def _build(cls: Any, values: dict[str, Any], prefix: str) -> Any:
    known = {field.name for field in dataclasses.fields(cls)}
    unknown = sorted(set(values) - known)
    if unknown:
        raise ValueError(f"unknown field {prefix}{unknown[0]} in the configuration; known: {', '.join(sorted(known))}")
    return cls(**values)
