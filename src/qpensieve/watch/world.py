"""One environment of a page or film: a lane, its episodes and its frames."""

import io
import threading
from collections.abc import Iterator
from contextlib import nullcontext
from dataclasses import asdict

import numpy as np

from qpensieve.envs import LaneOptions, find_domain, make_lanes
from qpensieve.envs.base import MAX_EVAL_STEPS
from qpensieve.envs.mujoco import MujocoSimulator
from qpensieve.envs.scenery import Pushable, Scenic, Shape
from qpensieve.errors import EnvError
from qpensieve.learning.streams import Purpose, derived_seed

FOREIGN_FPS = 30.0
"""Steps per second of an environment that does not name them."""
JPEG_QUALITY = 80
_OTHERS = threading.Lock()
"""Held while a foreign environment runs: it may not support threads."""


class World:
    """One lane, with the same numbers as an evaluation of the same seed, episode and actions.

    Args:
        domain: The environment.
        most_steps: Steps after which an episode is cut.

    Raises:
        ValueError: There is no such environment.
        EnvError: The environment cannot be made.
    """

    def __init__(self, domain: str, most_steps: int = MAX_EVAL_STEPS):
        known, self._most_steps = find_domain(domain), most_steps
        self._turn = _OTHERS if known is None else nullcontext()
        with self._turn:
            self._lanes = make_lanes(domain, 1, 0, LaneOptions(autoreset=False, num_threads=1, is_drawn=True))
        self.spec, self._simulator = self._lanes.spec, self._lanes.simulator
        foreign_fps = getattr(self._simulator, "render_fps", None) or FOREIGN_FPS
        self.dt = 1.0 / (known.render_fps if known else foreign_fps)
        """Seconds of one step in real time."""
        self.can_push = isinstance(self._simulator, Pushable)
        self.why_blank = ""
        """Why there is no picture; empty if there is one."""
        self.begin(0, 0)

    @property
    def is_robot(self) -> bool:
        """Whether the environment is a body of MuJoCo, seen from the side."""
        return isinstance(self._simulator, MujocoSimulator)

    def begin(self, seed: int, episode: int) -> None:
        """Start an episode with the number that evaluations give it."""
        with self._turn:
            self._lanes.reseed(derived_seed(seed, Purpose.EVALUATION, episode))
            self.obs = self._lanes.reset()
            """The observation, one row."""
        self.returns = np.zeros(self.spec.num_objectives)
        self.elapsed, self.is_terminated = 0, False

    @property
    def is_over(self) -> bool:
        return self.elapsed >= self._most_steps or not bool(self._lanes.running[0])

    def step(self, actions: np.ndarray) -> None:
        """Make one step with actions of one row."""
        with self._turn:
            step = self._lanes.step(actions)
        self.obs = step.obs
        self.returns += step.reward[0]
        self.elapsed += 1
        self.is_terminated = bool(step.terminated[0])

    def push(self, generator: np.random.Generator) -> None:
        if isinstance(self._simulator, Pushable):
            self._simulator.push(generator)

    @property
    def num_moments(self) -> int:
        """Moments of the newest step."""
        return self._simulator.moments if isinstance(self._simulator, Scenic) else 1

    def moments(self) -> Iterator[tuple[int, float]]:
        """Yield number and time (seconds of the episode) of each moment of the newest step, the present last."""
        num = self.num_moments
        for moment in range(num):
            yield moment, (self.elapsed - 1 + (moment + 1) / num) * self.dt if self.elapsed else 0.0

    def payload(self, moment: int = -1) -> bytes:
        """Return the part of a frame that describes the scene at a moment of the newest step."""
        if isinstance(self._simulator, Scenic):
            return self._simulator.pose(moment).astype("<f4").tobytes()
        with self._turn:
            picture = self.picture()
        return b"" if picture is None else encode_jpeg(picture)

    def picture(self) -> np.ndarray | None:
        """Return the picture that the environment draws; None from the first failure on."""
        if self.why_blank:
            return None
        try:
            picture = np.asarray(self._lanes.render())
        except Exception as error:  # foreign code failed or a package is missing: the robot acts without pictures
            reason = str(error).removeprefix(f"{self.spec.id}: ")
            self.why_blank = f"{self.spec.id} cannot be drawn: {reason}"
            return None
        if picture.ndim != 3 or picture.shape[2] != 3 or 0 in picture.shape:
            self.why_blank = (
                f"{self.spec.id} cannot be drawn: a picture must be [height, width, 3], got {picture.shape}"
            )
            return None
        return picture.astype(np.uint8, copy=False)

    def ground(self) -> tuple[Shape, ...]:
        """Return the shapes that do not move in this episode."""
        return self._simulator.ground() if isinstance(self._simulator, Scenic) else ()

    def scene(self) -> dict[str, object]:
        """Return the description of the scene, which the page gets once."""
        common = {"dt": self.dt, "can_push": self.can_push, "action_size": self.spec.action_size}
        if isinstance(self._simulator, Scenic):
            return asdict(self._simulator.scene()) | common
        with self._turn:
            picture = self.picture()
        height, width = (1, 1) if picture is None else picture.shape[:2]
        about = {
            "kind": "image",
            "type": "image/jpeg",
            "width": width,
            "height": height,
            "note": self.why_blank or None,
        }
        return about | common

    def close(self) -> None:
        with self._turn:
            self._lanes.close()


def encode_jpeg(picture: np.ndarray) -> bytes:
    """Encode a picture [height, width, 3] as JPEG; EnvError if Pillow is missing."""
    try:
        from PIL import Image
    except ImportError as error:
        raise EnvError(f"pictures of environments need Pillow: pip install 'qpensieve[watch]' ({error})") from error
    file = io.BytesIO()
    Image.fromarray(picture).save(file, "JPEG", quality=JPEG_QUALITY)
    return file.getvalue()
