"""Configuration of a run: its settings, checks and presets, and its file."""

import dataclasses
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Annotated, Any, Literal, NamedTuple, get_args

from qpensieve import settings
from qpensieve.algos.mosac import LAST_VALUES
from qpensieve.algos.qpensieve import QPensieveConfig
from qpensieve.envs import code_of, find_domain, is_local, name_of
from qpensieve.envs import registry as envs
from qpensieve.envs.base import FULL_EPISODES, MAX_EVAL_STEPS
from qpensieve.errors import UntrustedError, UserError
from qpensieve.methods import METHODS, Method, get_method, make_algorithm
from qpensieve.records.files import interpreting, parse, read_bytes, write_json
from qpensieve.settings import (
    EVALUATION,
    FINITE,
    LENGTH,
    MACHINE,
    NEEDS_REPLAY,
    NOT_NEGATIVE,
    RECORDS,
    SEEDS,
    STEPS_OR_SHARE,
    WHOLE_BLOCKS,
    Scheduled,
    StepsOrShare,
    at_least,
)
from qpensieve.types import EnvSpec

NOISE_CORRELATION = 0.8
"""Correlation of `ar1` random actions from one step to the next."""
SEED_LIMIT = 2**31
"""Seeds are int32 on the device."""


def in_units(number: int, unit: int) -> int:
    """Return the largest multiple of `unit` that is at most `number`, but at least one unit."""
    return max(unit, number - number % unit)


class Share(NamedTuple):
    """The value of a setting that follows the length of the run.

    Attributes:
        length: What the length is counted in: steps or updates.
        divisor: The length is divided by this number.
        limit: The largest value. None: there is no limit.
    """

    length: Literal["steps", "updates"]
    divisor: int
    limit: int | None = None

    def value(self, config: "RunConfig") -> int:
        """Return the value for a run, a multiple of the block."""
        total, unit = config.steps, config.block
        if self.length == "updates":
            total, unit = config.num_updates, unit * config.updates_per_step
        number = total // self.divisor if self.limit is None else min(total // self.divisor, self.limit)
        return in_units(number, unit)


SCHEDULE: dict[str, Share] = {
    "random_steps": Share("steps", 10, limit=10_000),  # first, because the number of updates depends on it
    "eval_period": Share("steps", 10, limit=50_000),
    "parameters_period": Share("steps", 5, limit=100_000),
    "log_period": Share("steps", 20, limit=1_000),
    "push_after": Share("updates", 10, limit=20_000),
    "push_period": Share("updates", 20, limit=1_000),
    "memory_updates": Share("updates", 2),
    "anneal_updates": Share("updates", 1),
    "anneal_steps": Share("steps", 1),
}
"""Settings that follow the length of the run if they are None."""


