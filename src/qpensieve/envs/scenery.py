"""The look of a simulator as data, which the page in the browser and films draw without knowing the simulator.

A scene lists the things to draw. A pose is a row of numbers that says where they are. In a `BodyScene` it has the
centre of mass (x, y, z), then position and rotation of each geom (x, y, z, qw, qx, qy, qz). In a `PlaneScene` it has
(x, y, angle) of each part, then a number for each signal.
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
    """A flat shape.

    Attributes:
        shape: A polygon or line of `points`, or a disc of `radius` around `centre`.
        role: Meaning of the shape.
        points: Corners of a polygon or line.
        centre: Centre of a disc.
        radius: Radius of a disc.
        name: Name of a moving part; empty for others.
        value: Value of a treasure; None for others.
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
    """Flat shapes that move without changing.

    Attributes:
        view: Visible part of the plane: x0, y0, x1, y1.
        y_down: Whether y grows downwards.
        parts: The moving shapes.
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
    """A simulator that describes the look of its first lane."""

    def scene(self) -> Scene: ...

    def ground(self) -> tuple[Shape, ...]:
        """Return shapes that do not move in the running episode; an empty tuple with a `BodyScene`."""
        ...

    @property
    def moments(self) -> int:
        """Number of moments of the newest step, its end included; 1 after a reset."""
        ...

    def pose(self, moment: int = -1) -> Pose:
        """Return the pose at a moment of the newest step; moment -1 is the end of the step."""
        ...


@runtime_checkable
class Pushable(Protocol):
    """A simulator whose body can be pushed."""

    def push(self, generator: np.random.Generator) -> None:
        """Knock the first lane's body at random; training never does."""
        ...
