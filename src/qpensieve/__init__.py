"""qpensieve: one policy for every trade-off between several objectives."""

from importlib.metadata import version

from qpensieve import envs, metrics, preferences
from qpensieve.api import MOSAC, Agent, QPensieve, load
from qpensieve.envs.registry import register_gym_ids

__version__ = version("qpensieve")
__all__ = ["MOSAC", "Agent", "QPensieve", "__version__", "envs", "load", "metrics", "preferences"]

register_gym_ids()