@dataclass(frozen=True)
class RunConfig:
    """One training run: a domain, an algorithm, and seeds that train together."""

    domain: str
    """A domain (`qpensieve domains`), a Gymnasium id, or module:factory."""
    algo: str = "qpensieve"
    """Algorithm."""
    seeds: Annotated[int, at_least(1), SEEDS] = 5
    """Number of seeds that train together, independent of each other."""
    first_seed: Annotated[int, SEEDS] = 0
    """Number of the first seed; the others follow."""
    steps: Annotated[int, at_least(1), WHOLE_BLOCKS, LENGTH] = 1_500_000
    """Environment steps of each seed. After the random steps, off-policy methods make `updates_per_step` gradient steps
    for each."""
    random_steps: Annotated[StepsOrShare, STEPS_OR_SHARE, WHOLE_BLOCKS, NEEDS_REPLAY] = 10_000
    """Off-policy methods: steps with uniformly random actions before learning starts; a number below 1 is a share of
    the steps. None: a tenth of the steps, at most 10 000."""
    random_noise: Annotated[Literal["white", "ar1"], NEEDS_REPLAY] = "white"
    """Off-policy methods with continuous actions: correlation of random actions in time. white: none. ar1: 0.8 from one
    step to the next. Every action is uniform in both."""
    block: Annotated[int, at_least(1), NEEDS_REPLAY] = 50
    """Off-policy methods: steps of a block, which is collected first and then learned from. Acting lags by at most two
    blocks."""
    updates_per_step: Annotated[int, at_least(1), NEEDS_REPLAY] = 1
    """Off-policy methods except cnder and envelope: gradient steps (updates) for each environment step after the random
    steps (replay ratio). The paper has 1. 2 takes up to twice as long, and schedules that count updates pass in half
    the steps."""
    replay_capacity: Annotated[int, at_least(1), NEEDS_REPLAY] = 1_000_000
    """Off-policy methods: transitions kept per seed, in whole blocks except for cnder and envelope."""
    eval_period: Annotated[Scheduled, at_least(1), WHOLE_BLOCKS, RECORDS] = 50_000
    """Steps between short evaluations. None: a tenth of the steps, at most 50 000."""
    eval_stride: Annotated[int, at_least(1), RECORDS] = 5
    """A short evaluation plays every `eval_stride`-th row of the test table. The default is 25 for five objectives,
    whose table has 500 rows: more rows would cost more than training. The full protocol plays all rows."""
    full_eval_period: Annotated[int | None, at_least(1), WHOLE_BLOCKS, RECORDS] = None
    """Steps between full evaluations (whole test table, 10 episodes); None: one at the end."""
    full_eval_stride: Annotated[int, at_least(1), EVALUATION] = 1
    """A full evaluation plays every `full_eval_stride`-th row of the test table. Scores on a subset of rows are not
    comparable; for quick trials."""
    full_eval_episodes: Annotated[int, at_least(1), EVALUATION] = FULL_EPISODES
    """Episodes per preference of a full evaluation."""
    max_eval_steps: Annotated[int, at_least(1), EVALUATION] = MAX_EVAL_STEPS
    """Steps after which an evaluation cuts an episode. The return so far counts, with a warning. For environments
    without a time limit."""
    log_period: Annotated[Scheduled, at_least(1), WHOLE_BLOCKS, RECORDS] = 1_000
    """Steps between rows of training metrics. None: a twentieth of the steps, at most 1 000."""
    checkpoint_seconds: Annotated[float, NOT_NEGATIVE, MACHINE] = 60.0
    """Most seconds between checkpoints; one is also written at every evaluation."""
    parameters_period: Annotated[Scheduled, at_least(1), WHOLE_BLOCKS, RECORDS] = 100_000
    """Steps between copies of the parameters, all of which are kept. None: a fifth of the steps, at most 100 000."""
    keep_replay: Annotated[Literal["on", "off"], NEEDS_REPLAY, RECORDS] = "on"
    """Off-policy methods: save the replay with checkpoints. Without the replay checkpoints are small, but a resumed run
    gets other numbers."""
    reference: Annotated[tuple[float, ...], FINITE, EVALUATION] = ()
    """Reference point of HV, a number per objective; pgmorl and pfa keep only policies above it. Default: the domain's,
    or `metadata["reference_point"]` of the environment."""
    num_threads: Annotated[int | None, at_least(1), MACHINE] = None
    """Cores that collect, and the same number that evaluates meanwhile; results do not depend on it. Off-policy methods
    on built-in domains: from 2 on, this many processes share the agents. Otherwise: threads of the simulator. None:
    with an accelerator all cores but one; on a CPU, whose cores learn, no processes and as many threads as help."""
    agent: Any = dataclasses.field(default_factory=QPensieveConfig)
    """Settings of the algorithm."""

    @property
    def method(self) -> Method:
        """The algorithm's row in the table of methods."""
        return get_method(self.algo)

    @property
    def domain_id(self) -> str:
        """Short name of a built-in domain; for other environments `domain` as text."""
        known = find_domain(self.domain) if isinstance(self.domain, str) else None  # the API also takes functions
        return str(self.domain) if known is None else known.id

    @property
    def seed_list(self) -> list[int]:
        return list(range(self.first_seed, self.first_seed + self.seeds))

    @property
    def capacity(self) -> int:
        """Rows of the replay: `replay_capacity`, but at most the steps of the run, in whole blocks."""
        return in_units(min(self.replay_capacity, self.steps), self.block)

    @property
    def num_updates(self) -> int:
        """Updates of the whole run. They begin after the random steps."""
        return max(1, (self.steps - self.random_steps) * self.updates_per_step)

    @property
    def random_correlation(self) -> float | None:
        """Correlation of random actions from step to step; None if they are white."""
        return None if self.random_noise == "white" else NOISE_CORRELATION

    def conflicts(self) -> list[str]:
        """Return one sentence for each setting that does not fit the other settings or the method."""
        method, found = self.method, []
        if not 0 <= self.first_seed <= SEED_LIMIT - self.seeds:
            found = [f"first_seed must leave all seeds between 0 and {SEED_LIMIT - 1}, got {self.first_seed}"]
        if not isinstance(self.agent, method.config):
            return [*found, f"agent must hold the settings of {self.algo}, got a {type(self.agent).__name__}"]
        found += [
            f"{name} must be {only} for {self.algo}, got {value}"
            for name, only in method.fixed.items()
            if (value := getattr(self, name)) != only
        ]
        return found + (self._without_replay() if method.is_population else self._not_whole())

    def _not_whole(self) -> list[str]:
        """Return one sentence for each number of steps or updates that is no whole number of blocks."""
        pace, block = max(self.updates_per_step, 1), max(self.block, 1)
        of_agent = settings.marked(self.agent, WHOLE_BLOCKS)
        unit = lambda name: block * pace if name in of_agent else block
        words = lambda name: "block x updates_per_step" if unit(name) > block else "block"
        return [
            f"{name} must be a multiple of {words(name)} ({unit(name)}), got {value}; "
            f"the nearest is {max(1, round(value / unit(name))) * unit(name)}"
            for name, value in settings.marked(self, WHOLE_BLOCKS).items()
            if isinstance(value, int) and value % unit(name)
        ]

    def _without_replay(self) -> list[str]:
        fresh = settings.marked(RunConfig(self.domain), NEEDS_REPLAY)
        return [
            f"{name} must be left out, got {value}: {self.algo} has no replay"
            for name, value in settings.marked(self, NEEDS_REPLAY).items()
            if value != fresh[name]
        ]


