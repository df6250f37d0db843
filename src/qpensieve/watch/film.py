"""Episodes as a film: one panel for each preference, side by side from the same start, with the returns so far."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import partial

import numpy as np
from jaxtyping import Float64
from PIL import Image, ImageDraw, ImageFont

from qpensieve.console import format_number
from qpensieve.envs.episodes import MAX_EVAL_STEPS
from qpensieve.errors import EnvError
from qpensieve.train.session import Predictor
from qpensieve.watch.world import World

FONT_SIZE, LINE, MARGIN = 13, 20, 8
"""Of the captions, pixels."""
PAPER, INK, FAINT, BAR, TRACK = "#ffffff", "#1d2430", "#6a7484", "#2f6fb4", "#e3e8ef"
GAP = 6
"""Pixels between two panels."""
SIDE_VIEW = (0.19, 0.89)
"""Part of the height of a picture of a robot, seen from the side, that is kept: the rest is sky, and floor."""
PALETTE_FRAMES = 8
"""Frames from which the colours of a film are taken."""


@dataclass(frozen=True, eq=False)
class Script:
    """The settings of a film.

    Attributes:
        domain: Where.
        policy: Who acts.
        row: Place of the seed among those of the run.
        seed: Whose first episode is played.
        preferences: One panel each.
        seconds: Length in real time; shorter where all episodes end before.
        fps: Frames of a second.
        width: Pixels of a panel.
        most_steps: Where an episode that does not end is cut.
    """

    domain: str
    policy: Predictor
    row: int
    seed: int
    preferences: Float64[np.ndarray, "p d"]
    seconds: float
    fps: float
    width: int
    most_steps: int = MAX_EVAL_STEPS


class Panel:
    """One preference: its world, and its picture with a caption."""

    def __init__(self, script: Script, lam: Float64[np.ndarray, " d"]):
        self._script, self._lam = script, lam
        self._world = World(script.domain, script.most_steps)
        self._world.begin(script.seed, 0)
        self._act = partial(script.policy.act, script.row, lam=lam.astype(np.float32)[None])

    @property
    def is_over(self) -> bool:
        return self._world.is_over

    def play_to(self, t: float) -> None:
        """Act until a time of the film, or to the episode's end."""
        world = self._world
        while not world.is_over and (world.elapsed + 1) * world.dt <= t + 1e-9:
            world.step(self._act(obs=world.obs))

    def draw(self) -> Image.Image:
        """The picture as it is now.

        Raises:
            EnvError: The environment cannot be drawn.
        """
        picture = self._world.picture()
        if picture is None:
            raise EnvError(self._world.why_blank)
        width = self._script.width
        first, last = (round(part * len(picture)) for part in (SIDE_VIEW if self._world.is_robot else (0.0, 1.0)))
        image = Image.fromarray(picture[first:last])
        image = image.resize((width, round(image.height * width / image.width)), Image.Resampling.LANCZOS)
        panel = Image.new("RGB", (width, image.height + caption_height(len(self._lam))), PAPER)
        panel.paste(image, (0, 0))
        self._caption(ImageDraw.Draw(panel), image.height + MARGIN // 2)
        return panel

    def _caption(self, pen: ImageDraw.ImageDraw, top: int) -> None:
        """A line for each objective: its name, its weight as a number and a bar, and the return so far."""
        font, width, world = ImageFont.load_default(FONT_SIZE), self._script.width, self._world
        state = "over" if world.is_over else f"{world.elapsed * world.dt:.1f} s"
        middle, right = width * 0.62, width - MARGIN
        pen.text((MARGIN, top), state, FAINT, font)
        pen.text((middle, top), "weight", FAINT, font, anchor="ra")
        pen.text((right, top), "return", FAINT, font, anchor="ra")
        for i, name in enumerate(world.spec.objectives):
            y = top + (i + 1) * LINE
            pen.text((MARGIN, y), name, INK, font)
            pen.text((middle, y), f"{self._lam[i]:.2f}", INK, font, anchor="ra")
            pen.text((right, y), format_number(world.returns[i], 3), INK, font, anchor="ra")
            ends = [(MARGIN, y + LINE - 4), (right, y + LINE - 3)]
            pen.rectangle(ends, TRACK)
            pen.rectangle([ends[0], (MARGIN + (right - MARGIN) * self._lam[i], ends[1][1])], BAR)

    def close(self) -> None:
        self._world.close()


def caption_height(num_objectives: int) -> int:
    return LINE * (num_objectives + 1) + 2 * MARGIN


def play(script: Script, drawn: Sequence[int] | None = None) -> Iterator[Image.Image | None]:
    """The frames of a film; None in place of frames that are not among those to be `drawn`."""
    panels = [Panel(script, lam) for lam in script.preferences]
    try:
        for number in range(max(1, round(script.seconds * script.fps)) + 1):
            is_over = all(panel.is_over for panel in panels)
            for panel in panels:
                panel.play_to(number / script.fps)
            yield _beside([panel.draw() for panel in panels]) if drawn is None or number in drawn else None
            if is_over:
                return
    finally:
        for panel in panels:
            panel.close()


def first(script: Script) -> Image.Image:
    """The first frame of a film."""
    image = next(play(script))
    assert image is not None
    return image


def count(script: Script) -> int:
    """Count the frames of a film by playing it without drawing."""
    return sum(1 for _ in play(script, ()))


def colours(script: Script, num_frames: int) -> Image.Image:
    """A sheet of frames from all over the film, for its colours."""
    chosen = np.linspace(0, num_frames - 1, PALETTE_FRAMES).astype(int).tolist()
    return _beside([image for image in play(script, chosen) if image is not None])


def _beside(images: list[Image.Image]) -> Image.Image:
    width = sum(image.width + GAP for image in images) - GAP
    height = max(image.height for image in images)
    sheet, left = Image.new("RGB", (width, height), PAPER), 0
    for image in images:
        sheet.paste(image, (left, 0))
        left += image.width + GAP
    return sheet
