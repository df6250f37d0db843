"""One robot that acts while someone looks: a thread that steps it in real time, obeys messages and tells of it.

Everything is done between two control steps or while the thread waits for the moment of the next frame. So a message
acts on the next control step, and nothing here needs a lock but the inbox.
"""

import threading
import time
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from enum import IntFlag
from typing import Any

import numpy as np

from qpensieve.envs.simulator import EnvError
from qpensieve.records.checkpoint import CheckpointError
from qpensieve.watch.messages import Command
from qpensieve.watch.runs import WatchedRun, archive_of
from qpensieve.watch.world import World, start_of

FRAME_SECONDS = 1.0 / 66.0
"""Least time between two frames; a little less than 1/60, so that Hopper's 1/62.5 fits."""
LATE = 0.25
"""Seconds behind real time after which the clock is set anew: the machine is too slow, or it slept."""
SLOW = 0.05
"""Seconds to the next frame from which a message is answered by one at once."""
PAUSE_AT_END = 0.5
"""Seconds between two episodes."""
FAILURES = (EnvError, CheckpointError, FloatingPointError, ValueError, RuntimeError, OSError)
"""What a world or a folder may raise; the page is told, and the server goes on."""


class Flag(IntFlag):
    """Bits in the header of a frame."""

    LAST = 1
    FIRST = 2
    PAUSED = 4
    ANSWER = 8


Tell = Callable[[bytes | dict[str, Any]], None]
"""Takes a frame (bytes) or an event."""


@dataclass(frozen=True)
class Controls:
    """What the page has set."""

    w: tuple[float, ...]
    seed: int
    at: int
    paused: bool = False
    sampled: bool = False
    speed: float = 1.0
    seq: int = 0


@dataclass(eq=False)
class _Clock:
    """Time of the episode against time on the wall."""

    speed: float = 1.0
    wall: float = field(default_factory=time.monotonic)
    t: float = 0.0

    def set(self, t: float, speed: float) -> None:
        self.wall, self.t, self.speed = time.monotonic(), t, speed

    def wait_for(self, t: float) -> float:
        """Seconds until a moment of the episode; negative if it is late."""
        return self.wall + (t - self.t) / self.speed - time.monotonic()


class Simulation:
    """The robot of one side of one page.

    Args:
        run: Whose policies act.
        number: Which of the server's runs it is.
        side: Which side of the page.
        tell: Is given frames and events, from this thread.
    """

    def __init__(self, run: WatchedRun, number: int, side: int, tell: Tell):
        self.run, self.number, self.side, self._tell = run, number, side, tell
        self._inbox: deque[Command] = deque()
        self._wake = threading.Condition()
        self._is_closed = False
        self._thread = threading.Thread(target=self._live, name=f"watch side {side}", daemon=True)
        self._thread.start()

    def send(self, command: Command) -> None:
        """Have a message obeyed."""
        with self._wake:
            self._inbox.append(command)
            self._wake.notify()

    def close(self) -> None:
        """End the thread; returns at once."""
        with self._wake:
            self._is_closed = True
            self._wake.notify()

    def join(self) -> None:
        """Wait until the thread has ended."""
        self._thread.join()

    def _live(self) -> None:
        """The thread: a life for each world, because one that failed is made anew."""
        while not self._is_closed:
            robot: _Robot | None = None
            try:
                robot = _Robot(self.run, self.number, self.side, self._tell)
                while not self._is_closed:
                    self._turn(robot)
            except FAILURES as error:
                self._tell({"event": "failed", "side": self.side, "reason": str(error)})
                self._wait_for_reset()
            finally:
                if robot is not None:
                    robot.close()

    def _turn(self, robot: "_Robot") -> None:
        """Obey what has come; then take a step, or rest until something comes."""
        if robot.is_resting:
            self._pass(robot, None)
            return
        if not self._wait_for(robot, robot.next_moment) or robot.is_resting:
            return
        robot.act()
        for t, send in robot.frames():
            if not self._wait_for(robot, t):
                return
            send()
        if robot.is_over:
            end = time.monotonic() + robot.finish()
            while (seconds := end - time.monotonic()) > 0.0:
                if not self._pass(robot, seconds):
                    return
            robot.begin(robot.episode + 1)

    def _wait_for(self, robot: "_Robot", t: float) -> bool:
        """Wait for a moment of the episode, and obey meanwhile; False: leave what was going on."""
        while self._pass(robot, max(0.0, seconds := robot.clock.wait_for(t))):
            if seconds <= 0.0:
                return True
        return False

    def _pass(self, robot: "_Robot", seconds: float | None) -> bool:
        """Wait so long, or until there is something to obey; None: however long. False: leave what was going on."""
        with self._wake:
            if not self._inbox and not self._is_closed and seconds != 0.0:
                self._wake.wait(seconds)
            commands = [*self._inbox]
            self._inbox.clear()
        before = robot.restarts
        for command in commands:
            robot.obey(command)
        if commands and (seconds is None or seconds > SLOW):
            robot.answer()
        return not self._is_closed and robot.restarts == before

    def _wait_for_reset(self) -> None:
        """After a failure: until the page asks for another try."""
        with self._wake:
            while not self._is_closed and not any(command.reset or command.seed for command in self._inbox):
                self._wake.wait()
            self._inbox.clear()


