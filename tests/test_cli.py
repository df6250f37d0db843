"""The command line: it lists, it measures, it explains itself."""

import dataclasses
import re
import subprocess
import sys
import warnings
from typing import Any

import jax
import pytest

import qpensieve
from qpensieve import api, cli, commands, gym_ids, settings
from qpensieve.config import default_config
from qpensieve.envs import DOMAINS
from qpensieve.errors import MissingFileError, MissingPackageError, UserError, UserFileError
from qpensieve.methods import METHODS
from qpensieve.options import explanations, parse
from qpensieve.train.run_loop import Options


def test_domains_lists_the_ten_and_those_with_indices(capsys: pytest.CaptureFixture[str]):
    cli.main(["domains"])
    out = capsys.readouterr().out
    *table, remark, end = out.splitlines()
    assert [line.split()[0] for line in table[2:] if line[0] != " "] == [*DOMAINS, "DeepSeaTreasure"]
    assert "forward (0), control (-4000)" in out
    assert "DeepSeaTreasure is not one of the ten" in remark
    assert "--algo envelope" in end
    assert max(map(len, out.splitlines())) < 80


def page(capsys: pytest.CaptureFixture[str], *words: str) -> str:
    """A help page of tyro without its boxes and line breaks."""
    with pytest.raises(SystemExit) as end:
        cli.main([*words])
    assert end.value.code == 0
    return " ".join(word for word in capsys.readouterr().out.split() if word != "│")


def options(capsys: pytest.CaptureFixture[str], *words: str) -> set[str]:
    """Names of the options that a help page lists, `help` among them."""
    with pytest.raises(SystemExit):
        cli.main([*words])
    found = re.findall(r"^[\s│]*(?:-h, )?--([a-z][\w-]*)", capsys.readouterr().out, re.MULTILINE)
    return {name.replace("-", "_") for name in found}


class TestHelp:
    @pytest.mark.parametrize("words", [(), ("--help",), ("help",), ("paper",), ("paper", "-h")])
    def test_the_first_page_lists_commands_and_what_they_do(self, words: tuple[str, ...], capsys: Any):
        cli.main([*words])
        out = capsys.readouterr().out
        prefix = "paper " if words[:1] == ("paper",) else ""
        rows = {name.removeprefix(prefix): text for name, (_, text) in cli.COMMANDS.items() if name.startswith(prefix)}
        listed = {name: text for name, text in rows.items() if " " not in name}
        assert [name for name, text in listed.items() if f"  {name} " not in out or text.split()[0] not in out] == []

    @pytest.mark.parametrize("name", [name for name, (place, _) in cli.COMMANDS.items() if place])
    def test_every_command_explains_itself(self, name: str, capsys: pytest.CaptureFixture[str]):
        assert "--help" in page(capsys, *name.split(), "--help")

    @pytest.mark.parametrize("algo", METHODS)
    def test_train_shows_about_a_dozen_options_and_all_where_asked(self, algo: str, capsys: Any):
        few, every = (options(capsys, "train", "--algo", algo, flag) for flag in ("--help", "--help-all"))
        config = default_config("DST2d", algo)
        unused = settings.marked(config, settings.NEEDS_REPLAY) if config.method.is_population else {}
        of_run = {field.name for field in dataclasses.fields(Options)}
        of_command = {"help", "objectives", "preset", "out", "name"}
        assert len(few) <= 14
        assert len(every) <= 48 or algo != "qpensieve"
        assert few <= every
        assert every == ({*settings.flat(config), *of_run, *of_command} - {"domain", *unused})

    def test_train_shows_the_defaults_of_the_domain_preset_and_length(self, capsys: pytest.CaptureFixture[str]):
        text = page(capsys, "train", "Hopper5d", "--preset", "robust", "--steps", "2e4", "--help-all")
        assert "(default: 25)" in text  # eval_stride of five objectives
        assert "--random-steps INT|FLOAT|none" in text
        assert "(default: 2000)" in text

    def test_every_setting_is_explained(self):
        for algo in METHODS:
            for part in parts(commands.TrainArguments(default_config("DST2d", algo))):
                texts = explanations(type(part))
                own = {name for name in settings.names(part) if not dataclasses.is_dataclass(getattr(part, name))}
                assert [name for name in own if not texts.get(name)] == []


