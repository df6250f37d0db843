"""qpensieve: one policy for every trade-off between several objectives."""

from importlib.metadata import version

from qpensieve import envs, metrics, preferences
from qpensieve.envs.registry import register_gym_ids

__version__ = version("qpensieve")
__all__ = ["__version__", "envs", "metrics", "preferences"]

register_gym_ids()
