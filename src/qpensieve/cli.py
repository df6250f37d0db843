"""The command `qpensieve`: thin functions over the package; tyro turns their signatures into options."""

import copy
import dataclasses
import inspect
import io
import os
import shlex
import sys
import textwrap
import traceback
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext, redirect_stdout, suppress
from datetime import datetime
from functools import partial
from pathlib import Path
from typing import Annotated, Any, NoReturn

import tyro

import qpensieve
from qpensieve import console, deploy, manual, pages, presets
from qpensieve.callbacks import CallbackError
from qpensieve.config import (
    RunConfig,
    about_helper,
    about_kernels,
    about_learning,
    about_replay,
    check,
    completed,
    describe_schedule,
    override,
    scheduled,
    spec_of,
)
from qpensieve.config import load as load_config
from qpensieve.envs import DISCRETE, DOMAINS, find_domain
from qpensieve.envs.registry import Domain
from qpensieve.errors import EnvError, UserError, is_refusal
from qpensieve.experiments import commands as experiments
from qpensieve.records.checkpoint import CheckpointError
from qpensieve.records.evaluations import load as load_evaluations
from qpensieve.records.folder import CONFIG, EVALUATIONS, METRICS, SUMMARY
from qpensieve.records.lock import FolderInUseError
from qpensieve.records.trust import UntrustedError
from qpensieve.report import compare as comparison
from qpensieve.report import critic as critic_tables
from qpensieve.report import curves as curve_pictures
from qpensieve.report import pictures, tables
from qpensieve.report.export import export as export_run
from qpensieve.settings import number, whole
from qpensieve.theory.command import theory
from qpensieve.train import run as runs
from qpensieve.train.calibrate import EPISODES, calibrate_run
from qpensieve.train.critic_error import Draw, Sampling
from qpensieve.train.critic_run import measure_run
from qpensieve.train.interrupts import termination
from qpensieve.train.run import Options, Run
from qpensieve.train.session import DivergedError, EnvFailedError
from qpensieve.watch import commands as watching

NUMBERS = tyro.constructors.ConstructorRegistry()
"""How words become numbers: 2e5 is a whole one, and what is none is refused in a sentence, not in a box."""
FLAT = (tyro.conf.OmitArgPrefixes, tyro.conf.AvoidSubcommands)
RunFolder = Annotated[Path, tyro.conf.Positional, tyro.conf.arg(metavar="RUN")]
RunsOrFiles = Annotated[tuple[Path, ...], tyro.conf.Positional, tyro.conf.arg(metavar="RUN_OR_FILE [RUN_OR_FILE ...]")]
ABOUT_PAPER = (
    "Every table and figure of the paper: which runs it needs, made on this machine or others, resumed where they "
    "stopped, and the report. Without names: all of them."
)
COMPARED = "compare.png"
EXIT_FAILED, EXIT_BUG, EXIT_STOPPED, EXIT_TERMINATED = 1, 70, 130, 143
SAVE_WHEN_STOPPED = ("train", "resume", "paper", "sweep")
"""Commands that save at SIGTERM."""
OUT_OF_MEMORY = "RESOURCE_EXHAUSTED"
"""What XLA's errors say then; they have no type of their own."""
USER_ERRORS = (
    *(UserError, CheckpointError, DivergedError, EnvFailedError, FolderInUseError, UntrustedError, EnvError),
    CallbackError,
)
"""Errors that are shown without a traceback: their message is enough for a user."""
DEBUG = "QPENSIEVE_DEBUG"
"""Environment variable: 1 shows the traceback of every error."""


class NotANumberError(Exception):
    """A word that stands for a number says none. No ValueError: tyro would put that into a box of its own."""

    def __init__(self, word: str, why: str):
        super().__init__(why)
        self.word = word


@NUMBERS.primitive_rule
def _whole(info: tyro.constructors.PrimitiveTypeInfo) -> tyro.constructors.PrimitiveConstructorSpec[int] | None:
    is_whole = lambda value: isinstance(value, int) and not isinstance(value, bool)
    return _read_by(whole, "INT", is_whole) if info.type is int else None


@NUMBERS.primitive_rule
def _number(info: tyro.constructors.PrimitiveTypeInfo) -> tyro.constructors.PrimitiveConstructorSpec[float] | None:
    is_number = lambda value: isinstance(value, int | float) and not isinstance(value, bool)
    return _read_by(number, "FLOAT", is_number) if info.type is float else None


