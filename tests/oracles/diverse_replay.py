"""Diverse experience replay by lists: everything is sorted anew at every eviction."""

from dataclasses import dataclass, field
from typing import Any

import numpy as np


def crowding_distances(signatures: Any) -> np.ndarray:
    """Per row, the sum over objectives of the gap between its neighbours over the range; infinite at both ends.

    Rows are in order of age, older ones before. An objective in which all rows are equal is left out.
    """
    points = np.asarray(signatures, np.float64)
    total = np.zeros(len(points))
    for values in points.T:
        order = np.argsort(values, kind="stable")
        ranked = values[order]
        width = ranked[-1] - ranked[0]
        if width == 0:
            continue
        total[order[0]] = total[order[-1]] = np.inf
        total[order[1:-1]] += (ranked[2:] - ranked[:-2]) / width
    return total


@dataclass
class Episode:
    signature: np.ndarray
    numbers: list[int] = field(default_factory=list)
    num_steps: int = 0
    """More than there are numbers: the beginning is lost."""


@dataclass
class Replay:
    """Two halves of `capacity` slots. `main` is finished episodes by age, `running` the unfinished one."""

    capacity: int
    num_objectives: int
    discount: float
    main: list[Episode] = field(default_factory=list)
    secondary: list[Episode] = field(default_factory=list)
    slot_of: dict[int, int] = field(default_factory=dict)
    """Of every stored transition, by its number."""
    written: int = 0

    def __post_init__(self):
        self.running = self._episode()

    def _episode(self) -> Episode:
        return Episode(np.zeros(self.num_objectives))

    def contents(self) -> list[int]:
        number_in = {slot: number for number, slot in self.slot_of.items()}
        return [number_in.get(slot, -1) for slot in range(self.capacity)]

    def append(self, rewards: Any, dones: Any) -> tuple[list[int], list[int]]:
        """Slots of the new transitions and freed slots, both read off the contents before and after."""
        before, start = self.contents(), self.written
        for reward, done in zip(rewards, dones, strict=True):
            self._step(np.asarray(reward, np.float64), bool(done))
        slots = [self.slot_of.get(number, self.capacity) for number in range(start, self.written)]
        now = self.contents()
        return slots, [slot for slot in range(self.capacity) if before[slot] >= 0 and now[slot] != before[slot]]

    def _step(self, reward: np.ndarray, done: bool) -> None:
        stored = [number for episode in [*self.main, self.running] for number in episode.numbers]
        if len(stored) + 1 > self.capacity // 2:
            self._make_room()
        self.slot_of[self.written] = min(set(range(self.capacity)) - set(self.slot_of.values()))
        self.running.numbers.append(self.written)
        weight = 1.0
        for _ in range(self.running.num_steps):
            weight *= self.discount
        self.running.signature = self.running.signature + weight * reward
        self.running.num_steps += 1
        self.written += 1
        if done:
            self.main.append(self.running)
            self.running = self._episode()

    def _make_room(self) -> None:
        if not self.main:
            del self.slot_of[self.running.numbers.pop(0)]
            return
        oldest = self.main.pop(0)
        if oldest.num_steps > len(oldest.numbers):
            self._forget(oldest)
            return
        room = self.capacity - self.capacity // 2 - len(oldest.numbers)
        while sum(len(episode.numbers) for episode in self.secondary) > room:
            distances = crowding_distances([episode.signature for episode in self.secondary])
            self._forget(self.secondary.pop(int(np.argmin(distances))))
        self.secondary.append(oldest)

    def _forget(self, episode: Episode) -> None:
        for number in episode.numbers:
            del self.slot_of[number]
