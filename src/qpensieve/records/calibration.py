"""The calibration of policies and its file `calibration.json`: the preference to ask for in place of another."""

from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from jaxtyping import Float, Float64, Int64

from qpensieve.records.files import FileError, interpreting, read_object, write_json
from qpensieve.records.folder import refuse_link

FORMAT = 1
"""Version of the file's layout."""
SAME = 1e-9
"""Largest difference between preferences that count as the same row."""


@dataclass(frozen=True, eq=False)
class Calibration:
    """For each seed a map from the user's preference to the preference to ask the policy for.

    A preference between the rows of the map takes the entry of the nearest row (of equally near rows the first). If
    that row asks for itself, the preference asks for itself too.

    Attributes:
        step: Environment step of the policies.
        seeds: Numbers of the seeds.
        preferences: Rows of the map.
        asks: Number of the row to ask for; a row with its own number has no confirmed gain.
        gain: Confirmed gain of the weighted return, measured on episodes that chose nothing; 0 where nothing changes.
        episodes: Episodes that each seed played.
        environment_steps: Environment steps that each seed spent: they count as samples.
    """

    step: int
    seeds: list[int]
    preferences: Float64[np.ndarray, "m d"]
    asks: Int64[np.ndarray, "seed m"]
    gain: Float64[np.ndarray, "seed m"]
    episodes: int
    environment_steps: Int64[np.ndarray, " seed"]

    def ask(self, row: int, lam: Float[np.ndarray, "n d"]) -> Float[np.ndarray, "n d"]:
        """Return the preferences to ask the `row`-th seed's policy for in place of the preferences `lam`."""
        near = np.square(lam[:, None] - self.preferences).sum(axis=2).argmin(axis=1)
        asked = self.asks[row, near]
        return np.where((asked == near)[:, None], lam, self.preferences[asked]).astype(lam.dtype)

    def rows_of(self, table: Float64[np.ndarray, "p d"]) -> Int64[np.ndarray, "seed p"] | None:
        """Return the numbers of the rows of `table` to ask for under each row; None if the table lacks one of them."""
        asked = np.stack([self.ask(row, table) for row in range(len(self.seeds))])
        apart = np.abs(asked[:, :, None] - table).max(axis=3)
        return apart.argmin(axis=2) if (apart.min(axis=2) <= SAME).all() else None

    def __str__(self) -> str:
        num = len(self.preferences)
        changed = (self.asks != np.arange(num)).sum(axis=1)
        lines = [
            f"seed {seed}: another row for {count} of {num} preferences, mean confirmed gain {gain:.4g} over all"
            for seed, count, gain in zip(self.seeds, changed.tolist(), self.gain.mean(axis=1).tolist(), strict=True)
        ]
        spent = f"{self.episodes} episodes, {self.environment_steps.mean():,.0f} environment steps per seed"
        return "\n".join([*lines, f"step {self.step:,}: {spent}"])

    def to_dict(self) -> dict[str, Any]:
        """Return the calibration as JSON holds it."""
        plain = lambda value: value.tolist() if isinstance(value, np.ndarray) else value
        return {"format": FORMAT} | {name: plain(value) for name, value in vars(self).items()}


def save(path: Path, calibration: Calibration) -> None:
    """Write the file; an earlier calibration is replaced."""
    refuse_link(path)
    write_json(path, calibration.to_dict())


def load(path: Path) -> Calibration | None:
    """Load a calibration; None without a file, FileError if the file holds something else or parts that do not fit."""
    if not path.exists():
        return None
    with interpreting(path, "a calibration"):
        content = read_object(path)
        if content["format"] != FORMAT:
            raise ValueError(f"its format must be {FORMAT}, got {content['format']!r}")
        seeds = [int(seed) for seed in content["seeds"]]
        preferences = np.array(content["preferences"], np.float64)
        asks, gain = np.array(content["asks"], np.int64), np.array(content["gain"], np.float64)
        spent = np.array(content["environment_steps"], np.int64)
        shape = (len(seeds), len(preferences))
        if preferences.ndim != 2 or asks.shape != shape or gain.shape != shape or spent.shape != shape[:1]:
            names = "preferences, asks, gain and environment_steps"
            raise ValueError(f"{names} must fit each other and {len(seeds)} seeds")
        if not np.isfinite(preferences).all() or asks.size == 0 or asks.min() < 0 or asks.max() >= len(preferences):
            raise ValueError(f"preferences must be finite and asks numbers of rows, from 0 to {len(preferences) - 1}")
        return Calibration(int(content["step"]), seeds, preferences, asks, gain, int(content["episodes"]), spent)


def cut(path: Path, step: int) -> None:
    """Remove a calibration of a later step, because the run goes back to `step`; a file that cannot be read stays."""
    with suppress(FileError):
        found = load(path)
        if found is not None and found.step > step:
            path.unlink()
