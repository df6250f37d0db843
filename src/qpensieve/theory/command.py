"""The command `qpensieve theory`: the theorem on one MOMDP, two pictures, the broken lines of the proof, the study."""

from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import Literal

import numpy as np

from qpensieve.console import Progress, format_table
from qpensieve.errors import UserError, make_folder
from qpensieve.preferences import spaced_grid
from qpensieve.records.provenance import write_rows
from qpensieve.theory import coverage, experiment, figures, iteration, proof, soft
from qpensieve.theory.iteration import Method
from qpensieve.theory.momdp import Momdp, RandomSpec, chain, deep_sea_treasure, random_momdp, two_armed

Name = Literal["random", "chain", "treasure", "two-armed"]
TEMPERATURES: dict[str, float] = {"random": 0.1, "chain": 0.02, "treasure": 0.1, "two-armed": 1.0}
"""Default temperature of each problem."""
FALLING = (1.0, 0.3, 0.1, 0.03, 0.01, 1e-3, 1e-4, 1e-5)
"""Temperatures of the picture of the front."""
FINE, SMALL = 201, 100
"""Preferences in the picture of the front, for problems of at most `SMALL` states; larger ones use the run's own."""
SHOWN: tuple[Method, ...] = (
    iteration.NAIVE,
    Method("envelope only (no buffer)", num_preferences=None),
    *(iteration.pensieve(size) for size in (0, 2, 4, 6)),
)
RUN_EXAMPLE = RandomSpec(5, 3, 2, num_successors=1, reward_density=0.5)
RUN_SEEDS, RUN_ALPHA = (13, 26), 0.1
"""Seeds of random MOMDPs on which the lines fail during a run from the uniform policy."""


@dataclass(frozen=True)
class Settings:
    """Options of `qpensieve theory`.

    Attributes:
        out: Folder for theory-gap.png, theory-front.png and theory.json.
        mdp: The problem: a random one, a chain, the grid Deep Sea Treasure, or the two-armed example.
        seed: Seed of the random problem and of the preference sets.
        temperature: Temperature of the entropy bonus; default: one that fits the problem.
        preferences: Number of equally spaced preferences.
        iterations: Improvements to run and draw.
        states: States of the random problem.
        actions: Actions of the random problem.
        discount: Discount of the random problem.
        study: Also measure over many problems how much sharing and memory help (minutes); writes study.json.
        momdps: Number of random problems in the study, in addition to ten chains and the grid.
    """

    out: Path = Path("theory")
    mdp: Name = "random"
    seed: int = 0
    temperature: float | None = None
    preferences: int = 21
    iterations: int = 12
    states: int = 12
    actions: int = 3
    discount: float = 0.9
    study: bool = False
    momdps: int = 120


def theory(settings: Settings = Settings()) -> None:
    """Run the paper's theorem on a small problem: exact Q-Pensieve soft policy iteration, with pictures.

    Args:
        settings: The options.
    """
    out = settings.out
    make_folder(out)
    num_successors = min(3, settings.states)
    spec = RandomSpec(settings.states, settings.actions, num_successors=num_successors, discount=settings.discount)
    momdp = _make(settings.mdp, settings.seed, spec)
    alpha = TEMPERATURES[settings.mdp] if settings.temperature is None else settings.temperature
    if alpha <= 0:
        raise UserError(f"temperature must be above 0, got {alpha}")
    prefs = spaced_grid(settings.preferences)
    progress = Progress(2 * len(SHOWN) + len(FALLING), 0)
    optimum = soft.soft_optimum(momdp, prefs, alpha)
    case = experiment.Case(settings.mdp, momdp, prefs, alpha, optimum, settings.seed)
    panels = _gaps(case, settings.iterations, progress)
    vertices, fronts = _fronts(momdp, prefs, progress)
    _report(out, case, panels, (vertices, fronts))
    if settings.study:
        run_study(out / "study.json", settings.momdps, settings.seed)


def _report(
    out: Path,
    case: experiment.Case,
    panels: dict[str, dict[str, list[float]]],
    front: tuple[np.ndarray, list[coverage.SoftFront]],
) -> None:
    """Draw, write and print the results on one problem."""
    momdp, gap_rows, front_rows = case.momdp, _gap_rows(panels), _front_rows(front[1])
    title = f"{momdp.name}: {momdp.num_states} states, discount {momdp.discount:g}, temperature {case.alpha:g}"
    paths = [
        figures.draw_gaps(out / "theory-gap.png", title, panels),
        figures.draw_front(out / "theory-front.png", f"{momdp.name}: the front as the temperature falls", *front),
        out / "theory.json",
    ]
    config = {"mdp": case.family, "seed": case.seed, "temperature": case.alpha, "preferences": len(case.prefs)}
    config |= {"states": momdp.num_states, "actions": momdp.num_actions, "discount": momdp.discount}
    write_rows(paths[-1], "theory", [*gap_rows, *front_rows], config)
    print(title, format_table(gap_rows), "", sep="\n")
    print("Returns of the final policies as the temperature falls", format_table(front_rows), "", sep="\n")
    print(explain_lines(), "", *paths, sep="\n")


def _make(name: Name, seed: int, spec: RandomSpec) -> Momdp:
    if name == "random":
        return random_momdp(np.random.default_rng(seed), spec)
    return {"chain": chain, "treasure": deep_sea_treasure, "two-armed": two_armed}[name]()


