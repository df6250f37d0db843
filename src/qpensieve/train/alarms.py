"""Alarms: signs in the log that the values of a policy run away (a burst), or that its utility has fallen.

A sign raises an alarm when the row before did not have it. Alarms depend on rows of the log alone, so a resumed run
raises the same ones.
"""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal, NamedTuple

import numpy as np
from jaxtyping import Float64

from qpensieve.config import RunConfig
from qpensieve.envs import find_domain
from qpensieve.records import folder
from qpensieve.train.session import agent_names
from qpensieve.types import EnvSpec

ENTROPY_SLACK = 0.15
"""Largest allowed gap between a policy's entropy and its target, per component of an action."""
BIN_SLACK = 1.0
"""Largest allowed gap in one bin of preferences, per component. With a target of -1, bins of calm runs reached -1.7.
Bins of bursts that the mean hides reached -2.1 to -2.6 (`docs/studies.md`)."""
UTILITY_SHARE = 0.5
"""A UT below this share of the largest one so far raises an alarm, if the largest is positive."""
SHOWN_FROM = 100_000
"""First step at which alarms are shown. Early values swing and settle again: alarms before are only in the log."""
MOST_SHOWN = 5
"""Most alarms of a run that are shown; the log has all."""
WARMEST = "temperature_max"
"""Logged name of the largest temperature of all preferences, if they have different ones."""
ENTROPY_BIN = "entropy_bin_"
"""Prefix of the names of entropies in bins of lam1."""
BIN = "q_bin_"
"""Prefix of the names of mean values in bins of lam1."""
Sign = Literal["entropy", "bin", "value", "utility"]
_WORDS: dict[Sign, str] = {
    "entropy": "entropy {value:.3g} is far below its target (alarm below {limit:.3g}): values may be running away",
    "bin": "entropy {value:.3g} under some preferences (alarm below {limit:.3g}): their values may be running away",
    "value": "values of {value:.3g} are beyond what is possible ({limit:.3g}): they are running away",
    "utility": "UT (short) {value:.4g} is below half of the best so far (alarm below {limit:.4g}); early dips may pass",
}


class Alarm(NamedTuple):
    """A sign of trouble, the row of its seed or agent, the measured value and the limit that the value passed."""

    sign: Sign
    row: int
    value: float
    limit: float

    def describe(self, names: Sequence[str]) -> str:
        """Return the alarm in words; `names` has the owner of each row."""
        return f"{names[self.row]}: {_WORDS[self.sign].format(value=self.value, limit=self.limit)}"

    def entry(self, names: Sequence[str]) -> dict[str, object]:
        """Return the alarm as a row of the log."""
        return {"sign": self.sign, "who": names[self.row], "value": self.value, "limit": self.limit}


class Aim(NamedTuple):
    """Target of the entropy per component: `start` up to step `first`, then on a line to `end` within `num` steps."""

    start: float = -1.0
    end: float = -1.0
    first: int = 0
    num: int = 1

    def at(self, step: int) -> float:
        return self.start + (self.end - self.start) * min(max((step - self.first) / self.num, 0.0), 1.0)


PAPER_AIM = Aim()


@dataclass(frozen=True)
class Limits:
    """Limits that alarms compare a run with.

    Attributes:
        action_size: Components of an action. None: the policy has no target of its entropy.
        ceilings: The largest discounted return of each objective from any state. None: unknown.
        discount: Discount factor.
        aim: Target of the policy's entropy.
    """

    action_size: int | None
    ceilings: tuple[float, ...] | None = None
    discount: float = 0.99
    aim: Aim = PAPER_AIM


def of_training(limits: Limits, row: Mapping[str, Any], step: int = 0) -> list[Alarm]:
    """Return the alarms of a row of training metrics of a step."""
    if limits.action_size is None or "entropy" not in row:
        return []
    entropy = np.atleast_1d(np.asarray(row["entropy"], np.float64))
    if "helper_entropy" in row:  # the entropy of hybrid SAC's helper
        entropy = np.minimum(entropy, np.asarray(row["helper_entropy"], np.float64))
    target = limits.aim.at(step)
    found = _below("entropy", entropy, (target - ENTROPY_SLACK) * limits.action_size)
    bins = [np.asarray(values, np.float64) for name, values in row.items() if name.startswith(ENTROPY_BIN)]
    if bins:  # the mean over all may hide a collapse under some preferences
        found += _below("bin", np.min(bins, axis=0), (target - BIN_SLACK) * limits.action_size)
    return found + _of_values(limits, row)


def _below(sign: Sign, values: Float64[np.ndarray, " row"], least: float) -> list[Alarm]:
    return [Alarm(sign, int(i), float(values[i]), least) for i in np.flatnonzero(values < least)]


