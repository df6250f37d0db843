"""Plans of one's own, from TOML."""

from pathlib import Path

import pytest

from qpensieve import settings
from qpensieve.experiments.sweeps import read_sweep

GRID = """
title = "Snapshots"
reference = "num_snapshots 0"
[run]
preset = "paper"
hidden = 64
seeds = 2
steps = 4000
[grid]
domain = ["DST2d", "Hopper2d"]
num_snapshots = [0, 4]
[[runs]]
column = "MO-SAC"
domain = "DST2d"
algo = "mosac"
"""


def write(folder: Path, text: str) -> Path:
    path = folder / "my.toml"
    path.write_text(text)
    return path


def test_every_combination_is_a_run(tmp_path: Path):
    artefact = read_sweep(write(tmp_path, GRID))
    assert artefact.title == "Snapshots"
    assert artefact.rows == ["DST2d", "Hopper2d"]
    assert artefact.columns == ["num_snapshots 0", "num_snapshots 4", "MO-SAC"]
    assert len(artefact.cells) == 5
    config = artefact.cells["Hopper2d", "num_snapshots 0"].config()
    assert (config.domain, config.steps, settings.flat(config)["num_snapshots"]) == ("Hopper2d", 4000, 0)
    assert settings.flat(config)["hidden"] == 64
    assert artefact.cells["DST2d", "MO-SAC"].config().algo == "mosac"
    assert {wanted.seeds for wanted in artefact.cells.values()} == {2}


def test_names_tell_runs_apart_and_shared_steps_may_grow(tmp_path: Path):
    cells = read_sweep(write(tmp_path, GRID)).cells.values()
    assert len({wanted.name for wanted in cells}) == 5
    longer = read_sweep(write(tmp_path, GRID.replace("4000", "8000"))).cells.values()
    assert [wanted.name for wanted in longer] == [wanted.name for wanted in cells]
    axis = read_sweep(write(tmp_path, '[run]\ndomain = "DST2d"\n[grid]\nsteps = [20000, 30000]\n')).cells.values()
    assert len({wanted.name for wanted in axis}) == 2


def test_whole_numbers_may_be_written_with_an_exponent(tmp_path: Path):
    """1e3 is a float in TOML; the run, its name and its column are those of 1000."""
    run = '[run]\npreset = "paper"\ndomain = "DST2d"\n'
    plain = run + "steps = 20000\nseeds = 2\n[grid]\npush_period = [1000]\nhidden = [64]\n"
    other = run + "steps = 2e4\nseeds = 2.0\n[grid]\npush_period = [1e3]\nhidden = [64.0]\n"
    assert read_sweep(write(tmp_path, other)).cells == read_sweep(write(tmp_path, plain)).cells
    (wanted,) = read_sweep(write(tmp_path, other)).cells.values()
    assert wanted.name == "DST2d-qpensieve-push_period-1000-hidden-64"


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ('[run]\ndomain = ["DST2d"]', "domain must be a text, got .*several are a list in the \\[grid\\]"),
        ('[run]\ndomain = "DST2d"\nfirst_seed = 4', "first_seed must be left out, got 4"),
        ("[grid", "must be a TOML file"),
        ("num_snapshots = [1]", "unknown field 'num_snapshots'.*under \\[run\\]"),
        ("", "there is no run"),
        ("[grid]\ndomain = []", "domain must be a list of values, got \\[\\]"),
        ('[run]\ndomain = "DST2d"\n[grid]\nsnapshots = [1]', "unknown setting 'snapshots'.*num_snapshots"),
        ('[run]\ndomain = "DST2d"\n[grid]\nnum_snapshots = [-1]', "num_snapshots must be 0 or more"),
        ('[run]\ndomain = "DST2d"\npresett = "quick"', "unknown setting 'presett'; did you mean preset\\?$"),
        ('show = "pie"\n[run]\ndomain = "DST2d"', "show must be one of scores"),
        ('reference = "x"\n[run]\ndomain = "DST2d"', "reference must be a column \\(qpensieve\\), got 'x'"),
        ('[[runs]]\ndomain = "DST2d"\n[[runs]]\ndomain = "DST2d"', "run 2 has the place of another one"),
        ("run = 3", "run must be a table"),
        ('metrics = "HV"\n[run]\ndomain = "DST2d"', "metrics must be a list of HV, UT, ED, got 'HV'"),
        ('preferences = [0.5, 0.5]\n[run]\ndomain = "DST2d"', "preferences must be a list of lists of numbers"),
        ('notes = "Hello"\n[run]\ndomain = "DST2d"', "notes must be a list of texts"),
        ('[run]\ndomain = "DeepSeaTreasure"\nalgo = "mosac"', "mosac needs continuous actions"),
        ('then = [5]\n[run]\ndomain = "DST2d"', "then must be .* got \\[5\\]"),
        ('show = "critic"\n[run]\ndomain = "DST2d"', "needs one run, and preferences"),
        ('show = "score-curves"\nmetrics = ["ED"]\n[run]\ndomain = "DST2d"', "needs the metric HV or UT, got ED"),
        ('then = ["critic"]\n[run]\ndomain = "DST2d"\nalgo = "pgmorl"', "has no critic to measure"),
        ("runs = [1]", "runs must be a list of tables"),
        (
            '[[runs]]\ncolumn = "a"\ndomain = "DST2d"\n[[runs]]\ncolumn = "b"\nseeds = 3\ndomain = "DST2d"',
            "twice with different seeds",
        ),
    ],
)
def test_what_is_wrong_is_named_with_the_file(tmp_path: Path, text: str, message: str):
    with pytest.raises(ValueError, match=f"(?s)my.toml.*{message}"):
        read_sweep(write(tmp_path, text))


def test_names_of_files_and_columns_may_be_anything(tmp_path: Path):
    path = tmp_path / "my sweep.v2.toml"
    path.write_text('[[runs]]\ncolumn = 3\ndomain = "DST2d"\n')
    artefact = read_sweep(path)
    assert (artefact.name, artefact.columns) == ("my-sweep-v2", ["3"])


def test_none_is_a_value_of_a_grid(tmp_path: Path):
    text = 'reference = "learning_rate_end none"\n[run]\ndomain = "DST2d"\n[grid]\nlearning_rate_end = ["none", 1e-4]\n'
    artefact = read_sweep(write(tmp_path, text))
    assert artefact.columns == ["learning_rate_end none", "learning_rate_end 0.0001"]
    wanted = artefact.cells["DST2d", "learning_rate_end none"]
    assert settings.flat(wanted.config())["learning_rate_end"] is None
    assert "learning_rate_end-none" in wanted.name