PresetName = Literal["robust", "quick", "paper"]
PRESETS: tuple[PresetName, ...] = get_args(PresetName)
QUICK_RUN: dict[str, object] = {
    "seeds": 1,
    "steps": 35_000,
    "random_steps": 2_000,
    "eval_period": 5_000,
    "parameters_period": 10_000,
}
"""Settings of the preset `quick` for methods with a replay; `Method.quick` adds more."""

EVAL_STRIDES = {5: 25}
"""Number of objectives -> `eval_stride`, where the default would make evaluations take longer than training."""


def default_config(domain: str, algo: str = "qpensieve", preset: str = "paper") -> RunConfig:
    """Return the settings of a preset: `paper`, `robust`, or `quick` (for two cores).

    Raises:
        ValueError: The method or the preset is unknown, or the method has no preset `robust`.
    """
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
        scheduled = dict.fromkeys(SCHEDULE.keys() & settings.flat(config))
        config = override(config, scheduled | {"seeds": 1} | dict(method.robust))
    return config


def default_preset(algo: str) -> PresetName:
    """Return the preset of a run that names none: `robust` for methods that have it, else `paper`."""
    return "paper" if get_method(algo).robust is None else "robust"


def spec_of(config: RunConfig) -> EnvSpec:
    """Return the description of the run's environment, with the run's reference point.

    Raises:
        ValueError: The reference point lacks one number per objective, or the environment cannot be made.
    """
    spec = envs.spec_of(config.domain)
    if not config.reference:
        return spec
    if len(config.reference) != spec.num_objectives:
        needed = f"{spec.num_objectives} numbers, one per objective of {spec.id} ({', '.join(spec.objectives)})"
        raise UserError(f"reference must have {needed}, got {len(config.reference)}")
    return replace(spec, reference=config.reference)


