"""Agents on the cores of a CPU: each is updated by a core of its own, instead of all cores working on one product.

Matrix products of an update are too small for several cores: two of them need 1.3 times the work of one. JAX sees as
many CPU devices as agents are spread over; the agent axis is split, and no device needs anything from another.
"""

from collections.abc import Callable
from functools import lru_cache
from typing import Any

import jax
import numpy as np
from jax.sharding import Mesh, NamedSharding
from jax.sharding import PartitionSpec as P

from qpensieve.compiler import KEPT_PROGRAMS
from qpensieve.train.learner import Learner


def spread(learner: Learner, num_agents: int) -> Learner:
    """The learner with its agents spread over the CPU devices; the same learner if there is only one, or a GPU.

    Other numbers of devices agree to rounding: the compiled programs differ.
    """
    devices = jax.local_devices()
    num = max(n for n in range(1, len(devices) + 1) if num_agents % n == 0)
    if devices[0].platform != "cpu" or num == 1:
        return learner
    return _split(learner, tuple(devices[:num]))


@lru_cache(maxsize=KEPT_PROGRAMS)
def _split(learner: Learner, devices: tuple[Any, ...]) -> Learner:
    mesh = Mesh(np.array(devices), ("agent",))
    split = NamedSharding(mesh, P("agent"))

    def each(function: Callable[..., Any]) -> Callable[..., Any]:
        parts = jax.shard_map(function, mesh=mesh, in_specs=P("agent"), out_specs=P("agent"), check_vma=False)
        return jax.jit(parts, donate_argnums=0)

    return Learner(
        init=lambda seeds: jax.device_put(learner.init(seeds), split),
        write=each(learner.write),
        learn=each(learner.learn),
        free=each(learner.free),
        flat_actors=learner.flat_actors,
        place=lambda state: jax.device_put(state, split),
    )
