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

__all__ = [
    "DISCRETE",
    "DOMAINS",
    "Domain",
    "LaneOptions",
    "Lanes",
    "Simulator",
    "code_of",
    "find_domain",
    "get_domain",
    "make_lanes",
    "make_simulator",
]
