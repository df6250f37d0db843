"""Commands for single runs. tyro turns their signatures into options."""

import dataclasses
import json
import shlex
import sys
import textwrap
from collections.abc import Collection, Mapping
from datetime import datetime
from itertools import takewhile
from pathlib import Path

import numpy as np

from qpensieve import config as configs
from qpensieve import console, deploy, zoo
from qpensieve.config import PresetName, RunConfig
from qpensieve.envs import DISCRETE, DOMAINS, find_domain
from qpensieve.envs.info_objectives import MARK
from qpensieve.envs.registry import Domain, with_objectives
from qpensieve.errors import UserError
from qpensieve.methods import METHODS
from qpensieve.options import HELP, HELP_ALL, Names, RunFolder, RunsOrFiles, parse_settings
from qpensieve.records.evaluations import load as load_evaluations
from qpensieve.records.folder import CHECKPOINTS, CONFIG, EVALUATIONS, METRICS, POLICY, PROVENANCE, SUMMARY
from qpensieve.report import compare as comparison
from qpensieve.report import critic as critic_tables
from qpensieve.report import curves as curve_pictures
from qpensieve.report import pictures
from qpensieve.report import summary as summaries
from qpensieve.report.results import export as export_run
from qpensieve.report.results import read_run
from qpensieve.settings import NEEDS_REPLAY, SYNONYMS, flat, marked, suggestions, whole
from qpensieve.train import run as runs
from qpensieve.train.calibrate import EPISODES, calibrate_run
from qpensieve.train.critic_error import Draw, Sampling, measure_run
from qpensieve.train.run_loop import Options, Run, Stopped
from qpensieve.train.session import DivergedError

COMPARED = "compare.png"
BASIC = frozenset(
    (
        *("domain", "algo", "preset", "seeds", "steps", "eval_period", "num_threads", "learning_rate", "batch_size"),
        *("out", "name", "quiet", "tensorboard", "objectives"),
    )
)
"""Settings that `train --help` shows. `--help-all` shows all."""
DOMAIN_ELSEWHERE = ("domain", "env", "env_id", "env_name", "environment", "task")
"""Options by which other programs name the domain."""


@dataclasses.dataclass(frozen=True)
class TrainArguments:
    """Train one policy for every preference (pgmorl, pfa: an archive of policies), for several seeds together."""

    run: RunConfig
    objectives: tuple[str, ...] = ()
    """A Gymnasium environment with a single reward: numbers in the info of its steps that become the objectives, such
    as reward_forward reward_ctrl. With a vector reward: names of its entries."""
    preset: PresetName = "robust"
    """Defaults of all other settings. robust: one seed, with our recommended settings; the default of methods that have
    it (qpensieve, mosac). quick: small networks and a short run for two cores. paper: the paper's settings and five
    seeds; the default of the other methods."""
    out: Path = Path("runs")
    """Folder that holds the runs."""
    name: str | None = None
    """Name of the run folder. Default: domain, algorithm and time."""
    output: Options = dataclasses.field(default_factory=Options)


def train(words: list[str]) -> None:
    """Train: qpensieve train DOMAIN [--algo qpensieve|mosac|sac|...] [--preset paper|quick|...] [any setting]."""
    algo = _peek(words, "--algo", "qpensieve")
    preset = _peek(words, "--preset", configs.default_preset(algo))
    domain = _parse_train(words, algo, preset).run.domain
    arguments = _parse_train(words, algo, preset, domain)  # presets depend on the domain
    steps = configs.whole_blocks(arguments.run, arguments.run.steps, _warn)
    domain = with_objectives(domain, arguments.objectives)
    config = configs.with_schedule(dataclasses.replace(arguments.run, domain=domain, steps=steps))
    configs.check(config)
    base, *terms = config.domain.split(MARK)
    slug = MARK.join((base.split("/")[-1], *terms)).replace(":", ".").replace("/", ".")
    name = arguments.name or f"{slug}-{config.algo}-{datetime.now():%Y%m%d-%H%M%S}"
    folder = arguments.out / name
    if arguments.out.resolve() not in folder.resolve().parents:
        raise UserError(f"name must be that of a folder below {arguments.out} (--out), got {name}")
    holds = lambda one, *names: any((one / name).exists() for name in names)
    if others := [
        one for one in folder.resolve().parents if holds(one, CONFIG) and holds(one, PROVENANCE, CHECKPOINTS)
    ]:
        raise UserError(f"a run needs a folder outside of other runs, but {others[0]} holds one: choose another --out")
    tip = "" if preset == "quick" else "--preset quick takes a few minutes"
    if not arguments.output.quiet:
        _warn(f"preparing {config.domain}, {config.algo}: {configs.describe_schedule(config)}")
    for about in configs.remarks(config):
        _warn(about)
    _complete(runs.start(folder, config, arguments.output), tip)


