"""The lanes of `gym_lanes`, spread over worker processes: the same numbers, bit for bit, on several cores.

Each worker holds a contiguous part of the lanes in a `GymSimulator` and answers one command at a time over a pipe. All
workers get their command before any answer is awaited. Processes are spawned, not forked: a fork would copy the
threads of JAX in an unusable state. So a script that starts workers needs `if __name__ == "__main__":`.

A step takes about half a millisecond more than in one process, so workers help only if stepping takes longer.
"""

import os
import pickle
import signal
import time
import weakref
from collections.abc import Callable
from contextlib import closing, suppress
from dataclasses import dataclass
from multiprocessing import get_context
from multiprocessing.connection import Connection
from multiprocessing.context import SpawnProcess
from typing import Any

import numpy as np
from jaxtyping import Bool, Float64, Int

from qpensieve.console import plain_warnings
from qpensieve.envs.gym_lanes import GymSimulator, warn_if_different
from qpensieve.envs.history import episode_seeds
from qpensieve.envs.simulator import Index, State, Streams
from qpensieve.envs.sources import EnvFactory
from qpensieve.errors import EnvError, UserError
from qpensieve.remote import Failure, how_it_ended
from qpensieve.types import EnvSpec

CLOSE_SECONDS = 5.0
"""How long all workers together may take to end by themselves before they are killed."""

ALIVE_CHECK_SECONDS = 1.0
"""Seconds between checks that the worker is alive, while waiting for an answer."""


@dataclass(frozen=True)
class _Worker:
    process: SpawnProcess
    pipe: Connection
    lanes: range
    """The lanes of the simulator that it holds."""
    first_lane: int
    """Number of the simulator's first lane in messages."""

    def __str__(self) -> str:
        first = self.first_lane + self.lanes.start
        return f"worker process for lanes {first} to {first + len(self.lanes) - 1}"


_DIED = object()
"""Stands for the answer of a worker that died."""


class WorkerSimulator:
    """Like `GymSimulator`, with the environments in `num_workers` processes (at most one per lane).

    An error in a worker is raised here with its lane; a worker that died raises EnvError at the next command.
    Processes end at `close`, when the simulator is garbage-collected, and when the program ends.
    """

    def __init__(self, factory: EnvFactory, num_lanes: int, num_workers: int, source_name: str, first_lane: int = 0):
        if num_workers < 1 or num_lanes < 1:
            raise ValueError(f"need at least one worker and one lane, got {num_workers} and {num_lanes}")
        parts = np.array_split(np.arange(num_lanes), min(num_workers, num_lanes))
        self._name, self._first_lane = source_name, first_lane
        self._owner = np.repeat(np.arange(len(parts)), [part.size for part in parts])
        self._workers: list[_Worker] = []
        self._end = weakref.finalize(self, _end, self._workers, os.getpid())
        pickled = _pickled(factory, source_name)
        try:
            for part in parts:
                own = range(int(part[0]), int(part[-1]) + 1)
                self._workers.append(_spawn(pickled, own, source_name, first_lane))
            specs = {w: _receive(worker) for w, worker in enumerate(self._workers)}
            self._check(specs)
        except BaseException:
            self.close()
            raise
        self.spec: EnvSpec = specs[0]
        self._obs = np.full((num_lanes, self.spec.obs_size), np.nan)

    def reset(self, lanes: Int[np.ndarray, " lanes"], streams: Streams) -> None:
        self.start(lanes, episode_seeds(lanes, streams))

    def start(self, lanes: Int[np.ndarray, " lanes"], seeds: Int[np.ndarray, " lanes"]) -> None:
        """Start an episode in each of `lanes`, from the seeds given."""
        shares = self._shares(lanes)
        answers = self._ask(_start, {w: (local, seeds[rows]) for w, (rows, local) in shares.items()})
        for w, obs in answers.items():
            self._obs[lanes[shares[w][0]]] = obs

    def advance(
        self, lanes: Index, actions: Float64[np.ndarray, "lanes act"]
    ) -> tuple[Float64[np.ndarray, "lanes d"], Bool[np.ndarray, " lanes"], Bool[np.ndarray, " lanes"]]:
        numbers = np.arange(self._owner.size)[lanes]
        shares = self._shares(numbers)
        answers = self._ask(_advance, {w: (local, actions[rows]) for w, (rows, local) in shares.items()})
        reward = np.empty((numbers.size, self.spec.num_objectives))
        terminated, truncated = np.empty((2, numbers.size), bool)
        for w, answer in answers.items():
            rows, _ = shares[w]
            reward[rows], terminated[rows], truncated[rows], self._obs[numbers[rows]] = answer
        return reward, terminated, truncated

    def observe(self, lanes: Index) -> Float64[np.ndarray, "lanes obs"]:
        return self._obs[lanes].copy()

    def state(self) -> State:
        """The same arrays as `GymSimulator.state`; each class can continue what the other saved."""
        answers = self._ask(GymSimulator.state, dict.fromkeys(range(len(self._workers)), ()))
        return {name: np.concatenate([answers[w][name] for w in sorted(answers)]) for name in answers[0]}

    def restore(self, state: State) -> None:
        """Play the saved episodes again, up to where they were."""
        ends = np.cumsum(state["episode_lengths"])
        parts = {}
        for w, worker in enumerate(self._workers):
            own = slice(worker.lanes.start, worker.lanes.stop)
            first = int(ends[own.start - 1]) if own.start else 0
            part = {name: state[name][own] for name in state if name != "episode_actions"}
            parts[w] = (part | {"episode_actions": state["episode_actions"][first : int(ends[own.stop - 1])]},)
        for w, obs in self._ask(_replay, parts).items():
            self._obs[self._owner == w] = obs
        warn_if_different(self._name, self._first_lane, state["observations"], self._obs)

    def render(self, lane: int) -> np.ndarray:
        w = int(self._owner[lane])
        return self._ask(GymSimulator.render, {w: (lane - self._workers[w].lanes.start,)})[w]

    def close(self) -> None:
        self._end()

    def _shares(self, lanes: Int[np.ndarray, " lanes"]) -> dict[int, tuple[np.ndarray, np.ndarray]]:
        """For each worker that has any of `lanes`: their positions in `lanes`, and their numbers in the worker."""
        owner = self._owner[lanes]
        rows = {int(w): np.flatnonzero(owner == w) for w in np.unique(owner)}
        return {w: (own, lanes[own] - self._workers[w].lanes.start) for w, own in rows.items()}

    def _ask(self, command: Callable[..., Any], arguments: dict[int, tuple[Any, ...]]) -> dict[int, Any]:
        """The answers of the workers named in `arguments` to `command(simulator, *arguments)`."""
        if not self._end.alive:
            raise EnvError(f"{self._name}: the worker processes are closed")
        try:
            for w, values in arguments.items():
                # A pipe that broke is the sign of a dead worker, and waiting for its answer says so.
                with suppress(OSError):
                    self._workers[w].pipe.send((command, values))
            answers = {w: _receive(self._workers[w]) for w in arguments}
        except BaseException:
            # For example after Ctrl-C: unread answers would be taken for those of the next command.
            self.close()
            raise
        self._check(answers)
        return answers

    def _check(self, answers: dict[int, Any]) -> None:
        """Raise the first error among the answers. All have been read, so the pipes stay in step."""
        for w, answer in answers.items():
            worker = self._workers[w]
            title = f"{self._name}: the {worker}"
            if isinstance(answer, Failure):
                raise answer.error(title)
            if answer is _DIED:
                worker.process.join(ALIVE_CHECK_SECONDS)
                code = worker.process.exitcode
                hint = ' (a script that starts workers needs `if __name__ == "__main__":`)' if code == 1 else ""
                raise EnvError(f"{title} {how_it_ended(code)}{hint}")


