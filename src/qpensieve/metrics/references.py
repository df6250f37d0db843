"""Reference points of the hypervolume, for the ten domains and DeepSeaTreasure; every row names its source.

The paper prints no reference points.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from difflib import get_close_matches
from types import MappingProxyType

import numpy as np
from jaxtyping import Float64

from qpensieve.errors import UserError
from qpensieve.preferences import ArrayLike

REFERENCE_VERSION = 1
"""Version of the table below; hypervolumes of different versions must not be compared."""


@dataclass(frozen=True)
class Reference:
    """A reference point and where it comes from."""

    point: tuple[float, ...]
    """The corner from which the hypervolume is measured, one entry per objective."""
    source: str
    """How the point was found."""
    comparable: bool
    """Whether a hypervolume from this point may be compared with the paper's."""


_TEST_SCRIPT = "authors' test.py of March 2023"
_README = "authors' README for LunarLander5d"
_MAGNITUDE = "guess from the order of magnitude of the paper's hypervolume"

REFERENCES: Mapping[str, Reference] = MappingProxyType(
    {
        "DST2d": Reference((0.0, -50.0), "fits the paper's mean, but not its standard deviation", False),
        "LunarLander4d": Reference(
            (0.0, -100.0, -100.0, -200.0), f"{_README}, first four; fits the paper's table", True
        ),
        "LunarLander5d": Reference((0.0, -100.0, -100.0, -200.0, -2000.0), _README, True),
        "HalfCheetah2d": Reference((0.0, -4000.0), _TEST_SCRIPT, True),
        "Hopper2d": Reference((0.0, -1000.0), _TEST_SCRIPT, True),
        "Hopper3d": Reference((0.0, 0.0, -1000.0), _MAGNITUDE, False),
        "Hopper5d": Reference((0.0, -500.0, -500.0, -500.0, 0.0), _MAGNITUDE, False),
        "Ant2d": Reference((0.0, -3000.0), _TEST_SCRIPT, True),
        "Ant3d": Reference((0.0, 0.0, -1000.0), _MAGNITUDE, False),
        "Walker2d": Reference((0.0, -1000.0), _TEST_SCRIPT, True),
        "DeepSeaTreasure": Reference((0.0, -50.0), "as for DST2d; the paper has no grid", False),
    }
)
"""Domain -> reference, version `REFERENCE_VERSION`."""


def reference_point(domain: str) -> Float64[np.ndarray, " d"]:
    """Return the reference point of a domain.

    Raises:
        ValueError: The domain is not in the table; the message lists the nearest names.
    """
    if domain not in REFERENCES:
        names = {name.lower(): name for name in REFERENCES}
        near = [names[match] for match in get_close_matches(domain.lower(), names)]
        hint = f"did you mean {' or '.join(near)}?" if near else f"known: {', '.join(REFERENCES)}"
        raise UserError(f"no reference point for domain {domain!r}; {hint}")
    return np.array(REFERENCES[domain].point, dtype=np.float64)


def check_reference(reference: ArrayLike, num_objectives: int) -> Float64[np.ndarray, " d"]:
    """Return the reference point as float64.

    Raises:
        ValueError: The reference is not a vector of `num_objectives` finite numbers.
    """
    point = np.asarray(reference, dtype=np.float64)
    if point.shape != (num_objectives,):
        raise UserError(f"reference must have shape ({num_objectives},), one entry per objective; got {point.shape}")
    wrong = np.flatnonzero(~np.isfinite(point))
    if len(wrong):
        raise UserError(f"reference must be finite, entry {wrong[0]} is {point[wrong[0]]}")
    return point
