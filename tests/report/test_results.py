"""One run as reports read it, and as one small JSON file."""

import json
from pathlib import Path

import numpy as np
import pytest

pytest.importorskip("matplotlib")

from matplotlib.figure import Figure

from qpensieve import cli
from qpensieve.preferences import test_table
from qpensieve.records import evaluations
from qpensieve.records.folder import CONFIG, EVALUATIONS
from qpensieve.report import compare, front
from qpensieve.report.curves import short_note
from qpensieve.report.results import export, read_run
from tests.report.runs import STEPS, draw_curves, draw_front, dst_returns, make_run, make_table


@pytest.mark.parametrize("name", ["zoo:DST2d", "policy.npz"])
def test_a_policy_is_refused_where_a_run_is_needed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str):
    monkeypatch.chdir(tmp_path)
    Path("policy.npz").write_bytes(b"")
    with pytest.raises(FileNotFoundError, match=f"{name} is not a run folder: it is a policy"):
        read_run(Path(name))


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


def test_what_is_known_of_a_domain(tmp_path: Path):
    table, foreign = make_table(dst_returns()), ("objective 1", "objective 2")
    known = ["DST2d", ("treasure (value)", "time (-1 per step)"), True, "the paper's table"]
    unknown = ["mine:make", foreign, False, "the full protocol"]
    for name, expected in (("qpensieve/DST2d-v0", known), ("mine:make", unknown)):
        run = read_run(make_run(tmp_path, table, domain=name))
        other = short_note(run).partition("; not comparable with ")[2]
        assert [run.domain, run.labels, run.exact is not None, other] == expected
    assert read_run(make_run(tmp_path, make_table(np.ones((1, 10, 3))))).exact is None  # other objectives than DST2d


def test_a_foreign_domain_has_the_names_that_a_run_wrote_also_when_it_is_exported(tmp_path: Path, drawn: list[Figure]):
    run = make_run(
        tmp_path / "run",
        make_table(dst_returns(), reference="DST2d"),
        domain="mine:make",
        agent={},
        made={"objectives": ["speed", "comfort"], "lanes_per_seed": 1},
    )
    file = export(run, tmp_path / "run.json")
    assert read_run(run).labels == read_run(file).objectives == ("speed", "comfort")
    front.draw_front(read_run(file), tmp_path / "front.png")
    compare.draw([compare.read(run), compare.read(file)], tmp_path / "both.png")
    assert drawn[0].axes[0].get_ylabel() == drawn[1].axes[1].get_ylabel() == "comfort"


def test_a_run_and_its_export_tell_what_was_played(tmp_path: Path, drawn: list[Figure]):
    """Neither every fifth preference, as is usual, nor one episode, as the mean of all might seem."""
    lam, returns = np.array(test_table(2)), dst_returns()
    table = evaluations.empty(3, lam[::25], np.empty((0, 2)), lam[::2])
    table = evaluations.append_short(table, STEPS, returns[:, ::25, None].repeat(4, 2), np.empty((3, 0, 4, 2)))
    table = evaluations.append_full(table, STEPS, returns[:, ::2, None].repeat(7, 2))
    run = make_run(tmp_path / "run", table, eval_stride=25, full_eval_episodes=7, agent={}, made={})
    for path in (run, export(run, tmp_path / "run.json")):
        data = read_run(path)
        np.testing.assert_array_equal(data.history.short_preferences, lam[::25])
        assert short_note(data).startswith("short protocol: 4 preferences x 4 episodes;")
        front.draw_front(read_run(path), tmp_path / "front.png")
        assert drawn[-1].get_supxlabel().startswith("full protocol: 50 preferences x 7 episodes\n")


LAM = np.array([[0.0, 1.0], [0.5, 0.5], [1.0, 0.0]])


def _tiny_run(folder: Path) -> None:
    returns = np.zeros((2, 3, 4, 2))
    returns[1, :, :, 0] = [[1, 2, 3, 4], [5, 5, 5, 5], [8, 8, 8, 8]]
    table = evaluations.empty(2, LAM, np.zeros((0, 2)), LAM, np.array([-1.0, -1.0]))
    table = evaluations.append_short(table, 100, returns[:, :, :2], np.zeros((2, 0, 2, 2)))
    make_run(folder, evaluations.append_full(table, 200, returns), made={"device": "cpu"})


def test_scores_and_mean_returns_of_every_evaluation_are_written(tmp_path, capsys):
    _tiny_run(tmp_path)
    cli.main(["export", str(tmp_path), "--out", str(tmp_path / "deep" / "run.json")])
    content = json.loads((tmp_path / "deep" / "run.json").read_text())
    assert str(tmp_path / "deep" / "run.json") in capsys.readouterr().out
    assert content["config"] == json.loads((tmp_path / CONFIG).read_text())
    assert content["provenance"] == {"device": "cpu"}
    assert [row["step"] for row in content["short_protocol"]] == [100]
    (full,) = content["full_protocol"]
    assert (full["step"], full["episodes"]) == (200, 4)
    assert full["mean_returns"][1] == [[2.5, 0.0], [5.0, 0.0], [8.0, 0.0]]
    with pytest.raises(ValueError, match=r"config.json is part of a run: choose another file"):
        export(tmp_path, tmp_path / "config.json")
    np.testing.assert_allclose(full["ut"], [0.0, (0.5 * 5 + 8) / 3], rtol=1e-5)
    # Of few preferences, as here, the short protocol's returns are kept: they are curves of single agents.
    assert np.shape(content["short_protocol"][0]["mean_returns"]) == (2, 3, 2)
