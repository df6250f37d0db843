"""Worker processes of a training run: some collect blocks of transitions, others play evaluations.

Each worker has whole agents. Agents do not depend on each other, so the numbers are those of one process, bit for bit.
"""

import pickle
from abc import ABC, abstractmethod
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from copy import copy
from dataclasses import dataclass, fields, replace
from itertools import pairwise
from typing import Any

import numpy as np
from jaxtyping import Float64

from qpensieve.envs.registry import find_domain, make_lanes
from qpensieve.envs.simulator import LaneOptions, State
from qpensieve.envs.sources import EnvSource
from qpensieve.envs.split_lanes import join_states, split_state
from qpensieve.errors import EnvError
from qpensieve.learning.predictor import AgentPredictor
from qpensieve.remote import RemoteObject, RemoteObjects, SharedMemory, can_be_sent
from qpensieve.train.collect import Collected, Collector, Episodes
from qpensieve.train.evaluate import evaluate
from qpensieve.types import Acting, Behaviour, Parameters


def can_work(domain: EnvSource, behaviour: Behaviour) -> bool:
    """Return whether workers can collect and evaluate: the domain is built in, and the behaviour can be pickled."""
    return isinstance(domain, str) and find_domain(domain) is not None and can_be_sent(behaviour)


class _Workers(ABC):
    """Worker processes. A failure ends all of them, and the next call starts new ones.

    Args:
        edges: First lane or seed of each process, and the end.
    """

    def __init__(self, edges: list[int]):
        self._edges = edges
        self._workers: RemoteObjects | None = None

    @property
    def num_workers(self) -> int:
        """Number of processes."""
        return len(self._edges) - 1

    @property
    def processes(self) -> list[RemoteObject]:
        """The worker processes."""
        return [] if self._workers is None else self._workers.members

    @abstractmethod
    def _start_worker(self, first: int, end: int) -> RemoteObject:
        """Start the process of some lanes or seeds."""

    def _send(self, method: str, arguments: list[tuple[object, ...]]) -> None:
        """Begin a call of every worker, each with its own arguments."""
        with self._closed_on_failure():
            if self._workers is None:
                self._workers = RemoteObjects(self._start_worker(*ends) for ends in pairwise(self._edges))
            self._workers.send(method, dict(enumerate(arguments)))

    def _receive(self) -> list[Any]:
        """Return the workers' answers, in order."""
        assert self._workers is not None
        with self._closed_on_failure():
            answers = self._workers.receive()
        return [answers[i] for i in range(self.num_workers)]

    def close(self) -> None:
        """End the processes, whatever they are doing."""
        if self._workers is not None:
            self._workers.kill()
        self._workers = None

    @contextmanager
    def _closed_on_failure(self) -> Iterator[None]:
        """End the processes if a call fails halfway, also by Ctrl-C: their state is unknown then."""
        try:
            yield
        except BaseException:
            self.close()
            raise


