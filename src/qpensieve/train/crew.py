"""Blocks collected on several cores: each worker process collects the block of a few agents, from first step to last.

Within a block the policy is fixed and lanes do not depend on each other. So there is one task per worker and block, and
the numbers are those of one `Collector`, bit for bit. Parameters and rows lie in memory that both sides see; commands
and the state of the lanes go through pipes.

Workers are plain programs (`remote.py`). The parent keeps the lanes' state after every whole block: after any failure
the workers are gone, and the next block starts new ones from there.
"""

import mmap
import pickle
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from itertools import pairwise

import numpy as np
from jaxtyping import Float32

from qpensieve import remote
from qpensieve.envs.parts import join_states, split_state
from qpensieve.envs.registry import find_domain, make_lanes
from qpensieve.envs.simulator import LaneOptions, State
from qpensieve.envs.sources import EnvSource
from qpensieve.errors import EnvError
from qpensieve.remote import START, Obey, Program
from qpensieve.replay.layout import RowLayout, layout_of
from qpensieve.train.collect import Collected, Collector, PastPreferences
from qpensieve.types import Behaviour, Parameters

COLLECT, RESTORE = b"C", b"R"


@dataclass(frozen=True)
class Task:
    """What a worker does all its life.

    Attributes:
        domain: The domain of the lanes.
        seeds: Seed of each of its lanes.
        first_lane: Number of the first one.
        block: Steps of a block.
        behaviour: How to act.
        memory: File descriptor of the memory that it shares with the parent.
    """

    domain: str
    seeds: list[int]
    first_lane: int
    block: int
    behaviour: Behaviour
    memory: int

    @property
    def options(self) -> LaneOptions:
        return LaneOptions(num_threads=1, first_lane=self.first_lane)

    @property
    def num_agents(self) -> int:
        return len(self.seeds) // self.behaviour.num_lanes


def can_work(domain: EnvSource, behaviour: Behaviour) -> bool:
    """Whether a crew can collect this: a domain of ours, a behaviour that can be sent, a system with shared files."""
    return isinstance(domain, str) and find_domain(domain) is not None and remote.can_be_sent(behaviour)


class Crew(PastPreferences):
    """Collects like `Collector`, in `num_workers` processes.

    Args:
        domain: One of our domains.
        seeds: Seed of each lane, agent by agent.
        block: Steps of a block.
        behaviour: How to act, and in how many lanes each agent does.
        num_workers: Processes; at most one per agent.
    """

    def __init__(self, domain: str, seeds: list[int], block: int, behaviour: Behaviour, num_workers: int):
        known = find_domain(domain)
        assert known is not None
        make_lanes(known.id, 1, 0).close()  # a missing package is reported here, not by a worker that dies
        super().__init__(seeds, known.spec.num_objectives, behaviour.sampler)
        self._domain, self._seeds, self._block, self._behaviour = known.id, seeds, block, behaviour
        self._layout = layout_of(known.spec, behaviour)
        num_agents = len(seeds) // behaviour.num_lanes
        self.num_workers = min(num_workers, num_agents)
        self._edges = np.linspace(0, num_agents, self.num_workers + 1).astype(np.int64) * behaviour.num_lanes
        self._workers: list[_Worker] = []
        self._is_starting = False
        self._begun: tuple[Parameters | None, int] | None = None
        self._failure: EnvError | None = None
        self._parts: list[bytes] = []
        """State of each worker's lanes at the end of the newest whole block, as it came."""

    def start(self) -> None:
        """Begin the first episodes; returns while the workers are still starting."""
        self._is_starting = True
        with self._whole_command():
            self._open()
            for worker in self._workers:
                worker.send(START)

    def state(self) -> State:
        """The lanes as they were at the end of the newest whole block."""
        self._finish_start()
        return join_states([pickle.loads(part) for part in self._parts])

    def restore(self, state: State) -> None:
        """Continue from what `state` returned."""
        lanes = make_lanes(self._domain, len(self._seeds), self._seeds, LaneOptions(num_threads=1))
        lanes.check_state(state)
        lanes.close()
        self._finish_start()
        self._drop_begun()
        self._failure = None
        self._parts = [pickle.dumps(part) for part in split_state(state, self._edges)]
        self._go_to_boundary()

    def policy(self, flat: Parameters) -> Parameters:
        """What to collect with."""
        return flat

    def begin(self, policy: Parameters | None, number: int) -> None:
        """Begin a block that will be asked for next; a failure is raised when it is."""
        try:
            self._ask(policy, number)
        except EnvError as error:
            self._failure = error

    def collect(self, policy: Parameters | None, number: int) -> Collected:
        """Block `number`: K steps of every lane, with `policy`, or random actions without one."""
        failure, self._failure = self._failure, None
        if failure is not None:
            raise failure
        if self._begun is None or self._begun[0] is not policy or self._begun[1] != number:
            self._drop_begun()
            self._ask(policy, number)
        self._begun = None
        block = Collected.empty(len(self._seeds), self._block, self._layout)
        with self._whole_command():
            parts = [worker.answer() for worker in self._workers]
            for worker, ends in zip(self._workers, pairwise(self._edges.tolist()), strict=True):
                worker.memory.copy_to(block, slice(*ends))
        self._parts = parts
        return block

    def close(self) -> None:
        self._begun = None
        for worker in self._workers:
            worker.close()
        self._workers = []

    def _ask(self, policy: Parameters | None, number: int) -> None:
        self._finish_start()
        if not self._workers:
            self._go_to_boundary()
        agents = self._edges // self._behaviour.num_lanes
        with self._whole_command():
            for worker, ends in zip(self._workers, pairwise(agents.tolist()), strict=True):
                worker.ask_for_block(None if policy is None else policy[slice(*ends)], number)
        self._begun = (policy, number)

    def _drop_begun(self) -> None:
        """End the workers if they collect a block that nobody will ask for; the next command starts new ones."""
        if self._begun is not None:
            self._kill()

    def _finish_start(self) -> None:
        """Wait for the first episodes; where that failed before, try again."""
        if not self._is_starting:
            return
        if not self._workers:
            self.start()
        with self._whole_command():
            self._parts = [worker.answer() for worker in self._workers]
        self._is_starting = False

    def _go_to_boundary(self) -> None:
        """Bring the workers, new ones if there are none, to the end of the newest whole block."""
        with self._whole_command():
            self._open()
            for worker, part in zip(self._workers, self._parts, strict=True):
                worker.send(RESTORE, part)
            for worker in self._workers:
                worker.answer()

    def _open(self) -> None:
        if self._workers:
            return
        for first, end in pairwise(self._edges.tolist()):
            task = Task(self._domain, self._seeds[first:end], first, self._block, self._behaviour, -1)
            self._workers.append(_Worker(task, self._layout))

    @contextmanager
    def _whole_command(self) -> Iterator[None]:
        """End the workers if a command fails halfway, also by Ctrl-C: they are no longer where the session is."""
        try:
            yield
        except BaseException:
            self._kill()
            raise

    def _kill(self) -> None:
        for worker in self._workers:
            worker.kill()
        self.close()


