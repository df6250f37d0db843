"""Many LunarLanders on several cores: this process flies a share of the lanes, helper processes fly the rest.

Box2D holds Python's lock while it steps, so threads do not help. Helpers are started as plain programs
(`python -m qpensieve.envs.lander_crew`), not as forks or copies of the user's script, and talk in raw arrays over
pipes.
"""

import json
import os
import signal
import struct
import subprocess
import sys
import weakref
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import asdict
from typing import BinaryIO

import numpy as np
from jaxtyping import Bool, Float64, Int

from qpensieve.envs import processes
from qpensieve.envs.history import History, episode_seeds, replay
from qpensieve.envs.lunar_lander import LunarLanderSimulator
from qpensieve.envs.simulator import EnvError, Index, State, Streams, allowed_threads
from qpensieve.host_types import EnvSpec

MIN_SHARE = 16
"""Fewer lanes than this are not worth a helper process."""
START, ADVANCE, RENDER = b"S", b"A", b"R"
HEADER = struct.Struct("<cQ")
HOW_TO_GO_ON = "make new lanes and restore the saved state"


def make_lander(spec: EnvSpec, num_lanes: int, num_processes: int | None) -> "LunarLanderSimulator | LanderCrew":
    """The simulator for `num_lanes`, with as many processes as are allowed (None: every core) and useful."""
    shares = max(1, min(allowed_threads(num_processes), num_lanes // MIN_SHARE))
    return LunarLanderSimulator(spec, num_lanes) if shares == 1 else LanderCrew(spec, num_lanes, shares)


class LanderCrew:
    """LunarLander lanes split over `num_shares` processes; numbers are those of `LunarLanderSimulator`, bit for bit.

    An error in the middle of a command (Ctrl-C, a lost helper) closes the crew; restore a saved state in new lanes.
    """

    def __init__(self, spec: EnvSpec, num_lanes: int, num_shares: int):
        self.spec, self.num_shares = spec, num_shares
        self._closed = False
        self._first = np.linspace(0, num_lanes, num_shares + 1).astype(np.int64)
        sizes = np.diff(self._first).tolist()
        self._helpers = [_Helper(spec, size) for size in sizes[1:]]
        self._own = LunarLanderSimulator(spec, sizes[0])
        self._history = History(num_lanes, spec.action_size)
        self._obs = np.zeros((num_lanes, spec.obs_size))

    def reset(self, lanes: Int[np.ndarray, " lanes"], streams: Streams) -> None:
        self.start(lanes, episode_seeds(lanes, streams))

    def start(self, lanes: Int[np.ndarray, " lanes"], seeds: Int[np.ndarray, " lanes"]) -> None:
        """Start an episode in each of `lanes`, from the seed given."""
        order, (own, *shares) = self._split(lanes)
        with self._whole_command():
            for helper, share in zip(self._helpers, shares, strict=True):
                helper.send(START, share.lanes, seeds[order][share.rows])
            self._own.start(own.lanes, seeds[order][own.rows])
            obs = [self._own.observe(own.lanes)] + [helper.receive_obs() for helper in self._helpers]
        self._obs[lanes[order]] = np.concatenate(obs)
        for lane, seed in zip(lanes.tolist(), seeds.tolist(), strict=True):
            self._history.start(lane, seed)

    def advance(
        self, lanes: Index, actions: Float64[np.ndarray, "lanes act"]
    ) -> tuple[Float64[np.ndarray, "lanes d"], Bool[np.ndarray, " lanes"], None]:
        numbers = np.arange(len(self._obs))[lanes]
        order, (own, *shares) = self._split(numbers)
        with self._whole_command():
            for helper, share in zip(self._helpers, shares, strict=True):
                helper.send(ADVANCE, share.lanes, actions[order][share.rows])
            own_reward, own_end, _ = self._own.advance(own.lanes, actions[order][own.rows])
            parts = [(own_reward, own_end, self._own.observe(own.lanes))]
            parts += [helper.receive_step() for helper in self._helpers]
        rewards, ends, obs = (np.concatenate(values) for values in zip(*parts, strict=True))
        self._obs[numbers[order]] = obs
        self._history.append(numbers, actions)
        reward, terminated = np.empty_like(rewards), np.empty_like(ends)
        reward[order], terminated[order] = rewards, ends
        return reward, terminated, None

    def observe(self, lanes: Index) -> Float64[np.ndarray, "lanes obs"]:
        return self._obs[lanes].copy()

    def state(self) -> State:
        return self._history.state()

    def restore(self, state: State) -> None:
        replay(state, self.start, self.advance)

    def render(self, lane: int) -> np.ndarray:
        share = int(np.searchsorted(self._first, lane, side="right")) - 1
        local = lane - int(self._first[share])
        with self._whole_command():
            return self._own.render(local) if share == 0 else self._helpers[share - 1].render(local)

    def close(self) -> None:
        self._closed = True
        for helper in self._helpers:
            helper.close()
        self._own.close()

    @contextmanager
    def _whole_command(self) -> Iterator[None]:
        """Close the crew if a command fails halfway: the next command would read the answers of this one."""
        if self._closed:
            raise EnvError(f"{self.spec.id}: these lanes are closed; {HOW_TO_GO_ON}")
        try:
            yield
        except BaseException:
            for helper in self._helpers:
                helper.kill()
            self.close()
            raise

    def _split(self, lanes: Int[np.ndarray, " lanes"]) -> "tuple[Int[np.ndarray, ' lanes'], list[_Share]]":
        """An order that groups `lanes` by process; for each process, its rows in that order and its lane numbers."""
        order = np.argsort(lanes, kind="stable")
        bounds = np.searchsorted(lanes[order], self._first)
        shares = [
            _Share(slice(int(a), int(b)), lanes[order][a:b] - first)
            for a, b, first in zip(bounds[:-1], bounds[1:], self._first[:-1], strict=True)
        ]
        return order, shares


class _Share:
    """Rows of a grouped batch that one process gets, and the numbers of these lanes in that process."""

    def __init__(self, rows: slice, lanes: Int[np.ndarray, " share"]):
        self.rows, self.lanes = rows, lanes


class _Helper:
    """One helper process and the pipes to it."""

    def __init__(self, spec: EnvSpec, num_lanes: int):
        arguments = json.dumps({"spec": asdict(spec), "num_lanes": num_lanes})
        command = [sys.executable, "-m", "qpensieve.envs.lander_crew", arguments]
        self._spec, self._asked = spec, 0
        with processes.deaf_to_interrupts():
            self._process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
        self._close = weakref.finalize(self, processes.end, self._process)

    def send(self, command: bytes, lanes: Int[np.ndarray, " n"], values: np.ndarray) -> None:
        self._asked = len(lanes)
        message = HEADER.pack(command, len(lanes)) + lanes.tobytes() + np.ascontiguousarray(values).tobytes()
        pipe = self._process.stdin
        assert pipe is not None
        try:
            pipe.write(message)
            pipe.flush()
        except BrokenPipeError:
            raise self._lost() from None

    def receive_obs(self) -> Float64[np.ndarray, "n obs"]:
        return self._receive(self._spec.obs_size)

    def receive_step(
        self,
    ) -> tuple[Float64[np.ndarray, "n d"], Bool[np.ndarray, " n"], Float64[np.ndarray, "n obs"]]:
        d = self._spec.num_objectives
        table = self._receive(d + 1 + self._spec.obs_size)
        return table[:, :d], table[:, d] > 0, table[:, d + 1 :]

    def render(self, lane: int) -> np.ndarray:
        self.send(RENDER, np.array([lane]), np.empty(0))
        height, width, depth = np.frombuffer(self._read(3 * 8), np.int64)
        return np.frombuffer(self._read(int(height * width * depth)), np.uint8).reshape(height, width, depth)

    def close(self) -> None:
        self._close()

    def kill(self) -> None:
        self._process.kill()

    def _receive(self, columns: int) -> Float64[np.ndarray, "n columns"]:
        content = self._read(self._asked * columns * 8)
        return np.frombuffer(content, np.float64).reshape(self._asked, columns)

    def _read(self, size: int) -> bytes:
        pipe = self._process.stdout
        assert pipe is not None
        content = pipe.read(size)
        if len(content) < size:
            raise self._lost()
        return content

    def _lost(self) -> EnvError:
        with suppress(subprocess.TimeoutExpired):
            self._process.wait(processes.CLOSE_SECONDS)
        code = self._process.returncode
        return EnvError(f"{self._spec.id}: a helper process ended with code {code}; {HOW_TO_GO_ON}")


def serve(commands: BinaryIO, answers: BinaryIO, spec: EnvSpec, num_lanes: int) -> None:
    """The main loop of a helper process: answer commands until the input ends."""
    simulator = LunarLanderSimulator(spec, num_lanes)
    while header := commands.read(HEADER.size):
        command, count = HEADER.unpack(header)
        lanes = np.frombuffer(commands.read(8 * count), np.int64)
        if command == START:
            simulator.start(lanes, np.frombuffer(commands.read(8 * count), np.int64))
            answers.write(simulator.observe(lanes).tobytes())
        elif command == ADVANCE:
            content = commands.read(8 * count * spec.action_size)
            actions = np.frombuffer(content, np.float64).reshape(count, spec.action_size)
            reward, terminated, _ = simulator.advance(lanes, actions)
            answers.write(np.column_stack([reward, terminated, simulator.observe(lanes)]).tobytes())
        else:
            picture = simulator.render(int(lanes[0]))
            answers.write(np.array(picture.shape, np.int64).tobytes() + picture.tobytes())
        answers.flush()


def main() -> None:
    # Ctrl-C reaches all processes of a terminal; the parent decides what it means.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    arguments = json.loads(sys.argv[1])
    spec = arguments["spec"]
    for name in ("objectives", "reference"):
        spec[name] = tuple(spec[name])
    answers = os.fdopen(os.dup(sys.stdout.fileno()), "wb")
    os.dup2(sys.stderr.fileno(), sys.stdout.fileno())  # a stray print must not end up among the answers
    with suppress(BrokenPipeError):  # the parent may have ended without closing the pipe
        serve(sys.stdin.buffer, answers, EnvSpec(**spec), arguments["num_lanes"])


if __name__ == "__main__":
    main()
