"""Diverse experience replay, host side: the slot of every transition on the device.

Source: Abels et al., Dynamic Weights in Multi-Objective Deep RL (ICML 2019), and its authors' code. Half of the slots
are the main memory, first in, first out, by whole episodes (traces). What leaves it goes to the other half, the
secondary memory, which makes room by dropping traces whose return vectors lie where the others are crowded.

Rows and priorities do not move: when a trace changes memory, only its label changes. Choices of this project:

- An objective in which all traces are equal adds nothing to a distance and has no extremes; if all distances are equal,
  the oldest trace is dropped first.
- The running episode is never moved. When it fills the whole main memory, its oldest transitions are dropped one by
  one, as in a ring. Such an incomplete trace is later discarded, not moved. The secondary memory is at least as large
  as the main one, so every complete trace fits into it.
"""

import sys
from bisect import bisect_left, insort
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass
from heapq import heapify, heappop, heappush

import numpy as np
from jaxtyping import Bool, Float, Float64, Int, Int32

from qpensieve.errors import UserError

Pair = tuple[float, int]
"""A return in one objective and the trace it belongs to. Pairs are ordered: equal returns, the older trace first."""

HEAP_ROOM = 512
"""A heap is rebuilt when it holds four times as many pairs as there are traces, and this many more."""

ROUNDING = 1e-12
"""Upper bound on the relative rounding error of a crowding distance."""


@dataclass(frozen=True)
class Placement:
    """Changes by an append; the caller empties `freed`, then writes the new rows to `slots`.

    Attributes:
        slots: Slot of every new transition; the capacity (out of range) for one that is already dropped.
        freed: Slots of earlier transitions that were dropped, ascending; a new transition may already be there.
    """

    slots: Int32[np.ndarray, " K"]
    freed: Int32[np.ndarray, " F"]


@dataclass(frozen=True)
class Trace:
    """A finished episode.

    Attributes:
        first: Number of its first stored transition; also the name of the trace.
        slots: Slots of its transitions, in order.
        signature: Discounted return vector of the whole episode.
        is_whole: False if the episode was too long for the main memory and lost its beginning.
    """

    first: int
    slots: Int[np.ndarray, " length"]
    signature: tuple[float, ...]
    is_whole: bool


class Running:
    """The episode being written: its slots so far, its discounted return and the discount of its next reward."""

    def __init__(self, num_objectives: int):
        self.slots: deque[int] = deque()
        self.returns: Float64[np.ndarray, " d"] = np.zeros(num_objectives)
        self.scale = 1.0
        self.is_whole = True