def _read_by(
    read: Callable[[str], Any], kind: str, is_one: Callable[[Any], bool]
) -> tyro.constructors.PrimitiveConstructorSpec[Any]:
    """How tyro gets a number of a word."""

    def of_words(words: list[str]) -> Any:
        try:
            return read(words[0])
        except UserError as error:
            raise NotANumberError(words[0], str(error)) from None

    return tyro.constructors.PrimitiveConstructorSpec(1, kind, of_words, is_one, lambda value: [str(value)])


@dataclasses.dataclass(frozen=True)
class TrainArguments:
    """Train one policy for every preference (pgmorl, pfa: an archive of policies), several seeds side by side."""

    config: RunConfig
    preset: presets.PresetName = "paper"
    """Defaults of all other settings: the paper's; the paper's with guards against values that run away, random
    actions that go further, more updates and a step size that falls over the run (robust, for qpensieve and mosac; what
    we would take for a new problem); or small ones for two cores (quick)."""
    out: Path = Path("runs")
    """Folder that holds the runs."""
    name: str | None = None
    """Name of the run folder; default: domain, algorithm and time."""
    options: Options = dataclasses.field(default_factory=Options)


def train(words: list[str]) -> None:
    """Train: qpensieve train DOMAIN [--algo qpensieve|mosac|sac|...] [--preset paper|quick|...] [any setting]."""
    algo, preset = _peek(words, "--algo", "qpensieve"), _peek(words, "--preset", "paper")
    domain = _parse_train(words, algo, preset).config.domain
    arguments = _parse_train(words, algo, preset, domain)  # presets depend on the domain
    config = scheduled(arguments.config)
    check(config)
    slug = config.domain.split("/")[-1].replace(":", ".")
    name = arguments.name or f"{slug}-{config.algo}-{datetime.now():%Y%m%d-%H%M%S}"
    folder = arguments.out / name
    if arguments.out.resolve() not in folder.resolve().parents:
        raise UserError(f"name must be that of a folder below {arguments.out} (--out), got {name}")
    hint = "" if preset == "quick" else "--preset quick takes a few minutes"
    if not arguments.options.quiet:
        _warn(f"preparing {config.domain}, {config.algo}: {describe_schedule(config)}")
    for about in (about_kernels(config), about_helper(config), about_replay(config)):
        if about:
            _warn(about)
    _complete(runs.start(folder, config, arguments.options), hint)


def _parse_train(words: list[str], algo: str, preset: str, domain: str = "") -> TrainArguments:
    """The arguments in `words`; the preset (of a domain) provides the rest."""
    if {"-h", "--help"} & set(words):  # show the defaults of the domain that is named
        domain = next((word for word in words if find_domain(word) is not None), "")
    default = presets.default_config(domain, algo, preset)
    if {"-h", "--help"} & set(words):
        steps = override(default, {"steps": whole(_peek(words, "--steps", str(default.steps)))})
        shown = TrainArguments(_without_domain(scheduled(steps)))
        _show_page(manual.train_page(shown, shown.config, inspect.getdoc(TrainArguments) or ""))
    unset = TrainArguments(_without_domain(default))
    manual.check_options(words, unset, default)
    words = manual.with_none(words, default)
    return tyro.cli(TrainArguments, default=unset, args=words, prog="qpensieve train", config=FLAT, registry=NUMBERS)


def resume(  # noqa: PLR0913 (each argument is an option)
    run: RunFolder,
    num_threads: int | None = None,
    steps: int | None = None,
    trust: bool = False,
    start_over: bool = False,
    make_run: bool = False,
    options: Options = Options(),  # noqa: B008
) -> None:
    """Continue a run that was stopped or killed, with the same numbers as without the stop; or train it longer.

    Args:
        run: The run folder.
        num_threads: Cores that collect; the numbers do not depend on it. Default: as before.
        steps: Train up to this many steps instead of the number in the run's configuration; not less than the run has
            reached (pgmorl and pfa: than it was planned for), and the steps that are done stay as they are. Settings
            that are annealed over the whole run are annealed over all of the new length; others keep their values.
        trust: Import the code that the run's domain names, though the folder is not your own.
        start_over: Begin from the start; whatever the run has reached is removed.
        make_run: Make a run of a saved agent, in its own folder: it is evaluated, and goes on where `--steps` asks for
            more than it has learned from. `save` does not write into that folder any more; `load` still reads it.
        options: What the run shows and writes.
    """
    asked = {"num_threads": num_threads, "steps": steps}
    changes = {name: value for name, value in asked.items() if value is not None}
    resumed = runs.resume(run, options, _warn, trust, start_over, make_run, **changes)
    if resumed.session.step == resumed.session.goal:
        _warn(f"the run is complete: all {resumed.session.goal:,} steps are done")
    _complete(resumed)


