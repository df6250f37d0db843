"""A run as its pictures read it."""

import json
from pathlib import Path

import numpy as np
import pytest

pytest.importorskip("matplotlib")

from matplotlib.figure import Figure

from qpensieve.preferences import test_table
from qpensieve.records import evaluations
from qpensieve.records.folder import CONFIG, EVALUATIONS, PROVENANCE
from qpensieve.report import compare, front
from qpensieve.report.export import export
from qpensieve.report.run_data import read_run, short_note
from tests.report.runs import STEPS, draw_curves, draw_front, dst_returns, make_run, make_table


def test_what_a_folder_lacks_is_named(tmp_path: Path):
    with pytest.raises(FileNotFoundError, match=r"is not a run folder: it has no config\.json"):
        draw_front(tmp_path)
    run = make_run(tmp_path, make_table(dst_returns(), num_short=0, num_full=0))
    with pytest.raises(ValueError, match="has no evaluation yet"):
        draw_front(run)
    with pytest.raises(ValueError, match="has no short evaluation yet"):
        draw_curves(run)
    (run / EVALUATIONS).unlink()
    with pytest.raises(FileNotFoundError, match="no evaluations at"):
        draw_curves(run)
    for content in ("{", "[]"):
        (run / CONFIG).write_text(content)
        with pytest.raises(ValueError, match=r"cannot read .*config\.json"):
            draw_front(run)


@pytest.mark.parametrize("name", ["DST2d", "qpensieve/DST2d-v0"])
def test_a_domain_is_known_by_either_name(name: str, tmp_path: Path):
    run = read_run(make_run(tmp_path, make_table(dst_returns()), domain=name))
    assert run.domain == "DST2d"
    assert run.exact is not None
    assert run.labels == ("treasure (value)", "time (-1 per step)")


def test_a_foreign_domain_keeps_its_name_and_has_no_exact_front(tmp_path: Path):
    run = read_run(make_run(tmp_path, make_table(dst_returns()), domain="mine:make"))
    assert (run.domain, run.exact) == ("mine:make", None)
    assert run.labels == ("objective 1", "objective 2")


def test_a_foreign_domain_has_the_names_that_a_run_wrote_also_when_it_is_exported(tmp_path: Path, drawn: list[Figure]):
    run = make_run(tmp_path / "run", make_table(dst_returns(), reference="DST2d"), domain="mine:make", agent={})
    (run / PROVENANCE).write_text(json.dumps({"objectives": ["speed", "comfort"], "lanes_per_seed": 1}))
    file = export(run, tmp_path / "run.json")
    assert read_run(run).labels == read_run(file).objectives == ("speed", "comfort")
    front.draw_front(file, tmp_path / "front.png")
    compare.draw([compare.read(run), compare.read(file)], tmp_path / "both.png")
    assert drawn[0].axes[0].get_ylabel() == drawn[1].axes[1].get_ylabel() == "comfort"


def test_a_table_of_other_objectives_than_the_domain_has_no_exact_front(tmp_path: Path):
    assert read_run(make_run(tmp_path, make_table(np.ones((1, 10, 3))), domain="DST2d")).exact is None


def test_the_paper_is_named_only_where_it_has_such_a_table(tmp_path: Path):
    ours, foreign = (make_run(tmp_path / name, make_table(dst_returns()), domain=name) for name in ("DST2d", "mine"))
    assert short_note(read_run(ours)).endswith("; not comparable with the paper's table")
    assert short_note(read_run(foreign)).endswith("; not comparable with the full protocol")


def test_a_run_and_its_export_tell_what_was_played(tmp_path: Path, drawn: list[Figure]):
    """Neither every fifth preference, as is usual, nor one episode, as the mean of all might seem."""
    lam, returns = np.array(test_table(2)), dst_returns()
    table = evaluations.empty(3, lam[::25], np.empty((0, 2)), lam[::2])
    table = evaluations.append_short(table, STEPS, returns[:, ::25, None].repeat(4, 2), np.empty((3, 0, 4, 2)))
    table = evaluations.append_full(table, STEPS, returns[:, ::2, None].repeat(7, 2))
    run = make_run(tmp_path / "run", table, eval_stride=25, full_eval_episodes=7, agent={})
    (run / PROVENANCE).write_text("{}")
    for path in (run, export(run, tmp_path / "run.json")):
        data = read_run(path)
        np.testing.assert_array_equal(data.table.short_preferences, lam[::25])
        assert short_note(data).startswith("short protocol: 4 preferences x 4 episodes;")
        front.draw_front(path, tmp_path / "front.png")
        assert drawn[-1].get_supxlabel().startswith("full protocol: 50 preferences x 7 episodes\n")
