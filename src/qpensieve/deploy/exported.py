"""Policy files in place of run folders: read their policies, act with them as an agent, and measure what they reach."""

import json
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any, NoReturn

import numpy as np
from jaxtyping import Float64

from qpensieve import zoo
from qpensieve.config import RunConfig, check_trusted, spec_of
from qpensieve.deploy.qpensieve_policy import FORMAT, Policy
from qpensieve.envs.base import FULL_EPISODES
from qpensieve.errors import UserError
from qpensieve.learning.acting import (
    GaussianPolicy,
    Greedy,
    NoisyPolicy,
    continuous_acting,
    greedy_acting,
)
from qpensieve.learning.predictor import AgentPredictor
from qpensieve.methods import get_method
from qpensieve.metrics import utility
from qpensieve.population.members import ArchivePredictor, Policies
from qpensieve.preferences import test_table
from qpensieve.records.calibration import Calibration
from qpensieve.records.files import interpreting, read_npz
from qpensieve.replay.layout import Rows
from qpensieve.train.calibrate import spread_rows
from qpensieve.train.saved import SavedPolicies
from qpensieve.train.session import Arrays, Predictor, Session, play
from qpensieve.types import EnvSpec

FIRST_START = 10_000
"""Number of the first row of starts that `measure` plays: evaluations of a run, its calibration and its seed's choice
play others."""
MOST_ROWS = 100
"""Most rows of the test table that `measure` plays."""
STUDENT = 2.262
"""97.5 % quantile of Student's t with 9 degrees of freedom, for the ten episodes of an evaluation."""


def open_policies(source: Path, trust: bool = False) -> SavedPolicies:
    """Read the policies of a run folder, a saved agent, a policy file, or a policy that comes with the package."""
    path = zoo.find(source)
    return ExportedPolicies(path, trust) if path.is_file() else SavedPolicies(path, trust)


class ExportedPolicies(SavedPolicies):
    """The policies of one seed at one step, read from a policy file.

    Args:
        source: The file.
        trust: Whether the code that the file's domain names may be imported.

    Raises:
        ValueError: The file is no policy file, or does not fit its domain.
        UntrustedError: The domain names code to import, and `trust` is False.
    """

    def __init__(self, source: Path, trust: bool = False):
        self.source = source
        arrays = read_npz(source)
        with interpreting(source, "a policy file"):
            about = json.loads(str(arrays["about"]))
            if about["format"] != FORMAT:
                raise UserError(f"its format must be {FORMAT!r}, got {about['format']!r}")
            self.policy = Policy(about, {name: arrays[name] for name in about["arrays"]})
            domain, method = str(about["domain"]), get_method(str(about["algo"]))
            seed, self.step = int(about["seed"]), int(about["step"])
            given = {name: about[name] for name in ("objectives", "obs_size")}
        check_trusted(domain, source, trust)
        config = RunConfig(domain, method.name, agent=method.config())
        self.config = replace(config, seeds=1, first_seed=seed, steps=max(1, self.step))
        self.spec = spec_of(self.config)
        for name, value in (("objectives", list(self.spec.objectives)), ("obs_size", self.spec.obs_size)):
            if given[name] != value:
                raise UserError(f"{source}: {name} must be {value} in {self.config.domain_id}, got {given[name]}")

    def __str__(self) -> str:
        return self.name if zoo.card_of(self.source) else str(self.source)

    @property
    def name(self) -> str:
        return zoo.name_of(self.source) if zoo.card_of(self.source) else self.source.stem

    @property
    def steps(self) -> list[int]:
        return [self.step]

    @property
    def own_preferences(self) -> Float64[np.ndarray, "p d"] | None:
        own = self.policy.arrays.get("preferences")
        return None if own is None or len(own) == 1 else own.astype(np.float64)

    @property
    def calibration(self) -> Calibration | None:
        arrays = self.policy.arrays
        if "calibration_asks" not in arrays:
            return None
        rows, asks = arrays["calibration_preferences"].astype(np.float64), arrays["calibration_asks"][None]
        return Calibration(self.step, self.config.seed_list, rows, asks, np.zeros(asks.shape), 0, np.zeros(1, np.int64))

    def stamp(self, step: int) -> int:
        del step
        return 1

    def newest(self, warn: Any = None) -> tuple[Predictor, int]:
        del warn
        return self.predictor(self.step), self.step

    def predictor(self, step: int) -> Predictor:
        if step != self.step:
            raise UserError(f"step must be {self.step}, the only one of {self.source}; got {step}")
        with interpreting(self.source, "a policy file"):
            return _predictor(self.policy, self.spec, self.own_preferences, step)

    def parameters(self, step: int) -> Arrays:
        del step
        _refuse(self.source)


