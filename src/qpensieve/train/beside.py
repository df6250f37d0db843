"""Evaluations in processes of their own, so that training need not wait for them.

Each process plays all episodes of a few seeds, with policies in plain NumPy. Seeds do not depend on each other, so the
numbers are those of an evaluation in this process, bit for bit.
"""

import json
import pickle
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from itertools import pairwise

import numpy as np
from jaxtyping import Float64

from qpensieve import remote
from qpensieve.errors import EnvError
from qpensieve.learning.predictor import AgentPredictor
from qpensieve.remote import START, Obey, Program
from qpensieve.train.evaluate import evaluate
from qpensieve.types import Acting, Parameters

PLAY = b"P"


@dataclass(frozen=True, eq=False)
class Contest:
    """Who is evaluated, where and up to when.

    Attributes:
        domain: One of our domains.
        seeds: Their seeds.
        acting: How they act.
        own: Preferences that have their own agent each; None: one agent of a seed serves all.
        max_steps: Where an episode that does not end is cut.
        num_threads: Threads that each process may step its lanes with.
    """

    domain: str
    seeds: list[int]
    acting: Acting
    own: Float64[np.ndarray, "p d"] | None
    max_steps: int
    num_threads: int = 1

    @property
    def agents_per_seed(self) -> int:
        return 1 if self.own is None else len(self.own)


@dataclass(frozen=True, eq=False)
class _Asked:
    """One evaluation: policies, preferences and episodes of each."""

    flat: Parameters
    preferences: Float64[np.ndarray, "p d"]
    episodes: int

    def shape(self, num_seeds: int) -> tuple[int, ...]:
        """Shape of the returns of some seeds."""
        return (num_seeds, len(self.preferences), self.episodes, self.preferences.shape[1])


class Evaluators:
    """Plays one evaluation at a time; the processes start with the first and wait for the next.

    Args:
        contest: What is evaluated.
        num_processes: How many processes; at most one per seed.
    """

    def __init__(self, contest: Contest, num_processes: int):
        self._contest = contest
        self._edges: list[int] = np.linspace(0, len(contest.seeds), num_processes + 1).astype(int).tolist()
        self._workers: list[_Worker] = []
        self._asked: _Asked | None = None

    @property
    def is_busy(self) -> bool:
        """Whether the result of an evaluation has not been taken."""
        return self._asked is not None

    def begin(self, flat: Parameters, preferences: Float64[np.ndarray, "p d"], episodes: int) -> None:
        """Begin an evaluation of the policies as they are; an error is raised when its result is asked for.

        Args:
            flat: Parameters of all agents; copied.
            preferences: What to play under.
            episodes: How often.
        """
        assert self._asked is None
        self._asked = _Asked(np.array(flat), preferences, episodes)
        if any(worker.program.process.poll() is not None for worker in self._workers):
            self._end()
        try:
            self._send(self._asked)
        except EnvError:
            self._kill()

    def is_ready(self) -> bool:
        """Whether `result` would return, or raise, at once."""
        return all(worker.program.is_ready for worker in self._workers)

    def result(self) -> Float64[np.ndarray, "seed p e d"]:
        """The returns of the evaluation that was begun; waits for them. If it raises, the next call plays again."""
        asked = self._asked
        assert asked is not None
        with self._whole():
            if not self._workers:
                self._send(asked)
            parts = [worker.program.answer() for worker in self._workers]
        self._asked = None
        sizes = [end - first for first, end in pairwise(self._edges)]
        return np.concatenate(
            [np.frombuffer(part).reshape(asked.shape(num)) for part, num in zip(parts, sizes, strict=True)]
        )

    def close(self) -> None:
        if self._asked is not None:  # they would play to the end first
            self._kill()
        self._end()

    def _end(self) -> None:
        for worker in self._workers:
            worker.program.close()
        self._workers = []

    def _send(self, asked: _Asked) -> None:
        num, width = self._contest.agents_per_seed, asked.flat.shape[1]
        if not self._workers:
            self._workers = [_Worker(self._contest, slice(*ends), width) for ends in pairwise(self._edges)]
        for worker, (first, end) in zip(self._workers, pairwise(self._edges), strict=True):
            worker.ask(replace(asked, flat=asked.flat[first * num : end * num]))

    @contextmanager
    def _whole(self) -> Iterator[None]:
        """End the processes if an evaluation is given up halfway, also by Ctrl-C."""
        try:
            yield
        except BaseException:
            self._kill()
            raise

    def _kill(self) -> None:
        for worker in self._workers:
            worker.program.kill()
        self._end()


class _Worker:
    """One process and the parameters that it shares."""

    def __init__(self, contest: Contest, part: slice, width: int):
        own = replace(contest, seeds=contest.seeds[part])
        numbers = ", ".join(map(str, own.seeds))
        title = f"{own.domain}: the process that evaluates seed{'s' if len(own.seeds) > 1 else ''} {numbers}"
        file = remote.unnamed_file()
        self.program = Program(__name__, title, file)
        self._flat = remote.shared_parameters(file, len(own.seeds) * own.agents_per_seed, width)
        self.program.send(START, pickle.dumps((own, file, width)))

    def ask(self, asked: _Asked) -> None:
        self._flat[:] = asked.flat
        words = (asked.preferences.tolist(), asked.episodes)
        self.program.send(PLAY, json.dumps(words).encode())


def begin(content: bytes) -> Obey:
    """A process's life, from its task on; every answer is the returns of its seeds."""
    contest: Contest
    contest, file, width = pickle.loads(content)
    flat = remote.shared_parameters(file, len(contest.seeds) * contest.agents_per_seed, width)
    predictor = AgentPredictor(contest.acting, contest.own, flat, 0)

    def obey(command: bytes, content: bytes) -> bytes:
        assert command == PLAY
        rows, episodes = json.loads(content)
        given = (predictor.act_all, np.array(rows, np.float64), episodes, contest.max_steps, contest.num_threads)
        return evaluate(contest.domain, contest.seeds, *given).tobytes()

    return obey
