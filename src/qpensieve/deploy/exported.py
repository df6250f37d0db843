"""Policy files in place of run folders: read and check them, act with them as an agent, and measure their returns."""

import json
from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any, NoReturn

import numpy as np
from jaxtyping import Float64

from qpensieve import zoo
from qpensieve.config import SEED_LIMIT, RunConfig, check_trusted, spec_of
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
from qpensieve.records.files import Headers, interpreting, read_npz
from qpensieve.replay.layout import Rows
from qpensieve.train.calibrate import spread_rows
from qpensieve.train.saved import SavedPolicies
from qpensieve.train.session import Arrays, Predictor, Session, play
from qpensieve.types import EnvSpec

FIRST_START = 10_000
"""Number of the first row of starts that `measure` plays. Evaluations of a run, its calibration and the choice of its
seed use other starts."""
KINDS = {"domain": str, "algo": str, "seed": int, "step": int, "head": str, "num_layers": int}
KINDS |= {"activation": str, "is_normalized": bool, "is_conditioned": bool, "arrays": list}
"""Entries of a policy file that describe policy and network, and their types."""
ARCHIVE = "gaussian"
"""Head of the policies of an archive."""
HEADS = ("squashed gaussian", "squashed", "greedy", ARCHIVE)
"""How the outputs of a network become an action."""
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
        with interpreting(source, "a policy file"):
            about = _read_about(source)
            method = get_method(about["algo"])
        check_trusted(about["domain"], source, trust)
        self.step = about["step"]
        config = RunConfig(about["domain"], method.name, agent=method.config())
        self.config = replace(config, seeds=1, first_seed=about["seed"], steps=max(1, self.step))
        self.spec = spec_of(self.config)
        for name, value in environment_of(self.spec).items():
            if about.get(name) != value:
                raise UserError(f"{source}: {name} must be {value} in {self.config.domain_id}, got {about.get(name)}")
        with interpreting(source, "a policy file"):
            self.policy = Policy(about, _read_arrays(source, about, self.spec))

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


def environment_of(spec: EnvSpec) -> dict[str, Any]:
    """Return the entries of a policy file that describe its environment."""
    box, indices = spec.action_box, spec.obs_indices
    entries = None if indices is None else zip(indices.firsts, indices.counts, strict=True)
    return {
        "objectives": list(spec.objectives),
        "obs_size": spec.obs_size,
        "obs_shape": list((spec.obs_size,) if spec.obs_shape is None else spec.obs_shape),
        "obs_indices": None if entries is None else [list(range(first, first + count)) for first, count in entries],
        "num_actions": spec.num_actions,
        "first_action": spec.first_action,
        "action_size": spec.action_size,
        "low": [-1.0] * spec.action_size if box is None else list(box.low),
        "high": [1.0] * spec.action_size if box is None else list(box.high),
        "action_shape": [spec.action_size] if box is None else list(box.shape),
        "action_dtype": "float32" if box is None else box.dtype,
    }


def _read_about(source: Path) -> dict[str, Any]:
    """Read the description of a policy file; ValueError if an entry that every policy needs is wrong."""
    about = json.loads(str(read_npz(source, ["about"])["about"]))
    if about["format"] != FORMAT:
        raise UserError(f"its format must be {FORMAT!r}, got {about['format']!r}")
    for name, kind in KINDS.items():
        if type(about[name]) is not kind:
            raise UserError(f"{name} must have type {kind.__name__}, got {about[name]!r}")
    if not 1 <= about["num_layers"] <= len(about["arrays"]):
        raise UserError(f"num_layers must be from 1 to the number of arrays, got {about['num_layers']}")
    _check_head(about)
    if not 0 <= about["seed"] < SEED_LIMIT or about["step"] < 0:
        got = f"{about['seed']} and {about['step']}"
        raise UserError(f"seed must be from 0 to {SEED_LIMIT - 1} and step 0 or more, got {got}")
    return about


def _check_head(about: Mapping[str, Any]) -> None:
    """Raise ValueError unless the network is of a kind that has this head."""
    head = about["head"]
    if head not in HEADS:
        raise UserError(f"head must be one of {', '.join(HEADS)}, got {head!r}")
    must: dict[str, object] = {"activation": "tanh" if head == ARCHIVE else "relu"}
    if head != "squashed gaussian":
        must["is_conditioned"] = head != ARCHIVE
    if head != "greedy":
        must["is_normalized"] = False
    for name, value in must.items():
        if about[name] != value:
            raise UserError(f"{name} must be {value!r} with head {head!r}, got {about[name]!r}")


