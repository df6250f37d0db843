"""A thread that steps a robot in real time and follows the messages of a page.

Everything is done between two control steps or while the thread waits for the moment of the next frame. So a message
acts on the next control step, and nothing needs a lock but the inbox.
"""

import threading
import time
import traceback
from collections import deque

from qpensieve.errors import EnvError
from qpensieve.records.checkpoint import CheckpointError
from qpensieve.watch.messages import Command
from qpensieve.watch.robot import Controls, Robot, Tell
from qpensieve.watch.runs import WatchedRun

JOIN_SECONDS = 2.0
SLOW = 0.05
"""Seconds to the next frame above which a message is answered at once."""
EXPECTED = (EnvError, CheckpointError, FloatingPointError)
"""Errors of environments and folders; any other error is a bug, whose traceback is printed."""


class Simulation:
    """The robot of one side of one page.

    Args:
        run: The run whose policies act.
        number: Number of the run on the server.
        side: Side of the page.
        tell: Called with frames and events, from this thread.
    """

    def __init__(self, run: WatchedRun, number: int, side: int, tell: Tell):
        self.run, self.number, self.side, self._tell = run, number, side, tell
        self._inbox: deque[Command] = deque()
        self._wake = threading.Condition()
        self._is_closed = False
        self._thread = threading.Thread(target=self._live, name=f"watch side {side}", daemon=True)
        self._thread.start()

    def send(self, command: Command) -> None:
        """Hand a message to the thread."""
        with self._wake:
            self._inbox.append(command)
            self._wake.notify()

    def close(self) -> None:
        """End the thread; returns at once."""
        with self._wake:
            self._is_closed = True
            self._wake.notify()

    def join(self) -> None:
        """Wait at most `JOIN_SECONDS` for the thread to end: a foreign environment may hang."""
        self._thread.join(JOIN_SECONDS)

    @property
    def is_alive(self) -> bool:
        """Whether the thread still runs."""
        return self._thread.is_alive()

    def _say(self, what: bytes | dict[str, object]) -> None:
        """Send to the page, unless the simulation is closed: the page would take it for the next simulation."""
        with self._wake:
            if not self._is_closed:
                self._tell(what)

    def _live(self) -> None:
        """Run the thread: make a robot and step it; after a failure wait for a reset and make another."""
        controls: Controls | None = None
        while not self._is_closed:
            robot: Robot | None = None
            try:
                robot = Robot(self.run, self.number, self.side, self._say, controls)
                while not self._is_closed:
                    self._turn(robot)
            except Exception as error:  # the page shows it, and the server continues
                if not isinstance(error, EXPECTED):
                    traceback.print_exc()
                reason = str(error) or type(error).__name__
                self._say({"event": "failed", "side": self.side, "run": self.number, "reason": reason})
                controls = robot.controls if robot else controls
                self._wait_for_reset()
            finally:
                if robot is not None:
                    robot.world.close()

    def _turn(self, robot: Robot) -> None:
        """Follow the messages, then take a step; a resting robot waits for a message."""
        if robot.is_resting:
            robot.settle()
            self._pass(robot, None)
            return
        if not self._wait_for(robot, robot.next_moment) or robot.is_resting:
            return
        robot.act()
        for t, send in robot.frames():
            if not self._wait_for(robot, t):
                return
            send()
        if robot.world.is_over:
            end = time.monotonic() + robot.finish()
            while (seconds := end - time.monotonic()) > 0.0:
                if not self._pass(robot, seconds):
                    return
            robot.begin(robot.episode + 1)

    def _wait_for(self, robot: Robot, t: float) -> bool:
        """Wait for a time of the episode and follow messages; return False if a new turn must begin."""
        while self._pass(robot, max(0.0, seconds := robot.clock.wait_for(t))):
            if seconds <= 0.0:
                return True
        return False

    def _pass(self, robot: Robot, seconds: float | None) -> bool:
        """Wait for a message at most some seconds (None: no limit) and follow it; return False to begin a new turn."""
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
        """Wait after a failure until the page asks for another try."""
        with self._wake:
            while not self._is_closed:
                while self._inbox:
                    if self._inbox.popleft().reset:
                        return
                self._wake.wait()
