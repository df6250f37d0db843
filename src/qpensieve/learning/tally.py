"""What a trainer logs, added up between two rows of the log."""

from collections.abc import Mapping

import numpy as np
from jaxtyping import Float

Infos = dict[str, Float[np.ndarray, " rows"]]
"""Name of a logged value -> its values, for every agent, member or seed."""
PEAK = "_max"
"""End of the names of values whose largest is logged, not their mean."""


class Tally:
    """Sums of logged values, or the largest of them, and the number of blocks or iterations in them."""

    def __init__(self, sums: Mapping[str, np.ndarray] | None = None, count: int = 0):
        self.sums: Infos = dict(sums or {})
        self.count = count

    def add(self, infos: Mapping[str, Float[np.ndarray, " rows"]]) -> None:
        """Add what one block or iteration has logged; where that has other names than before, the row begins anew."""
        if self.sums.keys() != infos.keys():  # the run was begun by an earlier version
            self.sums, self.count = {}, 0
        for name, value in infos.items():
            if name.endswith(PEAK):
                self.sums[name] = np.maximum(self.sums.get(name, value), value)
            else:
                self.sums[name] = self.sums.get(name, np.zeros_like(value)) + value
        self.count += 1

    def take(self) -> Infos:
        """Means since the last call, and the largest of peaks; empty if nothing was logged."""
        means = {name: value if name.endswith(PEAK) else value / self.count for name, value in self.sums.items()}
        self.sums, self.count = {}, 0
        return means

    def arrays(self) -> dict[str, np.ndarray]:
        """The sums as named arrays; the count is saved apart."""
        return {f"log/{name}": value for name, value in self.sums.items()}
