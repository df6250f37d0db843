"""When two configurations are of one run: seeds, length and what changes nothing that is learned may differ."""

from dataclasses import replace

from qpensieve.config import RunConfig, resolve, to_dict
from qpensieve.records import checkpoint

FREE = {"seeds": 1, "first_seed": 0, "num_threads": None, "kernels": "off", "checkpoint_seconds": 0.0}
"""Settings in which runs of one cell may differ -> what they are set to before comparing."""
FREE_PERIODS = ("eval_period", "full_eval_period", "log_period", "parameters_period", "keep_replay", "eval_stride")
"""Settings that change when something is written, not what is learned."""


def comparable(config: RunConfig) -> RunConfig:
    """The configuration without what runs of one cell may differ in."""
    plain = RunConfig(config.domain)
    same = {name: getattr(plain, name) for name in FREE_PERIODS}
    resolved = resolve(replace(config, kernels="off"))
    return replace(resolved, **same, **FREE, domain=config.domain_id)


def differences(before: RunConfig, now: RunConfig) -> list[str]:
    """In which settings they are different runs, in words; their length may differ."""
    theirs, ours = comparable(before), comparable(replace(now, steps=before.steps))
    return [] if ours == theirs else checkpoint.differences(to_dict(theirs), to_dict(ours))