def _gaps(case: experiment.Case, num: int, progress: Progress) -> dict[str, dict[str, list[float]]]:
    """Return the gap per iteration of every shown method, with exact critics and with fresh noise."""
    exact, noisy = experiment.exact("exact critics"), experiment.fresh_noise("noisy critics, fresh noise")
    panels: dict[str, dict[str, list[float]]] = {}
    for setting in (exact, noisy):
        curves = panels.setdefault(setting.name, {})
        for method in SHOWN:
            curves[method.name] = [experiment.loss(case, one) for one in islice(case.run(method, setting), num + 1)]
            progress.note(now=f"{method.name}, {setting.name}")
            progress.show(sum(map(len, panels.values())))
    return panels


def _fronts(momdp: Momdp, prefs: np.ndarray, progress: Progress) -> tuple[np.ndarray, list[coverage.SoftFront]]:
    prefs = spaced_grid(FINE) if momdp.num_states <= SMALL else prefs
    vertices, fronts = coverage.coverage_set(momdp), []
    for i, alpha in enumerate(FALLING):
        fronts.append(coverage.trace_front(momdp, prefs, alpha, vertices))
        progress.note(now=f"temperature {alpha:g}")
        progress.show(2 * len(SHOWN) + i + 1, force=i + 1 == len(FALLING))
    progress.end()
    return vertices, fronts


def _gap_rows(panels: dict[str, dict[str, list[float]]]) -> list[experiment.Row]:
    rows = []
    for critic, curves in panels.items():
        for method, gaps in curves.items():
            done = next((k for k, gap in enumerate(gaps) if gap <= experiment.TARGET), None)
            shown = {f"gap {k}": float(max(gaps[k], 0.0)) for k in (0, 1, 2, 3, 5, 8) if k < len(gaps)}
            rows.append({"critic": critic, "method": method, f"iterations to {experiment.TARGET:g}": done, **shown})
    return rows


def _front_rows(fronts: list[coverage.SoftFront]) -> list[experiment.Row]:
    return [
        {"temperature": front.alpha, "largest loss": float(front.loss.max()), "bound": front.bound} for front in fronts
    ]


def explain_lines() -> str:
    """Return text that shows where lines 5 and 6 of the paper's proof fail: by hand, and during a run."""
    parts = []
    for label, example in ((5, proof.line_5_example), (6, proof.line_6_example)):
        momdp, offers, alpha = example()
        chains = {
            "as printed": proof.printed_chain(momdp, offers, alpha, "printed"),
            "with lam' as meant": proof.printed_chain(momdp, offers, alpha, "meant"),
            "repaired": proof.repaired_chain(momdp, offers, alpha),
        }
        rows = [
            {"chain": name} | {f"line {key}": f"{value[0, 0]:.4f}" for key, value in lines.items()}
            for name, lines in chains.items()
        ]
        doc = (example.__doc__ or "").split("\n\n")
        parts.append("\n".join([f"Line {label} of the proof, by hand", *map(_dedent, doc), format_table(rows)]))
    return "\n\n".join([*parts, _failures_met()])


def _dedent(text: str) -> str:
    return "\n".join(line.strip() for line in text.strip().splitlines())


def _failures_met() -> str:
    """Return text with the largest failure of each line, in each reading, during two runs."""
    found = []
    for seed in RUN_SEEDS:
        momdp = random_momdp(np.random.default_rng(seed), RUN_EXAMPLE)
        found += [(seed, one) for one in proof.failures_along_run(momdp, spaced_grid(5), RUN_ALPHA)]
    rows = []
    for key in ((5, "printed"), (5, "meant"), (6, "printed"), (6, "meant")):
        met = [pair for pair in found if (pair[1].label, pair[1].reading) == key]
        seed, worst = max(met, key=lambda pair: pair[1].before - pair[1].after)
        rows.append(
            {
                "should hold": f"line {worst.label - 1} <= line {worst.label}, as {worst.reading}",
                "seed": seed,
                "iteration": worst.iteration,
                "preference": str(spaced_grid(5)[worst.preference].tolist()),
                "(s0, a0)": str(worst.place),
                "left side": f"{worst.before:.4f}",
                "right side": f"{worst.after:.4f}",
            }
        )
    head = "Met along runs from the uniform policy (random MOMDPs of 5 states and 3 actions, 5 preferences, buffer 2)"
    return head + "\n" + format_table(rows)


def run_study(path: Path, num_random: int, seed: int) -> None:
    """Run the study of `experiment`, print it and write it."""
    cases, chosen = experiment.make_cases(num_random, seed=seed), experiment.settings()
    progress = Progress(len(cases) * len(chosen), 0)

    def show(done: int, what: str) -> None:
        progress.note(critic=what)
        progress.show(done)

    rows = experiment.run(cases, chosen, progress=show)
    settings = {
        "random MOMDPs": num_random,
        "seed": seed,
        "cases": len(cases),
        "target": experiment.TARGET,
        "most iterations": experiment.MOST_ITERATIONS,
        "noise": experiment.SIGMA,
        "methods": [vars(method) for method in experiment.METHODS],
        "preferences": len(cases[0].prefs),
        "interval": "95 % percentile bootstrap of the mean, 2000 resamples, paired by problem for differences",
    }
    write_rows(path, "what sharing and memory each buy", rows, settings)
    for family in dict.fromkeys(str(row["family"]) for row in rows):
        print("", format_table(experiment.shown(rows, family)), sep="\n")
    print(path)
