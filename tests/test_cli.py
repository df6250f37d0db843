"""The command line: it lists, it measures, it explains itself."""

import os
import subprocess
import sys
import warnings

import pytest

import qpensieve
from qpensieve import cli, manual
from qpensieve.envs import DOMAINS
from qpensieve.errors import MissingFileError, MissingPackageError, UserError, UserFileError
from qpensieve.methods import METHODS
from qpensieve.presets import default_config


def test_domains_lists_all_ten(capsys):
    cli.main(["domains"])
    out = capsys.readouterr().out
    assert all(name in out for name in DOMAINS)
    assert "forward (0), control (-4000)" in out
    assert max(map(len, out.splitlines())) < 80


def test_domains_lists_those_with_indices_below_the_ten_and_says_who_takes_them(capsys):
    cli.main(["domains"])
    *table, remark, end = capsys.readouterr().out.splitlines()
    assert [line.split()[0] for line in table[2:] if line[0] != " "] == [*DOMAINS, "DeepSeaTreasure"]
    assert "DeepSeaTreasure is not one of the ten: its action is an index below 4" in remark
    assert "only --algo envelope" in end


@pytest.mark.parametrize(
    ("words", "named"),
    [
        (["--help"], ["one policy for every trade-off", "domains", "List the ten domains", "version"]),
    ],
)
def test_help_names_commands_and_options_and_says_what_they_do(words: list[str], named: list[str], capsys):
    with pytest.raises(SystemExit) as end:
        cli.main(words)
    assert end.value.code == 0
    out = " ".join(word for word in capsys.readouterr().out.split() if word != "│")  # undo tyro's boxes and line breaks
    assert [text for text in named if text not in out] == []


def test_an_unknown_option_is_refused(capsys):
    with pytest.raises(SystemExit):
        cli.main(["critic", "run", "--pars", "4"])
    assert "--pairs" in capsys.readouterr().err


def test_a_slip_is_answered_with_options_of_that_command_alone(capsys):
    with pytest.raises(SystemExit):
        cli.main(["resume", "run", "--seeds", "3"])
    said = " ".join(capsys.readouterr().err.split())
    assert "Unrecognized options: --seeds, 3" in said
    assert "qpensieve resume --help" in said
    assert "export-policy" not in said


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (
            ["train", "DST2d", "--steps", "abc"],
            "--steps must be a whole number, such as 200000, 200_000 or 2e5, got abc",
        ),
        (["train", "DST2d", "--steps=1.5"], "--steps must be a whole number, such as 200000, 200_000 or 2e5, got 1.5"),
        (["train", "DST2d", "--learning-rate", "fast"], "--learning-rate must be a number, such as 0.0003"),
        (["train", "DST2d", "--max-push-loss", "abc"], "--max-push-loss must be a number"),
        (["train", "DST2d", "--reference", "0", "b"], "--reference must be a number, such as 0.0003 or 3e-4, got b"),
        (["resume", "run", "--steps", "many"], "--steps must be a whole number"),
        (["critic", "run", "--step", "100", "x"], "--step must be a whole number"),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, list) else "",
)
def test_text_for_a_number_is_refused_in_one_sentence(words: list[str], said: str, capsys):
    with pytest.raises(SystemExit) as end:
        cli.main(words)
    err = capsys.readouterr().err
    assert end.value.code == cli.EXIT_FAILED
    assert err.startswith(f"qpensieve: {said}")
    assert err.count("\n") == 1  # no box


def page(capsys: pytest.CaptureFixture[str], *words: str) -> str:
    with pytest.raises(SystemExit) as end:
        cli.main([*words, "--help"])
    assert end.value.code == 0
    return capsys.readouterr().out


