"""Tests of the pictures: what is drawn where, and that odd runs are drawn without a warning."""

import json
import sys
from pathlib import Path

import numpy as np
import pytest

from qpensieve import preferences
from qpensieve.envs import dst
from qpensieve.metrics import hypervolume, reference_point
from qpensieve.records import evaluations
from qpensieve.records.evaluations import Evaluations
from qpensieve.records.folder import EVALUATIONS
from qpensieve.records.scores import summarize
from qpensieve.report import figures

pytest.importorskip("matplotlib")

from matplotlib.figure import Figure

STEPS = 50_000


def make_table(returns: np.ndarray, num_short: int = 3, num_full: int = 1, reference: str | None = None) -> Evaluations:
    """A run that did ever better and ended at `returns` [seed, p, d] on the full table."""
    seeds, _, d = returns.shape
    lam = preferences.test_table(d)[: returns.shape[1]]
    corner = None if reference is None else reference_point(reference)
    table = evaluations.empty(seeds, lam[::5], np.empty((0, d)), lam, corner)
    for t in range(num_short):
        short = returns[:, ::5, None] - (num_short - 1 - t)
        table = evaluations.append_short(table, (t + 1) * STEPS, short.repeat(2, axis=2), np.empty((seeds, 0, 2, d)))
    for t in range(num_full):
        table = evaluations.append_full(table, (t + 1) * 3 * STEPS, returns[:, :, None])
    return table


def dst_returns(seeds: int = 3) -> np.ndarray:
    front, lam = dst.exact_front(), preferences.test_table(2)
    return np.stack([front[: 8 - i][np.argmax(lam @ front[: 8 - i].T, axis=1)] for i in range(seeds)])


def train_rows(seeds: int) -> list[dict]:
    rows = [{"event": "start", "step": 0}, {"event": "evaluation", "step": STEPS, "temperature": "not a train row"}]
    for step in range(1000, 5000, 1000):
        row = {"event": "train", "step": step, "temperature": [100 / step + i for i in range(seeds)]}
        rows.append(row if step < 3000 else row | {"snapshot_share": [0.6] * seeds})
    return rows


