"""A run folder or saved agent for the page, read again as the folder grows. Nothing is written."""

import json
import threading
import time
from collections.abc import Callable
from functools import lru_cache
from pathlib import Path

import numpy as np
from jaxtyping import Float64

from qpensieve import zoo
from qpensieve.deploy.exported import open_policies
from qpensieve.envs import find_domain
from qpensieve.errors import MissingFileError, UserError
from qpensieve.learning.predictor import nearest
from qpensieve.population.members import ArchivePredictor, best_rows
from qpensieve.records import folder, log
from qpensieve.records.log import read_rows
from qpensieve.report import results
from qpensieve.train.saved import is_saved_agent
from qpensieve.train.session import Predictor
from qpensieve.watch.world import World

STILL_TRAINING = 120.0
"""Seconds since the log grew after which a run that has not reached its goal counts as stopped."""
KEPT_STEPS = 8
"""Steps whose policies stay in memory."""


class WatchedRun:
    """One run folder or saved agent.

    Args:
        source: A run folder or a saved agent.
        trust: Whether the code that the configuration names may be imported.
        warn: Called with a sentence if newer policies cannot be read.

    Raises:
        FileNotFoundError: The folder holds neither a run nor an agent.
        UntrustedError: The configuration names code to import, and `trust` is False.
        CheckpointError: The folder holds no policies that can be read.
    """

    def __init__(self, source: Path, trust: bool = False, warn: Callable[[str], None] = lambda message: None):
        self.policies = open_policies(source, trust)
        self.config, self.spec = self.policies.config, self.policies.spec
        self._card = zoo.card_of(self.policies.source)
        self._lock = threading.Lock()
        self._load = lru_cache(KEPT_STEPS)(lambda step, stamp: self.policies.predictor(step))
        self._signature = self._table_stamp = None
        self._description, self._table = "", {}
        self.version = 0
        """Number of updates of the description."""
        self.shown = self.policies.newest(warn)[1]
        """The step whose policies are shown first."""
        world = World(self.config.domain)
        try:
            self._scene = world.scene()
        finally:
            world.close()
        self.description()

    def predictor(self, at: int | str) -> tuple[Predictor, int]:
        """Return the policies of a step or the newest ones, and the step; raises as `SavedPolicies` does."""
        with self._lock:
            if isinstance(at, str):
                return self.policies.newest()
            return self._load(at, self.policies.stamp(at)), at

    def served_by(self, predictor: Predictor, row: int, lam: Float64[np.ndarray, " d"]) -> int:
        """Return the number of the policy that serves a preference; -1 if one policy serves all."""
        if (points := archive_of(predictor, row)) is not None:
            return int(best_rows(points, lam[None])[0])
        own = self.policies.own_preferences
        return -1 if own is None else int(nearest(own, lam[None])[0])

    def description(self) -> tuple[str, int]:
        """Return the description of the run as JSON, updated when files change, and its version.

        Raises:
            OSError: A file cannot be read; in the first call only. Later calls keep the last description.
            ValueError: A file holds something else; in the first call only.
        """
        with self._lock:
            try:
                signature = self._look()
                if signature != self._signature:
                    self._description = json.dumps(self._read(), allow_nan=False)
                    self._signature, self.version = signature, self.version + 1
            except (OSError, ValueError, TypeError):  # a file is being replaced or is damaged: keep the description
                if not self._description:
                    raise
            return self._description, self.version

    def _look(self) -> object:
        """Return a value that changes whenever the folder does."""
        source = self.policies.source
        stamps = [_stamp(source / name) for name in (folder.METRICS, folder.EVALUATIONS, folder.CALIBRATION)]
        return stamps, self.policies.steps, self._is_training()

    def _is_training(self) -> bool:
        stamp = _stamp(self.policies.source / folder.METRICS)
        is_fresh = stamp is not None and time.time() - stamp[0] / 1e9 < STILL_TRAINING
        steps = self.policies.steps
        return is_fresh and not (steps and steps[-1] >= self.config.steps)

    def _read(self) -> dict[str, object]:
        config, spec, source = self.config, self.spec, self.policies.source
        if not (source.is_file() or (source / folder.CONFIG).exists()):
            raise MissingFileError(f"{source} is gone")
        known, steps, rows = find_domain(config.domain), self.policies.steps, read_rows(source / folder.METRICS)
        own, exact = self.policies.own_preferences, known and known.exact
        done = max([*(row["step"] for row in rows), *steps], default=0)
        return {
            "name": self.policies.name,
            "domain": config.domain_id,
            "algo": config.algo,
            "kind": "policy" if source.is_file() else "agent" if is_saved_agent(source) else "run",
            "objectives": list(spec.objectives),
            "labels": list(known.labels if known else spec.objectives),
            "seeds": config.seed_list,
            "steps": steps,
            "done": done,
            "goal": max(config.steps, done),
            "is_training": self._is_training(),
            "max_steps": spec.max_steps,
            "own_preferences": None if own is None else own.tolist(),
            "is_archive": config.method.is_population,
            **(self._of_card() if source.is_file() else self._evaluated()),
            "card": self._card and {name: value for name, value in self._card.items() if name != "front"},
            "calibration": self._calibration(),
            "curves": _curves(rows, config.seeds),
            "exact_front": None if exact is None else exact.points.tolist(),
            "scene": self._scene,
        }

    def _of_card(self) -> dict[str, object]:
        """Return the evaluation on the card of a policy that comes with the package; nothing for other policy files."""
        if self._card is None:
            return {"preferences": [], "evaluations": []}
        front = self._card["front"]
        row = {"step": self._card["steps"], "kind": "full", "table": 0, "episodes": self._card["episodes"]}
        return {"preferences": [front["preferences"]], "evaluations": [row | {"returns": [front["returns"]]}]}

    def _calibration(self) -> dict[str, object] | None:
        found = self.policies.calibration
        named = ("step", "preferences", "asks")
        return None if found is None else {name: np.asarray(getattr(found, name)).tolist() for name in named}

    def _evaluated(self) -> dict[str, object]:
        """Return the returns of all evaluations and their preferences, read again when the file changes."""
        path = self.policies.source / folder.EVALUATIONS
        if (stamp := _stamp(path)) is None:
            return {"preferences": [], "evaluations": []}
        if stamp != self._table_stamp:
            history = results.read_run(self.policies.source).history
            if history.num_seeds != self.config.seeds or history.num_objectives != self.spec.num_objectives:
                raise UserError(f"{path} is of other seeds or objectives than {folder.CONFIG} says")
            rows = [
                {
                    "step": one.step,
                    "kind": kind,
                    "table": number,
                    "episodes": one.num_episodes,
                    "returns": rounded(one.returns),
                }
                for number, (kind, played) in enumerate((("short", history.short), ("full", history.full)))
                for one in played
                if one.num_episodes
            ]
            self._table_stamp, self._table = (
                stamp,
                {
                    "preferences": [history.short_preferences.tolist(), history.full_preferences.tolist()],
                    "evaluations": sorted(rows, key=lambda row: (row["step"], row["table"])),
                },
            )
        return self._table