class DiverseReplay:
    """Slots of one lane's replay, and the traces in them.

    Attributes:
        contents: Number of the transition in each slot, counted from the first ever appended; -1: none.
    """

    def __init__(self, capacity: int, num_objectives: int, discount: float):
        if capacity < 2:
            raise ValueError(f"capacity must be 2 or more (one transition for each memory), got {capacity}")
        self.contents: Int[np.ndarray, " capacity"] = np.full(capacity, -1, np.int64)
        self._num_objectives, self._discount = num_objectives, discount
        self._main_capacity = capacity // 2
        self._secondary_capacity = capacity - capacity // 2
        self._clear()

    def _clear(self) -> None:
        self._main: deque[Trace] = deque()
        self._secondary: dict[int, Trace] = {}
        self._running = Running(self._num_objectives)
        self._crowd = Crowd(self._num_objectives)
        self._num_main = self._num_secondary = self._written = 0
        self._fresh = 0  # slots from here on are free; of those before it, the ones in the heap `_free`
        self._free: list[int] = []

    def append(self, reward: Float[np.ndarray, "K d"], done: Bool[np.ndarray, " K"]) -> Placement:
        """Find slots for K successive transitions; `done` (terminated or truncated) marks the last of an episode.

        Rewards must be finite, which `Lanes` checks.
        """
        start = self._written
        rewards = reward.astype(np.float64)
        slots = np.empty(len(done), np.int32)
        gone = [np.empty(0, np.int32)]
        for i, is_last in enumerate(done.tolist()):
            if self._num_main == self._main_capacity:
                released = self._make_room()
                gone.append(released[self.contents[released] < start])
                self._release(released)
            slots[i] = self._place(rewards[i])
            if is_last:
                self._finish()
        is_there = self.contents[slots] == start + np.arange(len(slots))
        slots = np.where(is_there, slots, len(self.contents)).astype(np.int32)
        return Placement(slots, np.sort(np.concatenate(gone)).astype(np.int32))

    def _place(self, reward: Float64[np.ndarray, " d"]) -> int:
        """Put the running episode's next transition into the smallest free slot; return the slot."""
        if self._free:
            slot = heappop(self._free)
        else:
            slot, self._fresh = self._fresh, self._fresh + 1
        self.contents[slot] = self._written
        running = self._running
        running.slots.append(slot)
        running.returns = running.returns + running.scale * reward
        running.scale *= self._discount
        self._written += 1
        self._num_main += 1
        return slot

    def _release(self, slots: Int[np.ndarray, " F"]) -> None:
        self.contents[slots] = -1
        for slot in slots.tolist():
            heappush(self._free, slot)

    def _finish(self) -> None:
        """Make the finished episode the newest trace of the main memory."""
        running = self._running
        first = self._written - len(running.slots)
        slots = np.array(running.slots, np.int32)
        self._main.append(Trace(first, slots, tuple(running.returns.tolist()), running.is_whole))
        self._running = Running(self._num_objectives)

    def _make_room(self) -> Int[np.ndarray, " F"]:
        """Take the oldest trace out of the full main memory; return the slots of dropped traces, not yet released."""
        if not self._main:
            self._running.is_whole = False
            self._num_main -= 1
            return np.array([self._running.slots.popleft()], np.int32)
        trace = self._main.popleft()
        self._num_main -= len(trace.slots)
        return self._keep(trace) if trace.is_whole else trace.slots

    def _keep(self, trace: Trace) -> Int[np.ndarray, " F"]:
        """Drop traces of the secondary memory until `trace` fits, then add it; return the slots of dropped traces."""
        dropped = [np.empty(0, np.int32)]
        while self._num_secondary + len(trace.slots) > self._secondary_capacity:
            dropped.append(self._secondary.pop(self._crowd.drop()).slots)
            self._num_secondary -= len(dropped[-1])
        self._add_secondary(trace)
        return np.concatenate(dropped)

    def _add_secondary(self, trace: Trace) -> None:
        self._secondary[trace.first] = trace
        self._crowd.add(trace.first, trace.signature)
        self._num_secondary += len(trace.slots)

    def state(self) -> dict[str, np.ndarray]:
        """Return named arrays (copies) from which `restore` continues; traces are ordered by their transitions."""
        secondary = [self._secondary[first] for first in sorted(self._secondary)]
        traces = [*secondary, *self._main]
        running = self._running
        return {
            "contents": self.contents.copy(),
            "written": np.array(self._written, np.int64),
            "num_secondary_traces": np.array(len(secondary), np.int64),
            "length": np.array([len(trace.slots) for trace in traces], np.int64),
            "signature": np.array([trace.signature for trace in traces]).reshape(-1, self._num_objectives),
            "is_whole": np.array([trace.is_whole for trace in traces], bool),
            "running_returns": running.returns.copy(),
            "running_scale": np.array(running.scale),
            "running_is_whole": np.array(running.is_whole),
        }

    def restore(self, state: dict[str, np.ndarray]) -> None:
        """Continue from a saved state of a replay with the same settings.

        Raises:
            ValueError: The state is of another capacity or number of objectives.
        """
        shapes = state["contents"].shape, state["running_returns"].shape
        if shapes != (self.contents.shape, (self._num_objectives,)):
            raise UserError(f"the saved state does not fit this replay: it has shapes {shapes}")
        self._clear()
        self.contents = state["contents"].copy()
        self._written = int(state["written"])
        # Slots in the order of their transitions: free ones (-1) first, then trace after trace, the running one last.
        used = np.argsort(self.contents)[np.count_nonzero(self.contents < 0) :].astype(np.int32)
        *slots, running = np.split(used, np.cumsum(state["length"]))
        self._running.slots = deque(running.tolist())
        self._running.returns = state["running_returns"].copy()
        self._running.scale = float(state["running_scale"])
        self._running.is_whole = bool(state["running_is_whole"])
        for i, (at, signature) in enumerate(zip(slots, state["signature"].tolist(), strict=True)):
            trace = Trace(int(self.contents[at[0]]), at, tuple(signature), bool(state["is_whole"][i]))
            if i < state["num_secondary_traces"]:
                self._add_secondary(trace)
            else:
                self._main.append(trace)
        self._num_main = len(used) - self._num_secondary
        self._fresh = int(used.max(initial=-1)) + 1
        self._free = np.flatnonzero(self.contents[: self._fresh] < 0).tolist()  # ascending, hence a heap


