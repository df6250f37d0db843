"""Gradients by central differences, and Adam, for arrays that are changed in place."""

from collections.abc import Callable

import numpy as np

STEP = 1e-6
B1, B2 = 0.9, 0.999


def slope_of(loss: Callable[[], float], array: np.ndarray) -> np.ndarray:
    """Gradient of a loss by the numbers of an array that it reads; the array is left as it was."""
    slope = np.zeros_like(array)
    for place in np.ndindex(array.shape):
        value = array[place]
        array[place] = value + STEP
        above = loss()
        array[place] = value - STEP
        slope[place] = (above - loss()) / (2 * STEP)
        array[place] = value
    return slope


def adam(
    array: np.ndarray, moments: tuple[np.ndarray, np.ndarray], slope: np.ndarray, num: int, size: tuple[float, float]
) -> None:
    """Step `num` of Adam, counted from 1.

    `moments` are its running means of slopes and of their squares, `size` is the learning rate and epsilon.
    """
    rate, epsilon = size
    first, second = moments
    first[...] = B1 * first + (1 - B1) * slope
    second[...] = B2 * second + (1 - B2) * slope**2
    array[...] -= rate * first / (1 - B1**num) / (np.sqrt(second / (1 - B2**num)) + epsilon)
