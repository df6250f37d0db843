"""The commands `qpensieve paper ...` and `qpensieve sweep`: thin functions over plans, engines and reports."""

import os
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Literal

import jax
import tyro

from qpensieve import machine
from qpensieve.config import learning_warning, remarks
from qpensieve.console import PAGE, format_count, format_duration, format_entries, format_number, format_table
from qpensieve.errors import MissingFileError, UserError
from qpensieve.experiments import costs, paper, tasks
from qpensieve.experiments.local import RUNS_PER_GPU, Local
from qpensieve.experiments.plan import Plan, Size, find_artefacts, make_plan
from qpensieve.experiments.plan_results import PlanResults, read_exported
from qpensieve.experiments.progress import Runs, Table, format_counts, format_rows
from qpensieve.experiments.ray import OnRay
from qpensieve.experiments.schedule import TRIES, Engine, train_all
from qpensieve.experiments.slurm import Request, Slurm
from qpensieve.experiments.sweeps import read_sweep
from qpensieve.experiments.tasks import Task
from qpensieve.experiments.views import show
from qpensieve.records import provenance
from qpensieve.report.page import Report, insert, write_report
from qpensieve.settings import at_least, problems
from qpensieve.train.run_loop import Stopped

REPORT, TITLE = "report", "The paper's tables and figures"
WATCH_SECONDS = 2.0
"""Seconds between two updates of `status --watch`."""
QUICK_FLAGS = {"--xla_backend_optimization_level=0": (0, 12), "--xla_cpu_use_fusion_emitters=false": (0, 10)}
"""Flag for quick compiling -> newest JAX version known to accept it; an unknown flag ends the process."""
CARDS = (1, 8, 64)
"""Numbers of cards for which costs are shown."""


@dataclass(frozen=True)
class Choice(Size):
    """The part of the paper to make, and its size."""

    names: Annotated[tuple[str, ...], tyro.conf.Positional, tyro.conf.arg(metavar="[NAME ...]")] = ()
    """Tables and figures (`qpensieve paper list`); none: all of them."""
    out: Path | None = None
    """Folder of the runs; default: runs/paper, runs/paper-short or runs/paper-smoke."""

    @property
    def folder(self) -> Path:
        default = "paper" if self.scale == "paper" else f"paper-{self.scale}"
        return self.out or Path("runs") / default

    def plan(self) -> Plan:
        return make_plan(find_artefacts(self.names, paper.ARTEFACTS), self, self.folder)


def list_artefacts() -> None:
    """List the tables and figures of the paper: name, where they stand, runs, and hours on one H200."""
    every, entries = make_plan(list(paper.ARTEFACTS.values()), Size(), Path()), {}
    for artefact in every.artefacts:
        planned = [task for wanted in dict.fromkeys(artefact.cells.values()) for task in every.tasks_of[wanted]]
        hours = costs.wall_seconds((task.config for task in planned), 1) / 3600
        size = f" {len(planned)} run{'s' if len(planned) > 1 else ''}, {hours:.1f} hours of an H200." if planned else ""
        entries[artefact.name] = f"{artefact.title} ({artefact.where}).{size}"
    print(format_entries(entries))
    about = "runs in all; a run that several tables or figures need is made once."
    print(f"\n{len(every.tasks)} {about} {_left_line(every.tasks, True)}")


def plan(choice: Choice = Choice()) -> None:
    """Show the runs that some tables and figures need, how many are done, and what they cost on 1, 8 and 64 H200s.

    Args:
        choice: The part of the paper, and its size.
    """
    # Costs are modelled for networks as large as the paper's.
    show_plan(choice.plan(), choice.folder, has_costs=choice.scale != "smoke")


def show_plan(planned: Plan, folder: Path, has_costs: bool) -> None:
    """Print the runs of a plan and, if `has_costs`, what they cost on the measured machine."""
    rows, runs = [], [tasks.status(task) for task in planned.tasks]
    for run in runs:
        task, is_begun = run.task, run.state == "waiting" and run.step
        row = {"run": task.name, "steps": format_count(task.config.steps), "seeds": task.config.seeds}
        time = {f"{costs.CARD} alone": format_duration(costs.run_seconds(task.config))} if has_costs else {}
        state = f"waiting, at {format_count(run.step)}" if is_begun else run.state
        rows.append({**row, **time, "state": state})
    if rows:
        print(format_table(rows))
    left = [run.task for run in runs if run.state != "done"]
    num_done = len(planned.tasks) - len(left)
    print(f"\n{len(planned.tasks)} runs in {folder}, {num_done} of them done. {_left_line(left, has_costs)}")
    print("".join(f"\n{line}\n" for line in (*_about_runs(planned.tasks), *_about_others(runs))), end="")


