"""The first moment of the command: pages without JAX, and the same pages as the whole program's."""

import subprocess
import sys

import pytest

import qpensieve
from qpensieve import api, cli, gym_ids, pages, start
from qpensieve.envs import DOMAINS


def run(*words: str) -> subprocess.CompletedProcess[str]:
    code = "import sys; from qpensieve import start\ntry: start.main()\nfinally: print('jax' in sys.modules)"
    return subprocess.run([sys.executable, "-c", code, *words], capture_output=True, text=True, check=False)


@pytest.mark.parametrize("words", [(), ("--help",), ("-h",), ("help",), ("-V",), ("trian",)])
def test_pages_and_slips_do_not_import_jax(words: tuple[str, ...]):
    assert run(*words).stdout.splitlines()[-1] == "False"


def test_the_first_page_lists_every_command_as_it_describes_itself():
    assert {name: cli.summary(command) for name, command in cli.COMMANDS.items()} == pages.COMMANDS


def test_a_misspelt_command_gets_a_suggestion():
    done = run("trian")
    assert done.returncode == 1
    assert "did you mean 'qpensieve train'?" in done.stderr


def test_the_whole_program_gets_every_word(monkeypatch: pytest.MonkeyPatch):
    given: list[list[str]] = []
    monkeypatch.setattr(cli, "main", given.append)
    monkeypatch.setattr(sys, "argv", ["qpensieve", "plot", "--help"])
    start.main()
    monkeypatch.setattr(sys, "argv", ["qpensieve", "help", "plot"])
    start.main()
    assert given == [["plot", "--help"], ["plot", "--help"]]


def test_loading_is_said_on_a_terminal_and_leaves_no_trace(monkeypatch: pytest.MonkeyPatch, capsys):
    monkeypatch.setattr(cli, "main", lambda words: None)
    monkeypatch.setattr(sys, "argv", ["qpensieve", "domains"])
    start.main()
    assert capsys.readouterr().err == ""
    monkeypatch.setattr(sys.stderr, "isatty", lambda: True)
    start.main()
    said = capsys.readouterr().err
    assert said.startswith("loading")
    assert said.endswith(start.ERASE_LINE)


def test_a_reader_that_ends_early_is_no_error():
    program = 'import sys; sys.argv[1:] = ["--help"]; from qpensieve import start; start.main()'
    with subprocess.Popen([sys.executable, "-c", program], stdout=subprocess.PIPE, stderr=subprocess.PIPE) as done:
        assert done.stdout is not None
        assert done.stderr is not None
        done.stdout.close()
        assert done.stderr.read() == b""
    assert done.returncode == start.EXIT_UNHEARD


def test_lazy_names_are_those_of_the_api():
    assert set(qpensieve.__all__) == {*api.__all__, "__version__", *qpensieve.MODULES}
    assert all(getattr(qpensieve, name) is not None for name in qpensieve.__all__)
    assert dir(qpensieve) == sorted(qpensieve.__all__)
    with pytest.raises(AttributeError, match="no attribute 'Qpensieve'"):
        _ = qpensieve.Qpensieve  # pyright: ignore[reportAttributeAccessIssue]


def test_the_ids_are_those_of_the_ten_domains():
    assert set(gym_ids.NAMES) == set(DOMAINS)
