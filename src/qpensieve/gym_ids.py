"""The Gymnasium ids of the ten domains, which `import qpensieve` registers. This module imports nothing heavy."""

from collections.abc import Iterator, Mapping
from importlib import import_module

import gymnasium

NAMESPACE = "qpensieve"
NAMES = (
    *("DST2d", "LunarLander4d", "LunarLander5d", "HalfCheetah2d", "Hopper2d", "Hopper3d", "Hopper5d", "Walker2d"),
    *("Ant2d", "Ant3d"),
)
"""The ten domains; `envs/registry.py` describes them."""
GRIDS = ("DeepSeaTreasure",)
"""Domains with discrete actions; they have no Gymnasium id."""


def gym_id(name: str) -> str:
    """Return the Gymnasium id of a domain."""
    return f"{NAMESPACE}/{name}-v0"


class Metadata(Mapping[str, object]):
    """Objectives and reference point of a domain. They are read late, because the table of domains imports MuJoCo."""

    def __init__(self, name: str):
        self.name = name

    def _read(self) -> dict[str, object]:
        spec = import_module("qpensieve.envs.registry").DOMAINS[self.name].spec  # by name: the table imports this file
        return {"objectives": spec.objectives, "reference_point": spec.reference}

    def __getitem__(self, key: str) -> object:
        return self._read()[key]

    def __iter__(self) -> Iterator[str]:
        return iter(self._read())

    def __len__(self) -> int:
        return len(self._read())


def register() -> None:
    """Register the ids with Gymnasium; the metadata of a spec has objectives and reference point."""
    for name in NAMES:
        if gym_id(name) in gymnasium.registry:
            continue
        # Gymnasium's checker warns about every reward that is not a single number; the lanes check instead.
        gymnasium.register(
            gym_id(name),
            entry_point="qpensieve.envs.as_gymnasium:LaneEnv",
            vector_entry_point="qpensieve.envs.as_gymnasium:LaneVectorEnv",
            kwargs={"domain": name},
            disable_env_checker=True,
        )
        gymnasium.registry[gym_id(name)].metadata = Metadata(name)  # pyright: ignore[reportAttributeAccessIssue]