class RemoteCollector:
    """Collects in a worker. Every answer holds the pickled state of its lanes, which only checkpoints unpickle.

    Args:
        domain: The domain of the lanes.
        seeds: Number of each of its lanes -> its seed.
        block: Steps of a block.
        behaviour: How to act.
        memory: Holds the parameters of all agents.
    """

    def __init__(self, domain: str, seeds: dict[int, int], block: int, behaviour: Behaviour, memory: SharedMemory):
        first, of_lanes = min(seeds), list(seeds.values())
        lanes = make_lanes(domain, len(of_lanes), of_lanes, LaneOptions(num_threads=1, first_lane=first))
        self._collector, self._memory = Collector(lanes, of_lanes, block, behaviour), memory
        self._agents = slice(first // behaviour.num_lanes, (first + len(seeds)) // behaviour.num_lanes)

    def start(self) -> bytes:
        """Begin the first episodes."""
        self._collector.start()
        return self._state()

    def restore(self, state: bytes) -> bytes:
        """Continue from a saved state."""
        self._collector.restore(pickle.loads(state))
        return self._state()

    def collect(self, number: int, shape: tuple[int, int] | None) -> tuple[Collected, bytes]:
        """Collect a block with the parameters of all agents in the memory, of this shape; None: random actions."""
        policy = None if shape is None else self._collector.policy(self._memory.floats(shape)[self._agents])
        return self._collector.collect(policy, number), self._state()

    def _state(self) -> bytes:
        return pickle.dumps(self._collector.state(), pickle.HIGHEST_PROTOCOL)

    def close(self) -> None:
        self._collector.close()


class CollectionWorkers(_Workers):
    """Collects like `Collector`, in worker processes.

    After a failure, new workers begin at the end of the newest whole block.

    Args:
        domain: A built-in domain.
        seeds: Seed of each lane, agent by agent.
        block: Steps of a block.
        behaviour: How to act, and the number of lanes of each agent.
        num_workers: Number of processes; at most one per agent.
    """

    def __init__(self, domain: str, seeds: list[int], block: int, behaviour: Behaviour, num_workers: int):
        known = find_domain(domain)
        assert known is not None
        make_lanes(known.id, 1, 0).close()  # a missing package is reported here, not by a worker that dies
        num_agents = len(seeds) // behaviour.num_lanes
        edges = np.linspace(0, num_agents, min(num_workers, num_agents) + 1).astype(np.int64) * behaviour.num_lanes
        super().__init__(edges.tolist())
        self.episodes = Episodes(seeds, known.spec.num_objectives, behaviour.sampler)
        self._domain, self._seeds, self._block, self._behaviour = known.id, seeds, block, behaviour
        self._memory = SharedMemory()
        self._is_launching = False
        """Whether the workers have not yet answered that they are at the end of the newest whole block."""
        self._states: list[bytes] | None = None
        """Each worker's lanes at the end of the newest whole block; None: before the first episodes."""
        self._begun: tuple[Parameters | None, int] | None = None

    def start(self) -> None:
        """Begin the first episodes; returns while the workers are still starting."""
        self._states = None
        self._launch()

    def state(self) -> State:
        """Return the lanes as they were at the end of the newest whole block."""
        if self._states is None:
            self._make_ready()
        assert self._states is not None
        return join_states([pickle.loads(state) for state in self._states])

    def restore(self, state: State) -> None:
        """Continue from what `state` returned."""
        lanes = make_lanes(self._domain, len(self._seeds), self._seeds, LaneOptions(num_threads=1))
        lanes.check_state(state)
        lanes.close()
        if self._begun is None:
            self._make_ready()
        else:
            self.close()
        self._states = [pickle.dumps(part) for part in split_state(state, np.array(self._edges))]
        self._launch()
        self._make_ready()

    def policy(self, flat: Parameters) -> Parameters:
        """Return the parameters, to collect with."""
        return flat

    def begin(self, policy: Parameters | None, number: int) -> None:
        """Begin the block that `collect` will return next; if this fails, `collect` tries again."""
        with suppress(EnvError):
            self._ask(policy, number)

    def collect(self, policy: Parameters | None, number: int) -> Collected:
        """Collect block `number`: K steps of every lane, with the parameters `policy`; None: random actions."""
        if self._begun is None or self._begun[0] is not policy or self._begun[1] != number:
            self._ask(policy, number)
        blocks, states = zip(*self._receive(), strict=True)
        self._begun, self._states = None, list(states)
        return Collected(
            *(np.concatenate([getattr(block, field.name) for block in blocks]) for field in fields(Collected))
        )

    def close(self) -> None:
        self._begun, self._is_launching = None, False
        super().close()

    def _launch(self) -> None:
        """Send the workers to the end of the newest whole block, without waiting; start workers if there are none."""
        states = self._states
        if states is None:
            self._send("start", [()] * self.num_workers)
        else:
            self._send("restore", [(state,) for state in states])
        self._is_launching = True

    def _start_worker(self, first: int, end: int) -> RemoteObject:
        title = f"{self._domain}: the process that steps lanes {first} to {end - 1}"
        seeds = {lane: self._seeds[lane] for lane in range(first, end)}
        given = (self._domain, seeds, self._block, self._behaviour, self._memory)
        return RemoteObject(title, RemoteCollector, given, self._memory)

    def _make_ready(self) -> None:
        """Bring the workers to the end of the newest whole block; start new workers if there are none."""
        if self._begun is not None:
            self.close()  # they collect a block that is not needed
        if self._workers is None:
            self._launch()
        if self._is_launching:
            self._states = self._receive()
            self._is_launching = False

    def _ask(self, policy: Parameters | None, number: int) -> None:
        self._make_ready()
        if policy is not None:
            self._memory.floats(policy.shape)[:] = policy
        self._send("collect", [(number, None if policy is None else policy.shape)] * self.num_workers)
        self._begun = (policy, number)


@dataclass(frozen=True, eq=False)
class EvaluationJob:
    """Evaluations of some seeds, here or in a worker.

    Attributes:
        domain: A built-in domain.
        seeds: Seeds whose policies are evaluated.
        acting: How the policies act.
        own: Preferences that have their own agent each. None: one agent of a seed serves all.
        max_steps: Steps after which an episode is cut.
        num_threads: Threads with which each process may step its lanes.
    """

    domain: str
    seeds: list[int]
    acting: Acting
    own: Float64[np.ndarray, "p d"] | None
    max_steps: int
    num_threads: int = 1

    def evaluate(
        self, flat: Parameters, preferences: Float64[np.ndarray, "p d"], episodes: int
    ) -> Float64[np.ndarray, "seed p e d"]:
        """Play the policies with these parameters and return their returns."""
        act = AgentPredictor(self.acting, self.own, flat, 0).act_all
        return evaluate(self.domain, self.seeds, act, preferences, episodes, self.max_steps, self.num_threads)


class EvaluationWorkers(_Workers):
    """Plays one evaluation at a time; the processes start with the first and wait for the next.

    Args:
        job: What is evaluated.
        num_workers: Number of processes; at most one per seed.
    """

    def __init__(self, job: EvaluationJob, num_workers: int):
        super().__init__(np.linspace(0, len(job.seeds), num_workers + 1).astype(int).tolist())
        self._job = job
        self.step = 0
        """Environment step of the policies that are evaluated."""
        self._asked: list[tuple[object, ...]] = []

    def begin(self, flat: Parameters, step: int, preferences: Float64[np.ndarray, "p d"], episodes: int) -> None:
        """Begin an evaluation; `result` must have returned the last one, and raises the errors of this one.

        Args:
            flat: Parameters of all agents; copied.
            step: Environment step of the policies.
            preferences: Preferences to play under.
            episodes: Episodes per preference.
        """
        assert not self._asked
        of_seeds = np.split(flat.copy(), np.array(self._edges[1:-1]) * (len(flat) // len(self._job.seeds)))
        self._asked += [(part, preferences, episodes) for part in of_seeds]
        self.step = step
        if any(worker.process.poll() is not None for worker in self.processes):
            self.close()
        with suppress(EnvError):
            self._send("evaluate", self._asked)

    def is_ready(self) -> bool:
        """Return whether `result` would return, or raise, at once."""
        return all(worker.is_ready for worker in self.processes)

    def result(self) -> Float64[np.ndarray, "seed p e d"]:
        """Wait for the returns of the evaluation that was begun. If this raises, the next call plays again."""
        if self._workers is None:
            self._send("evaluate", self._asked)
        returns = np.concatenate(self._receive())
        self._asked = []
        return returns

    def _start_worker(self, first: int, end: int) -> RemoteObject:
        job = replace(self._job, seeds=self._job.seeds[first:end])
        numbers = ", ".join(map(str, job.seeds))
        title = f"{job.domain}: the process that evaluates seed{'s' if len(job.seeds) > 1 else ''} {numbers}"
        return RemoteObject(title, copy, (job,))
