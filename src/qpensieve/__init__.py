"""qpensieve: one policy for every trade-off between several objectives."""

from importlib.metadata import PackageNotFoundError, version

from qpensieve.compiler import set_flags

set_flags()

from qpensieve import envs, metrics, preferences  # noqa: E402  (after the flags)
from qpensieve.api import CNDER, MOSAC, PFA, PGMORL, SAC, Agent, EnvelopeDQN, HybridSAC, QPensieve, load  # noqa: E402
from qpensieve.envs.registry import register_gym_ids  # noqa: E402

try:
    __version__ = version("qpensieve")
except PackageNotFoundError:  # run from a source tree that was not installed
    __version__ = "0.0.0"
__all__ = [
    "CNDER",
    "MOSAC",
    "PFA",
    "PGMORL",
    "SAC",
    "Agent",
    "EnvelopeDQN",
    "HybridSAC",
    "QPensieve",
    "__version__",
    "envs",
    "load",
    "metrics",
    "preferences",
]

register_gym_ids()