def _left_line(left: Sequence[Task], has_costs: bool) -> str:
    """Return in words how much is left to do and, if `has_costs`, how long it takes on the measured machine."""
    if not left:
        return ""
    millions = sum(task.config.seeds * task.config.steps for task in left) / 1e6
    size = f"What is left is {format_number(millions, 3, whole_from=1000)} million steps"
    if not has_costs:
        return f"{size} over all seeds. How long that takes was not measured on this machine."
    configs = [task.config for task in left]
    times = ", ".join(f"{format_duration(costs.wall_seconds(configs, num))} on {num}" for num in CARDS)
    return f"{size} over all seeds: about {times} {costs.CARD}s with {costs.CORES} cores each (docs/scale.md)."


def _about_runs(planned: Sequence[Task]) -> list[str]:
    """Return a sentence for each kind of run that learns nothing or has a setting without effect."""
    names: dict[str, list[str]] = {}
    for task in planned:
        for about in filter(None, (learning_warning(task.config, task.config.steps), *remarks(task.config))):
            names.setdefault(about, []).append(task.name)
    more = lambda found: f" and {len(found) - 1} more" if len(found) > 1 else ""
    return [f"{found[0]}{more(found)}: {about}" for about, found in names.items()]


def _check_there(folder: Path) -> None:
    """Raise FileNotFoundError if the folder does not exist: a misspelt name would look like runs to do."""
    if not folder.is_dir():
        raise MissingFileError(f"{folder} does not exist: no run was made there yet; --out names another folder")


def _about_others(runs: Runs) -> list[str]:
    """Return one sentence for each folder that has the name of a task and holds another run."""
    others = [(run.task.name, run.message) for run in runs if run.state == "other settings"]
    then = "reports leave it out, and nothing is run in it; move it away, or use another folder for the runs (--out)"
    return [f"{name} holds a run with other settings ({why}): {then}." for name, why in others]


@dataclass(frozen=True)
class Where:
    """The engine that makes the runs, and its options."""

    on: Literal["local", "ray", "slurm"] = "local"
    """local: processes of this machine, as many as fill its cards and cores. ray: a Ray cluster (pip install
    'qpensieve[ray]'). slurm: job arrays (pip install 'qpensieve[slurm]'). docs/running.md says more."""
    at_once: Annotated[int | None, at_least(1)] = None
    """Runs (slurm: jobs) side by side; default: as many as there is room for."""
    runs_per_gpu: Annotated[int | None, at_least(1)] = None
    """Runs that share a card. Default: 4 where there are two cores for each; slurm: 1."""
    address: str = "auto"
    """ray: the head of the cluster, HOST:PORT; auto: the cluster of this machine."""
    fetch: bool = False
    """ray: send folders to the nodes and bring them home, because there is no shared file system."""
    job: Request = field(default_factory=Request)
    tries: Annotated[int, at_least(1), tyro.conf.arg(metavar="N")] = TRIES
    """Tries in a row without progress after which a run has failed."""
    quiet: bool = False
    """Show no table of runs."""

    def check(self) -> None:
        """Raise ValueError for a number that breaks its rule."""
        for problem in problems(self):
            name, *words = problem.split(" ")
            raise UserError(" ".join([name.replace("_", "-"), *words]))

    def engine(self, root: Path) -> Engine:
        """Return the engine that starts workers; `root` is the folder of all runs.

        Raises:
            ImportError: A package of the engine is not installed.
            ValueError: There is no such cluster.
        """
        if self.on == "ray":
            return OnRay(self.address, self.at_once, self.runs_per_gpu or RUNS_PER_GPU, self.fetch)
        if self.on == "slurm":
            return Slurm(root, self.job, self.at_once, self.runs_per_gpu or 1, self.tries)
        slots = None if self.runs_per_gpu is None else self.runs_per_gpu * max(1, len(machine.gpus()))
        return Local(self.at_once or slots)


def run(
    choice: Choice = Choice(),
    where: Where = Where(),
    results: tuple[Path, ...] = (),
) -> None:
    """Make all runs that some tables and figures need, and then their report; called again, it continues.

    If it was interrupted, killed or moved to another machine with its folder, it skips finished runs and resumes the
    others from the last checkpoint, with the same numbers.

    Args:
        choice: The part of the paper, and its size.
        where: The engine that makes the runs.
        results: Exported runs for the report (`qpensieve export`): folders or files.
    """
    planned, folder = choice.plan(), choice.folder
    with _compiling_quickly() if choice.scale == "smoke" else nullcontext():
        _make_runs(planned, folder, where)
    found = PlanResults(planned, read_exported(results))
    print(write_report(folder / REPORT, _make_report(found, folder / REPORT)))


@contextmanager
def _compiling_quickly() -> Iterator[None]:
    """Let workers that start within the block compile without optimisation; tiny runs mostly compile.

    Only these workers: the flags change bits, so this process and later ones must not inherit them.
    """
    before = os.environ.get("XLA_FLAGS")
    flags = [flag for flag, newest in QUICK_FLAGS.items() if jax.__version_info__[:2] <= newest]
    os.environ["XLA_FLAGS"] = " ".join(filter(None, [before, *flags]))
    try:
        yield
    finally:
        if before is None:
            del os.environ["XLA_FLAGS"]
        else:
            os.environ["XLA_FLAGS"] = before


