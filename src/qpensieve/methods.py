"""The table of methods. A new method is a file in `algos` and a row here.

Off-policy methods have a `make`, and `train.trainer` trains them. `train.population` trains populations.
"""

import dataclasses
import difflib
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any

from qpensieve.algos import cnder, envelope, hybrid_sac, mosac, qpensieve, sac
from qpensieve.errors import UserError
from qpensieve.learning.interface import Algorithm
from qpensieve.machine import KEPT_PROGRAMS
from qpensieve.population import pgmorl
from qpensieve.population.pgmorl import PfaConfig, PgmorlConfig, PopulationConfig
from qpensieve.types import EnvSpec

Make = Callable[[Any, EnvSpec], Algorithm[Any]]


@dataclass(frozen=True)
class Method:
    """A method of learning.

    Attributes:
        name: Value of `--algo`.
        summary: A line for help.
        config: The class of its settings, a frozen dataclass whose defaults are the paper's.
        make: (settings, environment) -> algorithm. None: the method trains a population.
        paper: Domain id -> settings that the paper changes for that domain. None: the paper changes none.
        robust: Settings that the preset `robust` changes, in addition to `config.SCHEDULE`. None: no such preset.
        quick: Settings that the preset `quick` changes; `config.QUICK_RUN` has those of all methods with a replay.
        defaults: Settings of the run that every preset of this method starts from.
        fixed: Settings of the run that the method cannot change -> their only value.
        helper_only: Settings that only the helper of hybrid SAC uses. A run that changes one gets a remark.
    """

    name: str
    summary: str
    config: type[Any]
    make: Make | None = None
    paper: Callable[[str], Mapping[str, object]] | None = None
    quick: Mapping[str, object] = field(default_factory=dict)
    robust: Mapping[str, object] | None = None
    defaults: Mapping[str, object] = field(default_factory=dict)
    fixed: Mapping[str, object] = field(default_factory=dict)
    helper_only: tuple[str, ...] = ()

    @property
    def is_population(self) -> bool:
        """Whether the method trains a population of policies and keeps an archive, without a replay."""
        return self.make is None

    @property
    def has_priorities(self) -> bool:
        """Whether batches are drawn by priority: then each step has one update, and the replay any capacity."""
        return "updates_per_step" in self.fixed


_QUICK_NETS: dict[str, object] = {"hidden": 64, "batch_size": 128, "learning_rate": 1e-3}
_QUICK_GUARDED: dict[str, object] = {
    "steps": 120_000,
    "random_steps": 0.25,
    "eval_period": None,
    "parameters_period": None,
    "log_period": None,
    "hidden": 96,
    "batch_size": 128,
    "guards": True,
    "learning_rate": 6e-4,
    "learning_rate_end": 3e-5,
    "pessimism": 0.85,
    "discount": 0.985,
    "sampler": "dirichlet",
    "random_noise": "ar1",
    "updates_per_step": 4,
}
"""`quick` of Q-Pensieve and MO-SAC. Small networks overestimate the value of standing still, and a smaller discount
lowers it sooner. Many updates per step and many random steps give rare transitions more weight."""
_QUICK_PENSIEVE: dict[str, object] = {"push_after": 4_000, "push_period": 1_000}
RECIPE = 1
"""Version of the preset `robust`: every change of what the preset trains adds 1."""
_ROBUST: dict[str, object] = {
    "guards": True,
    "learning_rate": 6e-4,
    "learning_rate_end": 3e-5,
    "pessimism": 0.75,
    "target_entropy_end": -2.5,
    "random_noise": "ar1",
    "updates_per_step": 2,
}
_QUICK_POPULATION: dict[str, object] = {
    "seeds": 1,
    "steps": 200_000,
    "eval_period": 20_000,
    "parameters_period": 50_000,
    "rollout_steps": 32,
    "minibatches": 4,
    "learning_rate": 1e-3,
    "warmup_iterations": 80,
    "generation_iterations": 20,
}
_TABLE = (
    Method(
        "qpensieve",
        "climbs the best value over several preferences and over past critics",
        qpensieve.QPensieveConfig,
        qpensieve.make,
        quick={
            **_QUICK_GUARDED,
            **{"num_preferences": 2, "snapshots_per_update": 1, "push_after": None, "push_period": None},
        },
        robust={**_ROBUST, "num_preferences": 2, "snapshots_per_update": 1, "memory_updates": None},
    ),
    Method(
        "mosac",
        "multi-objective SAC: Q-Pensieve with one preference and no snapshots",
        mosac.SacConfig,
        mosac.make,
        quick=_QUICK_GUARDED,
        robust=_ROBUST,
    ),
    Method(
        "sac",
        "one single-objective SAC for each of 19 preferences",
        sac.SingleSacConfig,
        sac.make,
        quick=_QUICK_NETS,
    ),
    Method(
        "hybrid-sac",
        "SAC for single preferences that also climbs the snapshots of a Q-Pensieve helper",
        hybrid_sac.HybridConfig,
        hybrid_sac.make,
        quick={**_QUICK_NETS, **_QUICK_PENSIEVE, "switch_after": 10_000},
        helper_only=hybrid_sac.HELPER_ONLY,
    ),
    Method(
        "cnder",
        "conditioned networks with diverse experience replay, on DDPG",
        cnder.CnDerConfig,
        cnder.make,
        quick={**_QUICK_NETS, "replay_capacity": 20_000},
        fixed={"updates_per_step": 1},
    ),
    Method(
        "envelope",
        "Envelope Q-learning over binned or discrete actions",
        envelope.EnvelopeConfig,
        envelope.make,
        quick={"batch_size": 64, "num_preferences": 8, "random_steps": 500, "replay_capacity": 20_000},
        defaults={"random_steps": 1_000},  # its authors start to learn as soon as there is a batch
        fixed={"updates_per_step": 1, "random_noise": "white"},  # it explores by random bins (epsilon-greedy)
    ),
    Method(
        "pgmorl",
        "a population of PPO policies, trained where a model predicts the largest gain of the front",
        PgmorlConfig,
        paper=pgmorl.paper_settings,
        quick=_QUICK_POPULATION,
    ),
    Method(
        "pfa",
        "a population of PPO policies; their preferences slide along the front of two objectives",
        PfaConfig,
        paper=pgmorl.pfa_paper_settings,
        quick=_QUICK_POPULATION,
    ),
)