def evaluate(run: RunFolder, other: Path | None = None, reference: tuple[float, ...] = (), trust: bool = False) -> None:
    """Evaluate the newest checkpoint of a run with the full protocol (whole test table, 10 episodes); draw pictures.

    The replay is not needed. Where the newest checkpoint cannot be read, the newest policies are evaluated that can:
    those of an older checkpoint, or of parameters that the run kept.

    Args:
        run: The run folder.
        other: A second run, fully evaluated: also print ED, the share of preferences where the first scores more.
        reference: Also print HV from this point, one number per objective; the run keeps its own.
        trust: Import the code that the run's domain names, though the folder is not your own.
    """
    # What is wrong is better said before an evaluation that may take minutes.
    if other is not None:
        comparison.read(other)
    if reference and (run / CONFIG).exists():
        asked = dataclasses.replace(load_config(run / CONFIG, trust), reference=reference)
        check(asked)
        spec_of(asked)
    runs.evaluate(run, _warn, trust)
    _report(run)
    if reference:
        print(comparison.hypervolumes(*comparison.measured_from([comparison.read(run)], reference)))
    if other is not None:
        print(_dominance(run, other))


def plot(
    run: RunsOrFiles,
    out: Path | None = None,
    what: pictures.What | None = None,
) -> None:
    """Draw the pictures of a run: front, curves, training, generations, predictions; or several runs' curves in one.

    Args:
        run: A run folder or a file written by `qpensieve export`, or several of them.
        out: One run: a file (.png, .pdf, .svg, .jpg) for one picture (the front, if `--what` does not say), or a folder
            for all; default: the run folder, or beside the exported file. Several runs: a file or a folder; default:
            compare.png.
        what: Draw only this. training: losses, gradients, entropy and values by preference, with alarms, as logged.
            generations and predictions: the search of pgmorl and pfa.
    """
    _check_named(run)
    if what is not None and len(run) != 1:
        raise UserError(f"--what {what} draws one run, got {len(run)}")
    if len(run) == 1:
        paths = pictures.plot(run[0], out, what)
        for why in pictures.missing(run[0]) if what is None and (out is None or not pictures.is_picture(out)) else ():
            _warn(why)
    else:
        paths = [curve_pictures.compare_curves(list(run), pictures.file_of(out or Path(COMPARED), COMPARED))]
    for path in paths:
        print(path)


def export(run: Annotated[Path, tyro.conf.Positional, tyro.conf.arg(metavar="RUN")], out: Path) -> None:
    """Write a run as one small JSON file: configuration, machine, scores and mean returns of every evaluation.

    Args:
        run: The run folder.
        out: The file to write.
    """
    print(export_run(run, out))


def export_policy(  # noqa: PLR0913 (each argument is an option)
    run: RunFolder,
    out: Path = Path("policy.npz"),
    seed: int | None = None,
    step: int | None = None,
    loader: bool = True,
    critics: bool = False,
    trust: bool = False,
) -> None:
    """Write the policy of a run or saved agent for programs without qpensieve: arrays, and a loader for NumPy alone.

    Where these policies were calibrated, the file holds the calibration: the loader's `ask` applies it.

    Args:
        run: The run folder, or the folder of a saved agent.
        out: The file to write.
        seed: Number of the seed. Default: the best by UT where this step was fully evaluated, else the first.
        step: Step of a checkpoint or of kept parameters. Default: the newest that can be read.
        loader: Also put qpensieve_policy.py beside the file.
        critics: Write the critics too: the loader's `value` uses them.
        trust: Import the code that the run's domain names, though the folder is not your own.
    """
    print(deploy.export_policy(run, out, seed, step, trust, _warn, critics))
    if loader:
        path, is_ours = deploy.write_loader(out)
        print(path) if is_ours else _warn(f"{path} is not this version's loader and was left as it is")