def parts(part: Any) -> list[Any]:
    """A dataclass and those in its fields."""
    inner = [getattr(part, field.name) for field in dataclasses.fields(part)]
    return [part, *(one for value in inner if dataclasses.is_dataclass(value) for one in parts(value))]


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["resume", "run", "--seeds", "3"], "Unrecognized options: --seeds"),
        (["critic", "run", "--pars", "4"], "--pairs"),
        (
            ["train", "DST2d", "--steps", "abc"],
            "qpensieve: --steps must be a whole number, such as 200000, 200_000 or 2e5, got",
        ),
        (["critic", "ten", "--pairs", "ten"], "qpensieve: --pairs must be a whole number"),
        (["train", "DST2d", "--learning-rate-end", "abc"], "--learning-rate-end must be a number, such as"),
        (["trian"], "did you mean 'qpensieve train'?"),
        (["train", "trian"], "unknown domain 'trian'"),
        (
            ["train", "--env", "DST2d"],
            "the domain is an argument, not an option, got --env: write qpensieve train DST2d",
        ),
        (["train", "--domain=DST2d"], "the domain is an argument, not an option, got --domain"),
        (["train", "DST2d", "Hopper2d"], "train takes one domain, got DST2d, Hopper2d; use qpensieve sweep for"),
        (["train", "DST2d", "--lr", "1"], "unknown setting --lr; did you mean --learning-rate?"),
        (["train", "DST2d", "--buffer-size", "9"], "unknown setting --buffer-size; did you mean --replay-capacity?"),
        (["train", "DST2d", "--learning_rat=1"], "unknown setting --learning-rat; did you mean --learning-rate?"),
        (["train", "DST2d", "--algo", "mosac", "--push-period", "9"], "mosac has no setting --push-period"),
        (["train", "DST2d", "--xyzzy"], "qpensieve train --algo qpensieve --help-all"),
    ],
)
def test_what_is_misspelt_is_refused_with_what_was_meant(words: list[str], said: str, fail: Any):
    assert said in fail(*words)


@pytest.mark.parametrize(("text", "value"), [("0", 0), ("2e4", 20_000), ("0.2", 0.2), ("none", None)])
def test_a_whole_number_stays_whole_where_a_share_may_stand(text: str, value: int | float | None):
    def command(random_steps: int | float | None) -> int | float | None:
        return random_steps

    read = parse(command, ["--random-steps", text], "x")
    assert (read, type(read)) == (value, type(value))


def ended_by(error: Exception, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> tuple[int, str]:
    """Exit code and output of a command that raises this error."""

    def fail(words: list[str]) -> None:
        raise error

    monkeypatch.setattr(commands, "train", fail)
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
        (
            jax.errors.JaxRuntimeError("RESOURCE_EXHAUSTED: Out of memory allocating 7 bytes.\nDetails"),
            "there is not enough memory (RESOURCE_EXHAUSTED: Out of memory allocating 7 bytes.); "
            "use fewer seeds, a smaller replay or a smaller batch",
        ),
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
    last = said.splitlines()[-1]
    assert last.startswith("this is a bug in qpensieve (")
    assert str(error).partition("\n")[0] in last


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

    monkeypatch.setattr(commands, "train", warn)
    cli.main(["train", "DST2d"])
    assert shown[0] == "qpensieve: it is late\n"
    assert shown[1].startswith("ours.py:3: FutureWarning: it is late\n")
    assert warnings.formatwarning is usual


def test_the_package_is_the_command(capsys: pytest.CaptureFixture[str]):
    cli.main(["--version"])
    cli.main(["version"])
    done = subprocess.run([sys.executable, "-m", "qpensieve", "version"], capture_output=True, text=True, check=True)
    assert {*capsys.readouterr().out.split(), done.stdout.strip()} == {qpensieve.__version__}


def test_pages_and_slips_do_not_import_jax():
    """One process for all: each start takes a second."""
    code = """
import contextlib, sys
from qpensieve import cli
for words in ([], ["--help"], ["help"], ["-V"], ["version"], ["trian"]):
    with contextlib.suppress(SystemExit):
        cli.main(words)
    assert "jax" not in sys.modules, words
"""
    subprocess.run([sys.executable, "-c", code], check=True, capture_output=True)


def test_a_reader_that_ends_early_is_no_error():
    program = 'import sys; sys.argv[1:] = ["--help"]; from qpensieve import cli; cli.main()'
    with subprocess.Popen([sys.executable, "-c", program], stdout=subprocess.PIPE, stderr=subprocess.PIPE) as done:
        assert done.stdout is not None
        assert done.stderr is not None
        done.stdout.close()
        assert done.stderr.read() == b""
    assert done.returncode == cli.EXIT_UNHEARD


def test_lazy_names_are_those_of_the_api():
    assert set(qpensieve.__all__) == {*api.__all__, "__version__", *qpensieve.MODULES}
    assert all(getattr(qpensieve, name) is not None for name in qpensieve.__all__)
    assert dir(qpensieve) == sorted(qpensieve.__all__)
    with pytest.raises(AttributeError, match="no attribute 'Qpensieve'"):
        _ = qpensieve.Qpensieve  # pyright: ignore[reportAttributeAccessIssue]


def test_the_ids_are_those_of_the_ten_domains():
    assert set(gym_ids.NAMES) == set(DOMAINS)
