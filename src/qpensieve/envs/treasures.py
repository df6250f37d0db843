"""The sea that both Deep Sea Treasures share: ten treasures on the bottom, rock below them, water above.

`dst.py` sails it continuously, `grid.py` by cells; the theory builds its MOMDP from the grid.
"""

from collections.abc import Collection, Sequence

import numpy as np
from jaxtyping import Float, Float64

from qpensieve.envs.scenery import PlaneScene, Shape

SIZE = 11
"""Rows and columns of the map."""
VALUES = (0.7, 8.2, 11.5, 14.0, 15.1, 16.1, 19.6, 20.3, 22.4, 23.7)
"""Treasure of each column, from the shore out."""
DEPTHS = (1, 2, 3, 4, 4, 4, 7, 7, 9, 10)
"""Row of that treasure; below it is rock. The last column of the map is open water."""
TREASURES = {(depth, column): value for column, (depth, value) in enumerate(zip(DEPTHS, VALUES, strict=True))}
"""(row, column) -> value."""
BOAT_RADIUS = 0.2
"""Of the boat in pictures, cells; to the map it is a point."""
TOLERANCE = 1e-3
"""Largest distance between a return and the value of its treasure; allows for float32 rounding."""


def is_rock(row: int, column: int) -> bool:
    return column < len(DEPTHS) and row > DEPTHS[column]


def is_water(row: int, column: int) -> bool:
    return not is_rock(row, column) and (row, column) not in TREASURES


def sea_scene() -> PlaneScene:
    """The map from above, x to the right along its columns, y down along its rows, with one boat."""
    return PlaneScene(
        (0.0, 0.0, float(SIZE), float(SIZE)), True, (Shape("disc", "boat", radius=BOAT_RADIUS, name="boat"),)
    )


def draw_sea(radius: float | None = None) -> tuple[Shape, ...]:
    """Water, rocks and treasures of the map, those of a `radius` round, else square."""
    square = lambda row, column, to_row, to_column: (
        (float(column), float(row)),
        (float(to_column), float(row)),
        (float(to_column), float(to_row)),
        (float(column), float(to_row)),
    )
    shapes = [Shape("polygon", "water", square(0, 0, SIZE, SIZE))]
    for column, depth in enumerate(DEPTHS):
        if depth + 1 < SIZE:
            shapes.append(Shape("polygon", "rock", square(depth + 1, column, SIZE, column + 1)))
    for (row, column), value in TREASURES.items():
        if radius is None:
            shapes.append(Shape("polygon", "treasure", square(row, column, row + 1, column + 1), value=value))
        else:
            centre = (column + 0.5, row + 0.5)
            shapes.append(Shape("disc", "treasure", centre=centre, radius=radius, value=value))
    return tuple(shapes)


def find_treasures(
    returns: Float[np.ndarray, "seed p e 2"], values: Sequence[float] = VALUES
) -> tuple[frozenset[float], ...]:
    """The treasures among `values` that the episodes of each seed ended at."""
    known = np.array(values)
    ends = np.asarray(returns, np.float64)[..., 0].reshape(len(returns), -1, 1)
    reached = np.asarray((np.abs(ends - known) <= TOLERANCE).any(axis=1))
    return tuple(frozenset(known[row].tolist()) for row in reached)


def share_found(found: Sequence[Collection[float]], wanted: Collection[float]) -> Float64[np.ndarray, " seed"]:
    """The share of the wanted treasures that each seed found."""
    return np.array([len(set(wanted) & set(values)) / len(wanted) for values in found])
