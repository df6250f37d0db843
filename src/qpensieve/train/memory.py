"""Whether a run can fit into memory: what its replay and networks take at least, before any of it is made."""

import math
from typing import Any

import jax
import numpy as np

from qpensieve import machine
from qpensieve.replay.layout import RowLayout
from qpensieve.types import Algorithm

NUMBER_BYTES = 4
"""Bytes of a number in the replay."""
MANY_AGENTS = 64
"""From so many agents on networks count beside the replay: finding their shapes takes a moment."""


def check_memory(algorithm: Algorithm[Any], layout: RowLayout, capacity: int, seeds: int) -> None:
    """Refuse a run whose replay and networks alone are larger than the memory there is.

    A run that passes may still lack memory: batches, gradients and environments take some too.

    Args:
        algorithm: What learns.
        layout: What a row of the replay holds.
        capacity: Rows of each lane's replay.
        seeds: How many train side by side.

    Raises:
        MemoryError: Says how much they need, how much there is and what would fit.
    """
    room, where = _room()
    row = algorithm.lanes_per_seed * layout.width * NUMBER_BYTES
    is_small = seeds * algorithm.agents_per_seed < MANY_AGENTS
    if room is None or (is_small and seeds * capacity * row <= room):
        return
    networks = algorithm.agents_per_seed * _bytes_of_agent(algorithm, layout.num_objectives)
    needed = seeds * (capacity * row + networks)
    if needed <= room:
        return
    num, rows = room // (capacity * row + networks), (room // seeds - networks) // row
    less = [f"{num:,} seeds"] * (num > 0) + [f"a replay_capacity of {rows:,}"] * (rows > 0)
    fits = f"at most {' or '.join(less)} can fit" if less else "not even one seed can fit"
    what = f"replay and networks of {seeds:,} seed{'s' * (seeds > 1)} need at least {_gib(needed)}"
    raise MemoryError(f"{what}, {where} has {_gib(room)}: {fits}")


def _room() -> tuple[int | None, str]:
    """Bytes that a run can use at most, None if nobody tells; and whose they are."""
    device = jax.local_devices()[0]
    if device.platform == "cpu":
        return machine.memory(), "this machine"
    return (device.memory_stats() or {}).get("bytes_limit"), device.device_kind


def _bytes_of_agent(algorithm: Algorithm[Any], num_objectives: int) -> int:
    lam = jax.ShapeDtypeStruct((num_objectives,), np.float32)
    state = jax.eval_shape(lambda lam: algorithm.init(jax.random.key(0), lam), lam)
    return sum(math.prod(leaf.shape) * leaf.dtype.itemsize for leaf in jax.tree.leaves(state))


def _gib(num: int) -> str:
    return f"{num / 2**30:,.1f} GiB"
