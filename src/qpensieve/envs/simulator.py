"""The interface between lanes and simulators: the protocol, the options of lanes, and the types of the arrays."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Protocol, runtime_checkable

import numpy as np
from jaxtyping import Bool, Float64, Int

from qpensieve.machine import available_cores
from qpensieve.types import EnvSpec

Index = slice | Int[np.ndarray, " lanes"]
"""A full slice for all lanes, which copies nothing, or the numbers of some lanes."""

Streams = Callable[[int], np.random.SeedSequence]
"""Lane number -> the seed of the next episode in this lane."""

State = dict[str, np.ndarray]
"""Named arrays from which lanes continue bit for bit."""

ALL_LANES = slice(None)


def allowed_threads(num_threads: int | None) -> int:
    """Return `num_threads`; None: the number of cores that this process may use. ValueError below 1."""
    if num_threads is None:
        return available_cores()
    if num_threads < 1:
        raise ValueError(f"num_threads must be at least 1, got {num_threads}")
    return num_threads


@dataclass(frozen=True)
class LaneOptions:
    """How lanes run. Only `contact_forces` and `time_limit` change the environment itself.

    Attributes:
        autoreset: Start the next episode at once when an episode ends. If False, the lane rests until `reset`: it is
            not simulated, pays nothing and keeps its last observation.
        dtype: Type of observations. float64 keeps them as computed.
        first_lane: Number of the first lane. So lanes 3 and 4 of a seed can be made without lanes 0 to 2.
        num_threads: Threads that share the lanes of MuJoCo domains, or processes that share those of LunarLander, at
            least 16 each. None: as many as help, at most one for each core of this process.
        contact_forces: Ant domains: add 84 contact forces to the observation (slow: computed lane by lane).
        num_workers: Foreign environments: worker processes that share the lanes. 0: no processes.
        time_limit: Whether a time limit ends an episode. If False, an episode continues until it terminates. Most
            foreign environments allow steps beyond their limit.
        is_drawn: Foreign environments: make them with `render_mode="rgb_array"`, where they can draw.
    """

    autoreset: bool = True
    dtype: type[np.floating[Any]] = np.float32
    first_lane: int = 0
    num_threads: int | None = None
    contact_forces: bool = False
    num_workers: int = 0
    time_limit: bool = True
    is_drawn: bool = False

    def __post_init__(self) -> None:
        if not (isinstance(self.dtype, type | np.dtype) and np.issubdtype(self.dtype, np.floating)):
            raise ValueError(f"dtype must be a floating type such as numpy.float32, got {self.dtype!r}")
        if self.first_lane < 0:
            raise ValueError(f"first_lane must not be negative, got {self.first_lane}")
        if self.num_workers < 0:
            raise ValueError(f"num_workers must not be negative, got {self.num_workers}")
        allowed_threads(self.num_threads)


DEFAULT_OPTIONS = LaneOptions()


class SimulationDivergedError(ArithmeticError):
    """A simulator cannot continue in one lane; raised before any lane has moved."""

    def __init__(self, lane: int, what: str):
        super().__init__(what)
        self.lane = lane


@runtime_checkable
class Simulator(Protocol):
    """One body for n lanes. Methods work on the lanes they are given and leave the others alone."""

    @property
    def spec(self) -> EnvSpec: ...

    def reset(self, lanes: Int[np.ndarray, " lanes"], streams: Streams) -> None:
        """Start a new episode in each of `lanes`."""
        ...

    def advance(
        self, lanes: Index, actions: Float64[np.ndarray, "lanes act"]
    ) -> tuple[Float64[np.ndarray, "lanes d"], Bool[np.ndarray, " lanes"], Bool[np.ndarray, " lanes"] | None]:
        """Step the lanes; return reward, terminated, and truncated (None: the simulator never cuts episodes)."""
        ...

    def observe(self, lanes: Index) -> Float64[np.ndarray, "lanes obs"]:
        """Return the observation of each lane, before any cast, in an array the caller may keep."""
        ...

    def state(self) -> State: ...

    def restore(self, state: State) -> None: ...

    def render(self, lane: int) -> np.ndarray: ...

    def close(self) -> None: ...