def make_run(folder: Path, table: Evaluations, rows: list[dict] | None = None, **config: object) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    evaluations.save(folder / EVALUATIONS, table)
    known = {"domain": "DST2d", "algo": "qpensieve", "seeds": [0, 1, 2], "steps": 3 * STEPS, "unknown": {"a": 1}}
    (folder / "config.json").write_text(json.dumps(known | config))
    if rows is not None:
        (folder / "metrics.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    return folder


@pytest.fixture
def drawn(monkeypatch: pytest.MonkeyPatch) -> list[Figure]:
    """The figures that were drawn, laid out but not written to a picture: quick, and their content can be read."""
    kept: list[Figure] = []

    def keep(figure: Figure, out: Path) -> Path:
        figure.draw_without_rendering()
        kept.append(figure)
        return out

    monkeypatch.setattr(figures, "write_figure", keep)
    return kept


def titles(figure: Figure) -> list[str]:
    return [axes.get_title() for axes in figure.axes]


def lines(figure: Figure, panel: int) -> dict[str, np.ndarray]:
    """Label -> [x, y] of the labelled lines of a panel."""
    every = figure.axes[panel].get_lines()
    return {str(line.get_label()): np.array(line.get_data()) for line in every if str(line.get_label())[0] != "_"}


def test_pictures_are_written_into_the_run_or_where_asked(tmp_path: Path):
    import matplotlib.image

    run = make_run(tmp_path / "run", make_table(dst_returns(), reference="DST2d"), train_rows(3))
    assert figures.draw_front(run) == run / "front.png"
    assert figures.draw_curves(run, tmp_path / "new" / "c.png") == tmp_path / "new" / "c.png"
    assert figures.compare_curves([run], tmp_path / "compare.png") == tmp_path / "compare.png"
    for path in (run / "front.png", tmp_path / "new" / "c.png", tmp_path / "compare.png"):
        picture = matplotlib.image.imread(path)
        assert picture.shape[1] == 1200
        assert picture.std() > 0
    assert not (run / "curves.png").exists()


def test_drawing_leaves_the_global_figures_alone(tmp_path: Path):
    run = make_run(tmp_path, make_table(dst_returns(1)))
    figures.draw_front(run)
    assert "matplotlib.pyplot" not in sys.modules or not sys.modules["matplotlib.pyplot"].get_fignums()


def test_the_front_shows_learned_and_exact_points_and_the_scores(tmp_path: Path, drawn: list[Figure]):
    figures.draw_front(make_run(tmp_path, make_table(dst_returns(), reference="DST2d")))
    axes = drawn[0].axes[0]
    np.testing.assert_allclose(lines(drawn[0], 0)["exact front"].T, dst.exact_front())
    learned = lines(drawn[0], 0)["learned front, all seeds"].T
    assert {tuple(point) for point in learned} == {tuple(point) for point in dst_returns().reshape(-1, 2)}
    assert sum(len(np.asarray(c.get_offsets())) for c in axes.collections) == 300
    assert axes.get_xlabel() == "treasure (value)"
    title = drawn[0].get_suptitle()
    assert title.startswith("DST2d · qpensieve · step 150,000 · 3 seeds\nUT 7.")
    volumes = [hypervolume(seed, reference_point("DST2d")) for seed in dst_returns()]
    assert f"HV {np.mean(volumes):.1f} ± {np.std(volumes):.1f} from (0, -50)" in title
    found = [len(set(seed[:, 0])) for seed in dst_returns()]
    assert f"front treasures found: {found[0]}, {found[1]}, {found[2]} of 8" in drawn[0].get_supxlabel()


def test_points_keep_the_colour_of_their_preference(tmp_path: Path, drawn: list[Figure]):
    returns = preferences.test_table(2)[None] * 100.0
    figures.draw_front(make_run(tmp_path, make_table(returns), domain="foreign"))
    pale, strong = drawn[0].axes[0].collections
    assert len(np.asarray(pale.get_offsets())) == 0
    np.testing.assert_allclose(np.asarray(strong.get_offsets())[:, 0], np.asarray(strong.get_array()) * 100)
    assert "HV" not in drawn[0].get_suptitle()
    assert drawn[0].axes[0].get_xlabel() == "objective 1"


def test_without_a_full_evaluation_the_front_says_it_is_a_short_one(tmp_path: Path, drawn: list[Figure]):
    figures.draw_front(make_run(tmp_path, make_table(dst_returns(), num_full=0, reference="DST2d")))
    assert "step 150,000 (short protocol)" in drawn[0].get_suptitle()
    assert "not comparable with the paper's table" in drawn[0].get_supxlabel()


def test_the_newest_full_evaluation_is_drawn(tmp_path: Path, drawn: list[Figure]):
    table = make_table(dst_returns())
    worse = evaluations.append_full(table, 10 * STEPS, np.broadcast_to([-10.0, -3.0], (3, 100, 1, 2)).copy())
    figures.draw_front(make_run(tmp_path, worse))
    assert "step 500,000" in drawn[0].get_suptitle()
    np.testing.assert_array_equal(lines(drawn[0], 0)["learned front, all seeds"], [[-10], [-3]])


@pytest.mark.parametrize(("domain", "num_panels"), [("Hopper3d", 3), ("LunarLander4d", 6), ("Hopper5d", 10)])
def test_more_objectives_are_drawn_in_pairs(tmp_path: Path, drawn: list[Figure], domain: str, num_panels: int):
    d = len(reference_point(domain))
    returns = preferences.test_table(d)[None, :60] * np.array([[[1.0]], [[2.0]]]) * 300
    figures.draw_front(make_run(tmp_path, make_table(returns, reference=domain), domain=f"qpensieve/{domain}-v0"))
    panels = drawn[0].axes[:-1]
    assert len(panels) == num_panels
    if domain == "Hopper3d":
        assert [axes.get_xlabel() for axes in panels] == ["", "forward\n(sum of velocity)", "height\n(sum of height)"]
        assert [axes.get_ylabel() for axes in panels] == ["height (sum of height)", "control", ""]
        offsets = np.concatenate([np.asarray(c.get_offsets()) for c in panels[2].collections])
        np.testing.assert_allclose(np.sort(offsets, axis=0), np.sort(returns[..., [1, 2]].reshape(-1, 2), axis=0))


def test_points_at_one_place_become_rings_of_equal_area_sorted_by_colour():
    points = np.array([[1.0, 1.0], [0.0, 0.0], [1.0, 1.0], [1.0, 1.0]])
    order, areas = figures._rings(points, np.array([0.9, 0.3, 0.1, 0.5]))
    np.testing.assert_array_equal(order, [1, 2, 3, 0])
    np.testing.assert_allclose(areas[1], figures.MARKER_AREA)
    np.testing.assert_allclose(areas[[2, 3, 0]], figures.MARKER_AREA * np.sqrt(3) * np.array([1, 2 / 3, 1 / 3]))


def test_curves_show_all_panels_and_the_ceilings_of_the_short_preferences(tmp_path: Path, drawn: list[Figure]):
    table = make_table(dst_returns(), reference="DST2d")
    figures.draw_curves(make_run(tmp_path, table, train_rows(3)))
    assert titles(drawn[0]) == ["utility (UT)", "hypervolume (HV)", "temperature", "samples that climb a snapshot"]
    ceilings = dst.ceilings(table.short_preferences, reference_point("DST2d"))
    utility, volume = lines(drawn[0], 0), lines(drawn[0], 1)
    assert utility[f"ceiling {ceilings.utility:.2f}"][1, 0] == ceilings.utility
    assert utility[f"best single policy {ceilings.best_single:.2f}"][1, 0] == ceilings.best_single
    assert volume["ceiling 1,055"][1, 0] == ceilings.hypervolume
    steps, mean = utility["mean ± 1 std, seeds thin"]
    np.testing.assert_array_equal(steps, [STEPS, 2 * STEPS, 3 * STEPS])
    np.testing.assert_allclose(np.diff(mean), [1, 1])
    last = summarize(table.short_returns[-1], table.short_preferences)
    assert mean[-1] == pytest.approx(last.ut.mean())
    note = "short protocol: every fifth preference x 2 episodes; not comparable with the paper's table"
    assert drawn[0].get_supxlabel() == note


def test_logged_values_are_drawn_per_seed_from_the_steps_that_have_them(tmp_path: Path, drawn: list[Figure]):
    figures.draw_curves(make_run(tmp_path, make_table(dst_returns(2), reference="DST2d"), train_rows(2)))
    assert drawn[0].axes[2].get_yscale() == "log"
    seeds = drawn[0].axes[2].get_lines()[:2]
    np.testing.assert_allclose(np.asarray(seeds[1].get_ydata()), 100 / np.arange(1000, 5000, 1000) + 1)
    share = drawn[0].axes[3].get_lines()[0]
    np.testing.assert_array_equal(np.asarray(share.get_xdata()), [3000, 4000])


def test_the_later_of_two_rows_at_one_step_counts_and_torn_lines_are_skipped(tmp_path: Path):
    path = tmp_path / "metrics.jsonl"
    rows = [{"event": "train", "step": step, "x": [step + shift]} for shift in (0, 5) for step in (2, 1)]
    path.write_text("".join(json.dumps(row) + "\n" for row in rows) + '[1]\n{"event": "train", "st')
    series = figures._read_series(figures._read_rows(path), "x", num_seeds=1)
    assert series is not None
    np.testing.assert_array_equal(series[0], [1, 2])
    np.testing.assert_array_equal(series[1], [[6], [7]])


@pytest.mark.parametrize(
    "temperatures",
    [
        [[0.0, 0.1], [0.2, 0.1]],
        [[-1.0, 0.1], [0.2, 0.1]],
        [[float("nan"), 0.1], [0.2, 0.1]],
        [[None, None], [float("inf"), 0.1]],
        [[None, None], [None, None]],
        [[0.1], [0.2]],
    ],
)
def test_odd_temperatures_are_drawn_without_a_warning(tmp_path: Path, temperatures: list):
    rows = [{"event": "train", "step": 1000 * i, "temperature": values} for i, values in enumerate(temperatures)]
    figures.draw_curves(make_run(tmp_path, make_table(dst_returns(2), num_short=1), rows))


@pytest.mark.parametrize("rows", [None, [], [{"event": "train", "step": 1, "critic_loss": [1.0]}]])
def test_one_seed_one_evaluation_and_no_rows_are_enough(tmp_path: Path, drawn: list[Figure], rows: list | None):
    table = make_table(dst_returns(1), num_short=1, num_full=0, reference="DST2d")
    run = make_run(tmp_path, table, rows)
    figures.draw_curves(run)
    figures.draw_front(run)
    assert titles(drawn[0]) == ["utility (UT)", "hypervolume (HV)"]
    assert lines(drawn[0], 0)["one seed"].shape == (2, 1)
    assert "1 seed\nUT 7." in drawn[1].get_suptitle()
    assert "±" not in drawn[1].get_suptitle()


def test_without_a_reference_there_is_no_hypervolume_panel(tmp_path: Path, drawn: list[Figure]):
    returns = np.random.default_rng(0).normal(size=(2, 100, 2))
    run = make_run(tmp_path, make_table(returns), domain="module:factory", objectives=["speed", "comfort"])
    figures.draw_curves(run)
    figures.draw_front(run)
    figures.compare_curves([run, run], tmp_path / "c.png")
    assert titles(drawn[0]) == titles(drawn[2]) == ["utility (UT)"]
    assert drawn[1].axes[0].get_ylabel() == "comfort"


def test_compared_runs_are_named_by_algorithm_and_by_folder_where_that_is_not_enough(
    tmp_path: Path, drawn: list[Figure]
):
    table = make_table(dst_returns(), reference="DST2d")
    algos = {"a": "qpensieve", "b": "qpensieve", "c": "mosac"}
    runs = [make_run(tmp_path / name, table, algo=algo) for name, algo in algos.items()]
    figures.compare_curves(runs, tmp_path / "c.png")
    assert {"qpensieve (a)", "qpensieve (b)", "mosac"} <= set(lines(drawn[0], 0))
    assert set(lines(drawn[0], 1)) == {"ceiling 1,055"}
    colours = [[line.get_color() for line in axes.get_lines()[3:12:4]] for axes in drawn[0].axes]
    assert colours[0] == colours[1] == list(figures.COLOURS[:3])


def test_runs_whose_scores_do_not_compare_are_refused(tmp_path: Path):
    table = make_table(dst_returns(), reference="DST2d")
    run = make_run(tmp_path / "a", table)
    with pytest.raises(ValueError, match="no runs to compare"):
        figures.compare_curves([], tmp_path / "c.png")
    with pytest.raises(ValueError, match=r"is a run on Hopper2d, .* on DST2d"):
        figures.compare_curves([run, make_run(tmp_path / "b", table, domain="Hopper2d")], tmp_path / "c.png")
    with pytest.raises(ValueError, match="different preferences"):
        figures.compare_curves([run, make_run(tmp_path / "b", make_table(dst_returns()[:, :50]))], tmp_path / "c.png")
    other = make_run(tmp_path / "b", make_table(dst_returns(), reference="Hopper2d"))
    with pytest.raises(ValueError, match="different reference points"):
        figures.compare_curves([run, other], tmp_path / "c.png")


def test_what_a_folder_lacks_is_named(tmp_path: Path):
    with pytest.raises(FileNotFoundError, match=r"no config\.json in"):
        figures.draw_front(tmp_path)
    run = make_run(tmp_path, make_table(dst_returns(), num_short=0, num_full=0))
    with pytest.raises(ValueError, match="has no evaluation yet"):
        figures.draw_front(run)
    with pytest.raises(ValueError, match="has no short evaluation yet"):
        figures.draw_curves(run)
    (run / EVALUATIONS).unlink()
    with pytest.raises(FileNotFoundError, match="no evaluations at"):
        figures.draw_curves(run)
    for content in ("{", "[]"):
        (run / "config.json").write_text(content)
        with pytest.raises(ValueError, match=r"config\.json is damaged"):
            figures.draw_front(run)


def test_one_objective_has_no_front(tmp_path: Path):
    run = make_run(tmp_path, make_table(np.ones((2, 1, 1))), domain="foreign")
    with pytest.raises(ValueError, match="a front needs at least two objectives"):
        figures.draw_front(run)


def test_without_matplotlib_the_error_says_how_to_get_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    run = make_run(tmp_path, make_table(dst_returns()))
    monkeypatch.setitem(sys.modules, "matplotlib.figure", None)
    with pytest.raises(figures.MissingPlots, match=r"pip install 'qpensieve\[plots\]'"):
        figures.draw_front(run)
    assert issubclass(figures.MissingPlots, ImportError)


@pytest.mark.parametrize(
    ("values", "text"),
    [
        ([7.0, 7.5], "7.25 ± 0.25"),
        ([1000.0, 1040.0], "1,020 ± 20"),
        ([3.0e7, 5.0e7], "(4.00 ± 1.00)e7"),
        ([3.82e7], "3.82e7"),
        ([0.0, 0.0], "0.00 ± 0.00"),
        ([-250.0], "-250.0"),
    ],
)
def test_scores_are_shown_with_fitting_digits(values: list[float], text: str):
    assert figures._mean_std(np.array(values)) == text
