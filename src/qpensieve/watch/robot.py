"""The robot of one side of a page: its settings, its steps and its messages to the page. One thread owns it."""

import time
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from enum import IntFlag

import numpy as np

from qpensieve.envs.scenery import Shape
from qpensieve.errors import UserError
from qpensieve.records.checkpoint import CheckpointError
from qpensieve.watch.messages import Command
from qpensieve.watch.runs import WatchedRun, archive_of, rounded
from qpensieve.watch.world import World

FRAME_SECONDS = 1.0 / 66.0
"""Least seconds between two frames: a little less than 1/62.5, so that every step of Hopper is shown."""
LATE = 0.25
"""Seconds behind real time after which the clock is reset: the machine is too slow, or it slept."""
PAUSE_AT_END = 0.5
"""Seconds between two episodes."""


class Flag(IntFlag):
    """Bits in the header of a frame."""

    LAST = 1
    FIRST = 2
    PAUSED = 4
    ANSWER = 8


Event = dict[str, object]
"""A message to the page, as JSON."""
Tell = Callable[[bytes | Event], None]
"""Takes a frame (bytes) or an event."""


@dataclass(frozen=True)
class Controls:
    """The settings of the page."""

    w: tuple[float, ...]
    seed: int
    at: int
    paused: bool = False
    sampled: bool = False
    calibrated: bool = False
    speed: float = 1.0
    seq: int = 0


@dataclass(eq=False)
class _Clock:
    """Compares the time of the episode with real time."""

    speed: float = 1.0
    wall: float = field(default_factory=time.monotonic)
    t: float = 0.0

    def set(self, t: float, speed: float) -> None:
        self.wall, self.t, self.speed = time.monotonic(), t, speed

    def wait_for(self, t: float) -> float:
        """Return the seconds until a time of the episode; negative if that has passed."""
        return self.wall + (t - self.t) / self.speed - time.monotonic()