def _pickled(factory: EnvFactory, source_name: str) -> bytes:
    try:
        return pickle.dumps(factory)
    except (pickle.PicklingError, AttributeError, TypeError) as error:
        raise UserError(
            f"{source_name}: the factory cannot be sent to worker processes ({error}); "
            "use a function at the top level of a module, or its name 'module:function'"
        ) from error


def _spawn(pickled: bytes, lanes: range, source_name: str, first_lane: int) -> _Worker:
    context = get_context("spawn")
    ours, theirs = context.Pipe()
    arguments = (theirs, pickled, len(lanes), source_name, first_lane + lanes.start)
    process = context.Process(target=_serve, args=arguments, name=f"{source_name} lanes {lanes}", daemon=True)
    process.start()
    # With our copy of its end closed, the pipe breaks when the worker dies.
    theirs.close()
    return _Worker(process, ours, lanes, first_lane)


def _receive(worker: _Worker) -> Any:
    """The worker's answer, or `_DIED`."""
    try:
        # A process of the environment's own may hold the pipe open after the worker is gone, so a broken pipe is not
        # the only sign to look for.
        while not worker.pipe.poll(ALIVE_CHECK_SECONDS):
            if not worker.process.is_alive() and not worker.pipe.poll():
                return _DIED
        return worker.pipe.recv()
    except (EOFError, OSError):
        return _DIED


def _end(workers: list[_Worker], owner: int) -> None:
    """End the processes: ask, wait, then kill."""
    if os.getpid() != owner:
        return  # a fork of the owner inherits the finalizer, but not the workers
    for worker in workers:
        with suppress(OSError):
            worker.pipe.send(None)
    deadline = time.monotonic() + CLOSE_SECONDS
    for worker in workers:
        worker.process.join(max(0.0, deadline - time.monotonic()))
        if worker.process.is_alive():
            worker.process.kill()
            worker.process.join()
        worker.pipe.close()
        worker.process.close()


def _serve(pipe: Connection, pickled: bytes, num_lanes: int, source_name: str, first_lane: int) -> None:
    """The main function of a worker process: make the environments, then answer commands until told to end."""
    # Ctrl-C reaches all processes of a terminal; the owner decides what it means.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    # The owner may have ended without a message: then there is nothing to read and nobody to answer.
    with plain_warnings(), suppress(EOFError, OSError):
        try:
            simulator = GymSimulator(pickle.loads(pickled), num_lanes, source_name, first_lane)
        except Exception as error:
            pipe.send(Failure.of(error))
            return
        with closing(simulator):
            pipe.send(simulator.spec)
            while (request := pipe.recv()) is not None:
                command, arguments = request
                pipe.send(_attempt(command, simulator, arguments))


def _attempt(command: Callable[..., Any], simulator: GymSimulator, arguments: tuple[Any, ...]) -> Any:
    try:
        return command(simulator, *arguments)
    except Exception as error:
        return Failure.of(error)


def _start(simulator: GymSimulator, lanes: Int[np.ndarray, " lanes"], seeds: Int[np.ndarray, " lanes"]) -> np.ndarray:
    simulator.start(lanes, seeds)
    return simulator.observe(lanes)


def _advance(
    simulator: GymSimulator, lanes: Int[np.ndarray, " lanes"], actions: Float64[np.ndarray, "lanes act"]
) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
    """Reward, terminated, truncated and observations: all that a step of `Lanes` asks for, in one answer."""
    return *simulator.advance(lanes, actions), simulator.observe(lanes)


def _replay(simulator: GymSimulator, state: State) -> np.ndarray:
    simulator.replay(state)
    return simulator.observe(slice(None))