def check_row(method: Method) -> Method:
    """Return the row; ValueError if its settings are no dataclass, a setting has no default, or `make` is missing."""
    if not (isinstance(method.config, type) and dataclasses.is_dataclass(method.config)):
        raise UserError(f"method {method.name}: config must be the dataclass of its settings, got {method.config!r}")
    try:
        method.config()
    except TypeError as error:
        raise UserError(f"method {method.name}: every setting must have a default ({error})") from error
    if method.make is None and not issubclass(method.config, PopulationConfig):
        raise UserError(f"method {method.name}: make must be a function (settings, environment) -> Algorithm, got None")
    return method


METHODS: dict[str, Method] = {method.name: check_row(method) for method in _TABLE}
"""Name -> method, in the order of help."""


def register_method(method: Method) -> None:
    """Add a method to the table, for agents of this process: `Agent(domain, algo=method.name)`.

    Raises:
        ValueError: The name is taken, or `check_row` refuses the row.
    """
    if method.name in METHODS:
        raise UserError(f"there is a method {method.name} already: choose another name")
    METHODS[method.name] = check_row(method)


def get_method(name: str) -> Method:
    """Return the row of a method; ValueError with the known names if the name is unknown."""
    if name not in METHODS:
        near = difflib.get_close_matches(name, METHODS, n=1)
        hint = f" (did you mean {near[0]}?)" if near else ""
        own = "or import the module that registers your own first"
        raise UserError(f"unknown algorithm {name!r}{hint}: use {', '.join(METHODS)}, {own}")
    return METHODS[name]


def make_algorithm(name: str, settings: object, spec: EnvSpec) -> Algorithm[object]:
    """Return the algorithm of an off-policy method for an environment.

    Raises:
        ValueError: The method trains a population, or the environment does not fit the method.
    """
    method = get_method(name)
    if method.make is None:
        raise UserError(f"{name} trains a population: it has no algorithm for the training loop with a replay")
    algorithm = _make_once(method.make, settings, spec)
    if not algorithm.acting.is_discrete:
        check_continuous(name, spec)
    return algorithm


@lru_cache(maxsize=KEPT_PROGRAMS)
def _make_once(make: Make, settings: object, spec: EnvSpec) -> Algorithm[object]:
    """Return the same object for the same arguments, so that its functions are compiled once in a process."""
    return make(settings, spec)


def check_continuous(name: str, spec: EnvSpec) -> None:
    """Raise ValueError if the environment has discrete actions; the message names a method for them."""
    if spec.num_actions is not None:
        raise UserError(
            f"{name} needs continuous actions, but {spec.id} has {spec.num_actions} discrete ones: "
            "use --algo envelope or another domain"
        )
