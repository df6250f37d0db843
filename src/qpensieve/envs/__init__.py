"""Environments: the ten domains as lanes and as Gymnasium ids, and other Gymnasium environments as lanes."""

from qpensieve.envs.base import Lanes
from qpensieve.envs.registry import (
    DISCRETE,
    DOMAINS,
    Domain,
    code_of,
    find_domain,
    get_domain,
    make_lanes,
    make_simulator,
)
from qpensieve.envs.simulator import LaneOptions, Simulator
from qpensieve.envs.sources import EnvSource, is_local, name_for, name_of

__all__ = ["DISCRETE", "DOMAINS", "Domain", "EnvSource", "LaneOptions", "Lanes", "Simulator"]
__all__ += ["code_of", "find_domain", "get_domain", "is_local", "make_lanes", "make_simulator", "name_for", "name_of"]
