"""The picture of predictions: what is drawn where."""

from pathlib import Path

import numpy as np
import pytest

pytest.importorskip("matplotlib")

from matplotlib.figure import Figure

from tests.records.test_search import make_record, make_rows
from tests.report.searches import draw_predictions, labelled, make_run, make_search, panel, titles


class TestPredictions:
    def test_changes_of_every_task_of_whole_generations_are_drawn(self, tmp_path: Path, drawn: list[Figure]):
        draw_predictions(make_run(tmp_path, make_record()))
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
        draw_predictions(make_run(tmp_path, record))
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
        draw_predictions(make_run(tmp_path, record))
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
        draw_predictions(make_run(tmp_path, record))
        assert "predictions of 3 tasks" in drawn[0].get_suptitle()

    def test_the_only_generation_counts_only_if_it_is_as_long_as_the_settings_say(
        self, tmp_path: Path, drawn: list[Figure]
    ):
        record = make_rows([0, 1, 2, 3], [0, 0, 0, 1])
        assert draw_predictions(make_run(tmp_path, record)) is None
        run = make_run(tmp_path, record, agent={"stages": {"generation_iterations": 1}})
        assert draw_predictions(run) is not None

    def test_a_generation_that_was_only_chosen_is_left_out(self, tmp_path: Path, drawn: list[Figure]):
        record = make_rows([0, 1, 2, 3, 4], [0, 0, 0, 1, 1])  # with the starts of two generations
        draw_predictions(make_run(tmp_path, record))
        assert "4 tasks in 1 whole generation" in drawn[0].get_suptitle()

    @pytest.mark.parametrize("d", [3, 4, 5])
    def test_more_objectives_have_a_panel_each_and_no_arrows(self, tmp_path: Path, drawn: list[Figure], d: int):
        draw_predictions(make_run(tmp_path, make_search(d)))
        assert [title.split("\n")[0] for title in titles(drawn[0])] == [f"objective {i + 1}" for i in range(d)]

    def test_where_nothing_was_predicted_there_is_no_picture(self, tmp_path: Path):
        nothing = make_record(predicted=np.full((2, 2, 2, 2), np.nan))
        assert draw_predictions(make_run(tmp_path, nothing)) is None
        assert draw_predictions(make_run(tmp_path, make_rows([0, 1], [0, 0]))) is None
        assert not list(tmp_path.glob("*.png"))
