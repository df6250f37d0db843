"""All pictures of a run: which are drawn, where they go, and what is refused."""

import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

pytest.importorskip("matplotlib")

from qpensieve import cli
from qpensieve.records import search
from qpensieve.report import pictures
from qpensieve.report.pictures import draw_pictures
from tests.records.test_search import REFERENCE, make_record, make_rows
from tests.report import runs
from tests.report.searches import draw_generations, draw_predictions, make_run


@pytest.mark.usefixtures("unrendered")
def test_the_pictures_of_a_run_are_those_that_it_has_data_for(tmp_path: Path, capsys):
    names = lambda run: [path.name for path in draw_pictures(run)]
    usual, search_pictures = ["front.png", "curves.png"], ["generations.png", "predictions.png"]
    run = make_run(tmp_path / "search", make_record())
    assert names(run) == [*usual, *search_pictures]
    cli.main(["plot", str(run)])
    assert capsys.readouterr().out.split() == [str(run / name) for name in (*usual, *search_pictures)]
    unpredicted = make_record(predicted=np.full((2, 2, 2, 2), np.nan))
    assert names(make_run(tmp_path / "unpredicted", unpredicted)) == [*usual, "generations.png"]
    assert names(make_run(tmp_path / "none", None)) == usual
    one = runs.make_table(np.arange(3.0).reshape(3, 1, 1))
    alone = runs.make_run(tmp_path / "one", one, runs.train_rows(3), domain="foreign")
    assert names(alone) == ["curves.png", "training.png"]  # one objective has no front


@pytest.mark.parametrize("draw", [draw_generations, draw_predictions])
def test_a_search_that_is_missing_or_has_not_begun_is_named(tmp_path: Path, draw: Any):
    with pytest.raises(FileNotFoundError, match="only pgmorl and pfa"):
        draw(make_run(tmp_path / "none", None))
    for record in (make_rows([0], [0]), search.empty(REFERENCE, 2, 2)):
        with pytest.raises(ValueError, match="has no iteration yet; nothing to draw"):
            draw(make_run(tmp_path / "begun", record))


def test_without_matplotlib_there_are_no_pictures_and_the_error_says_how_to_get_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    run = runs.make_run(tmp_path, runs.make_table(runs.dst_returns(1)))
    monkeypatch.setitem(sys.modules, "matplotlib.figure", None)
    with pytest.raises(ImportError, match=r"pip install 'qpensieve\[plots\]'"):
        runs.draw_front(run)
    assert draw_pictures(run) == []


def test_a_picture_is_written_as_its_ending_says_and_leaves_global_figures_alone(tmp_path: Path):
    import matplotlib.image

    run = runs.make_run(tmp_path, runs.make_table(runs.dst_returns(1)))
    (path,) = pictures.plot(run, tmp_path / "new" / "f.png")
    picture = matplotlib.image.imread(path)
    assert picture.shape[1] == 1200
    assert picture.std() > 0
    assert pictures.plot(run, tmp_path / "x.svg")[0].read_text().startswith("<?xml")
    assert not list(run.glob("*.png"))
    assert "matplotlib.pyplot" not in sys.modules or not sys.modules["matplotlib.pyplot"].get_fignums()