def sweep(
    file: Annotated[Path, tyro.conf.Positional, tyro.conf.arg(metavar="FILE.toml")],
    out: Path | None = None,
    only_plan: bool = False,
    only_report: bool = False,
    where: Where = Where(),
) -> None:
    """Make the runs of a plan of your own, a TOML file with grids over any setting, and their report.

    Args:
        file: The plan. [run] holds what all runs share (domain, algo, preset, seeds, steps, any setting). [grid] holds
            lists of values, and every combination is a run. [[runs]] adds further runs. See docs/experiments.md.
        out: Folder of the runs; default: runs/NAME of the file.
        only_plan: Only show the runs and, on a machine like the measured one, what they cost.
        only_report: Only write the report of the results that are there.
        where: The engine that makes the runs.
    """
    where.check()
    artefact, folder = read_sweep(file), out or Path("runs") / file.stem
    planned = make_plan([artefact], Size(), folder)
    if only_plan:
        show_plan(planned, folder, costs.is_measured_here())
        return
    if only_report:
        _check_there(folder)
    else:
        _make_runs(planned, folder, where)
    print(write_report(folder / REPORT, _make_report(PlanResults(planned), folder / REPORT, artefact.title)))


def _make_runs(planned: Plan, folder: Path, where: Where) -> None:
    """Make all runs of a plan.

    Raises:
        Stopped: Ctrl-C was pressed; all runs are saved.
        ValueError: Some runs have failed; the message says which and why.
    """
    where.check()
    for line in _about_runs(planned.tasks):
        _say(line)
    table = Table(is_quiet=where.quiet)
    summary = train_all(planned.tasks, where.engine(folder), where.tries, table.show, _say)
    if summary.is_stopped:
        raise Stopped(f"stopped; {len(summary.left)} runs are left, the same command continues them")
    if summary.failed:
        reasons = "\n\n".join(f"{name}: {why}" for name, why in summary.failed.items())
        raise UserError(f"{len(summary.failed)} of {len(planned.tasks)} runs have failed:\n\n{reasons}")


def status(choice: Choice = Choice(), watch: bool = False) -> None:
    """Show the progress of the runs of some tables and figures: done, running, waiting, failed, time left.

    Args:
        choice: The part of the paper, and its size.
        watch: Keep the table up to date until Ctrl-C.
    """
    if not watch:
        _check_there(choice.folder)
    planned = choice.plan().tasks
    look = lambda: list(map(tasks.status, planned))
    if not watch:
        runs = look()
        print("\n".join([format_counts(runs), *format_rows(runs, PAGE, len(runs) + 1), *_about_others(runs)]))
        return
    table = Table(sys.stdout)
    while True:
        table.show(look())
        time.sleep(WATCH_SECONDS)


def report(
    choice: Choice = Choice(),
    results: tuple[Path, ...] = (),
    to: Path | None = None,
    into: Path | None = None,
) -> None:
    """Write tables and figures from the results that are there: Markdown, LaTeX, CSV, PNG, SVG and a page, index.html.

    Args:
        choice: The part of the paper, and its size.
        results: Also use exported runs (`qpensieve export`), such as those in results/h200: folders or files.
        to: Folder of the report; default: `report` in the folder of the runs.
        into: Also put small tables of scores into this Markdown page, between the lines that mark their place:
            `<!-- qpensieve paper report NAME -->` and `<!-- end of NAME -->`.
    """
    if not results:
        _check_there(choice.folder)
    found, folder = PlanResults(choice.plan(), read_exported(results)), to or choice.folder / REPORT
    made = _make_report(found, folder)
    print(write_report(folder, made))
    if into is not None:
        sheets = {sheet.name: sheet for sheet in made.sheets}
        for artefact in found.plan.artefacts:
            if artefact.show == "scores" and artefact.cells:
                sheet = sheets[artefact.name]
                cells = artefact.cells.items()
                reasons = {place: found.left_out_of(run, sheet.cell(*place).seeds) for place, run in cells}
                insert(into, artefact.name, sheet, {place: why for place, why in reasons.items() if why})
        print(into)


def _make_report(found: PlanResults, folder: Path, title: str = "") -> Report:
    """Make the report of all artefacts of a plan, for a folder; without a title it is the paper's."""
    left_out = found.left_out
    for line in left_out:
        _say(line)
    scale = [] if title else [f"Scale: {found.plan.size.scale}."]
    first = " ".join([*scale, "Numbers link to the configuration and the machine of their runs."])
    made = Report(title or TITLE, [first, *left_out], provenance.describe())
    for artefact in found.plan.artefacts:
        made.add(show(artefact, found, folder))
    return made


def _say(message: str) -> None:
    print(message, file=sys.stderr)
