"""A run folder or saved agent as the page sees it, now and as it grows. It is only ever read."""

import math
import threading
import time
from collections import OrderedDict
from pathlib import Path
from typing import Any

import numpy as np
from jaxtyping import Float64

from qpensieve.envs import find_domain
from qpensieve.learning.serving import nearest
from qpensieve.population.answering import ArchivePredictor
from qpensieve.population.archive import best
from qpensieve.records import evaluations, folder, log
from qpensieve.records.evaluations import Evaluations
from qpensieve.records.reading import read_rows
from qpensieve.train.saved import SavedPolicies
from qpensieve.train.session import Predictor
from qpensieve.watch.world import World

STILL_TRAINING = 120.0
"""Seconds since the log grew after which a run that has not reached its goal counts as stopped."""
KEPT_STEPS = 8
"""Steps whose policies stay in memory."""
DIGITS = 7
"""Digits of the numbers that the page draws."""


class WatchedRun:
    """One folder.

    Args:
        source: A run folder or a saved agent.
        trust: Whether code that the configuration of someone else imports may be run.

    Raises:
        FileNotFoundError: It is neither.
        UntrustedError: It would import code of someone else.
        CheckpointError: It holds no policies.
    """

    def __init__(self, source: Path, trust: bool = False):
        self.policies = SavedPolicies(source, trust)
        self.config, self.spec = self.policies.config, self.policies.spec
        self._lock = threading.Lock()
        self._predictors: OrderedDict[int, Predictor] = OrderedDict()
        self._signature: Any = None
        self._about: dict[str, Any] = {}
        self.version = 0
        """Counts up whenever the folder has grown."""
        self.predictor("newest")
        world = World(self.config.domain)
        try:
            self._scene = world.scene()
        finally:
            world.close()

    def predictor(self, at: int | str) -> tuple[Predictor, int]:
        """The policies of a step or the newest ones, and the step; errors as those of `SavedPolicies`."""
        with self._lock:
            if at == "newest":
                steps = self.policies.steps
                at = steps[-1] if steps and steps[-1] in self._predictors else at
            if isinstance(at, int) and at in self._predictors:
                self._predictors.move_to_end(at)
                return self._predictors[at], at
            found, step = self.policies.newest() if isinstance(at, str) else (self.policies.predictor(at), at)
            self._predictors[step] = found
            while len(self._predictors) > KEPT_STEPS:
                self._predictors.popitem(last=False)
            return found, step

    def served_by(self, predictor: Predictor, row: int, lam: Float64[np.ndarray, " d"]) -> int:
        """Number of the policy that serves a preference; -1 where one serves all."""
        if (points := archive_of(predictor, row)) is not None:
            return int(best(points, lam[None])[0])
        own = self.policies.own_preferences
        return -1 if own is None else int(nearest(own, lam[None])[0])

    def about(self) -> tuple[dict[str, Any], int]:
        """What the page is told, read anew where files have changed; and its version."""
        with self._lock:
            signature = self._look()
            if signature != self._signature:
                try:
                    self._about = self._read()
                except (OSError, ValueError):  # a file is being replaced; the next look finds it
                    if not self._about:
                        raise
                    return self._about, self.version
                self._signature, self.version = signature, self.version + 1
            return self._about, self.version

    def _look(self) -> Any:
        """What changes whenever the folder has something new."""
        source = self.policies.source
        files = [source / name for name in (folder.METRICS, folder.EVALUATIONS)]
        stats = [path.stat() if path.exists() else None for path in files]
        sizes = [stat and (stat.st_mtime_ns, stat.st_size) for stat in stats]
        return sizes, self.policies.steps, self._is_training()

    def _is_training(self) -> bool:
        path = self.policies.source / folder.METRICS
        is_fresh = path.exists() and time.time() - path.stat().st_mtime < STILL_TRAINING
        steps = self.policies.steps
        return is_fresh and not (steps and steps[-1] >= self.config.steps)

    def _read(self) -> dict[str, Any]:
        config, spec, source = self.config, self.spec, self.policies.source
        known, steps, rows = find_domain(config.domain), self.policies.steps, read_rows(source / folder.METRICS)
        own, exact = self.policies.own_preferences, known and known.exact
        done = max([*(row["step"] for row in rows), *steps], default=0)
        return {
            "name": source.resolve().name,
            "domain": config.domain_id,
            "algo": config.algo,
            "kind": "run" if (source / folder.METRICS).exists() else "agent",
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
            **self._evaluated(source / folder.EVALUATIONS),
            "curves": _curves(rows, config.seeds),
            "exact_front": None if exact is None else exact.points.tolist(),
            "scene": self._scene,
        }

    def _evaluated(self, path: Path) -> dict[str, Any]:
        """The returns of all evaluations, and the preferences they were played under."""
        if not path.exists():
            return {"preferences": [], "evaluations": []}
        table = evaluations.load(path)
        if table.num_seeds != self.config.seeds or table.num_objectives != self.spec.num_objectives:
            raise ValueError(f"{path} is of other seeds or objectives than {folder.CONFIG} says")
        rows = [*_rows(table, "short", 0), *_rows(table, "full", 1)]
        tables = [table.short_preferences.tolist(), table.full_preferences.tolist()]
        return {"preferences": tables, "evaluations": sorted(rows, key=lambda row: (row["step"], row["table"]))}


def archive_of(predictor: Predictor, row: int) -> Float64[np.ndarray, "p d"] | None:
    """What the policies of a seed's archive bring; None where there is no archive."""
    return predictor.plain(row).returns if isinstance(predictor, ArchivePredictor) else None


def rounded(values: Any) -> Any:
    """Nested numbers with as many digits as a picture shows; null in place of what JSON cannot say."""
    if isinstance(values, list):
        return [rounded(value) for value in values]
    return float(f"{values:.{DIGITS}g}") if math.isfinite(values) else None


def _rows(table: Evaluations, kind: str, number: int) -> list[dict[str, Any]]:
    steps, returns = getattr(table, f"{kind}_steps"), getattr(table, f"{kind}_returns")
    return [
        {
            "step": int(step),
            "kind": kind,
            "table": number,
            "episodes": returns.shape[3],
            "returns": rounded(returns[i].mean(axis=2).tolist()),
        }
        for i, step in enumerate(steps)
        if returns.shape[3]
    ]


def _curves(rows: list[dict[str, Any]], num_seeds: int) -> dict[str, Any]:
    """UT and HV of the short evaluations, or of the full ones where there are no short ones."""
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
