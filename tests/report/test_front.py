"""The picture of the front: what is drawn where, and that odd runs are drawn without a warning."""

from pathlib import Path

import numpy as np
import pytest

pytest.importorskip("matplotlib")

from matplotlib.figure import Figure

from qpensieve import preferences
from qpensieve.metrics import hypervolume, reference_point
from qpensieve.records import evaluations
from qpensieve.report import drawing, front
from tests.report.runs import EXACT, STEPS, draw_front, dst_returns, foot, lines, make_run, make_table


def test_the_front_shows_learned_and_exact_points_and_the_scores(tmp_path: Path, drawn: list[Figure]):
    draw_front(make_run(tmp_path, make_table(dst_returns(), reference="DST2d")))
    axes = drawn[0].axes[0]
    np.testing.assert_allclose(lines(drawn[0], 0)["exact front"].T, EXACT.points)
    learned = lines(drawn[0], 0)["learned front, all seeds"].T
    assert {tuple(point) for point in learned} == {tuple(point) for point in dst_returns().reshape(-1, 2)}
    assert sum(len(np.asarray(c.get_offsets())) for c in axes.collections) == 300
    assert axes.get_xlabel() == "treasure (value)"
    title = drawn[0].get_suptitle()
    assert title.startswith("DST2d · qpensieve · step 150,000 · 3 seeds\nUT 7.")
    volumes = [hypervolume(seed, reference_point("DST2d")) for seed in dst_returns()]
    assert f"HV {np.mean(volumes):.1f} ± {np.std(volumes):.1f} from (0, -50)" in title
    found = [len(set(seed[:, 0])) for seed in dst_returns()]
    assert f"front treasures found: {found[0]}, {found[1]}, {found[2]} of 8" in foot(drawn[0])


def test_points_keep_the_colour_of_their_preference(tmp_path: Path, drawn: list[Figure]):
    returns = preferences.test_table(2)[None] * 100.0
    draw_front(make_run(tmp_path, make_table(returns), domain="foreign"))
    pale, strong = drawn[0].axes[0].collections
    assert len(np.asarray(pale.get_offsets())) == 0
    shares = np.asarray(strong.get_offsets()) / 100
    np.testing.assert_allclose(np.asarray(strong.get_facecolor())[:, :3], drawing.preference_colours(shares))
    assert "HV" not in drawn[0].get_suptitle()
    assert drawn[0].axes[0].get_xlabel() == "objective 1"
    assert "front size 100" in foot(drawn[0]).split("\n")[1].split(" · ")  # of one seed, so no mean
    with pytest.raises(ValueError, match="a front needs at least two objectives"):
        draw_front(make_run(tmp_path / "one", make_table(np.ones((2, 1, 1))), domain="foreign"))


def test_the_newest_full_evaluation_is_drawn_else_the_newest_short_one(tmp_path: Path, drawn: list[Figure]):
    draw_front(make_run(tmp_path, make_table(dst_returns(), num_full=0, reference="DST2d")))
    assert "step 150,000 (short protocol)" in drawn[0].get_suptitle()
    assert "not comparable with the paper's table" in foot(drawn[0])
    newest = np.broadcast_to([-10.0, -3.0], (3, 100, 1, 2)).copy()
    draw_front(make_run(tmp_path, evaluations.append_full(make_table(dst_returns()), 10 * STEPS, newest)))
    assert "step 500,000" in drawn[1].get_suptitle()
    np.testing.assert_array_equal(lines(drawn[1], 0)["learned front, all seeds"], [[-10], [-3]])


def test_more_objectives_are_drawn_in_pairs(tmp_path: Path, drawn: list[Figure]):
    returns = preferences.test_table(3)[None, :60] * np.array([[[1.0]], [[2.0]]]) * 300
    draw_front(make_run(tmp_path, make_table(returns, reference="Hopper3d"), domain="qpensieve/Hopper3d-v0"))
    panels = drawn[0].axes
    assert [axes.get_xlabel() for axes in panels] == ["", "forward\n(sum of velocity)", "height\n(sum of height)"]
    assert [axes.get_ylabel() for axes in panels] == ["height (sum of height)", "control", ""]
    offsets = np.concatenate([np.asarray(c.get_offsets()) for c in panels[2].collections])
    np.testing.assert_allclose(np.sort(offsets, axis=0), np.sort(returns[..., [1, 2]].reshape(-1, 2), axis=0))


def test_two_of_three_objectives_are_drawn_and_the_hidden_one_still_counts():
    lam = np.eye(3)
    returns = np.array([[1.0, 5.0, 0.0], [2.0, 6.0, 0.0], [0.0, 0.0, 1.0]])[
        None, :, None
    ]  # the second covers the first
    names = ("speed", "height", "control")
    axes = front.axes_of(names, x="control", y=0)
    figure = front.plot_front("foreign", names, axes, lam, lambda: returns)
    panel = figure.axes[0]
    pale, strong = (np.asarray(one.get_offsets()).tolist() for one in panel.collections)
    assert pale == [[0.0, 1.0]]
    assert sorted(strong) == [[0.0, 2.0], [1.0, 0.0]]
    assert (panel.get_xlabel(), panel.get_ylabel()) == ("control", "speed")
    assert "not drawn: height" in foot(figure)
    same = front.plot_front("foreign", names, axes, lam, lambda: np.ones((1, 3, 1, 3)))
    assert foot(same).endswith("\nrings: preferences with the same return")


def test_axes_that_are_not_named_are_the_first_that_are_free():
    names = ("speed", "height", "control")
    asked = [(None, None), (1, None), (None, 0), (None, "height"), ("control", 0)]
    assert [front.axes_of(names, *both) for both in asked] == [(0, 1), (1, 0), (1, 0), (0, 1), (2, 0)]
    with pytest.raises(ValueError, match="a front needs at least two objectives"):
        front.axes_of(("speed",))
