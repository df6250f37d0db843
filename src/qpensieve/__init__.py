"""qpensieve: one policy for every trade-off between several objectives."""

from importlib import import_module
from typing import TYPE_CHECKING

from qpensieve import gym_ids

if TYPE_CHECKING:
    from qpensieve import callbacks, envs, metrics, preferences
    from qpensieve.api import (
        CNDER,
        MOSAC,
        PFA,
        PGMORL,
        SAC,
        Agent,
        CnDerConfig,
        EnvelopeConfig,
        EnvelopeDQN,
        HybridConfig,
        HybridSAC,
        Method,
        PfaConfig,
        PgmorlConfig,
        QPensieve,
        QPensieveConfig,
        RunConfig,
        SacConfig,
        SingleSacConfig,
        load,
        register_method,
    )

    __version__: str

gym_ids.register()

__all__ = ["CNDER", "MOSAC", "PFA", "PGMORL", "SAC", "Agent", "EnvelopeDQN", "HybridSAC", "QPensieve", "load"]
__all__ += ["CnDerConfig", "EnvelopeConfig", "HybridConfig", "PfaConfig", "PgmorlConfig", "QPensieveConfig"]
__all__ += ["Method", "RunConfig", "SacConfig", "SingleSacConfig", "register_method"]
__all__ += ["__version__", "callbacks", "envs", "metrics", "preferences"]
MODULES = ("callbacks", "envs", "metrics", "preferences")


def __getattr__(name: str) -> object:
    """Import a public name at its first use: `qpensieve --help` should not wait for JAX."""
    if name == "__version__":
        return _version()
    if name not in __all__:
        raise AttributeError(f"module 'qpensieve' has no attribute {name!r}")
    return import_module(f"qpensieve.{name}") if name in MODULES else getattr(import_module("qpensieve.api"), name)


def __dir__() -> list[str]:
    return sorted(__all__)


def _version() -> str:
    from importlib.metadata import PackageNotFoundError, version

    try:
        return version("qpensieve")
    except PackageNotFoundError:  # run from a source tree that was not installed
        return "0.0.0"