def _parse_train(words: list[str], algo: str, preset: str, domain: str = "") -> TrainArguments:
    """Parse the words. Settings that the words do not name come from the preset for the domain."""
    is_help, is_all = not {*HELP, HELP_ALL}.isdisjoint(words), HELP_ALL in words
    if is_help:  # show the defaults of the named domain
        domain = next((word for word in words if find_domain(word) is not None), "")
    default = configs.default_config(domain, algo, preset)
    if is_help:
        steps = whole(_peek(words, "--steps", str(default.steps)))
        default = configs.with_schedule(configs.override(default, {"steps": steps}))
    unset = TrainArguments(dataclasses.replace(default, domain=""), preset=configs.default_preset(algo))
    _check_options(words, algo, flat(unset).keys())
    unused = {*(marked(default, NEEDS_REPLAY) if default.method.is_population else ())}
    hidden = unused if is_all else unused | (flat(unset).keys() - BASIC)
    more = f"Methods: {'; '.join(f'{one.name}, {one.summary}' for one in METHODS.values())}."
    brief = f"Most runs need only these options; {HELP_ALL} shows all."
    about = f"{TrainArguments.__doc__} {more if is_all else brief}"
    return parse_settings(unset, words, hidden, about)


def _check_options(words: list[str], algo: str, known: Collection[str]) -> None:
    """Refuse a second domain, and options that `train` or the method does not have.

    Raises:
        UserError: The message names the methods with this setting, or the option that was probably meant.
    """
    domains = list(takewhile(lambda word: not word.startswith("-"), words))
    if len(domains) > 1:
        raise UserError(f"train takes one domain, got {', '.join(domains)}; use qpensieve sweep for several")
    for word in words:
        option = word.split("=")[0].replace("_", "-")
        name = option.removeprefix("--").replace("-", "_")
        if word.startswith("--") and name in DOMAIN_ELSEWHERE:
            raise UserError(f"the domain is an argument, not an option, got {option}: write qpensieve train DST2d")
        if not word.startswith("--") or option in (*HELP, HELP_ALL) or {name, name.removeprefix("no_")} & {*known}:
            continue
        owners = [method.name for method in METHODS.values() if name in flat(method.config())]
        near = suggestions(name, known)
        if owners and SYNONYMS.get(name) not in near:
            raise UserError(f"{algo} has no setting {option}; it is a setting of {', '.join(owners)}")
        meant = " or ".join(f"--{one.replace('_', '-')}" for one in near)
        tip = f"; did you mean {meant}?" if meant else "."
        raise UserError(f"unknown setting {option}{tip} All of them: qpensieve train --algo {algo} {HELP_ALL}")


def resume(  # noqa: PLR0913 (each argument is an option)
    run: RunFolder,
    num_threads: int | None = None,
    steps: int | None = None,
    trust: bool = False,
    start_over: bool = False,
    options: Options = Options(),
) -> None:
    """Continue a run that was stopped or killed, with the numbers of a run that was never stopped; or train it longer.

    Args:
        run: The run folder. The folder of a saved agent becomes a run, into which `save` no longer writes.
        num_threads: Cores that collect. The numbers do not depend on it. Default: the run's own setting.
        steps: Train up to this step, at least the step that the run has reached (pgmorl and pfa: its planned length).
            Settings that are annealed over the whole run are annealed over the new length; others stay. Default: the
            run's own setting.
        trust: Import the code that the run's domain names.
        start_over: Remove all results and checkpoints of the run, and begin again.
        options: What the run shows and writes.
    """
    asked = {"num_threads": num_threads, "steps": steps}
    changes = {name: value for name, value in asked.items() if value is not None}
    resumed = runs.resume(run, options, _warn, trust, start_over, **changes)
    if resumed.session.step == resumed.session.goal:
        longer = f"qpensieve resume {shlex.quote(str(run))} --steps {2 * resumed.config.steps}"
        _warn(f"the run is complete: all {resumed.session.goal:,} steps are done; to train longer: {longer}")
    _complete(resumed)