def calibrate(run: RunFolder, episodes: int = EPISODES, trust: bool = False, quiet: bool = False) -> None:
    """Find the preference to ask the policy for where another one counts; writes calibration.json.

    Some rows of the test table are played. For each preference the best row is chosen, and the choice is confirmed on
    other episodes: where no gain shows, a preference asks for itself. `predict(..., calibrated=True)` and exported
    policies use the result; the table of the run shows what it brings.

    Args:
        run: The run folder, or the folder of a saved agent.
        episodes: Episodes of each seed, at most; their environment steps count as samples.
        trust: Import the code that the run's domain names, though the folder is not your own.
        quiet: No progress line.
    """
    found, path = calibrate_run(run, episodes, trust, _warn, quiet)
    print(found)
    print(path)
    if (run / EVALUATIONS).exists() and found.step in load_evaluations(run / EVALUATIONS).full_steps[-1:]:
        print(tables.format_summary(tables.write_summary(run)))
    elif (run / METRICS).exists():
        print(f"next: qpensieve evaluate {shlex.quote(str(run))}  # UT asked, calibrated and of the best row")


def compare(
    results: RunsOrFiles,
    step: int | None = None,
    out: Path | None = None,
    curves: bool = False,
    reference: tuple[float, ...] = (),
) -> None:
    """Set runs side by side on the test preferences they share: UT, HV, ED against MO-SAC; and settings that differ.

    Args:
        results: Run folders, or files written by `qpensieve export`.
        step: Environment step of the full evaluation; default: each run's newest.
        out: Also draw a picture here: a file (.png, .pdf, .svg, .jpg), or a folder for compare.png.
        curves: The files are of single preferences (sac, hybrid-sac): only draw their learning curves.
        reference: Measure HV from this point, one number per objective; default: that of the runs.
    """
    _check_named(results)
    target = None if out is None else pictures.file_of(out, "curves.png" if curves else COMPARED)
    if curves:
        print(comparison.draw_single_curves(results, target or Path("curves.png")))
        return
    shared = comparison.on_common_preferences([comparison.read(path, step) for path in results])
    shared = comparison.measured_from(shared, reference)
    show = console.format_table if sys.stdout.isatty() else console.format_markdown
    print(show(comparison.table(shared)))
    if apart := comparison.settings(shared, completed):
        print(f"\nSettings in which they differ:\n\n{show(apart)}")
    if target is not None:
        print(comparison.draw(shared, target))


def _check_named(runs: tuple[Path, ...]) -> None:
    if not runs:
        raise UserError("name at least one run folder, or a file written by 'qpensieve export'")


def critic(  # noqa: PLR0913 (each argument is an option)
    run: RunFolder,
    step: tuple[int, ...] = (),
    all_steps: bool = False,
    preferences: tuple[str, ...] = (),
    pairs: int = 64,
    rollouts: int = 4,
    actions: Draw = "policy",
    seed: int = 0,
    trust: bool = False,
    quiet: bool = False,
) -> None:
    """Measure L_critic: how far the critics of a run are from Monte-Carlo returns of their policy; writes critic.json.

    Args:
        run: The run folder; methods with a replay (not pgmorl and pfa).
        step: Steps of kept parameters or of a checkpoint. Default: the newest.
        all_steps: All steps that the run kept.
        preferences: Such as 0.1,0.9 0.5,0.5. Default: the paper's five, or those that have agents of their own.
        pairs: Pairs of state and action per seed and preference, each from a fresh episode.
        rollouts: Returns per pair.
        actions: How the actions of the pairs are drawn: by the policy, or uniformly.
        seed: Seed of the measurement.
        trust: Import the code that the run's domain names, though the folder is not your own.
        quiet: No progress line.
    """
    sampling = Sampling(pairs, rollouts, actions, seed)
    errors, path = measure_run(run, step, all_steps, preferences or None, sampling, trust, _warn, quiet)
    print(critic_tables.format_errors(errors))
    print(path or f"nothing was written: {run} is a saved agent, not a run")


def domains() -> None:
    """List the ten domains and those with discrete actions: sizes, time limit, objectives, HV reference point."""
    rows = [row for domain in (*DOMAINS.values(), *DISCRETE.values()) for row in _domain_rows(domain)]
    print(console.format_table(rows))
    for domain in DISCRETE.values():
        index = f"an index below {domain.num_actions}"
        print(f"{domain.id} is not one of the ten: its action is {index},\nwhich only --algo envelope supports.")


