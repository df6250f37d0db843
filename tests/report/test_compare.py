"""Exported runs side by side: common preferences only, ED against MO-SAC, samples as they are."""

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

pytest.importorskip("matplotlib")

from matplotlib.figure import Figure

from qpensieve import cli
from qpensieve import config as configs
from qpensieve.config import default_config
from qpensieve.preferences import sac_preferences, test_table
from qpensieve.records import evaluations
from qpensieve.records.folder import CONFIG, EVALUATIONS, PROVENANCE
from qpensieve.report import compare
from qpensieve.report.curves import compare_curves
from qpensieve.report.results import export as export_run
from qpensieve.report.results import labels, read_run
from qpensieve.report.text import TextCell

DEAR, CHEAP = (23.7, -11.0), (0.7, -2.0)


def export(path: Path, algo: str, ends: list[tuple[float, float]], **changes: Any) -> Path:
    """A run of two seeds, each of which always ends the same way."""
    preferences = changes.pop("preferences", test_table(2))
    returns = np.array([[end] * len(preferences) for end in ends])
    row = {"step": 1000, "mean_returns": returns.tolist()}
    content = {
        "config": {"domain": "DST2d", "algo": algo, "steps": 1000},
        "provenance": {"lanes_per_seed": changes.pop("lanes", 1)},
        "preferences": np.asarray(preferences).tolist(),
        "reference": [0.0, -50.0],
        "short_protocol": changes.pop("short", []),
        "full_protocol": [row],
    }
    path.write_text(json.dumps(content | changes))
    return path


@pytest.fixture
def files(tmp_path: Path) -> list[Path]:
    return [
        export(tmp_path / "mosac.json", "mosac", [DEAR, CHEAP]),
        export(tmp_path / "sac.json", "sac", [DEAR, DEAR], preferences=sac_preferences(), lanes=19),
    ]


def rows_of(*paths: Path) -> list[dict[str, TextCell]]:
    """The lines of the table, by heading."""
    table = compare.table(compare.on_common_preferences([compare.read(path) for path in paths]))
    return [dict(zip(table.headings, row, strict=True)) for row in table.rows]


def test_the_table_is_on_the_preferences_that_all_share(files: list[Path]):
    shared = compare.on_common_preferences([compare.read(path) for path in files])
    assert [len(one.played.preferences) for one in shared] == [19, 19]
    mosac, sac = rows_of(*files)
    heading = "environment steps per seed"
    assert (mosac[heading].text, sac[heading].text) == ("1,000", "19,000")
    # On the 19 both objectives count a half on average.
    assert sac["UT"].text == f"{(23.7 - 11) / 2:.2f} ± 0.00"
    assert mosac["ED against MO-SAC"].text == "-"
    # Seed 0 ties everywhere; seed 1 scores more where 23 lam_1 > 9 lam_2, from (0.3, 0.7) on: 14 of 19.
    share = 14 / 19
    assert sac["ED against MO-SAC"].text == f"{share / 2:.2f} ± {share / 2:.2f}"
    assert sac["UT"].is_best
    assert any(line.startswith("P(better) ") for line in sac["UT"].details)


class TestDominance:
    """ED is of one seed against the same seed: by their numbers, wherever they stand in their files."""

    def test_dominance_is_over_shared_seeds_else_in_order(self, files: list[Path], tmp_path: Path):
        def against(first_seed: int, *ends: tuple[float, float]) -> TextCell:
            config = {"domain": "DST2d", "algo": "sac", "first_seed": first_seed, "steps": 1000}
            path = export(tmp_path / "later.json", "sac", list(ends), config=config)
            return rows_of(files[0], path)[1]["ED against MO-SAC"]

        one = against(1, CHEAP, DEAR)  # seed 1: cheap against cheap
        assert (one.text, one.details) == ("0.00", ("IQM 0.00, 1 seed",))
        assert against(5, DEAR, CHEAP).text == "0.00 ± 0.00"

    def test_dominance_names_the_run_it_is_against(self, tmp_path: Path):
        paths = [export(tmp_path / f"{name}.json", "mosac", [DEAR, CHEAP]) for name in ("plain", "robust")]
        assert [row["ED against plain"].text for row in rows_of(*paths)] == ["-", "0.00 ± 0.00"]


class TestSettings:
    """Runs that differ in a setting never look the same."""

    def rows(self, *paths: Path) -> list[dict[str, str]]:
        return compare.settings([compare.read(path) for path in paths])

    def test_every_setting_in_which_runs_differ_is_shown(self, tmp_path: Path):
        plain = make_run(tmp_path / "plain")
        other = make_run(tmp_path / "other", pessimism=0.5, guards=True, log_period=500, reference=(1.0, 2.0))
        assert self.rows(plain, other) == [  # in the order of their classes
            {"setting": "log_period", "plain": "1000", "other": "500"},
            {"setting": "reference", "plain": "none", "other": "1, 2"},
            {"setting": "guards", "plain": "False", "other": "True"},
            {"setting": "pessimism", "plain": "1", "other": "0.5"},
        ]
        assert self.rows(plain, plain) == []

    def test_folders_of_one_name_are_told_apart_by_those_around_them(self, tmp_path: Path):
        runs = [read_run(make_run(tmp_path / name)) for name in ("a/run", "b/run", "other")]
        assert labels(runs) == ["a/run", "b/run", "other"]
        assert len(set(labels([runs[0], runs[0]]))) == 2  # as a folder and its export are