def evaluate(run: RunFolder, other: Path | None = None, reference: tuple[float, ...] = (), trust: bool = False) -> None:
    """Evaluate the newest checkpoint of a run with the full protocol (whole test table, 10 episodes); draw pictures.

    The replay is not needed. If the newest checkpoint cannot be read, the newest policies that can be read are
    evaluated, from an older checkpoint or from kept parameters. For a policy file only UT is printed, next to the UT on
    its card.

    Args:
        run: The run folder; or a policy file, or zoo:NAME.
        other: A second run with a full evaluation: also print ED, the share of preferences that the first run wins.
        reference: Also print HV from this point, one number per objective. The run's own point stays.
        trust: Import the code that the run's domain names.
    """
    if isinstance(policies := deploy.open_policies(run, trust), deploy.ExportedPolicies):
        if other is not None or reference:
            raise UserError(f"--other and --reference are for runs, but {run} is a policy file")
        return _evaluate_policy(policies)
    # Check the arguments before the evaluation, which may take minutes.
    if other is not None:
        comparison.read(other)
    if reference and (run / CONFIG).exists():
        asked = dataclasses.replace(configs.load(run / CONFIG, trust), reference=reference)
        configs.check(asked)
        configs.spec_of(asked)
    runs.evaluate(run, _warn, trust)
    _report(run)
    if reference:
        print(comparison.hypervolumes(*comparison.measured_from([comparison.read(run)], reference)))
    if other is not None:
        print(_dominance(run, other))


def _evaluate_policy(policies: deploy.ExportedPolicies) -> None:
    """Print what a policy file reaches, and what the card of a policy that comes with the package says."""
    card, rows = zoo.card_of(policies.source) or {}, []
    for name, reached in zip(("asked", "calibrated"), deploy.measure(policies), strict=True):
        for whose, score in (("now", reached and reached.to_dict()), ("card", card.get(name))):
            if score is not None:
                rows.append({"preference": name, "measured": whose, "UT": score["ut"], **_interval(score)})
    print(f"{policies}: {policies.config.domain_id}, {policies.config.algo}, step {policies.step:,}")
    print(console.format_table(rows, show=console.format_number))
    print("interval: 95 of 100 evaluations with other episodes have their UT in it")


def _interval(score: Mapping[str, float]) -> dict[str, str]:
    return {"interval": f"{console.format_number(score['low'])} to {console.format_number(score['high'])}"}


def policies(names: Names = ()) -> None:
    """List the policies that come with qpensieve, or print the cards of some.

    Args:
        names: Policies whose cards to print, such as zoo:DST2d. Default: list all.
    """
    cards = {each: zoo.card_of(zoo.find(Path(each))) or {} for each in names or zoo.names()}
    if names:
        for card in cards.values():
            print(json.dumps({key: value for key, value in card.items() if key != "front"}, indent=2))
        return
    shown = lambda score: "" if score is None else console.format_number(score["ut"])
    rows = [
        {
            "policy": each,
            "method": card["algo"],
            "steps": f"{card['steps']:,}",
            "objectives": ", ".join(card["objectives"]),
            "UT asked": shown(card["asked"]),
            "calibrated": shown(card["calibrated"]),
        }
        for each, card in cards.items()
    ]
    print(console.format_table(rows))
    print(f"next: qpensieve watch {rows[0]['policy']}  # turn the preference and see the policy act")


