"""Many LunarLanders on several cores: this process flies a share of the lanes, helper processes fly the rest.

Box2D holds Python's lock while it steps, so threads do not help. Helpers are plain programs (`remote.py`) and talk
in raw arrays.
"""

import pickle
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import pairwise

import numpy as np
from jaxtyping import Bool, Float64, Int

from qpensieve.envs.history import History, episode_seeds, replay
from qpensieve.envs.lunar_lander import LunarLanderSimulator
from qpensieve.envs.simulator import Index, State, Streams, allowed_threads
from qpensieve.errors import EnvError
from qpensieve.remote import START, Obey, Program
from qpensieve.types import EnvSpec

MIN_SHARE = 16
"""Fewer lanes than this are not worth a helper process."""
ADVANCE, RENDER = b"A", b"R"


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
        shares = [range(*ends) for ends in pairwise(self._first.tolist())]
        self._helpers = [_Helper(spec, share) for share in shares[1:]]
        self._own = LunarLanderSimulator(spec, len(shares[0]))
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
            helper.program.close()
        self._own.close()

    @contextmanager
    def _whole_command(self) -> Iterator[None]:
        """Close the crew if a command fails halfway: the next command would read the answers of this one."""
        if self._closed:
            raise EnvError(f"{self.spec.id}: these lanes are closed; make new lanes and restore the saved state")
        try:
            yield
        except BaseException:
            for helper in self._helpers:
                helper.program.kill()
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
    """One helper program and the lanes that it flies.

    Args:
        spec: What the lanes are.
        lanes: Their numbers.
    """

    def __init__(self, spec: EnvSpec, lanes: range):
        self._spec, self._asked = spec, 0
        title = f"{spec.id}: the process that flies lanes {lanes.start} to {lanes.stop - 1}"
        self.program = Program(__name__, title)
        self.program.send(START, pickle.dumps((spec, len(lanes))))

    def send(self, command: bytes, lanes: Int[np.ndarray, " n"], values: np.ndarray) -> None:
        self._asked = len(lanes)
        self.program.send(command, lanes.tobytes() + np.ascontiguousarray(values).tobytes())

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
        return pickle.loads(self.program.answer())

    def _receive(self, columns: int) -> Float64[np.ndarray, "n columns"]:
        return np.frombuffer(self.program.answer(), np.float64).reshape(self._asked, columns)


def begin(content: bytes) -> Obey:
    """A helper's life, from its lanes on."""
    spec, num_lanes = pickle.loads(content)
    simulator = LunarLanderSimulator(spec, num_lanes)

    def obey(command: bytes, content: bytes) -> bytes:
        values_per_lane = {START: 1, ADVANCE: spec.action_size, RENDER: 0}[command]
        num = len(content) // (8 * (1 + values_per_lane))
        lanes, values = np.frombuffer(content, np.int64, num), memoryview(content)[8 * num :]
        if command == START:
            simulator.start(lanes, np.frombuffer(values, np.int64))
            return simulator.observe(lanes).tobytes()
        if command == ADVANCE:
            actions = np.frombuffer(values, np.float64).reshape(num, spec.action_size)
            reward, terminated, _ = simulator.advance(lanes, actions)
            return np.column_stack([reward, terminated, simulator.observe(lanes)]).tobytes()
        return pickle.dumps(simulator.render(int(lanes[0])))

    return obey
