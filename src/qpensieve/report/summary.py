"""The scores of a run: the file `summary.json`, and the table that is printed at the end."""

import textwrap
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from qpensieve import metrics
from qpensieve.console import PAGE, Row, format_number, format_table, plural
from qpensieve.envs.deep_sea import find_treasures, share_found
from qpensieve.envs.registry import Domain, find_domain
from qpensieve.records.files import write_json
from qpensieve.records.folder import SUMMARY, refuse_link
from qpensieve.records.scores import SCORES, columns
from qpensieve.report.results import Evaluation, read_run

ROUNDING = 1e-9
"""Largest relative difference, by rounding, between two sums of the same numbers."""
WORTH_SAYING = 0.1
"""Share of UT by which the best rows must be better to be mentioned: in-sample they are always a little better."""
CALIBRATED, BEST_ROW = SCORES["calibrated"].label, SCORES["best_row"].label
SOURCES = {"UT": "UT asked", CALIBRATED: "UT calibrated (held out)", BEST_ROW: "UT best row (in-sample)"}
"""Score -> its heading, which names the row asked for and the episodes of the measurement."""


def summarize_run(folder: Path) -> dict[str, Any]:
    """Return the scores of the newest full evaluation, per seed and over seeds, and exact ceilings if known."""
    run = read_run(folder)
    newest = run.full_at()
    named = columns(newest.summary)
    averaged = {heading: values for heading, (score, values) in named.items() if score.is_averaged}
    content = {
        "domain": str(run.config["domain"]),
        "algo": run.algo,
        "seeds": list(run.seeds),
        "step": newest.step,
        "environment_steps_per_seed": newest.step * run.lanes_per_seed,
        "preferences": len(newest.preferences),
        "episodes": newest.num_episodes,
        "objectives": list(run.named_objectives),
        "reference": None if newest.reference is None else newest.reference.tolist(),
        "per_seed": {heading: values.tolist() for heading, (_, values) in named.items()},
        "over_seeds": {heading: metrics.summarize(values).__dict__ for heading, values in averaged.items()},
    }
    if newest.calibration is not None:
        content["calibration_steps_per_seed"] = newest.calibration.environment_steps.tolist()
    if run.search is not None:
        content["search"] = run.search
    return content if run.known is None else content | _special(run.known, newest)


def write_summary(folder: Path) -> dict[str, Any]:
    """Write `summary.json` of a run; returns its content."""
    content = summarize_run(folder)
    refuse_link(folder / SUMMARY)
    write_json(folder / SUMMARY, content)
    return content


def format_summary(content: dict[str, Any]) -> str:
    """Format the table at the end of a run."""
    spent = content.get("calibration_steps_per_seed")  # samples too
    rows = [
        f"{content['domain']}, {content['algo']}, step {content['step']:,}, "
        f"full protocol ({plural(content['preferences'], 'preference')})",
        f"{content['environment_steps_per_seed']:,} environment steps per seed in all",
        *([] if spent is None else [f"{np.mean(spent):,.0f} more to calibrate"]),
        format_table(_seed_rows(content), show=format_number),
    ]
    rows += _about_single(content) + _about_choice(content)
    if "search" in content:
        rows += _format_search(content["search"], content["seeds"])
    for seed, found in zip(content["seeds"], content.get("treasures", []), strict=False):  # few domains have them
        rows.append(f"seed {seed}: {len(found)} of 10 treasures: {', '.join(map(str, found)) or 'none'}")
    if "dst" in content:
        rows += _format_deep_sea(content["dst"], content["seeds"])
    return "\n".join(rows + _about_reference(content))


def _about_single(content: dict[str, Any]) -> list[str]:
    """Return lines that compare following the preference with always using the single best preference."""
    own, single = (float(np.mean(content["per_seed"][name])) for name in ("UT", "best single row UT"))
    if content["preferences"] == 1:
        return []
    measured = "other episodes" if content["episodes"] > 1 else "the episodes that chose it"
    said = (
        f"Following the preference gives UT {format_number(own)}; always using the single best preference would give "
        f"{format_number(single)} (measured on {measured})."
    )
    advice = "" if single < own - ROUNDING * abs(own) else " Train longer (more: docs/faq.md)."
    return textwrap.wrap(said + advice, PAGE)


def _about_choice(content: dict[str, Any]) -> list[str]:
    """Return lines that advise to calibrate, if other rows of the table reach more than the preference itself."""
    per_seed = content["per_seed"]
    if CALIBRATED in per_seed:
        return []
    best, own = float(np.mean(per_seed[BEST_ROW])), float(np.mean(per_seed["UT"]))
    if best <= own + WORTH_SAYING * abs(own):
        return []
    said = (
        f"The best row of the table for each preference has UT {format_number(best)} on the episodes that chose it. "
        "'qpensieve calibrate RUN' finds what to ask for and confirms it on other episodes."
    )
    return textwrap.wrap(said, PAGE)


