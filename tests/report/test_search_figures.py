"""Tests of the pictures of a search: what is drawn where, and that odd records are drawn without a warning."""

import json
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from qpensieve import cli, preferences
from qpensieve.envs import dst
from qpensieve.metrics import hypervolume
from qpensieve.records import evaluations, search
from qpensieve.records.folder import EVALUATIONS, SEARCH
from qpensieve.records.search import SearchRecord
from qpensieve.report import figures, search_figures
from qpensieve.train import run as runs
from tests.records.test_search import FIRST, REFERENCE, VOLUMES, make_record, make_rows

pytest.importorskip("matplotlib")

from matplotlib.figure import Figure


def make_run(folder: Path, record: SearchRecord | None, **config: Any) -> Path:
    """A run's folder as far as the pictures of a search read it."""
    folder.mkdir(parents=True, exist_ok=True)
    d = 2 if record is None else len(record.reference)
    lam = preferences.test_table(d) if d > 1 else np.ones((1, 1))
    none, seeds = np.empty((0, d)), 2
    table = evaluations.empty(seeds, lam[:2], none, lam, None)
    table = evaluations.append_short(table, 10, np.ones((seeds, len(lam[:2]), 1, d)), np.empty((seeds, 0, 1, d)))
    evaluations.save(folder / EVALUATIONS, table)
    stages = {"generation_iterations": 2, "fitness_episodes": 4}
    known = {"domain": "foreign", "algo": "pgmorl", "first_seed": 3, "agent": {"stages": stages}}
    (folder / "config.json").write_text(json.dumps(known | config))
    if record is not None:
        search.save(folder / SEARCH, record)
    return folder


def make_search(d: int, num_seeds: int = 2, num_generations: int = 3) -> SearchRecord:
    """Four tasks that wander, in generations of two iterations after a warm-up of four."""
    draw = np.random.default_rng(0).normal
    generation = np.concatenate([np.zeros(5, int), np.repeat(np.arange(num_generations) + 1, 2)])
    objs = np.cumsum(draw(1.0, 2.0, (len(generation), num_seeds, 4, d)), axis=0)
    starts = objs[4 : 4 + 2 * num_generations : 2]
    record = search.empty(np.zeros(d), num_seeds, 4)
    record = replace(record, objs=objs, lam=np.ones_like(objs) / d, generation=generation)
    predicted = starts + draw(1.0, 2.0, starts.shape)
    share = np.zeros((num_generations, num_seeds))
    record = replace(record, starts=starts, predicted=predicted, bounds_share=share)
    archives = [record.archive_of(seed, record.num_iterations) for seed in range(num_seeds)]
    found = [[_found_at(record, seed, row) for row in rows] for seed, rows in enumerate(archives)]
    return replace(
        record,
        archive_objs=np.concatenate(archives),
        archive_seed=np.repeat(np.arange(num_seeds), [len(rows) for rows in archives]),
        archive_found_at=np.concatenate(found).astype(np.int64),
    )


def _found_at(record: SearchRecord, seed: int, objs: np.ndarray) -> int:
    return int(np.argwhere((record.objs[:, seed] == objs).all(axis=-1))[0, 0])


@pytest.fixture
def drawn(monkeypatch: pytest.MonkeyPatch) -> list[Figure]:
    """The figures that were drawn, laid out but not written to a picture."""
    kept: list[Figure] = []

    def keep(figure: Figure, out: Path) -> Path:
        figure.draw_without_rendering()
        kept.append(figure)
        return out

    monkeypatch.setattr(figures, "write_figure", keep)
    return kept


def panel(figure: Figure, title: str) -> Any:
    """The only panel whose title begins so."""
    (axes,) = [axes for axes in figure.axes if axes.get_title().startswith(title)]
    return axes


def labelled(axes: Any) -> dict[str, np.ndarray]:
    """Label -> points [n, 2] of lines and scatters that have one."""
    found = {str(line.get_label()): np.array(line.get_data()).T for line in axes.get_lines()}
    found |= {str(dots.get_label()): np.asarray(dots.get_offsets()) for dots in axes.collections}
    return {name: value for name, value in found.items() if not name.startswith("_")}