def completed(saved: Mapping[str, object]) -> dict[str, object]:
    """Return name -> value of a saved configuration and its parts, as this version names them.

    Missing settings are filled in. Unknown names and values of wrong types stay.
    """
    agent, method = saved.get("agent"), METHODS.get(str(saved.get("algo")))
    run = settings.filled(RunConfig, {**saved, "agent": None})
    del run["agent"]
    if method is None or not isinstance(agent, Mapping):
        return run | settings.flat_saved({"agent": agent})
    return run | settings.filled(method.config, agent)


def with_schedule(config: RunConfig) -> RunConfig:
    """Return the config with numbers for the settings of `SCHEDULE` that are None, and for a share of random steps.

    A config that `check` refuses is returned without a change.
    """
    if config.algo not in METHODS or settings.problems(config):  # `check` refuses these
        return config
    if isinstance(share := config.random_steps, float):
        num = in_units(round(share * config.steps), config.block) if share < 1 else int(share)
        config = replace(config, random_steps=num)
    for name, share in SCHEDULE.items():
        values = settings.flat(config)
        is_used = name != "anneal_updates" or any(values.get(end) is not None for end in LAST_VALUES)
        if is_used and values.get(name, 0) is None:
            config = settings.change(config, name, share.value(config))
    return config


def lengthened(config: RunConfig, steps: int) -> RunConfig:
    """Return the config with another number of steps.

    Settings that were annealed over the whole run are annealed over the new length. Settings of `SCHEDULE` that are
    None get numbers for the new length. Other settings stay as they are: memory that has faded does not come back.
    """
    if settings.problems(config):
        return replace(config, steps=steps)
    values = settings.flat(config)
    whole = [name for name, share in SCHEDULE.items() if share.divisor == 1 and values.get(name)]
    is_planned = config.random_steps is not None
    whole = [name for name in whole if is_planned and values[name] == SCHEDULE[name].value(config)]
    return with_schedule(override(replace(config, steps=steps), dict.fromkeys(whole)))