def _about_reference(content: dict[str, Any]) -> list[str]:
    """Return notes on HV: it is missing, 0, from another point than the domain's own, or not like the paper's."""
    known, point = find_domain(content["domain"]), content["reference"]
    if point is None:
        return ["no HV: the environment sets no reference point; --reference does (of train, evaluate and compare)"]
    if not np.any(content["per_seed"].get("HV", [np.nan])):
        return [about_no_volume(point)]
    if known is None or tuple(point) != known.spec.reference:
        others = "" if known is None else f", not from the domain's own {format_point(known.spec.reference or ())}"
        return [f"HV is measured from {format_point(point)}{others}"]
    if known.in_paper and not known.is_hypervolume_comparable:
        return ["HV is not comparable with the paper's: it prints no reference point"]
    return []


def about_no_volume(point: Iterable[float]) -> str:
    """Say why HV is 0, and what to do."""
    return (
        f"HV is 0: no return is above the reference point {format_point(point)} in every objective; "
        "train longer, or set a point that is worse than what you would accept (--reference)"
    )


def format_point(point: Iterable[float]) -> str:
    """A point as people write it: (0, -50)."""
    return f"({', '.join(f'{value:g}' for value in point)})"


def _special(domain: Domain, newest: Evaluation) -> dict[str, object]:
    """The treasures found, and the ceilings of an exact front; only some domains have them."""
    if not domain.treasures or newest.episodes is None:
        return {}
    found = find_treasures(newest.episodes, domain.treasures)
    values = [sorted(each) for each in found]
    if domain.exact is None or newest.reference is None:
        return {"treasures": values}
    ceilings = domain.exact.ceilings(newest.preferences, newest.reference)
    share = share_found(found, domain.front_treasures)
    return {"dst": {"ceilings": ceilings.__dict__, "treasures": values, "front_share": share.tolist()}}


def _format_deep_sea(content: dict[str, Any], seeds: list[int]) -> list[str]:
    ceilings = content["ceilings"]
    lines = [
        f"exact ceilings, full protocol: UT {ceilings['utility']:.3f} "
        f"(one fixed trip {ceilings['best_single']:.2f}), HV {ceilings['hypervolume']:.1f}"
    ]
    for seed, values, share in zip(seeds, content["treasures"], content["front_share"], strict=True):
        lines.append(
            f"seed {seed}: {share:.0%} of the front's treasures; ends at {', '.join(map(str, values)) or 'none'}"
        )
    return lines


def _format_search(content: dict[str, Any], seeds: list[int]) -> list[str]:
    generations = content["generations"]
    fitness = int(np.mean(content["fitness_steps_per_seed"]))
    lines = [
        f"{content['iterations']} iterations of {content['tasks']} tasks, {generations} generations after the warm-up",
        f"{fitness:,} more environment steps per seed to measure policies",
    ]
    for seed, size, volumes in zip(seeds, content["archive_size"], content["archive_hv"], strict=True):
        before = f"HV {format_number(volumes[0])} after the warm-up, " if generations else "still in the warm-up, HV "
        growth = f"{before}{format_number(volumes[-1])} at the end" if volumes else "empty"
        lines.append(f"seed {seed}: archive of {size}; {growth} (as measured when found)")
    return lines


def _seed_rows(content: dict[str, Any]) -> Sequence[Row]:
    """A row per seed; of several seeds also their mean and standard deviation."""
    per_seed, over, seeds = content["per_seed"], content["over_seeds"], content["seeds"]
    shown = {name: _heading(name, content["objectives"]) for name in per_seed}
    rows = [{"seed": str(seed)} | {shown[name]: per_seed[name][i] for name in shown} for i, seed in enumerate(seeds)]
    if len(seeds) > 1:
        of = lambda what: {shown[name]: over[name][what] if name in over else None for name in per_seed}
        rows += [{"seed": "mean"} | of("mean"), {"seed": "std"} | of("std")]
    return rows


def _heading(name: str, objectives: Sequence[str]) -> str:
    """Return the heading to show: UT scores name their measurement, correlations their objective; others stay."""
    if name in SOURCES:
        return SOURCES[name]
    label = SCORES["correlation"].label
    numbered = {label.format(i=i): f"corr {objective}" for i, objective in enumerate(objectives, start=1)}
    return numbered.get(name, name)