def version() -> None:
    """Print the version."""
    print(qpensieve.__version__)


def paper() -> None:
    """Make the paper's tables and figures: list, plan, run, status, report; runs that stopped go on."""


def _train_help() -> None:
    """Train Q-Pensieve or another method; `qpensieve train DOMAIN --algo NAME --help` lists every setting."""


COMMANDS: dict[str, Callable[..., None]] = {
    "train": _train_help,
    "resume": resume,
    "evaluate": evaluate,
    "watch": watching.watch,
    "video": watching.video,
    "plot": plot,
    "export": export,
    "calibrate": calibrate,
    "export-policy": export_policy,
    "compare": compare,
    "critic": critic,
    "domains": domains,
    "paper": paper,
    "sweep": experiments.sweep,
    "theory": theory,
    "version": version,
}
PAPER: dict[str, Callable[..., None]] = {
    "list": experiments.list_artefacts,
    "plan": experiments.plan,
    "run": experiments.run,
    "status": experiments.status,
    "report": experiments.report,
}


@console.plain_warnings()
def main(arguments: list[str] | None = None) -> None:
    """Entry point of the command line."""
    words = sys.argv[1:] if arguments is None else arguments
    with termination() if words[:1] and words[0] in SAVE_WHEN_STOPPED else nullcontext(lambda: False) as is_terminated:
        try:
            _run(words)
        except (runs.Stopped, KeyboardInterrupt) as stopped:
            print(str(stopped) or "interrupted", file=sys.stderr)
            sys.exit(EXIT_TERMINATED if is_terminated() else EXIT_STOPPED)
        except BrokenPipeError:  # the reader of the output has ended, such as `head`
            raise
        except Exception as error:
            _end_by(error, words)


def _run(words: list[str]) -> None:
    if words[:1] == ["train"]:
        train(words[1:])
    elif words[:1] == ["--version"]:
        version()
    elif words[:1] == ["paper"]:
        texts = {name: summary(command) for name, command in PAPER.items()}
        _dispatch(PAPER, "qpensieve paper", ABOUT_PAPER, words[1:], texts)
    else:
        _dispatch(COMMANDS, "qpensieve", f"{pages.ABOUT} {pages.PREFERENCE}", words, pages.COMMANDS)


def _end_by(error: Exception, words: list[str]) -> NoReturn:
    """Say in a sentence why the command ends; show the traceback of a bug."""
    sentence = _sentence(error, words)
    if sentence is None or os.environ.get(DEBUG, "0") not in ("", "0"):
        traceback.print_exception(error)
    if sentence is None:
        print("this is a bug in qpensieve: please report it with the lines above", file=sys.stderr)
        sys.exit(EXIT_BUG)
    print(f"qpensieve: {sentence}", file=sys.stderr)
    sys.exit(EXIT_FAILED)


def _sentence(error: Exception, words: list[str]) -> str | None:
    """The message of an error that the user can mend, a lack of memory included; None for a bug."""
    if isinstance(error, NotANumberError):
        return f"{manual.option_of(words, error.word)} {error}"
    why = str(error).partition("\n")[0]
    if isinstance(error, MemoryError) or OUT_OF_MEMORY in why:
        about = f" ({why})" if why else ""
        return f"there is not enough memory{about}; use fewer seeds, a smaller replay or a smaller batch"
    if not isinstance(error, USER_ERRORS) and not is_refusal(error):
        return None
    if isinstance(error, OSError) and error.strerror:  # without the number of the error
        return f"{error.filename}: {error.strerror}" if error.filename else error.strerror
    return str(error)


def _dispatch(
    commands: dict[str, Callable[..., None]], prog: str, about: str, words: list[str], texts: dict[str, str]
) -> None:
    if not words or words[0] in ("-h", "--help"):
        _show_page(pages.overview(texts, prog, about))
    name, *words = words
    pages.check_command(name, commands, prog)
    # It alone, not as one of all: tyro would answer a slip with options of others.
    parse = partial(tyro.cli, commands[name], prog=f"{prog} {name}", config=FLAT, registry=NUMBERS)
    if not {"-h", "--help"} & set(words):
        parse(args=words)
        return
    page = io.StringIO()
    with suppress(SystemExit), redirect_stdout(page), _columns(manual.WIDE):
        parse(args=words)
    _show_page(manual.tidy(page.getvalue()))


