"""qpensieve: one policy for every trade-off between several objectives."""

from importlib.metadata import PackageNotFoundError, version

from qpensieve.compiler import set_flags

set_flags()

from qpensieve import api, callbacks, envs, metrics, preferences  # noqa: E402  (after the flags)
from qpensieve.api import *  # noqa: E402, F403  (its __all__ is the list of public names)
from qpensieve.envs.registry import register_gym_ids  # noqa: E402

try:
    __version__ = version("qpensieve")
except PackageNotFoundError:  # run from a source tree that was not installed
    __version__ = "0.0.0"
__all__ = ["__version__", "callbacks", "envs", "metrics", "preferences"]
__all__ += api.__all__

register_gym_ids()
