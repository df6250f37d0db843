"""Callbacks: your own code, TensorBoard or Weights & Biases follows a training while it runs.

`agent.learn(steps, callback=...)` takes a callback or a list of them; `qpensieve train --tensorboard --wandb PROJECT
--callback module:name` does the same for runs. A callback is a function `f(step, metrics)`, called with every row of
training metrics and every evaluation, or an object with any methods of `Callback`, which need not be its base class.

To stop the training, return False (None and True continue) or raise `StopTraining`: what was learned is kept, can be
saved and learned on. Any other exception of a callback ends the training as `CallbackError`, which names the callback;
the agent is as of the newest block, and a run is saved first. No number depends on callbacks.
"""

from qpensieve.callbacks.loggers import TensorBoard, WandB
from qpensieve.callbacks.protocol import (
    Callback,
    CallbackError,
    Evaluation,
    Metrics,
    Training,
)
from qpensieve.errors import StopTraining

__all__ = [
    "Callback",
    "CallbackError",
    "Evaluation",
    "Metrics",
    "StopTraining",
    "TensorBoard",
    "Training",
    "WandB",
]
