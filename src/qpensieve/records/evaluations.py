"""The evaluations of a run: the table of return vectors and its file `evaluations.npz`.

Functions return new tables; none changes the one it is given.
"""

from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
from jaxtyping import Float, Float64, Int64

from qpensieve.errors import MissingFileError, UserError
from qpensieve.records.files import empty_record, load_record, save_record
from qpensieve.records.folder import CONFIG, METRICS, why_no_run
from qpensieve.records.log import has_evaluations


@dataclass(frozen=True, eq=False)
class Evaluations:
    """Returns of every evaluation of a run; the number of episodes is 0 until the first one.

    Attributes:
        short_steps: Environment steps at the short evaluations, increasing.
        short_returns: Returns of the short protocol.
        short_preferences: Preferences of the short protocol: every `eval_stride`-th row of the test table, or the
            agents' own.
        curve_returns: Returns under the paper's curve preferences, at `short_steps`.
        curve_preferences: The paper's curve preferences; may have no rows.
        full_steps: Environment steps at the full evaluations, increasing.
        full_returns: Returns of the full protocol, which is compared with the paper's table.
        full_preferences: Preferences of the full protocol: every `full_eval_stride`-th row of the test table (by
            default all), or the agents' own.
        reference: Reference point of the hypervolume; None if there is none.
    """

    short_steps: Int64[np.ndarray, " t"]
    short_returns: Float64[np.ndarray, "t seed p e d"]
    short_preferences: Float64[np.ndarray, "p d"]
    curve_returns: Float64[np.ndarray, "t seed c e_curve d"]
    curve_preferences: Float64[np.ndarray, "c d"]
    full_steps: Int64[np.ndarray, " f"]
    full_returns: Float64[np.ndarray, "f seed p_full e_full d"]
    full_preferences: Float64[np.ndarray, "p_full d"]
    reference: Float64[np.ndarray, " d"] | None

    @property
    def num_seeds(self) -> int:
        return self.short_returns.shape[1]

    @property
    def num_objectives(self) -> int:
        return self.short_returns.shape[-1]


def empty(
    num_seeds: int,
    short: Float64[np.ndarray, "p d"],
    curve: Float64[np.ndarray, "c d"],
    full: Float64[np.ndarray, "p_full d"],
    reference: Float64[np.ndarray, " d"] | None = None,
) -> Evaluations:
    """Return the table of a run that has not been evaluated; the first appended returns set the numbers of episodes.

    Args:
        num_seeds: Number of seeds.
        short: Preferences of the short protocol.
        curve: The paper's curve preferences; may have no rows.
        full: Preferences of the full protocol.
        reference: Reference point of the hypervolume; None if there is none.
    """
    sizes = {"seed": num_seeds, "p": len(short), "c": len(curve), "p_full": len(full), "d": short.shape[1]}
    preferences = {"short_preferences": short, "curve_preferences": curve, "full_preferences": full}
    return replace(empty_record(Evaluations, **sizes), **preferences, reference=reference)


def append_short(
    evaluations: Evaluations,
    step: int,
    returns: Float[np.ndarray, "seed p e d"],
    curve_returns: Float[np.ndarray, "seed c e_curve d"],
) -> Evaluations:
    """Return the table with one more short evaluation.

    Raises:
        ValueError: `step` is not after the last short evaluation, or an array does not fit the arrays before it.
    """
    steps = evaluations.short_steps
    if len(steps) and step <= steps[-1]:
        raise ValueError(f"the next short evaluation must be after step {steps[-1]}, got step {step}")
    return replace(
        evaluations,
        short_steps=np.append(steps, np.int64(step)),
        short_returns=_append_returns("short", evaluations.short_returns, returns),
        curve_returns=_append_returns("curve", evaluations.curve_returns, curve_returns),
    )


def append_full(evaluations: Evaluations, step: int, returns: Float[np.ndarray, "seed p_full e_full d"]) -> Evaluations:
    """Return the table with one more full evaluation in its place, before those of later steps.

    Raises:
        ValueError: The table has a full evaluation at `step`, or the returns do not fit the others.
    """
    if step in evaluations.full_steps:
        raise ValueError(f"there is a full evaluation at step {step} already")
    table = _append_returns("full", evaluations.full_returns, returns)
    steps = np.append(evaluations.full_steps, np.int64(step))
    order = np.argsort(steps)
    return replace(evaluations, full_steps=steps[order], full_returns=table[order])


def cut(evaluations: Evaluations, step: int) -> Evaluations:
    """Return the table without evaluations after `step`."""
    short, full = evaluations.short_steps <= step, evaluations.full_steps <= step
    return replace(
        evaluations,
        short_steps=evaluations.short_steps[short],
        short_returns=evaluations.short_returns[short],
        curve_returns=evaluations.curve_returns[short],
        full_steps=evaluations.full_steps[full],
        full_returns=evaluations.full_returns[full],
    )


def save(path: Path, evaluations: Evaluations) -> None:
    """Write the table; a reader sees the old file or the new one, never half of one."""
    save_record(path, evaluations)


def load(path: Path) -> Evaluations:
    """Read the table that `save` wrote.

    Raises:
        FileNotFoundError: There is no such file.
        ValueError: The file cannot be read, an array is missing, or the shapes do not fit each other.
    """
    if not path.is_file():
        raise MissingFileError(about_missing(path))
    try:
        return load_record(path, Evaluations)
    except (ValueError, OSError) as error:
        again = f"remove it, and 'qpensieve evaluate {path.parent}' scores the newest policies again (no curves)"
        raise UserError(f"{path} is damaged or holds no evaluations: {error}; put a copy back, or {again}") from error


def about_missing(path: Path) -> str:
    """Say why a run has no table and what to do, in one sentence."""
    run = path.parent
    if not (run / CONFIG).is_file():
        return f"no evaluations at {path}: {run} is not a run folder, {why_no_run(run)}"
    if has_evaluations(run / METRICS):
        again = f"put it back, or evaluate the newest policies again with 'qpensieve evaluate {run}'"
        return f"no evaluations at {path}, though the log says that the run was evaluated: {again}"
    return f"no evaluations at {path}: the run has not been evaluated yet; 'qpensieve evaluate {run}' does it"


def _append_returns(
    kind: str, table: Float64[np.ndarray, "t ..."], returns: Float[np.ndarray, "..."]
) -> Float64[np.ndarray, "t_next ..."]:
    seeds, rows, episodes, d = table.shape[1:]
    wanted = (seeds, rows, *((episodes,) if len(table) else returns.shape[2:3]), d)
    if returns.shape != wanted:
        raise ValueError(f"{kind} returns must have shape [seed, preference, episode, d] {wanted}, got {returns.shape}")
    block = np.asarray(returns, np.float64)[None]
    return np.concatenate([table, block]) if len(table) else block
