"""The pictures of a search: what is drawn where, and that odd records are drawn without a warning."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

pytest.importorskip("matplotlib")

from matplotlib.figure import Figure

from tests.records.test_search import FIRST, REFERENCE, VOLUMES, make_record, make_rows
from tests.report.runs import foot
from tests.report.searches import (
    draw_generations,
    draw_predictions,
    labelled,
    make_run,
    make_search,
    panel,
    steps,
    titles,
)


class TestGenerations:
    def test_two_objectives_have_a_panel_per_seed_and_one_of_the_hypervolume(self, tmp_path: Path, drawn: list[Figure]):
        draw_generations(make_run(tmp_path, make_record()))
        generations = drawn[0]
        assert titles(generations)[0] == "seed 3: HV 18.00, archive of 3"
        assert titles(generations)[1].startswith("seed 4: ")
        axes = panel(generations, "seed 3")
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
        lines = [line for line in axes.get_lines() if line.get_drawstyle() == "steps-pre"]
        widths, light = [line.get_linewidth() for line in lines], [sum(line.get_color()[:3]) for line in lines]
        assert widths == sorted(widths, reverse=True)
        assert light == sorted(light, reverse=True)
        axes = panel(generations, "archive's hypervolume")
        lines = labelled(axes)
        np.testing.assert_allclose(lines["seed 3"], np.transpose([range(1, 6), VOLUMES]))
        np.testing.assert_allclose(lines["seed 4"][:, 1], 4 * np.array(VOLUMES))
        borders = [line.get_xdata()[0] for line in axes.get_lines() if len(line.get_xdata()) == 2]
        assert sorted(borders) == [2, 2, 4]  # two lines where the warm-up ends
        assert generations.get_suptitle() == "foreign · pgmorl · 2 seeds\n5 iterations of 2 tasks, 2 generations"
        low, high = np.transpose([generations.axes[0].get_xlim(), generations.axes[0].get_ylim()])
        objs = make_record().objs[1:].reshape(-1, 2)
        num = int((~((objs >= low) & (objs <= high)).all(axis=1)).sum())
        assert num > 0
        assert foot(generations).endswith(f"{num} of 20 measured policies are out of sight · reference (0, -10)")

    def test_more_objectives_are_drawn_in_pairs_of_the_first_seed(self, tmp_path: Path, drawn: list[Figure]):
        d, num_pairs = 4, 6
        record = make_search(d)
        draw_generations(make_run(tmp_path, record))
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

    def test_a_warm_up_and_an_empty_archive_are_enough(self, tmp_path: Path, drawn: list[Figure]):
        record = replace(make_rows([0, 1], [0, 0]), reference=np.array([50.0, 50.0]), archive_seed=np.full(4, 7))
        draw_generations(make_run(tmp_path, record))
        assert titles(drawn[0])[0] == "seed 3: HV 0.00, archive of 0"
        assert steps(drawn[0].axes[0]) == []
        assert len(drawn[0].axes) == 3  # no bar of generations
        assert labelled(drawn[0].axes[-1])["seed 3"][:, 1].tolist() == [0.0]


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

    def test_arrows_of_the_newest_two_whole_generations_point_to_predicted_and_reached(
        self, tmp_path: Path, drawn: list[Figure]
    ):
        record = make_search(2)
        draw_predictions(make_run(tmp_path, record))
        start, reached = record.starts[..., 0].ravel(), record.objs[[6, 8, 10], ..., 0].ravel()
        r = np.corrcoef(record.predicted[..., 0].ravel() - start, reached - start)[0, 1]
        changes = panel(drawn[0], "objective 1")
        assert changes.get_title().startswith(f"objective 1\nr {r:.2f}, ")
        np.testing.assert_array_equal(np.asarray(changes.collections[0].get_array()), np.repeat([1, 2, 3], 8))
        assert "generation 1" not in titles(drawn[0])
        for generation in (2, 3):
            axes, g = panel(drawn[0], f"generation {generation}"), generation - 1
            points, start = labelled(axes), record.starts[g].reshape(-1, 2)
            np.testing.assert_array_equal(points["start"], start)
            np.testing.assert_array_equal(points["predicted"], record.predicted[g].reshape(-1, 2))
            first, *others = [dots for dots in axes.collections if hasattr(dots, "U")]
            ends = start + np.transpose([first.U, first.V])
            np.testing.assert_allclose(ends, record.predicted[g].reshape(-1, 2))
            for seed, arrows in enumerate(others):
                reached = record.objs[4 + 2 * generation, seed]
                np.testing.assert_array_equal(points[f"reached, seed {3 + seed}"], reached)
                ends = np.asarray(arrows.get_offsets()) + np.transpose([arrows.U, arrows.V])
                np.testing.assert_allclose(ends, reached)