@contextmanager
def _columns(num: int) -> Iterator[None]:
    """Let whoever asks believe that the terminal is so wide."""
    before = os.environ.get("COLUMNS")
    os.environ["COLUMNS"] = str(num)
    try:
        yield
    finally:
        del os.environ["COLUMNS"]
        if before is not None:
            os.environ["COLUMNS"] = before


def summary(command: Callable[..., None]) -> str:
    """The first paragraph of a command's docstring, in one line."""
    return " ".join((inspect.getdoc(command) or "").split("\n\n")[0].split())


def _show_page(page: str) -> NoReturn:
    print(page)
    sys.exit(0)


def _peek(words: list[str], option: str, default: str) -> str:
    """The value of an option that decides which settings there are, before they are parsed; the last one counts."""
    found = default
    for i, word in enumerate(words):
        if word == option and i + 1 < len(words):
            found = words[i + 1]
        elif word.startswith(f"{option}="):
            found = word.split("=", 1)[1]
    return found


def _without_domain(config: RunConfig) -> RunConfig:
    """The config without a domain, which the user must give. tyro's mark for this is not a string: no constructor."""
    unset = copy.copy(config)
    object.__setattr__(unset, "domain", tyro.MISSING)
    return unset


def _complete(run: Run, hint: str = "") -> None:
    print(f"run folder: {run.folder}", file=sys.stderr)
    if about := about_learning(run.config, run.config.steps):
        _warn(about)
    try:
        run.train(hint)
    except DivergedError as error:
        step = run.last_checkpoint_step
        kept = f"the last good checkpoint is at step {step}" if step else "there is no checkpoint yet"
        raise DivergedError(f"{error}; training stopped, {kept} ({run.folder})") from error
    except KeyboardInterrupt:  # the second one, or one after training
        raise runs.Stopped(f"interrupted; continue with: qpensieve resume {run.folder}") from None
    finally:
        run.close()
    _report(run.folder)


def _report(folder: Path) -> None:
    """Table, summary.json and pictures of a run that was fully evaluated."""
    if len(load_evaluations(folder / EVALUATIONS).full_steps) == 0:
        return
    print(tables.format_summary(tables.write_summary(folder)))
    drawn = pictures.draw_pictures(folder)
    for path in [folder / SUMMARY, *drawn]:
        print(path)
    if not drawn:
        print("no pictures: pip install 'qpensieve[plots]'")
    where = shlex.quote(str(folder))
    print(f"next: qpensieve watch {where}          # turn the preference and see the policy act")
    print(f"      qpensieve export-policy {where}  # the policy as a file that needs NumPy alone")


def _dominance(run: Path, other: Path) -> str:
    ours, theirs = comparison.on_common_preferences([comparison.read(run), comparison.read(other)])
    shares = comparison.dominance(ours, theirs)
    spread = f"{shares.mean():.3f}" if len(shares) == 1 else f"{shares.mean():.3f} +- {shares.std():.3f}"
    pairs = f"{len(shares)} seed pair{'s' if len(shares) > 1 else ''}"
    steps = "" if ours.step == theirs.step else f"; it was evaluated at step {theirs.step:,}, this run at {ours.step:,}"
    return f"ED against {other}: {spread} over {pairs}, {len(ours.preferences)} preferences{steps}"


def _domain_rows(domain: Domain) -> list[console.Row]:
    """A domain in the list: its objectives take as many lines as they need."""
    pairs = zip(domain.objectives, domain.spec.reference or (), strict=True)
    first, *more = textwrap.wrap(", ".join(f"{name}\xa0({value:g})".replace(" ", "\xa0") for name, value in pairs), 44)
    sizes = {"obs": domain.obs_size, "act": domain.action_size, "steps": domain.max_steps}
    heading = "objectives (reference of the HV)"
    rows = [{"domain": domain.id, **{name: str(size) for name, size in sizes.items()}, heading: first}]
    rows += [{"domain": "", **dict.fromkeys(sizes, ""), heading: line} for line in more]
    return [row | {heading: row[heading].replace("\xa0", " ")} for row in rows]


def _warn(message: str) -> None:
    print(message, file=sys.stderr)