def whole_blocks(config: RunConfig, steps: int, warn: Callable[[str], None]) -> int:
    """Return the steps, rounded up to whole blocks if the method has a replay. `warn` is called if they change."""
    if config.method.is_population or config.block < 1 or steps < 1:  # `check` refuses the last two
        return steps
    rounded = -(-steps // config.block) * config.block
    if rounded != steps:
        warn(f"{steps:,} steps are rounded up to {rounded:,}, whole blocks of {config.block}")
    return rounded


def describe_schedule(config: RunConfig) -> str:
    """Describe in one line the random steps, evaluations and snapshots of a run."""
    values = {name: f"{value:,}" for name, value in settings.flat(config).items() if name in SCHEDULE and value}
    told = [f"{config.steps:,} steps"]
    if not config.method.is_population:
        told.append(f"the first {values['random_steps']} random")
    told.append(f"an evaluation every {values['eval_period']}")
    if settings.flat(config).get("num_snapshots"):
        told.append(f"a snapshot every {values['push_period']} updates after {values.get('push_after', 0)}")
    return ", ".join(told)


def remarks(config: RunConfig) -> list[str]:
    """Return one sentence for each setting with less effect than a user may expect. The config must be checked."""
    method, found = config.method, list[str]()
    before, now = settings.flat(method.config()), settings.flat(config.agent)
    if changed := [name for name in method.helper_only if now.get(name) != before[name]]:
        verb = "is" if len(changed) == 1 else "are"
        found.append(f"{', '.join(changed)} {verb} used by the helper alone, not by the SAC of {config.algo}")
    wanted, block = config.replay_capacity, config.block
    has_blocks = not method.is_population and not method.has_priorities
    if has_blocks and wanted < config.steps and wanted % block:
        held = f"the replay holds {config.capacity:,} transitions, not {wanted:,}"
        found.append(f"{held}: it is written in whole blocks of {block}")
    return found


def learning_warning(config: RunConfig, steps: int) -> str:
    """Return a warning if training for `steps` ends before learning starts, else an empty text."""
    if config.method.is_population or steps > config.random_steps:
        return ""
    return (
        f"nothing is learned in {steps:,} steps: learning starts after {config.random_steps:,} random ones; "
        "train longer, or set a smaller random_steps"
    )


def check(config: RunConfig) -> None:
    """Raise ValueError for settings that cannot run; the message says for each what it must be."""
    get_method(config.algo)  # an unknown method has no settings to check
    problems = settings.problems(config)
    if problems:
        raise UserError("these settings cannot run:\n  " + "\n  ".join(problems))


def check_fits(config: RunConfig) -> None:
    """Raise ValueError if the method does not fit its built-in domain, such as by preferences of another length.

    Other environments are not checked, because they would have to be made.
    """
    if find_domain(config.domain) is None:
        return
    spec = spec_of(config)
    if not config.method.is_population:
        make_algorithm(config.algo, config.agent, spec)


def override(config: RunConfig, changes: Mapping[str, object]) -> RunConfig:
    """Return the config with some settings changed, of the run or of its parts."""
    for name, value in changes.items():
        config = settings.change(config, name, value)
    return config


def to_dict(config: RunConfig) -> dict[str, object]:
    return dataclasses.asdict(config)


def from_dict(values: Mapping[str, object]) -> RunConfig:
    """Return the config that `to_dict` turned into `values`. Its rules are not checked.

    Raises:
        ValueError: A field is unknown, missing or of a wrong kind; the message names it.
    """
    if not isinstance(values, dict):
        raise UserError(f"a configuration must be a JSON object, got a {type(values).__name__}")
    missing = [name for name in ("domain", "algo", "agent") if name not in values]
    if missing:
        raise UserError(f"field {missing[0]} is missing in the configuration")
    if not isinstance(values["agent"], dict):
        raise UserError(f"agent must hold settings, got {values['agent']!r}")
    agent = settings.build(get_method(str(values["algo"])).config, values["agent"])
    return settings.build(RunConfig, {**values, "agent": agent})


def check_can_be_saved(config: RunConfig) -> None:
    """Raise ValueError unless the environment has a name by which another process can make it."""
    if is_local(config.domain):
        raise UserError(not_saved(config.domain))


def not_saved(domain: str) -> str:
    """Return why an environment without a name cannot be saved, and what to do."""
    return (
        f"an environment must have a name to be saved, but {name_of(domain)} cannot be imported: put the class or "
        "function that makes it at the top of a module and pass its name, 'module:factory'"
    )


def save(config: RunConfig, path: Path) -> None:
    """Write the config as JSON."""
    write_json(path, to_dict(config))


def load(path: Path, trust: bool = False) -> RunConfig:
    """Load the config that `save` wrote.

    Args:
        path: Its file.
        trust: Whether the code that its domain names may be imported.

    Raises:
        ValueError: The file holds no configuration, or one that cannot run; the message names the file.
        UntrustedError: The configuration names code to import, and `trust` is False.
    """
    with interpreting(path, "a configuration"):
        config = from_dict(parse(path, read_bytes(path)))
        check(config)
    check_trusted(config.domain, path, trust)
    return config


def check_trusted(domain: str, path: Path, trust: bool) -> None:
    """Raise UntrustedError if the domain that a file names imports code, and `trust` is False."""
    code = code_of(domain)
    if code is not None and not trust:
        how = "if you know that code, allow it: --trust on the command line, trust=True in Python"
        raise UntrustedError(f"{path} would import {code}; {how}")
