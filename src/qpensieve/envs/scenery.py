"""What a simulator looks like, as data: whoever draws it (a page in a browser, a film) need not know the simulator.

A scene says once what there is. A pose is a row of numbers that says where it is: in a `BodyScene` the centre of mass
(x, y, z), then for each geom its place and its turn (x, y, z, qw, qx, qy, qz); in a `PlaneScene` for each part (x, y,
angle), then a number for each signal.
"""

from dataclasses import dataclass
from typing import Literal, Protocol, runtime_checkable

import numpy as np
from jaxtyping import Float64

Pose = Float64[np.ndarray, " numbers"]
Points = tuple[tuple[float, float], ...]
Role = Literal["water", "rock", "treasure", "sky", "terrain", "pad", "flag", "boat", "lander", "leg"]
"""Meaning of a shape; the page and the film choose its colour."""


@dataclass(frozen=True)
class Geom:
    """A rigid shape in space; sizes are MuJoCo's (capsule: radius, half length along its own z)."""

    name: str
    type: str
    size: tuple[float, ...]
    rgba: tuple[float, ...]
    body: int


@dataclass(frozen=True)
class BodyScene:
    """Rigid shapes in space, metres, z up."""

    geoms: tuple[Geom, ...]
    kind: Literal["bodies"] = "bodies"


@dataclass(frozen=True)
class Shape:
    """Something flat.

    Attributes:
        shape: A polygon or line of `points`, or a disc of `radius` around `centre`.
        role: Its meaning.
        points: Its corners.
        centre: Middle of a disc.
        radius: Of a disc.
        name: What a moving part is called.
        value: What it is worth, where it is worth something.
    """

    shape: Literal["polygon", "disc", "line"]
    role: Role
    points: Points = ()
    centre: tuple[float, float] = (0.0, 0.0)
    radius: float = 0.0
    name: str = ""
    value: float | None = None


@dataclass(frozen=True)
class PlaneScene:
    """Flat shapes that move as they are.

    Attributes:
        view: What is to be seen: left, first, right and last, x0, y0, x1, y1.
        y_down: Whether y grows downwards.
        parts: What moves.
        signals: Names of the other numbers of a pose.
    """

    view: tuple[float, float, float, float]
    y_down: bool
    parts: tuple[Shape, ...]
    signals: tuple[str, ...] = ()
    kind: Literal["plane"] = "plane"


Scene = BodyScene | PlaneScene


@runtime_checkable
class Scenic(Protocol):
    """A simulator that says how it looks. All of it is of its first lane."""

    def scene(self) -> Scene: ...

    def ground(self) -> tuple[Shape, ...]:
        """Things that do not move in the running episode; none in a `BodyScene`."""
        ...

    @property
    def moments(self) -> int:
        """Through how many moments the newest step went, its end included; 1 after a reset."""
        ...

    def pose(self, moment: int = -1) -> Pose:
        """Where everything is, or was at a moment of the newest step; -1 is now."""
        ...


@runtime_checkable
class Pushable(Protocol):
    """A simulator whose body can be pushed."""

    def push(self, generator: np.random.Generator) -> None:
        """Give the first lane's body a random knock, which an episode of training never has."""
        ...