def plot(
    run: RunsOrFiles,
    out: Path | None = None,
    what: pictures.What | None = None,
) -> None:
    """Draw the pictures of a run (front, curves, training, generations, predictions), or several runs' curves in one.

    Args:
        run: Run folders, or files written by `qpensieve export`.
        out: A file (.png, .pdf, .svg, .jpg) or a folder. One run: a file gets one picture (`--what`, or the front), and
            a folder all; default: the run folder, or the folder of the exported file. Several runs: default
            compare.png.
        what: Draw only this picture. training: losses, gradients, entropy and values by preference, with alarms.
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
        target = pictures.file_of(out or Path(COMPARED), COMPARED)
        paths = [curve_pictures.compare_curves([read_run(one) for one in run], target)]
    for path in paths:
        print(path)


def export(run: RunFolder, out: Path) -> None:
    """Write a run as one small JSON file: configuration, machine, scores and mean returns of every evaluation.

    Args:
        run: The run folder.
        out: The file to write.
    """
    print(export_run(run, out))


def export_policy(  # noqa: PLR0913 (each argument is an option)
    run: RunFolder,
    out: Path | None = None,
    seed: int | None = None,
    step: int | None = None,
    loader: bool = True,
    critics: bool = False,
    header: bool = False,
    trust: bool = False,
) -> None:
    """Write the policy of a run or saved agent for programs without qpensieve: arrays, and a loader that needs NumPy.

    If the policies were calibrated, the file also has the calibration, which the loader's `ask` applies.

    Args:
        run: The run folder, the folder of a saved agent, or zoo:NAME.
        out: The file to write. Default: policy/policy.npz in the run folder; of zoo:NAME in the working folder.
        seed: Number of the seed. Default: the best by UT if this step was evaluated fully, else the first.
        step: Step of a checkpoint or of kept parameters. Default: the newest that can be read.
        loader: Also put qpensieve_policy.py next to the file.
        critics: Also write the critics, for the loader's `value`.
        header: Also write policy.h, a C header with the function `qp_act`.
        trust: Import the code that the run's domain names.
    """
    out = out or (run if run.is_dir() else Path()) / POLICY / "policy.npz"
    written = deploy.export_policy(run, out, seed, step, trust, _warn, critics)
    print(written)
    if header:
        print(deploy.write_header(deploy.load(written), written.with_suffix(".h")))
    if loader:
        path, is_ours = deploy.write_loader(written)
        print(path) if is_ours else _warn(f"{path} is not this version's loader and was left as it is")
        objectives = deploy.load(written).objectives
        print(f"next, in a Python program next to {'these files' if is_ours else 'the file and its loader'}:")
        print(f"    from {path.stem} import load\n    policy = load({written.name!r})")
        lam = [round(1 / len(objectives), 2)] * len(objectives)
        print(f"    action = policy.act(obs, {lam})  # a weight for each of {', '.join(objectives)}")


def calibrate(run: RunFolder, episodes: int = EPISODES, trust: bool = False, quiet: bool = False) -> None:
    """Find for each preference the row of the test table to ask the policy for; write calibration.json.

    Some rows of the test table are played. For each preference the best row is chosen, and other episodes confirm the
    choice. A preference without a confirmed gain keeps its own row. `predict(..., calibrated=True)` and exported
    policies use the result, and the run's table shows the gain.

    Args:
        run: The run folder, or the folder of a saved agent.
        episodes: Most episodes of each seed. Their environment steps count as samples.
        trust: Import the code that the run's domain names.
        quiet: No progress line.
    """
    found, path = calibrate_run(run, episodes, trust, _warn, quiet)
    print(found)
    print(path)
    if (run / EVALUATIONS).exists() and found.step in load_evaluations(run / EVALUATIONS).full_steps[-1:]:
        print(summaries.format_summary(summaries.write_summary(run)))
    elif (run / METRICS).exists():
        print(f"next: qpensieve evaluate {shlex.quote(str(run))}  # UT asked, calibrated and of the best row")


def compare(
    results: RunsOrFiles,
    step: int | None = None,
    out: Path | None = None,
    curves: bool = False,
    reference: tuple[float, ...] = (),
) -> None:
    """Compare runs on the test preferences that they share: UT, HV, ED against MO-SAC, and settings that differ.

    Args:
        results: Run folders, or files written by `qpensieve export`.
        step: Environment step of the full evaluation. Default: each run's newest.
        out: Also draw a picture: a file (.png, .pdf, .svg, .jpg), or a folder for compare.png.
        curves: Only draw the learning curves of runs of single preferences (sac, hybrid-sac).
        reference: Measure HV from this point, one number per objective. Default: the point of the runs.
    """
    _check_named(results)
    target = None if out is None else pictures.file_of(out, "curves.png" if curves else COMPARED)
    if curves:
        runs_read = [read_run(path) for path in results]
        print(curve_pictures.compare_curves(runs_read, target or Path("curves.png"), by_preference=True))
        return
    shared = comparison.on_common_preferences([comparison.read(path, step) for path in results])
    shared = comparison.measured_from(shared, reference)
    print(comparison.format_comparison(shared, sys.stdout.isatty()))
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
    """Measure L_critic: how far the critics of a run are from Monte-Carlo returns of their policy; write critic.json.

    Args:
        run: The run folder, of a method with a replay (not pgmorl and pfa).
        step: Steps of kept parameters or of a checkpoint. Default: the newest.
        all_steps: Measure all steps that the run kept.
        preferences: Preferences such as 0.1,0.9 0.5,0.5. Default: the agents' own (sac, hybrid-sac), else the paper's.
        pairs: Pairs of state and action per seed and preference, each from a new episode.
        rollouts: Returns of each pair.
        actions: How the actions of the pairs are drawn: by the policy, or uniformly.
        seed: Seed of the measurement.
        trust: Import the code that the run's domain names.
        quiet: No progress line.
    """
    sampling = Sampling(pairs, rollouts, actions, seed)
    errors, path = measure_run(run, step, all_steps, preferences or None, sampling, trust, _warn, quiet)
    print(critic_tables.format_errors(errors))
    print(path)


def domains() -> None:
    """List the ten domains and those with discrete actions: sizes, time limit, objectives, HV reference point."""
    rows = [row for domain in (*DOMAINS.values(), *DISCRETE.values()) for row in _domain_rows(domain)]
    print(console.format_table(rows))
    for domain in DISCRETE.values():
        index = f"an index below {domain.num_actions}"
        print(f"{domain.id} is not one of the ten: its action is {index},\nwhich only --algo envelope supports.")


def _peek(words: list[str], option: str, default: str) -> str:
    """Return the last value of an option in words that are not parsed yet; `default` if the option is missing."""
    found = default
    for i, word in enumerate(words):
        if word == option and i + 1 < len(words):
            found = words[i + 1]
        elif word.startswith(f"{option}="):
            found = word.split("=", 1)[1]
    return found


def _complete(run: Run, hint: str = "") -> None:
    print(f"run folder: {run.folder}", file=sys.stderr)
    if about := configs.learning_warning(run.config, run.config.steps):
        _warn(about)
    try:
        run.train(hint)
    except DivergedError as error:
        step = run.last_checkpoint_step
        kept = f"the last good checkpoint is at step {step}" if step else "there is no checkpoint yet"
        raise DivergedError(f"{error}; training stopped, {kept} ({run.folder})") from error
    except KeyboardInterrupt:  # a second Ctrl-C, or one after training
        raise Stopped(f"interrupted; continue with: {run.resume_command}") from None
    finally:
        run.close()
    _report(run.folder)


def _report(folder: Path) -> None:
    """Print the table of a run, and write its summary.json and pictures. Without a full evaluation do nothing."""
    if len(load_evaluations(folder / EVALUATIONS).full_steps) == 0:
        return
    print(summaries.format_summary(summaries.write_summary(folder)))
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
    shares = np.array(list(comparison.dominance(ours, theirs).values()))
    spread = f"{shares.mean():.3f}" if len(shares) == 1 else f"{shares.mean():.3f} +- {shares.std():.3f}"
    pairs = console.plural(len(shares), "seed pair")
    own, others = ours.played.step, theirs.played.step
    steps = "" if own == others else f"; it was evaluated at step {others:,}, this run at {own:,}"
    return f"ED against {other}: {spread} over {pairs}, {len(ours.played.preferences)} preferences{steps}"


def _domain_rows(domain: Domain) -> list[console.Row]:
    """Return the rows of a domain in the list: several if its objectives do not fit into one."""
    pairs = zip(domain.objectives, domain.spec.reference or (), strict=True)
    first, *more = textwrap.wrap(", ".join(f"{name}\xa0({value:g})".replace(" ", "\xa0") for name, value in pairs), 44)
    sizes = {"obs": domain.obs_size, "act": domain.action_size, "steps": domain.max_steps}
    heading = "objectives (reference of the HV)"
    rows = [{"domain": domain.id, **{name: str(size) for name, size in sizes.items()}, heading: first}]
    rows += [{"domain": "", **dict.fromkeys(sizes, ""), heading: line} for line in more]
    return [row | {heading: row[heading].replace("\xa0", " ")} for row in rows]


def _warn(message: str) -> None:
    print(message, file=sys.stderr)