class TestHelp:
    @pytest.mark.parametrize(
        "words",
        [[], ["train", "DST2d", "--algo", "pgmorl"], ["paper"]]
        + [[name] for name in cli.COMMANDS if name != "paper"]
        + [["paper", name] for name in cli.PAPER],
        ids=" ".join,
    )
    @pytest.mark.parametrize("width", [60, 80])
    def test_fits_the_terminal_and_speaks_to_people(
        self, words: list[str], width: int, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
    ):
        monkeypatch.setenv("COLUMNS", str(width))
        text = page(capsys, *words)
        assert [odd for odd in ("{", "(default", "(required)", "--no-no", "INT", " ...]]") if odd in text] == []
        assert max(map(len, text.splitlines())) <= 80
        if words[:1] in ([], ["train"]):
            assert text.count("lam for short") == 1

    def test_options_have_the_form_of_those_of_train(
        self, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
    ):
        monkeypatch.setenv("COLUMNS", "80")
        lines = page(capsys, "resume").splitlines()
        assert os.environ["COLUMNS"] == "80"
        at = lines.index("  --num-threads N           Cores that collect; the numbers do not depend on")
        assert lines[at + 1] == f"{'':28}it. Default: as before."
        for name, text in (
            ("--trust", "Import the code that the run's domain names, though"),
            ("--callback TEXT ...", "Callbacks of your own, as module:name; from the"),
            ("--no-final-evaluation", "Turns off: Run the full protocol at the end."),
        ):
            assert f"  {name:26}{text}" in lines
        assert "What the run shows and writes" in lines
        at = lines.index("  --wandb-mode auto|online|offline")
        assert lines[at + 3] == f"{'':28}[auto]"

    def test_train_groups_settings_by_what_they_set(self, capsys: pytest.CaptureFixture[str]):
        text = page(capsys, "train", "DST2d", "--algo", "mosac")
        run, algorithm, evaluation, output = (text.index(f"\n{name}") for name in HEADINGS)
        where = {flag: text.index(f"  {flag} ") for flag in ("--seeds", "--tau", "--eval-period", "--out")}
        assert run < where["--seeds"] < algorithm < where["--tau"] < evaluation
        assert evaluation < where["--eval-period"] < output < where["--out"]
        assert "[0.005]" in text

    def test_train_hides_what_the_algorithm_does_not_use(self, capsys: pytest.CaptureFixture[str]):
        unused = ("--random-steps", "--block", "--replay-capacity", "--keep-replay")
        assert all(flag in page(capsys, "train", "--algo", "qpensieve") for flag in unused)
        text = page(capsys, "train", "--algo", "pgmorl")
        assert not any(flag in text for flag in unused)
        assert "--num-snapshots" not in text

    def test_hybrid_sac_says_which_settings_are_its_helpers_alone(self, capsys: pytest.CaptureFixture[str]):
        text = " ".join(page(capsys, "train", "--algo", "hybrid-sac").split())
        for flag in ("--max-critic-gradient X", "--temperature-gain X", "--pessimism X", "--snapshot-margin X"):
            assert f"{flag} The helper's alone. " in text
        for flag in ("--hidden N", "--tau X", "--batch-size N", "--discount X", "--switch-after N"):
            assert f"{flag} " in text
            assert f"{flag} The helper's" not in text
        assert "--target-entropy X To be left as it is: hybrid-sac refuses other values. " in text
        assert "The helper's alone" not in page(capsys, "train", "--algo", "qpensieve")

    def test_every_setting_is_explained(self):
        for algo in METHODS:
            for option in manual.options(cli.TrainArguments(default_config("DST2d", algo))):
                assert option.text, option.name


HEADINGS = ("run\n", "algorithm: mosac", "evaluation\n", "output\n")


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["trian"], "did you mean 'qpensieve train'?"),
        (["train", "trian"], "unknown domain 'trian'"),
        (["train", "--env", "DST2d"], "the domain stands without an option, got --env: qpensieve train DST2d"),
        (["train", "--domain=DST2d"], "the domain stands without an option, got --domain"),
        (["train", "DST2d", "Hopper2d"], "train takes one domain, got DST2d, Hopper2d; for several there is qpensieve"),
        (["train", "DST2d", "--lr", "1"], "unknown setting --lr; did you mean --learning-rate?"),
        (["train", "DST2d", "--buffer-size", "9"], "unknown setting --buffer-size; did you mean --replay-capacity?"),
        (["train", "DST2d", "--learning_rat=1"], "unknown setting --learning-rat; did you mean --learning-rate?"),
        (
            ["train", "DST2d", "--algo", "mosac", "--push-period", "9"],
            "mosac has no setting --push-period; it is one of",
        ),
        (
            ["train", "DST2d", "--xyzzy"],
            "unknown setting --xyzzy. All of them: qpensieve train --algo qpensieve --help",
        ),
    ],
)
def test_what_is_misspelt_is_refused_with_what_was_meant(words: list[str], said: str, capsys):
    with pytest.raises(SystemExit) as end:
        cli.main(words)
    assert end.value.code == 1
    assert said in capsys.readouterr().err


