"""Environments: the ten domains as lanes and as Gymnasium ids, and anyone's environment as lanes."""

from qpensieve.envs.base import LaneOptions, Lanes, Simulator
from qpensieve.envs.registry import DOMAINS, Domain, get_domain, make_lanes, make_simulator

__all__ = ["DOMAINS", "Domain", "LaneOptions", "Lanes", "Simulator", "get_domain", "make_lanes", "make_simulator"]