def steps(axes: Any) -> list[np.ndarray]:
    """Points [n, 2] of the fronts, in the order in which they were drawn."""
    return [np.array(line.get_data()).T for line in axes.get_lines() if line.get_drawstyle() == "steps-pre"]


def titles(figure: Figure) -> list[str]:
    return [axes.get_title() for axes in figure.axes if axes.get_title()]


class TestGenerations:
    def test_two_objectives_have_a_panel_per_seed_with_the_front_after_every_stage(
        self, tmp_path: Path, drawn: list[Figure]
    ):
        search_figures.draw_generations(make_run(tmp_path, make_record()))
        assert titles(drawn[0])[0] == "seed 3: HV 18.00, archive of 3"
        assert titles(drawn[0])[1].startswith("seed 4: ")
        axes = panel(drawn[0], "seed 3")
        # From the reference's left edge over the archive's points, then down to the reference.
        expected = [
            [(0, -5), (1, -5), (2, -6), (2, -10)],
            [(0, -4), (2, -4), (3, -5), (3, -10)],
            [(0, -3), (1, -3), (2, -4), (3, -5), (3, -10)],
        ]
        for ours, points in zip(steps(axes), expected, strict=True):
            np.testing.assert_array_equal(ours, points)
        np.testing.assert_array_equal(labelled(axes)["measured policy"], np.array(FIRST)[1:].reshape(-1, 2))
        np.testing.assert_array_equal(labelled(axes)["reference"], [REFERENCE])
        assert "exact front" not in labelled(axes)
        assert (axes.get_xlabel(), axes.get_ylabel()) == ("objective 1", "objective 2")

    def test_later_fronts_are_thinner_and_darker(self, tmp_path: Path, drawn: list[Figure]):
        search_figures.draw_generations(make_run(tmp_path, make_record()))
        lines = [line for line in panel(drawn[0], "seed 3").get_lines() if line.get_drawstyle() == "steps-pre"]
        widths, light = [line.get_linewidth() for line in lines], [sum(line.get_color()[:3]) for line in lines]
        assert widths == sorted(widths, reverse=True)
        assert light == sorted(light, reverse=True)

    def test_the_hypervolume_is_drawn_per_iteration_with_borders_of_generations(
        self, tmp_path: Path, drawn: list[Figure]
    ):
        search_figures.draw_generations(make_run(tmp_path, make_record()))
        axes = panel(drawn[0], "archive's hypervolume")
        lines = labelled(axes)
        np.testing.assert_allclose(lines["seed 3"], np.transpose([range(1, 6), VOLUMES]))
        np.testing.assert_allclose(lines["seed 4"][:, 1], 4 * np.array(VOLUMES))
        assert lines["warm-up ends"][:, 0].tolist() == [2, 2]
        borders = [line.get_xdata()[0] for line in axes.get_lines() if len(line.get_xdata()) == 2]
        assert sorted(borders) == [2, 2, 4]

    def test_the_words_around_it_say_what_was_done(self, tmp_path: Path, drawn: list[Figure]):
        search_figures.draw_generations(make_run(tmp_path, make_record()))
        assert drawn[0].get_suptitle() == "foreign · pgmorl · 2 seeds\n5 iterations of 2 tasks, 2 generations"
        note = drawn[0].get_supxlabel()
        assert "the mean of 4 episodes of the mean action" in note
        assert note.endswith("measured policies are out of sight · reference (0, -10)")

    def test_policies_out_of_sight_are_counted(self, tmp_path: Path):
        done = search_figures._read(make_run(tmp_path, make_record()))
        said = search_figures._outside(done, [0], [(0.0, 3.0), (-10.0, -2.0)])
        assert said == "2 of 10 measured policies are out of sight"

    def test_dst2d_shows_its_exact_front_and_ceiling_and_leaves_out_a_far_reference(
        self, tmp_path: Path, drawn: list[Figure]
    ):
        front = dst.exact_front()
        objs = np.broadcast_to(front[None, None, [2, 3]], (6, 2, 2, 2)).copy()
        record = make_record(objs=objs, reference=np.array([0.0, -50.0]))
        search_figures.draw_generations(make_run(tmp_path, record, domain="DST2d"))
        axes = panel(drawn[0], "seed 3")
        np.testing.assert_array_equal(labelled(axes)["exact front"], front)
        assert "reference" not in labelled(axes)
        assert axes.get_ylim()[0] > -15
        assert axes.get_xlim()[0] < 0 < 23.7 < axes.get_xlim()[1]
        assert axes.get_xlabel() == "treasure (value)"
        ceiling = labelled(panel(drawn[0], "archive's hypervolume"))["ceiling 1,055"]
        assert ceiling[0, 1] == pytest.approx(hypervolume(front, record.reference))
        assert drawn[0].get_supxlabel().endswith("reference (0, -50)")

    @pytest.mark.parametrize(("d", "num_pairs"), [(3, 3), (4, 6), (5, 10)])
    def test_more_objectives_are_drawn_in_pairs_of_the_first_seed(
        self, tmp_path: Path, drawn: list[Figure], d: int, num_pairs: int
    ):
        record = make_search(d)
        search_figures.draw_generations(make_run(tmp_path, record))
        volumes = panel(drawn[0], "archive's hypervolume")
        panels = [axes for axes in drawn[0].axes if "in the archive" in labelled(axes)]
        assert len(panels) == num_pairs
        last = labelled(panels[-1])  # the last two objectives
        np.testing.assert_array_equal(last["in the archive"], record.archive_of(0)[:, [d - 2, d - 1]])
        np.testing.assert_array_equal(last["measured policy"], record.objs[1:, 0].reshape(-1, d)[:, [d - 2, d - 1]])
        (archive,) = [dots for dots in panels[-1].collections if dots.get_label() == "in the archive"]
        found = record.archive_found_at[record.archive_seed == 0]
        np.testing.assert_array_equal(np.asarray(archive.get_array()), record.generation[found])
        assert panels[-1].get_xlabel() == f"objective {d - 1}"
        places = [axes.get_position() for axes in (*panels, volumes)]
        assert not any(a.overlaps(b) for i, a in enumerate(places) for b in places[:i])
        assert set(labelled(volumes)) == {"seed 3", "seed 4", "warm-up ends"}

    def test_at_most_five_seeds_have_panels_but_all_have_a_curve(self, tmp_path: Path, drawn: list[Figure]):
        search_figures.draw_generations(make_run(tmp_path, make_search(2, num_seeds=6)))
        assert [title.split(":")[0] for title in titles(drawn[0])] == [
            *(f"seed {i}" for i in range(3, 8)),
            "archive's hypervolume",
        ]
        assert {f"seed {i}" for i in range(3, 9)} < set(labelled(drawn[0].axes[-1]))

    def test_of_many_generations_a_few_are_drawn_the_first_and_the_last_among_them(self):
        assert search_figures._shown_stages(1) == [0]
        assert search_figures._shown_stages(4) == [0, 1, 2, 3]
        many = search_figures._shown_stages(40)
        assert (many[0], many[-1], len(many)) == (0, 39, search_figures.MOST_FRONTS)

    def test_volumes_of_some_iterations_are_those_of_the_record(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
        record = make_search(3, num_generations=8)
        monkeypatch.setattr(search_figures, "MOST_VOLUMES", 3)
        at = search_figures._volume_iterations(search_figures._read(make_run(tmp_path, record)))
        assert at == sorted({1, 10, 20, *record.generation_ends()})
        for seed in (0, 1):
            plain = [record.hypervolume_of(seed, t) for t in at]
            np.testing.assert_allclose(search_figures._volumes(record, seed, at), plain)

    @pytest.mark.parametrize("num", [1, 2])
    def test_a_warm_up_and_an_empty_archive_are_enough(self, tmp_path: Path, drawn: list[Figure], num: int):
        record = make_rows(list(range(num + 1)), [0] * (num + 1))
        record = replace(record, reference=np.array([50.0, 50.0]), archive_seed=np.full(4, 7))
        search_figures.draw_generations(make_run(tmp_path, record))
        assert titles(drawn[0])[0] == "seed 3: HV 0.00, archive of 0"
        assert steps(drawn[0].axes[0]) == []
        assert len(drawn[0].axes) == 3  # no bar of generations
        assert "0 generations" in drawn[0].get_suptitle()
        assert labelled(drawn[0].axes[-1])["seed 3"][:, 1].tolist() == [0.0] * num


class TestPredictions:
    def test_changes_of_every_task_of_whole_generations_are_drawn(self, tmp_path: Path, drawn: list[Figure]):
        search_figures.draw_predictions(make_run(tmp_path, make_record()))
        assert drawn[0].get_suptitle() == "foreign · pgmorl · 2 seeds\npredictions of 4 tasks in 1 whole generation"
        # The second generation was cut short. Of the first: from rows 2 to rows 4 of FIRST, and twice that.
        reached = {"objective 1": [0.0, 2.0, 0.0, 4.0], "objective 2": [2.0, 1.0, 4.0, 2.0]}
        for name, changes in reached.items():
            axes = panel(drawn[0], name)
            (dots,) = axes.collections
            np.testing.assert_allclose(np.asarray(dots.get_offsets()), np.transpose([[1.0] * 4, changes]))
            diagonal = axes.get_lines()[0]
            np.testing.assert_array_equal(diagonal.get_xdata(), diagonal.get_ydata())
            assert axes.get_title() == f"{name}\nr -, mean |error| {np.abs(1 - np.array(changes)).mean():.2f}"
            assert axes.get_xlabel() == "predicted change"

    def test_the_title_has_the_correlation(self, tmp_path: Path, drawn: list[Figure]):
        record = make_search(2)
        search_figures.draw_predictions(make_run(tmp_path, record))
        start, reached = record.starts[..., 0].ravel(), record.objs[[6, 8, 10], ..., 0].ravel()
        predicted = record.predicted[..., 0].ravel()
        r = np.corrcoef(predicted - start, reached - start)[0, 1]
        assert panel(drawn[0], "objective 1").get_title().startswith(f"objective 1\nr {r:.2f}, ")
        colours = np.asarray(panel(drawn[0], "objective 1").collections[0].get_array())
        np.testing.assert_array_equal(colours, np.repeat([1, 2, 3], 8))

    def test_arrows_of_the_newest_two_whole_generations_point_to_predicted_and_reached(
        self, tmp_path: Path, drawn: list[Figure]
    ):
        record = make_search(2)
        search_figures.draw_predictions(make_run(tmp_path, record))
        assert not [title for title in titles(drawn[0]) if title == "generation 1"]
        for generation in (2, 3):
            axes, g = panel(drawn[0], f"generation {generation}"), generation - 1
            points, start = labelled(axes), record.starts[g].reshape(-1, 2)
            np.testing.assert_array_equal(points["start"], start)
            np.testing.assert_array_equal(points["predicted"], record.predicted[g].reshape(-1, 2))
            np.testing.assert_array_equal(points["reached, seed 3"], record.objs[4 + 2 * generation, 0])
            np.testing.assert_array_equal(points["reached, seed 4"], record.objs[4 + 2 * generation, 1])
            first, *others = [dots for dots in axes.collections if hasattr(dots, "U")]
            ends = start + np.transpose([first.U, first.V])
            np.testing.assert_allclose(ends, record.predicted[g].reshape(-1, 2))
            for seed, arrows in enumerate(others):
                ends = np.asarray(arrows.get_offsets()) + np.transpose([arrows.U, arrows.V])
                np.testing.assert_allclose(ends, record.objs[4 + 2 * generation, seed])

    def test_tasks_without_a_prediction_are_left_out(self, tmp_path: Path, drawn: list[Figure]):
        record = make_record()
        record.predicted[0, 1, 0] = np.nan
        search_figures.draw_predictions(make_run(tmp_path, record))
        assert "predictions of 3 tasks" in drawn[0].get_suptitle()

    def test_the_only_generation_counts_only_if_it_is_as_long_as_the_settings_say(
        self, tmp_path: Path, drawn: list[Figure]
    ):
        record = make_rows([0, 1, 2, 3], [0, 0, 0, 1])
        assert search_figures.draw_predictions(make_run(tmp_path, record)) is None
        run = make_run(tmp_path, record, agent={"stages": {"generation_iterations": 1}})
        assert search_figures.draw_predictions(run) is not None

    def test_a_generation_that_was_only_chosen_is_left_out(self, tmp_path: Path, drawn: list[Figure]):
        record = make_rows([0, 1, 2, 3, 4], [0, 0, 0, 1, 1])  # with the starts of two generations
        search_figures.draw_predictions(make_run(tmp_path, record))
        assert "4 tasks in 1 whole generation" in drawn[0].get_suptitle()

    @pytest.mark.parametrize("d", [3, 4, 5])
    def test_more_objectives_have_a_panel_each_and_no_arrows(self, tmp_path: Path, drawn: list[Figure], d: int):
        search_figures.draw_predictions(make_run(tmp_path, make_search(d)))
        assert [title.split("\n")[0] for title in titles(drawn[0])] == [f"objective {i + 1}" for i in range(d)]

    def test_where_nothing_was_predicted_there_is_no_picture(self, tmp_path: Path):
        nothing = make_record(predicted=np.full((2, 2, 2, 2), np.nan))
        assert search_figures.draw_predictions(make_run(tmp_path, nothing)) is None
        assert search_figures.draw_predictions(make_run(tmp_path, make_rows([0, 1], [0, 0]))) is None
        assert not list(tmp_path.glob("*.png"))


def test_pictures_are_written_into_the_run_or_where_asked(tmp_path: Path):
    run = make_run(tmp_path / "run", make_record())
    assert search_figures.draw_generations(run) == run / "generations.png"
    assert search_figures.draw_predictions(run, tmp_path / "p.png") == tmp_path / "p.png"
    assert (run / "generations.png").stat().st_size > 1000
    assert (tmp_path / "p.png").stat().st_size > 1000
    assert not (run / "predictions.png").exists()


@pytest.mark.parametrize("has_predictions", [True, False])
def test_a_run_with_a_search_is_drawn_with_it(tmp_path: Path, has_predictions: bool):
    record = make_record() if has_predictions else make_record(predicted=np.full((2, 2, 2, 2), np.nan))
    names = [path.name for path in runs.draw_pictures(make_run(tmp_path, record))]
    assert names == ["front.png", "curves.png", "generations.png", *["predictions.png"] * has_predictions]


def test_the_command_plot_draws_the_search_too(tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    run = make_run(tmp_path, make_record())
    cli.main(["plot", str(run)])
    names = ("front.png", "curves.png", "generations.png", "predictions.png")
    assert capsys.readouterr().out.split() == [str(run / name) for name in names]


def test_a_run_without_a_search_is_drawn_without_it(tmp_path: Path):
    names = [path.name for path in runs.draw_pictures(make_run(tmp_path, None))]
    assert names == ["front.png", "curves.png"]


@pytest.mark.parametrize("draw", [search_figures.draw_generations, search_figures.draw_predictions])
class TestRefusals:
    def test_what_a_folder_lacks_is_named(self, tmp_path: Path, draw: Any):
        with pytest.raises(FileNotFoundError, match=r"no config\.json in"):
            draw(tmp_path)
        with pytest.raises(FileNotFoundError, match="only pgmorl and pfa"):
            draw(make_run(tmp_path, None))

    def test_before_the_first_iteration_there_is_nothing_to_draw(self, tmp_path: Path, draw: Any):
        for record in (make_rows([0], [0]), search.empty(REFERENCE, 2, 2)):
            with pytest.raises(ValueError, match="has no iteration yet; nothing to draw"):
                draw(make_run(tmp_path, record))

    def test_without_matplotlib_the_error_says_how_to_get_it(
        self, tmp_path: Path, draw: Any, monkeypatch: pytest.MonkeyPatch
    ):
        run = make_run(tmp_path, make_record())
        monkeypatch.setitem(sys.modules, "matplotlib.figure", None)
        with pytest.raises(figures.MissingPlots, match=r"pip install 'qpensieve\[plots\]'"):
            draw(run)
        assert runs.draw_pictures(run) == []


def test_one_objective_has_no_front(tmp_path: Path):
    with pytest.raises(ValueError, match="a front needs at least two objectives"):
        search_figures.draw_generations(make_run(tmp_path, make_search(1)))