class Crowd:
    """Traces ordered by the crowding distance of their signatures; adding or dropping a trace does not visit all.

    Per objective the signatures are ranked; the two extremes get an infinite distance, those between them the gap
    between their neighbours over the range; the distance is the sum over objectives (NSGA-II, Deb et al., 2002).

    A change affects the gaps of a few neighbours, but a new extreme changes the range and so every distance. Therefore
    the keys of the heap stay those of the ranges at its construction, `_built`. With the current ranges, a distance is
    at least `shrink` times its key, where `shrink` is the least ratio of the ranges. The search goes through the heap
    until that bound exceeds the best distance found. When such searches have visited as many traces as there are, the
    heap is rebuilt.
    """

    def __init__(self, num_objectives: int):
        self._rankings: list[list[Pair]] = [[] for _ in range(num_objectives)]
        """Sorted. A list of 250 000 pairs takes one more in 30 us."""
        self._signatures: dict[int, tuple[float, ...]] = {}
        self._gaps: dict[int, list[float]] = {}
        self._keys: dict[int, float] = {}
        self._heap: list[Pair] = []  # also holds outdated pairs: those that differ from `_keys`
        self._built = [0.0] * num_objectives
        self._num_detours = 0

    def __len__(self) -> int:
        return len(self._signatures)

    def add(self, name: int, signature: tuple[float, ...]) -> None:
        """Add a trace; at equal distance, the trace with the smaller name is the older one."""
        self._signatures[name] = signature
        self._gaps[name] = [np.inf] * len(signature)
        touched = {name}
        for objective, (ranking, value) in enumerate(zip(self._rankings, signature, strict=True)):
            insort(ranking, (value, name))
            self._measure(objective, (value, name))
            touched |= self._measure_all(objective, self._neighbours(objective, (value, name)))
        self._push(touched)

    def drop(self) -> int:
        """Remove the trace with the smallest distance (at a tie, the oldest trace) and return its name."""
        name = self._least()
        signature = self._signatures.pop(name)
        del self._gaps[name], self._keys[name]
        touched: set[int] = set()
        for objective, (ranking, value) in enumerate(zip(self._rankings, signature, strict=True)):
            neighbours = self._neighbours(objective, (value, name))
            del ranking[bisect_left(ranking, (value, name))]
            touched |= self._measure_all(objective, neighbours)
        self._push(touched)
        return name

    def distances(self) -> dict[int, float]:
        ranges = self._ranges()
        return {name: distance(gaps, ranges) for name, gaps in self._gaps.items()}

    def _ranges(self) -> list[float]:
        return [ranking[-1][0] - ranking[0][0] if ranking else 0.0 for ranking in self._rankings]

    def _neighbours(self, objective: int, pair: Pair) -> list[Pair | None]:
        """Return the pairs directly before and after a ranked pair; None at an end."""
        ranking = self._rankings[objective]
        at = bisect_left(ranking, pair)
        return [ranking[i] if 0 <= i < len(ranking) else None for i in (at - 1, at + 1)]

    def _measure_all(self, objective: int, pairs: Sequence[Pair | None]) -> set[int]:
        present = [pair for pair in pairs if pair is not None]
        for pair in present:
            self._measure(objective, pair)
        return {name for _, name in present}

    def _measure(self, objective: int, pair: Pair) -> None:
        before, after = self._neighbours(objective, pair)
        self._gaps[pair[1]][objective] = np.inf if before is None or after is None else after[0] - before[0]

    def _push(self, names: set[int]) -> None:
        for name in names:
            key = distance(self._gaps[name], self._built)
            if self._keys.get(name) != key:
                self._keys[name] = key
                heappush(self._heap, (key, name))
        if len(self._heap) > 4 * len(self) + HEAP_ROOM:
            self._rebuild()

    def _rebuild(self) -> None:
        """Rebuild the heap with keys for the current ranges, without outdated pairs."""
        self._built = self._ranges()
        self._keys = self.distances()
        self._heap = [(key, name) for name, key in self._keys.items()]
        heapify(self._heap)
        self._num_detours = 0

    def _least(self) -> int:
        ranges, shrink = self._ranges(), 1.0
        if self._num_detours > len(self) or [width > 0 for width in ranges] != [width > 0 for width in self._built]:
            self._rebuild()
        if ranges != self._built:
            ratios = [old / new for old, new in zip(self._built, ranges, strict=True) if new > 0]
            shrink = min(ratios) * (1.0 - ROUNDING)
        best, seen = (np.inf, sys.maxsize), []
        while self._heap:
            key, name = self._heap[0]
            # Names of equal keys ascend, so if a key is a distance, the first is the oldest.
            if key * shrink > best[0] or (key * shrink == key == best[0] and name > best[1]):
                break
            heappop(self._heap)
            if self._keys.get(name) == key:
                seen.append((key, name))
                best = min(best, (distance(self._gaps[name], ranges), name))
        for pair in seen:
            heappush(self._heap, pair)
        self._num_detours += len(seen) - 1
        return best[1]


def distance(gaps: Sequence[float], ranges: Sequence[float]) -> float:
    """Sum the gaps, each divided by the range of its objective; an objective with range 0 adds nothing.

    Not with the built-in `sum`: it may round differently, and the oracle of the tests must agree bit for bit.
    """
    total = 0.0
    for gap, width in zip(gaps, ranges, strict=True):
        if width > 0:
            total += gap / width
    return total