def archive_of(predictor: Predictor, row: int) -> Float64[np.ndarray, "p d"] | None:
    """Return the returns of the policies in a seed's archive; None without an archive."""
    return predictor.exported(row).returns if isinstance(predictor, ArchivePredictor) else None


def rounded(values: object) -> object:
    """Return nested lists of numbers, rounded as in exported files; None for numbers that are not finite."""
    short = results.rounded(np.asarray(values, np.float64))
    return np.where(np.isfinite(short), short, np.array(None)).tolist()


def _stamp(path: Path) -> tuple[int, int] | None:
    """Return time and size of a file, which change with its content; None without a file."""
    try:
        found = path.stat()
    except OSError:
        return None
    return found.st_mtime_ns, found.st_size


def _curves(rows: list[dict[str, object]], num_seeds: int) -> dict[str, object]:
    """Return UT and HV of the short evaluations; without short evaluations, of the full ones."""
    is_list = lambda value: isinstance(value, list) and len(value) == num_seeds
    for event, ending in ((log.SHORT, "_short"), (log.FULL, "")):
        found = [row for row in rows if row["event"] == event and is_list(row.get(f"ut{ending}"))]
        if found:
            has_hv = all(is_list(row.get(f"hv{ending}")) for row in found)
            return {
                "steps": [row["step"] for row in found],
                "ut": rounded([row[f"ut{ending}"] for row in found]),
                "hv": rounded([row[f"hv{ending}"] for row in found]) if has_hv else None,
            }
    return {"steps": [], "ut": [], "hv": None}