class _Robot:
    """The state of a simulation; only its own thread touches it."""

    def __init__(self, run: WatchedRun, number: int, side: int, tell: Tell):
        self._run, self._number, self._side, self._tell = run, number, side, tell
        self.world = World(run.config.domain)
        self.clock = _Clock()
        self.restarts = 0
        """Counts episodes, so that whoever waits notices that another has begun."""
        self._budget = 0
        self._policy, at = run.predictor("newest")
        w = tuple(start_of(run.spec.num_objectives).tolist())
        self.controls = Controls(w, run.config.first_seed, at)
        self._pushes = np.random.default_rng()
        self._say_ready()
        self.begin(0)
        self._say_state()

    @property
    def is_resting(self) -> bool:
        return self.controls.paused and self._budget == 0

    @property
    def is_over(self) -> bool:
        return self.world.is_over

    @property
    def next_moment(self) -> float:
        """When the next step has its first moment: until then nobody sees what it does, so a message still counts."""
        return self.t + self.world.dt / self.world.num_moments

    @property
    def t(self) -> float:
        """Seconds of the episode that are done."""
        return self.world.elapsed * self.world.dt

    @property
    def _row(self) -> int:
        return self._run.policies.row_of(self.controls.seed)

    def begin(self, episode: int) -> None:
        """Start an episode; its first frame shows the start."""
        self.episode, self._is_mixed = episode, False
        self.world.begin(self.controls.seed, episode)
        self._noise = np.random.default_rng([self.controls.seed, episode])
        self._action = np.full(self._run.spec.action_size, np.nan)
        self._acted, self._served = self.controls, self._serving()
        self.restarts += 1
        self._sent_t = 0.0
        self.clock.set(0.0, self.controls.speed)
        if shapes := self.world.ground():
            self._tell({"event": "ground", "side": self._side, "shapes": [_plain(shape) for shape in shapes]})
        self._send(0.0, self.world.payload(), Flag.FIRST)

    def act(self) -> None:
        """Take one control step with what is set now."""
        controls, self._budget = self.controls, max(0, self._budget - 1)
        self._has_news, self._acted = controls.seq != self._acted.seq, controls
        self._served = self._serving()
        stream = self._noise if controls.sampled else None
        actions = self._policy.act(self._row, self.world.obs, np.array(controls.w, np.float32)[None], stream)
        self._action = actions[0]
        if self.clock.wait_for(self.t) < -LATE:
            self.clock.set(self.t, controls.speed)
        self.world.step(actions)

    def _serving(self) -> int:
        """Number of the policy that serves what is asked for now."""
        return self._run.served_by(self._policy, self._row, np.array(self.controls.w))

    def frames(self) -> list[tuple[float, Callable[[], None]]]:
        """Moments of the newest step that are sent, and what sends them: not more than the page can show."""
        gap, chosen = FRAME_SECONDS * self.controls.speed, []
        moments = list(self.world.moments())
        for moment, t in moments:
            is_last = self.world.is_over and moment == moments[-1][0]
            if t - self._sent_t >= gap or is_last or self._has_news:
                self._sent_t, self._has_news = t, False
                flag = Flag.LAST if is_last else Flag(0)
                chosen.append(
                    (t, lambda t=t, moment=moment, flag=flag: self._send(t, self.world.payload(moment), flag))
                )
        return chosen

    def finish(self, ended: str = "") -> float:
        """Tell of an episode that is over; returns for how many seconds its end is shown."""
        how = ended or ("terminated" if self.world.is_terminated else "truncated")
        self._tell(
            {
                "event": "episode",
                "side": self._side,
                "run": self._number,
                "episode": self.episode,
                "returns": self.world.returns.tolist(),
                "steps": self.world.elapsed,
                "ended": how,
                "is_mixed": self._is_mixed,
                **self._told(self._acted, "w", "seed", "at", "sampled"),
            }
        )
        return PAUSE_AT_END / max(1.0, self.controls.speed)

    def answer(self) -> None:
        """Show the present again, with what is set now: the next step may be a while away."""
        self._acted = replace(self._acted, seq=self.controls.seq, w=self.controls.w, paused=self.controls.paused)
        self._send(self.t, self.world.payload(), Flag.ANSWER)

    def obey(self, command: Command) -> None:
        """Do what a message says; it was checked."""
        before = self.controls
        set_now = {name: getattr(command, name) for name in ("seq", "w", "seed", "paused", "sampled", "speed")}
        self.controls = replace(before, **{name: value for name, value in set_now.items() if value is not None})
        if command.step is not None:
            self._budget, self.controls = command.step, replace(self.controls, paused=True)
        elif command.paused is not None:
            self._budget = 0
        if command.at is not None:
            self._policy, at = self._run.predictor(command.at)
            self.controls = replace(self.controls, at=at)
        if command.push and self.world.can_push:
            self.world.push(self._pushes)
        touched = (before.w, before.at, before.sampled) != (self.controls.w, self.controls.at, self.controls.sampled)
        self._is_mixed |= (touched or bool(command.push)) and self.world.elapsed > 0
        if (self.controls.seed, self.controls.at) != (before.seed, before.at):
            self._say_ready()
        self._restart(command, before)
        if (self.controls.paused, self.controls.speed) != (before.paused, before.speed) or command.step:
            self.clock.set(self.t, self.controls.speed)
        self._say_state()

    def close(self) -> None:
        self.world.close()

    def _restart(self, command: Command, before: Controls) -> None:
        """Begin another episode, where a message asks for one."""
        is_other_seed = self.controls.seed != before.seed
        if command.reset is None and not is_other_seed:
            return
        if self.world.elapsed and not self.world.is_over:
            self.finish("reset")
        self.begin(0 if is_other_seed else self.episode + (command.reset == "next"))

    def _send(self, t: float, payload: bytes, flag: Flag) -> None:
        acted, world = self._acted, self.world
        if self.controls.paused:
            flag |= Flag.PAUSED
        header = [self._side, acted.seq, int(flag), t, self.episode, world.elapsed, self._served, 0.0]
        numbers = np.concatenate([header, world.returns, acted.w, self._action]).astype("<f4")
        self._tell(numbers.tobytes() + payload)

    def _say_ready(self) -> None:
        points = archive_of(self._policy, self._row)
        archive = None if points is None else points.tolist()
        about = {"event": "ready", "side": self._side, "run": self._number, "archive": archive}
        self._tell(about | self._told(self.controls, "seed", "at"))

    def _say_state(self) -> None:
        names = ("seq", "paused", "speed", "sampled", "seed", "at", "w")
        self._tell({"event": "state", "side": self._side} | self._told(self.controls, *names))

    @staticmethod
    def _told(controls: Controls, *names: str) -> dict[str, Any]:
        values = {name: getattr(controls, name) for name in names}
        return {name: list(value) if isinstance(value, tuple) else value for name, value in values.items()}


def _plain(shape: Any) -> dict[str, Any]:
    """A shape as JSON, without what it does not have."""
    named = {name: getattr(shape, name) for name in ("shape", "role", "points", "value")}
    if shape.shape == "disc":
        named |= {"centre": shape.centre, "radius": shape.radius}
    told = {name: value for name, value in named.items() if value not in (None, ())}
    return told | ({"label": f"{shape.value:g}"} if shape.value is not None else {})
