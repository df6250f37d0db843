"""Ways to cut the fused kernels, in words, for `tiles.py` and `without_gpu.py`.

    robust 5 learn=32,64,4,3 climb=64,32,8,3,0,1 split=0

is the preset `robust` with five seeds, two tiles other than `fused.choose_tiles` takes (rows, chunk, warps, stages,
part, streams; what is left out is the default of `Tile`), and one program for all preferences.
"""

from dataclasses import dataclass, fields, replace
from typing import Any

from qpensieve.algos import fused
from qpensieve.config import override
from qpensieve.learning.interface import Algorithm, UniformLearning
from qpensieve.learning.kernels.calls import Tile
from qpensieve.methods import make_algorithm
from qpensieve.presets import default_config
from qpensieve.types import EnvSpec

NAMES = [field.name for field in fields(fused.Tiles)]


@dataclass(frozen=True)
class Arm:
    """A preset of Q-Pensieve, a number of seeds, and what is cut otherwise."""

    words: str
    preset: str
    seeds: int
    changes: dict[str, Any]

    def tiles(self, columns: int) -> fused.Tiles:
        return replace(fused.choose_tiles(self.seeds, "half", columns), **self.changes)


def parse(words: str) -> Arm:
    """The arm that words stand for.

    Raises:
        ValueError: If one of them does not exist.
    """
    preset, seeds, *cuts = words.split()
    changes: dict[str, Any] = {}
    for name, _, value in (cut.partition("=") for cut in cuts):
        if name not in NAMES:
            raise ValueError(f"{words!r}: there is no {name!r} to cut: use {', '.join(NAMES)}")
        numbers: list[Any] = [int(number) for number in value.split(",")]
        is_tile = isinstance(getattr(fused.SOME, name), Tile)
        changes[name] = Tile(*numbers[:5], *map(bool, numbers[5:])) if is_tile else bool(numbers[0])
    return Arm(words, preset, int(seeds), changes)


def plain(arm: Arm, spec: EnvSpec, settings: dict[str, Any]) -> Algorithm[Any]:
    """Q-Pensieve with other settings, without kernels."""
    return make_algorithm("qpensieve", _agent(arm, spec, settings), spec, "off")


def _agent(arm: Arm, spec: EnvSpec, settings: dict[str, Any]) -> Any:
    return override(default_config(spec.id, preset=arm.preset), settings).agent


def make(arm: Arm, spec: EnvSpec, settings: dict[str, Any]) -> Algorithm[Any]:
    """The same on kernels that are cut so.

    An object of its own for every call: what `make_algorithm` makes of equal settings is one object, and its learner
    one compiled program, whatever its tiles.
    """
    algorithm = plain(arm, spec, settings)
    assert isinstance(algorithm.learning, UniformLearning)
    plan = fused.plan_qpensieve(_agent(arm, spec, settings), spec, "half")
    plan = replace(plan, tiles=arm.tiles(plan.sizes.columns))
    block: Any = lambda states, batches, draws: fused.learn_qpensieve(plan, states, batches[0], draws)
    return replace(algorithm, learning=replace(algorithm.learning, block=block))