def _of_values(limits: Limits, row: Mapping[str, Any]) -> list[Alarm]:
    """Return an alarm for each policy with a mean value, in some bin, above what the bin's preferences allow."""
    bins = [name for name in row if name.startswith(BIN)]
    if limits.ceilings is None or len(limits.ceilings) != 2 or not bins or limits.action_size is None:
        return []
    high, low = limits.ceilings
    edges = np.arange(len(bins) + 1) / len(bins)
    at_edges = edges * high + (1.0 - edges) * low
    bonus = limits.discount / (1.0 - limits.discount) * limits.action_size * math.log(2.0)
    alpha = np.asarray(row.get(WARMEST, row["temperature"]), np.float64)
    possible = np.maximum(at_edges[:-1], at_edges[1:]) + bonus * alpha[:, None]
    values = np.stack([np.asarray(row[f"{BIN}{i + 1}"], np.float64) for i in range(len(bins))], axis=1)
    worst = np.argmax(values - possible, axis=1)
    return [
        Alarm("value", i, float(values[i, worst[i]]), float(possible[i, worst[i]]))
        for i in range(len(values))
        if values[i, worst[i]] > possible[i, worst[i]]
    ]


def of_utility(ut: Float64[np.ndarray, "t seed"]) -> list[Alarm]:
    """Return the alarms of the newest short evaluation, compared with all before."""
    if len(ut) < 2:
        return []
    best = ut[:-1].max(axis=0)
    limit = UTILITY_SHARE * best
    is_lost = (best > 0) & (ut[-1] < limit)  # of a negative best, half is more
    return [Alarm("utility", int(i), float(ut[-1, i]), float(limit[i])) for i in np.flatnonzero(is_lost)]


class Watch:
    """Finds the alarms of a run row by row, returns them as entries of the log, and shows the first few late ones.

    Args:
        config: The configuration of the run.
        spec: The environment.
        own: Preferences that have their own agent each. None: one agent of a seed serves all.
        show: Called with the text of each alarm to show.
    """

    def __init__(
        self, config: RunConfig, spec: EnvSpec, own: Float64[np.ndarray, "p d"] | None, show: Callable[[str], None]
    ):
        self._limits, self._show = limits_of(config, spec), show
        self._seeds, self._agents = agent_names(config.seed_list, None), agent_names(config.seed_list, own)
        self._now: list[Alarm] = []
        self._num_shown = 0

    def resume(self, rows: Sequence[Mapping[str, Any]]) -> None:
        """Continue after these rows of training metrics: signs of the newest row raise no new alarm."""
        self._now = of_training(self._limits, rows[-1], int(rows[-1]["step"])) if rows else []

    def training(self, step: int, row: Mapping[str, Any]) -> list[dict[str, object]]:
        """Return the log's entries for the new alarms of a row of training metrics."""
        before, self._now = self._now, of_training(self._limits, row, step)
        return self._tell(step, before, self._now, self._agents)

    def evaluation(self, step: int, ut: Float64[np.ndarray, "t seed"]) -> list[dict[str, object]]:
        """Return the log's entries for the new alarms of the newest short evaluation; `ut` has all so far."""
        return self._tell(step, of_utility(ut[:-1]), of_utility(ut), self._seeds)

    def _tell(self, step: int, before: list[Alarm], now: list[Alarm], owners: list[str]) -> list[dict[str, object]]:
        """Show the alarms whose sign is new, and return their entries."""
        known = {(alarm.sign, alarm.row) for alarm in before}
        new = [alarm for alarm in now if (alarm.sign, alarm.row) not in known]
        for alarm in new if step >= SHOWN_FROM else []:
            self._num_shown += 1
            if self._num_shown <= MOST_SHOWN:
                more = f"; further alarms are only in {folder.METRICS}" if self._num_shown == MOST_SHOWN else ""
                self._show(f"alarm at step {step:,}: {alarm.describe(owners)}{more}")
        return [alarm.entry(owners) for alarm in new]


def limits_of(config: RunConfig, spec: EnvSpec) -> Limits:
    """Return the limits of a run; populations and policies of discrete actions have no target of the entropy."""
    known = find_domain(config.domain) if isinstance(config.domain, str) else None
    sac = getattr(config.agent, "sac", config.agent)
    is_soft = not config.method.is_population and spec.num_actions is None
    aim, end = PAPER_AIM, getattr(sac, "target_entropy_end", None)
    if end is not None:
        aim = Aim(PAPER_AIM.start, end, config.random_steps, max(1, sac.anneal_updates // config.updates_per_step))
    discount = getattr(sac, "discount", Limits.discount)
    return Limits(spec.action_size if is_soft else None, known and known.ceilings, discount, aim)
