"""Plain form of eq. (11); it lives beside the benchmark that times it."""

from qpensieve.bench.plain import batch_value, pensieve_loss, pensieve_value

__all__ = ["batch_value", "pensieve_loss", "pensieve_value"]