def ended_by(error: Exception, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> tuple[int, str]:
    """Exit code and output of a command that raises this error."""

    def fail(words: list[str]) -> None:
        raise error

    monkeypatch.setattr(cli, "train", fail)
    with pytest.raises(SystemExit) as end:
        cli.main(["train", "DST2d"])
    assert isinstance(end.value.code, int)
    return end.value.code, capsys.readouterr().err


@pytest.mark.parametrize(
    ("error", "said"),
    [
        (UserError("steps must be at least 1, got 0"), "steps must be at least 1, got 0"),
        (MissingFileError("boat is no run"), "boat is no run"),
        (MissingPackageError("pip install boat"), "pip install boat"),
        (UserFileError(21, "Is a directory", "runs/boat"), "runs/boat: Is a directory"),
        (OSError(30, "Read-only file system", "runs/boat"), "runs/boat: Read-only file system"),
        (OSError(28, "No space left on device"), "No space left on device"),
        (OSError(13, "Permission denied", "runs/boat"), "runs/boat: Permission denied"),
    ],
)
def test_an_error_of_the_user_is_one_sentence(error: Exception, said: str, monkeypatch, capsys):
    assert ended_by(error, monkeypatch, capsys) == (cli.EXIT_FAILED, f"qpensieve: {said}\n")


@pytest.mark.parametrize(
    "error",
    [
        ValueError("operands could not be broadcast together with shapes (2,) (3,)"),
        ImportError("cannot import name 'boat' from 'qpensieve'"),
        FileNotFoundError(2, "No such file or directory", "boat"),
        PermissionError(1, "Operation not permitted"),
    ],
)
def test_any_other_error_is_a_bug_and_shows_its_traceback(error: Exception, monkeypatch, capsys):
    code, said = ended_by(error, monkeypatch, capsys)
    assert code == cli.EXIT_BUG
    assert said.startswith("Traceback (most recent call last):\n")
    assert str(error) in said
    assert said.endswith("this is a bug in qpensieve: please report it with the lines above\n")


def test_debug_shows_the_traceback_of_an_error_of_the_user(monkeypatch, capsys):
    monkeypatch.setenv(cli.DEBUG, "1")
    code, said = ended_by(UserError("steps must be at least 1, got 0"), monkeypatch, capsys)
    assert code == cli.EXIT_FAILED
    assert said.startswith("Traceback (most recent call last):\n")
    assert said.endswith("\nqpensieve: steps must be at least 1, got 0\n")


def test_a_warning_is_a_sentence_and_only_while_a_command_runs(monkeypatch, capsys):
    usual, shown = warnings.formatwarning, []

    def warn(words: list[str]) -> None:
        said = "\x1b[33mit is late\x1b[0m"  # as Gymnasium colours its warnings
        shown.extend(warnings.formatwarning(said, kind, "ours.py", 3) for kind in (UserWarning, FutureWarning))

    monkeypatch.setattr(cli, "train", warn)
    cli.main(["train", "DST2d"])
    assert shown[0] == "qpensieve: it is late\n"
    assert shown[1].startswith("ours.py:3: FutureWarning: it is late\n")
    assert warnings.formatwarning is usual


def test_version_is_an_option_too(capsys: pytest.CaptureFixture[str]):
    cli.main(["--version"])
    cli.main(["version"])
    first, second = capsys.readouterr().out.split()
    assert first == second


def test_the_package_is_the_command():
    done = subprocess.run([sys.executable, "-m", "qpensieve", "version"], capture_output=True, text=True, timeout=120)
    assert (done.returncode, done.stdout) == (0, f"{qpensieve.__version__}\n")
