"""Check, before anything large is made, that a run's replay (or rollouts) and networks fit into memory."""

import math

import jax
import numpy as np

from qpensieve import machine
from qpensieve.learning.acting import num_parameters
from qpensieve.learning.interface import Algorithm
from qpensieve.population.pgmorl import PopulationConfig, num_tasks
from qpensieve.population.ppo import PpoConfig
from qpensieve.replay.layout import RowLayout
from qpensieve.types import EnvSpec

NUMBER_BYTES = 4
"""Bytes of a number in the replay."""
MANY_AGENTS = 64
"""From this number of agents on, networks are counted too: finding their shapes takes a moment."""
ENVIRONMENT_BYTES = 1 << 20
"""Bytes of a foreign environment on the host, measured for mo-hopper-v5; others take more or less."""


def check_memory(
    algorithm: Algorithm[object], layout: RowLayout, capacity: int, seeds: int, environments: int = 0
) -> None:
    """Refuse a run whose replay, networks and (on a CPU) foreign environments alone need more memory than there is.

    A run that passes may still lack memory: batches and gradients take some too. Networks of fewer than `MANY_AGENTS`
    agents are not counted while the replay fits.

    Args:
        algorithm: The algorithm.
        layout: Layout of a row of the replay.
        capacity: Rows of each lane's replay.
        seeds: Number of seeds.
        environments: Number of foreign environments that there will be at once.

    Raises:
        MemoryError: The memory is too small; the message says what is needed, what there is and what would fit.
    """
    row = algorithm.lanes_per_seed * layout.width * NUMBER_BYTES
    room = _room(environments)
    is_small = seeds * algorithm.agents_per_seed < MANY_AGENTS
    if room[0] is None or (is_small and seeds * capacity * row <= room[0]):
        return
    networks = algorithm.agents_per_seed * _bytes_of_agent(algorithm, layout.num_objectives)
    what = f"replay and networks of {seeds:,} seed{'s' * (seeds > 1)}"
    _check(what, seeds, (capacity, row, networks), "a replay_capacity", room)


def check_population(cfg: PopulationConfig, spec: EnvSpec, seeds: int, environments: int = 0) -> None:
    """Refuse a population whose networks and rollouts of one iteration alone are larger than the memory there is.

    A run that passes may still lack memory: samples of the population and archives take some too.

    Args:
        cfg: Settings of the population.
        spec: The environment.
        seeds: Number of seeds.
        environments: Number of foreign environments that there will be at once.

    Raises:
        MemoryError: The memory is too small; the message says what is needed, what there is and what would fit.
    """
    tasks = num_tasks(cfg.stages, spec.num_objectives)
    step = tasks * cfg.ppo.num_lanes * NUMBER_BYTES * (spec.obs_size + spec.action_size + spec.num_objectives)
    sizes = (cfg.ppo.rollout_steps, step, tasks * _bytes_of_member(cfg.ppo, spec))
    what = f"rollouts and networks of {seeds:,} seed{'s' * (seeds > 1)} with {tasks:,} tasks each"
    _check(what, seeds, sizes, "rollout_steps", _room(environments))


def _check(what: str, seeds: int, sizes: tuple[int, int, int], setting: str, there: tuple[int | None, str]) -> None:
    """Raise MemoryError if seeds of these `sizes` (rows, bytes of a row, bytes of networks) need too much memory."""
    (rows, row, networks), (room, where) = sizes, there
    needed = seeds * (rows * row + networks)
    if room is None or needed <= room:
        return
    num, most = room // (rows * row + networks), (room // seeds - networks) // row
    less = [f"{num:,} seeds"] * (num > 0) + [f"{setting} of {most:,}"] * (most > 0)
    fits = f"at most {' or '.join(less)} can fit" if less else "not even one seed can fit"
    raise MemoryError(f"{what} need at least {_gib(needed)}, {where} has {_gib(room)}: {fits}")


def _bytes_of_member(cfg: PpoConfig, spec: EnvSpec) -> int:
    """Return the bytes of policy and critic, each with both moments of Adam."""
    sizes = [
        num_parameters((spec.obs_size, cfg.hidden, cfg.hidden, n)) for n in (spec.action_size, spec.num_objectives)
    ]
    return 3 * NUMBER_BYTES * (sum(sizes) + spec.action_size)


def _room(environments: int) -> tuple[int | None, str]:
    """Return the bytes that its environments leave to a run (None: unknown), and the name of the device."""
    device = jax.local_devices()[0]
    if device.platform != "cpu":
        return (device.memory_stats() or {}).get("bytes_limit"), device.device_kind
    all_of_it, taken = machine.memory(), environments * ENVIRONMENT_BYTES
    about = f" with {environments:,} environments" if environments else ""
    return None if all_of_it is None else max(0, all_of_it - taken), f"this machine{about}"


def _bytes_of_agent(algorithm: Algorithm[object], num_objectives: int) -> int:
    lam = jax.ShapeDtypeStruct((num_objectives,), np.float32)
    state = jax.eval_shape(lambda lam: algorithm.init(jax.random.key(0), lam), lam)
    return sum(math.prod(leaf.shape) * leaf.dtype.itemsize for leaf in jax.tree.leaves(state))


def _gib(num: int) -> str:
    return f"{num / 2**30:,.1f} GiB"
