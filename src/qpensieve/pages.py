"""What every help page shares, and the first of them. Light: it is shown before anything large is imported."""

import difflib
import shutil
import textwrap
from collections.abc import Iterable, Mapping

from qpensieve.errors import UserError

ABOUT = "qpensieve: one policy for every trade-off between several objectives."
PREFERENCE = (
    "A preference, lam for short, is what each objective counts: one weight per objective, none negative, in all 1."
)
COMMANDS: dict[str, str] = {
    "train": "Train Q-Pensieve or another method; `qpensieve train DOMAIN --algo NAME --help` lists every setting.",
    "resume": "Continue a run that was stopped or killed, with the same numbers as without the stop; or train it "
    "longer.",
    "evaluate": "Evaluate the newest checkpoint of a run with the full protocol (whole test table, 10 episodes); "
    "draw pictures.",
    "watch": "Turn the preference and see the policy act: a page in the browser, for runs, saved agents and archives.",
    "video": "Write a film of a policy, a panel for each preference, side by side: GIF, or MP4 with imageio-ffmpeg.",
    "plot": "Draw the pictures of a run: front, curves, training, generations, predictions; or several runs' "
    "curves in one.",
    "export": "Write a run as one small JSON file: configuration, machine, scores and mean returns of every "
    "evaluation.",
    "calibrate": "Find the preference to ask the policy for where another one counts; writes calibration.json.",
    "export-policy": "Write the policy of a run or saved agent for programs without qpensieve: arrays, and a loader "
    "for NumPy alone.",
    "compare": "Set runs side by side on the test preferences they share: UT, HV, ED against MO-SAC; and settings "
    "that differ.",
    "critic": "Measure L_critic: how far the critics of a run are from Monte-Carlo returns of their policy; writes "
    "critic.json.",
    "domains": "List the ten domains and those with discrete actions: sizes, time limit, objectives, HV reference "
    "point.",
    "paper": "Make the paper's tables and figures: list, plan, run, status, report; runs that stopped go on.",
    "sweep": "Make the runs of a plan of your own, a TOML file with grids over any setting, and their report.",
    "theory": "Run the paper's theorem on a small problem: exact Q-Pensieve soft policy iteration, with pictures.",
    "version": "Print the version.",
}
"""Command -> what it does."""
INDENT, NAME_WIDTH, WIDEST = 2, 26, 100


def overview(commands: Mapping[str, str], prog: str, about: str) -> str:
    """The first page of a command: what there is, and where to begin."""
    lines = [f"usage: {prog} COMMAND ...", "", *wrap(about), ""]
    for name, text in commands.items():
        lines += entry(name, text)
    lines += ["", f"{prog} COMMAND --help says more."]
    return "\n".join(lines)


def check_command(word: str, commands: Iterable[str], prog: str) -> None:
    """Refuse a command that there is not.

    Raises:
        ValueError: Names the one that was probably meant, and all there are.
    """
    names = list(commands)
    if word not in names:
        near = difflib.get_close_matches(word, names, n=1, cutoff=0.5)
        hint = f"; did you mean '{prog} {near[0]}'?" if near else "."
        raise UserError(f"unknown command {word!r}{hint} There are: {', '.join(names)}")


def entry(name: str, text: str) -> list[str]:
    """A name and, beside it or below it, what it is."""
    left = " " * (INDENT + NAME_WIDTH)
    head = f"{'':{INDENT}}{name}"
    lines = textwrap.wrap(text, _width() - len(left), break_on_hyphens=False) or [""]
    if len(head) + 2 > len(left):
        return [*textwrap.wrap(head, _width(), subsequent_indent="      "), *(left + line for line in lines)]
    return [f"{head:{len(left)}}{lines[0]}".rstrip(), *(left + line for line in lines[1:])]


def wrap(text: str) -> list[str]:
    """The text in lines of a page."""
    return textwrap.wrap(text, _width(), break_on_hyphens=False)


def _width() -> int:
    return max(50, min(WIDEST, shutil.get_terminal_size().columns) - 1)
