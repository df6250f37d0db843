"""Which trainer a run's method has: the only place that tells them apart."""

from qpensieve.config import RunConfig
from qpensieve.train.population import PopulationTrainer
from qpensieve.train.session import Session
from qpensieve.train.trainer import Trainer


def open_session(config: RunConfig) -> Session:
    """A new session of a run's method."""
    return PopulationTrainer(config) if config.method.is_population else Trainer(config)
