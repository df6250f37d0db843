"""The trainer of each method; no other module distinguishes the two kinds of trainers."""

from qpensieve.compiler import keep_compiled
from qpensieve.config import RunConfig
from qpensieve.train.population import PopulationTrainer
from qpensieve.train.session import Session
from qpensieve.train.trainer import Trainer


def open_session(config: RunConfig) -> Session:
    """A new session of a run's method."""
    keep_compiled()
    return PopulationTrainer(config) if config.method.is_population else Trainer(config)