class Robot:
    """A policy in its world.

    Args:
        run: Whose policies act.
        number: Which of the server's runs it is.
        side: Which side of the page.
        tell: Is given frames and events.
        controls: What is set, where an earlier robot failed; None: as at the start.
    """

    def __init__(self, run: WatchedRun, number: int, side: int, tell: Tell, controls: Controls | None = None):
        self._run, self._number, self._side, self._tell = run, number, side, tell
        self.world = World(run.config.domain, run.config.max_eval_steps)
        self.clock = _Clock()
        self.restarts = 0
        """Number of episodes begun: a thread that waits sees from it that another episode began."""
        self._budget = self._known_seq = 0
        self._policy, at = run.predictor("newest" if controls is None else controls.at)
        num = run.spec.num_objectives
        self.controls = Controls((1.0 / num,) * num, run.config.first_seed, at) if controls is None else controls
        self._calibration = run.policies.calibration
        self._pushes = np.random.default_rng()
        self._say_ready()
        self.begin(0)
        self._say_state()

    @property
    def is_resting(self) -> bool:
        return self.controls.paused and self._budget == 0

    @property
    def next_moment(self) -> float:
        """Time of the first moment of the next step: a message that arrives before still changes that step."""
        return self.t + self.world.dt / self.world.num_moments

    @property
    def t(self) -> float:
        """Seconds of the episode so far."""
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
        self._acted = self._said = self.controls
        self._served = self._serving()
        self.restarts += 1
        self._sent_t = 0.0
        self.clock.set(0.0, self.controls.speed)
        if shapes := self.world.ground():
            self._tell({"event": "ground", "side": self._side, "shapes": [_plain(shape) for shape in shapes]})
        self._send(0.0, self.world.payload(), Flag.FIRST)

    def act(self) -> None:
        """Take one control step with the current settings."""
        controls, self._budget = self.controls, max(0, self._budget - 1)
        self._has_news, self._known_seq = controls.seq != self._known_seq, controls.seq
        self._acted = self._said = controls
        self._served = self._serving()
        stream = self._noise if controls.sampled else None
        actions = self._policy.act(self._row, self.world.obs, self._asked().astype(np.float32)[None], stream)
        self._action = actions[0]
        if self.clock.wait_for(self.t) < -LATE:
            self.clock.set(self.t, controls.speed)
        self.world.step(actions)

    def _asked(self) -> np.ndarray:
        """Return the preference that the policy is asked for: the current one, or the one of its calibration."""
        w, known = np.array(self.controls.w), self._calibration
        is_used = self.controls.calibrated and known is not None and known.step == self.controls.at
        return known.ask(self._row, w[None])[0] if known is not None and is_used else w

    def _serving(self) -> int:
        """Number of the policy that serves the current preference."""
        return self._run.served_by(self._policy, self._row, self._asked())

    def frames(self) -> list[tuple[float, Callable[[], None]]]:
        """Return times and senders of the frames of the newest step, at most as many as the page can show."""
        gap, chosen = FRAME_SECONDS * self.controls.speed, []
        moments = list(self.world.moments())
        for moment, t in moments:
            is_end = moment == moments[-1][0]
            is_last = is_end and self.world.is_over
            if t - self._sent_t >= gap or is_last or self._has_news:
                self._sent_t, self._has_news = t, False
                flag = Flag.LAST if is_last else Flag(0)
                chosen.append(
                    (t, lambda t=t, moment=moment, flag=flag: self._send(t, self.world.payload(moment), flag))
                )
        return chosen

    def finish(self, ended: str = "") -> float:
        """Send the result of an episode; return for how many seconds its end is shown."""
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
                **self._fields(self._acted, "w", "seed", "at", "sampled", "calibrated"),
            }
        )
        if not ended and self.controls.seq != self._said.seq:
            self.answer()  # the message came after the last step, so no step answers it
        return PAUSE_AT_END / max(1.0, self.controls.speed)

    def answer(self) -> None:
        """Send the newest frame again with the current settings: the next step may take a while."""
        self._said = replace(self._said, seq=self.controls.seq, w=self.controls.w, paused=self.controls.paused)
        self._send(*self._shown, Flag.ANSWER)

    def settle(self) -> None:
        """Send the end of the last step before a rest, unless it was sent."""
        if self._shown[0] != self.t or not self._said.paused:
            self._shown = self.t, self.world.payload()
            self.answer()

    def obey(self, command: Command) -> None:
        """Follow a checked message."""
        before = self.controls
        set_now = {
            name: getattr(command, name) for name in ("seq", "w", "seed", "paused", "sampled", "calibrated", "speed")
        }
        self.controls = replace(before, **{name: value for name, value in set_now.items() if value is not None})
        if command.step is not None:
            self._budget, self.controls = command.step, replace(self.controls, paused=True)
        elif command.paused is not None:
            self._budget = 0
        if command.at is not None:
            self._take_policy(command)
        if command.calibrated is not None:
            self._calibration = self._run.policies.calibration  # the file may be newer
        if command.push and self.world.can_push:
            self.world.push(self._pushes)
        acting = lambda controls: (controls.w, controls.at, controls.sampled, controls.calibrated)
        touched = acting(before) != acting(self.controls)
        self._is_mixed |= (touched and self.world.elapsed > 0) or bool(command.push and self.world.can_push)
        if (self.controls.seed, self.controls.at) != (before.seed, before.at):
            self._say_ready()
        self._restart(command)
        if (self.controls.paused, self.controls.speed) != (before.paused, before.speed) or command.step:
            self.clock.set(self.t, self.controls.speed)
        self._say_state()

    def _take_policy(self, command: Command) -> None:
        """Load the policies of another step; tell the page if the files are gone, which happens while a run trains."""
        try:
            self._policy, at = self._run.predictor(command.at or 0)
            self.controls = replace(self.controls, at=at)
        except (CheckpointError, UserError) as error:
            self._tell({"event": "refused", "side": self._side, "seq": command.seq, "reason": str(error)})

    def _restart(self, command: Command) -> None:
        """Begin another episode if the message asks for one; another seed begins with its first episode."""
        if command.reset is None and command.seed is None:
            return
        if self.world.elapsed and not self.world.is_over:
            self.finish("reset")
        self.begin(0 if command.seed is not None else self.episode + (command.reset == "next"))

    def _send(self, t: float, payload: bytes, flag: Flag) -> None:
        said, world, self._shown = self._said, self.world, (t, payload)
        if self.controls.paused:
            flag |= Flag.PAUSED
        header = [self._side, said.seq, int(flag), t, self.episode, world.elapsed, self._served, 0.0]
        numbers = np.concatenate([header, world.returns, said.w, self._action]).astype("<f4")
        self._tell(numbers.tobytes() + payload)

    def _say_ready(self) -> None:
        points = archive_of(self._policy, self._row)
        archive = None if points is None else rounded(points)
        about = {"event": "ready", "side": self._side, "run": self._number, "archive": archive}
        self._tell(about | self._fields(self.controls, "seed", "at"))

    def _say_state(self) -> None:
        names = ("seq", "paused", "speed", "sampled", "calibrated", "seed", "at", "w")
        self._tell({"event": "state", "side": self._side} | self._fields(self.controls, *names))

    @staticmethod
    def _fields(controls: Controls, *names: str) -> Event:
        values = {name: getattr(controls, name) for name in names}
        return {name: list(value) if isinstance(value, tuple) else value for name, value in values.items()}


def _plain(shape: Shape) -> Event:
    """Return a shape for JSON, without empty fields."""
    named: Event = {name: getattr(shape, name) for name in ("shape", "role", "points", "value")}
    if shape.shape == "disc":
        named |= {"centre": shape.centre, "radius": shape.radius}
    if shape.value is not None:
        named["label"] = f"{shape.value:g}"
    return {name: value for name, value in named.items() if value not in (None, ())}