def test_a_run_is_neither_above_nor_below_its_own_export(tmp_path: Path):
    """The file has fewer digits, and the same returns as a mean of other episodes differ in the last one."""
    run = make_run(tmp_path / "run")
    both = [compare.read(run), compare.read(export_run(run, tmp_path / "run.json"))]
    assert (both[0].returns != both[1].returns).any()
    for ours, theirs in (both, both[::-1]):
        assert list(compare.dominance(ours, theirs).values()) == [0, 0]
    trip = np.broadcast_to(DEAR, (2, 100, 10, 2))
    played = [replace(both[0].played, returns=trip[:, :, :num].mean(axis=2)) for num in (10, 2)]
    ten, two = (replace(both[0], played=one) for one in played)
    assert list(compare.dominance(two, ten).values()) == list(compare.dominance(ten, two).values()) == [0, 0]


@pytest.mark.usefixtures("unrendered")
def test_the_command_prints_and_draws_folders_and_files(files: list[Path], tmp_path: Path, capsys):
    cli.main(["compare", str(make_run(tmp_path / "run")), *map(str, files), "--out", str(tmp_path / "two.png")])
    assert "| sac | 1,000 | 19,000 | " in capsys.readouterr().out
    assert (tmp_path / "two.png").read_text() == "a picture with 2 axes"
    one = np.ones((1, 1))
    more = {"preferences": one, "reference": None, "config": {"domain": "mine:make", "algo": "mosac", "steps": 1}}
    path = export(tmp_path / "one.json", "mosac", [(0.002,), (0.004,)], **more)  # pyright: ignore[reportArgumentType]
    cli.main(["compare", str(path), "--out", str(tmp_path / "one.png")])
    assert "0.0030 ± 0.0010" in capsys.readouterr().out
    assert (tmp_path / "one.png").read_text() == "a picture with 1 axes"  # there is no front


def test_curves_of_single_preferences_are_drawn(tmp_path: Path, drawn: list[Figure]):
    two = np.array([[0.9, 0.1], [0.8, 0.2]])
    own = {"domain": "DST2d", "steps": 20, "agent": {"preferences": ["0.9,0.1", "0.8,0.2"]}}
    short = [{"step": step, "mean_returns": [[DEAR, CHEAP], [CHEAP, CHEAP]]} for step in (10, 20)]
    made = lambda algo: export(
        tmp_path / f"{algo}.json", algo, [DEAR] * 2, preferences=two, short=short, config=own | {"algo": algo}
    )
    cli.main(["compare", *(str(made(algo)) for algo in ("sac", "b")), "--curves", "--out", str(tmp_path / "c.png")])
    assert [axes.get_title() for axes in drawn[0].axes] == ["λ · return, λ = 0.9, 0.1", "λ · return, λ = 0.8, 0.2"]
    means = [line for line in drawn[0].axes[0].get_lines() if line.get_label() == "sac"]
    dear, cheap = np.array([DEAR, CHEAP]) @ two[0]
    np.testing.assert_allclose(np.array(means[0].get_data()), [[10, 20], [(dear + cheap) / 2] * 2])


def test_what_does_not_compare_is_refused(files: list[Path], tmp_path: Path):
    of = lambda domain: {"domain": domain, "algo": "mosac", "steps": 1}
    mine, same, hopper = (
        compare.read(export(tmp_path / f"{number}.json", "mosac", [DEAR], config=of(domain)))
        for number, domain in enumerate(("DST2d", "qpensieve/DST2d-v0", "Hopper2d"))
    )
    assert len(compare.on_common_preferences([mine, same])) == 2
    with pytest.raises(ValueError, match="runs must have the same domain to be compared: "):
        compare.on_common_preferences([mine, hopper])
    apart = export(tmp_path / "apart.json", "sac", [DEAR], preferences=[[0.123, 0.877]])
    with pytest.raises(ValueError, match="must share a test preference"):
        compare.on_common_preferences([mine, compare.read(apart)])
    with pytest.raises(ValueError, match="has no full evaluation at step 5; it has: 1000"):
        compare.read(files[0], 5)
    with pytest.raises(ValueError, match="holds no curves of single preferences"):
        compare_curves([read_run(files[0])], tmp_path / "x.png", by_preference=True)


def make_run(folder: Path, domain: str = "DST2d", algo: str = "mosac", **settings: Any) -> Path:
    """A folder with one full evaluation of two seeds."""
    table = evaluations.empty(2, test_table(2)[::5], np.zeros((0, 2)), test_table(2), np.array([0.0, -50.0]))
    table = evaluations.append_full(table, 1000, np.random.default_rng(0).normal(size=(2, 100, 3, 2)))
    folder.mkdir(parents=True)
    evaluations.save(folder / EVALUATIONS, table)
    config = configs.override(default_config(domain, algo), settings)
    configs.save(configs.with_schedule(config), folder / CONFIG)
    (folder / PROVENANCE).write_text(json.dumps({"lanes_per_seed": 1}))
    return folder