def _predictor(policy: Policy, spec: EnvSpec, own: Float64[np.ndarray, "p d"] | None, step: int) -> Predictor:
    """Return the policies of a file in the form in which a session has them."""
    about, arrays = policy.about, policy.arrays
    layers = range(about["num_layers"])
    widths = (arrays["weight_0"].shape[1], *(arrays[f"bias_{i}"].shape[1] for i in layers))
    parts = [arrays[f"{kind}_{i}"] for i in layers for kind in ("weight", "bias")]
    if "returns" in arrays:
        parts += [np.log(arrays["std"]), arrays["obs_mean"], arrays["obs_std"]]
    flat = np.concatenate([part.reshape(len(part), -1) for part in parts], axis=1).astype(np.float32)
    if "returns" in arrays:
        return ArchivePredictor([Policies(arrays["returns"].astype(np.float64), flat)], widths)
    if about["head"] == "greedy":
        share = float(about["epsilon"])
        acting = greedy_acting(Greedy(widths, arrays["actions"], lambda step: share, about["is_normalized"]))
    elif about["head"] == "squashed":
        acting = continuous_acting(spec, partial(NoisyPolicy, widths=widths, noise_scale=float(arrays["std"].flat[0])))
    else:
        gaussian = partial(GaussianPolicy, widths=widths, is_conditioned=about["is_conditioned"])
        acting = continuous_acting(spec, gaussian)
    return AgentPredictor(acting, own, flat, step)


class ExportedSession(Session):
    """A session that acts with a policy file. It cannot train."""

    def __init__(self, policies: ExportedPolicies):
        super().__init__()
        self._policies, self.config, self.spec = policies, policies.config, policies.spec
        self.own_preferences, self.step = policies.own_preferences, policies.step
        self.lanes_per_seed = self.block = 1

    def predictor(self) -> Predictor:
        return self._policies.newest()[0]

    def plan(self, steps: int) -> None:
        self._refuse()

    def advance(self) -> None:
        self._refuse()

    def parameters(self) -> Arrays:
        self._refuse()

    def arrays(self) -> Arrays:
        self._refuse()

    def restore(self, arrays: Arrays, rows: Rows | None = None, first: int = 0) -> None:
        self._refuse()

    def _refuse(self) -> NoReturn:
        _refuse(self._policies.source)

    def close(self) -> None:
        return


def _refuse(source: Path) -> NoReturn:
    raise UserError(f"{source} holds a policy to act with, not what learning needs: train or load a run for that")


@dataclass(frozen=True, eq=False)
class Reached:
    """What a policy reaches when it is asked for each of some preferences.

    Attributes:
        preferences: The preferences.
        returns: Returns of single episodes.
        ut: UT, the mean weighted return.
        low: Lower end of the interval in which the UT of other episodes lies in 95 of 100 cases.
        high: Upper end.
    """

    preferences: Float64[np.ndarray, "p d"]
    returns: Float64[np.ndarray, "p e d"]
    ut: float
    low: float
    high: float

    def to_dict(self) -> dict[str, float]:
        """Return UT and interval as a card holds them."""
        return {name: float(f"{getattr(self, name):.6g}") for name in ("ut", "low", "high")}


def measure(policies: ExportedPolicies, first_start: int = FIRST_START) -> tuple[Reached, Reached | None]:
    """Play rows of the test table, asked for themselves and as calibrated; None without a calibration.

    The starts depend on seed, row and `first_start` alone, so a second call gives the same numbers, to rounding.
    """
    table = np.array(test_table(policies.spec.num_objectives))
    lam, calibration = table[spread_rows(len(table), min(MOST_ROWS, len(table)))], policies.calibration
    asked = _reached(policies, lam, lam, first_start)
    return asked, None if calibration is None else _reached(policies, lam, calibration.ask(0, lam), first_start)


def _reached(
    policies: ExportedPolicies, lam: Float64[np.ndarray, "p d"], asks: Float64[np.ndarray, "p d"], first_start: int
) -> Reached:
    returns = play(policies.newest()[0], policies.config, policies.step, asks, FULL_EPISODES, first_start)[0]
    each = np.asarray(utility(returns.transpose(1, 0, 2), lam))
    margin = STUDENT * each.std(ddof=1) * (2 / len(each)) ** 0.5
    return Reached(lam, returns, each.mean(), each.mean() - margin, each.mean() + margin)
