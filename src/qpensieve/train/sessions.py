"""The two kinds of trainers behind a run: agents with a replay, and populations with an archive."""

from qpensieve.config import RunConfig
from qpensieve.population.trainer import PopulationTrainer
from qpensieve.train.trainer import Trainer

AnyTrainer = Trainer | PopulationTrainer


def make_trainer(config: RunConfig) -> AnyTrainer:
    """The trainer of a run's algorithm."""
    return PopulationTrainer(config) if config.method.is_population else Trainer(config)