class _Memory:
    """A file without a name in memory: the rows of a block, and after them the parameters to act with."""

    def __init__(self, file: int, num_lanes: int, block: int, layout: RowLayout):
        self.file = file
        parts = Collected.parts(num_lanes, block, layout)
        sizes = [int(np.prod(shape)) * dtype.itemsize for shape, dtype in parts]
        starts = [sum(-(-size // 8) * 8 for size in sizes[:i]) for i in range(len(sizes) + 1)]
        self._rows_size = -(-starts[-1] // mmap.ALLOCATIONGRANULARITY) * mmap.ALLOCATIONGRANULARITY
        remote.grow(file, self._rows_size)
        rows = mmap.mmap(file, self._rows_size)
        self.block = Collected(
            *(np.ndarray(*part, buffer=rows, offset=at) for part, at in zip(parts, starts, strict=False))
        )
        self._flat: np.ndarray | None = None

    def flat(self, num_agents: int, width: int) -> Float32[np.ndarray, "agent parameters"]:
        """The parameters; their number never changes."""
        if self._flat is None:
            self._flat = remote.shared_parameters(self.file, num_agents, width, self._rows_size)
        return self._flat

    def copy_to(self, block: Collected, lanes: slice) -> None:
        block.rows[lanes], block.lam[lanes] = self.block.rows, self.block.lam
        block.episodes[lanes], block.done[lanes] = self.block.episodes, self.block.done


class _Worker:
    """One worker process and the memory that it shares."""

    def __init__(self, task: Task, layout: RowLayout):
        file = remote.unnamed_file()
        first, last = task.first_lane, task.first_lane + len(task.seeds) - 1
        self.program = Program(__name__, f"{task.domain}: the process that steps lanes {first} to {last}", file)
        self.memory = _Memory(file, len(task.seeds), task.block, layout)
        self.send, self.answer = self.program.send, self.program.answer
        self.kill, self.close = self.program.kill, self.program.close
        self.send(START, pickle.dumps(replace(task, memory=file)))

    def ask_for_block(self, flat: Parameters | None, number: int) -> None:
        width = 0 if flat is None else flat.shape[1]
        if flat is not None:
            self.memory.flat(*flat.shape)[:] = flat
        self.send(COLLECT, pickle.dumps((number, width)))


def begin(content: bytes) -> Obey:
    """A worker's life, from its task on; every answer is the state of its lanes."""
    task: Task = pickle.loads(content)
    lanes = make_lanes(task.domain, len(task.seeds), task.seeds, task.options)
    collector = Collector(lanes, task.seeds, task.block, task.behaviour)
    memory = _Memory(task.memory, len(task.seeds), task.block, layout_of(lanes.spec, task.behaviour))

    def obey(command: bytes, content: bytes) -> bytes:
        _obey(collector, memory, task.num_agents, command, content)
        return pickle.dumps(collector.state())

    return obey


def _obey(collector: Collector, memory: _Memory, num_agents: int, command: bytes, content: bytes) -> None:
    if command == START:
        collector.start()
    elif command == RESTORE:
        collector.restore(pickle.loads(content))
    else:
        number, width = pickle.loads(content)
        policy = collector.policy(memory.flat(num_agents, width)) if width else None
        collector.collect(policy, number, memory.block)