def _read_arrays(source: Path, about: Mapping[str, Any], spec: EnvSpec) -> dict[str, np.ndarray]:
    arrays = read_npz(source, about["arrays"], lambda found: _check_arrays(about, spec, found))
    for name, array in arrays.items():
        if not np.isfinite(array).all():
            raise UserError(f"{name} must be finite")
    rows = len(arrays.get("calibration_preferences", ()))
    if any(not 0 <= row < rows for row in arrays.get("calibration_asks", ())):
        raise UserError(f"calibration_asks must be from 0 to {rows - 1}, the rows of calibration_preferences")
    return arrays


def _check_arrays(about: Mapping[str, Any], spec: EnvSpec, found: Headers) -> None:
    """Raise ValueError unless types and shapes of all arrays fit the network and the environment."""
    shapes = _shapes(about, spec, {name: header.shape for name, header in found.items()})
    if missing := [name for name in shapes if name not in found]:
        raise UserError(f"these arrays are missing: {', '.join(missing)}")
    for name, shape in shapes.items():
        if found[name].shape != shape:
            raise UserError(f"{name} must have shape {shape}, got {found[name].shape}")
    for name, header in found.items():
        kinds, words = ("iu", "whole numbers") if name == "calibration_asks" else ("f", "floats")
        if header.dtype.kind not in kinds:
            raise UserError(f"{name} must be {words}, got {header.dtype}")


def _shapes(
    about: Mapping[str, Any], spec: EnvSpec, there: Mapping[str, tuple[int, ...]]
) -> dict[str, tuple[int, ...]]:
    """Return the shape that each array must have, given the widths of hidden layers and the numbers of rows."""
    head, d, outputs = about["head"], spec.num_objectives, spec.action_size
    own = "returns" if head == ARCHIVE else "preferences"
    rows = lambda name: max([1, *there.get(name, ())[:1]])
    num = rows(own)
    shapes = {own: (num, d)}
    if head == "squashed gaussian":
        outputs *= 2
    elif head == "greedy":
        shapes["actions"] = (rows("actions"), spec.action_size)
        outputs = d * rows("actions")
    else:
        shapes["std"] = (num, outputs)
    if head == ARCHIVE:
        shapes |= dict.fromkeys(("obs_mean", "obs_std"), (num, spec.obs_size))
    if "calibration_asks" in there:
        asks = rows("calibration_asks")
        shapes |= {"calibration_asks": (asks,), "calibration_preferences": (asks, d)}
    inputs = spec.obs_size + d * about["is_conditioned"]
    for i in range(about["num_layers"]):
        is_last = i == about["num_layers"] - 1
        width = outputs if is_last else [1, *there.get(f"bias_{i}", ())][-1]
        shapes |= {f"weight_{i}": (num, inputs, width), f"bias_{i}": (num, width)}
        inputs = width
    return shapes


def _predictor(policy: Policy, spec: EnvSpec, own: Float64[np.ndarray, "p d"] | None, step: int) -> Predictor:
    """Return the policies of a file in the form in which a session has them."""
    about, arrays = policy.about, policy.arrays
    layers = range(about["num_layers"])
    widths = (arrays["weight_0"].shape[1], *(arrays[f"bias_{i}"].shape[1] for i in layers))
    parts = [arrays[f"{kind}_{i}"] for i in layers for kind in ("weight", "bias")]
    if about["head"] == ARCHIVE:
        parts += [np.log(arrays["std"]), arrays["obs_mean"], arrays["obs_std"]]
    flat = np.concatenate([part.reshape(len(part), -1) for part in parts], axis=1).astype(np.float32)
    if about["head"] == ARCHIVE:
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
    """Returns of a policy under some preferences.

    Attributes:
        preferences: The preferences.
        returns: Returns of single episodes.
        ut: UT, the mean weighted return.
        low: Lower end of the interval that has the UT of as many other episodes in 95 of 100 cases.
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
    """Play rows of the test table, first as asked, then as calibrated (None without a calibration).

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
