"""Callbacks as a group: who is called with what, who stops, who failed."""

import re
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from qpensieve.callbacks import Callback, CallbackError, Evaluation, Metrics, StopTraining, Training
from qpensieve.callbacks.group import Callbacks, find_callbacks
from qpensieve.callbacks.protocol import scalars, training_metrics
from qpensieve.records.scores import summarize

TRAINING = Training("DST2d", "qpensieve", ("treasure", "time"), (3, 4), 100, 500, {"seeds": 2})
ROW = training_metrics({"loss": np.array([1.0, 3.0]), "archive": np.array([1.0, 2.0, 3.0, 6.0])}, 2)
LAM = np.array([[0.0, 1.0], [0.5, 0.5], [1.0, 0.0]])
RETURNS = np.stack([LAM, 2 * LAM])[:, :, None]
EVALUATION = Evaluation(("treasure", "time"), LAM, RETURNS, summarize(RETURNS, LAM, np.zeros(2)))


class Notes(Callback):
    """Writes down what it is told; answers or raises as asked."""

    def __init__(self, book: list[Any], name: str = "", act: Callable[[str], Any] = lambda hook: None):
        self.book, self.name, self.act = book, name, act

    def note(self, hook: str, *what: Any) -> Any:
        self.book.append((self.name + hook, *what))
        return self.act(hook)

    def on_start(self, training: Training) -> Any:
        return self.note("start", training.step)

    def on_step(self, step: int) -> Any:
        return self.note("step", step)

    def on_metrics(self, step: int, metrics: Metrics) -> Any:
        return self.note("metrics", step)

    def on_evaluation(self, step: int, evaluation: Evaluation) -> Any:
        return self.note("evaluation", step)

    def on_end(self, step: int, end: str) -> None:
        self.note("end", step, end)


def at(hook: str, error: Exception) -> Callable[[str], None]:
    """Raise an error in one hook."""

    def act(called: str) -> None:
        if called == hook:
            raise error

    return act


class TestMetrics:
    def test_metrics_are_means_over_seeds_and_keep_the_value_of_each_seed(self):
        assert dict(ROW) == {"train/loss": 2.0, "train/archive": 3.0}
        np.testing.assert_array_equal(
            ROW.per_seed["train/archive"], [1.5, 4.5]
        )  # agents or members of a seed are averaged
        assert "train/loss" in repr(ROW)

    def test_metrics_of_an_evaluation_are_its_scores(self):
        metrics = EVALUATION.metrics
        assert metrics.per_seed["eval/UT"].tolist() == EVALUATION.summary.ut.tolist()
        assert set(metrics) == {
            *("eval/UT", "eval/best_row", "eval/HV", "eval/front_size", "eval/best_single"),
            *("eval/correlation/treasure", "eval/correlation/time"),
        }
        full = Evaluation(("treasure", "time"), LAM, RETURNS, EVALUATION.summary, is_full=True)
        assert full.metrics["eval_full/UT"] == metrics["eval/UT"]

    def test_scalars_name_each_seed_where_there_are_several(self):
        assert scalars(ROW, (3, 4)) == {
            **{"train/loss": 2.0, "train/archive": 3.0},
            **{"seed_3/train/loss": 1.0, "seed_3/train/archive": 1.5},
            **{"seed_4/train/loss": 3.0, "seed_4/train/archive": 4.5},
        }
        alone = training_metrics({"loss": np.array([1.0])}, 1)
        assert scalars(alone, (0,)) == {"train/loss": 1.0}


class TestCallbacks:
    def test_callbacks_are_called_in_order_from_start_to_end(self):
        book: list[Any] = []
        group = Callbacks([Notes(book, "a "), Notes(book, "b ")])
        with group.during(TRAINING):
            group.tell("on_step", 120)
            group.tell("on_metrics", 100, ROW)
            group.tell("on_evaluation", 120, EVALUATION)
        hooks = [("start", 100), ("step", 120), ("metrics", 100), ("evaluation", 120), ("end", 120, "done")]
        assert book == [(f"{name} {hook}", *rest) for hook, *rest in hooks for name in "ab"]

    def test_a_function_as_callback_gets_metrics_and_evaluations(self):
        seen: list[Any] = []
        group = Callbacks(lambda step, metrics: seen.append((step, next(iter(metrics)))))
        with group.during(TRAINING):
            group.tell("on_step", 120)
            group.tell("on_metrics", 100, ROW)
            group.tell("on_evaluation", 120, EVALUATION)
        assert seen == [(100, "train/loss"), (120, "eval/UT")]
        assert group.stopped_by is None

    @pytest.mark.parametrize("answer", [False, np.False_])
    def test_returning_false_stops_and_the_other_callbacks_are_still_called(self, answer: Any):
        book: list[Any] = []
        group = Callbacks([Notes(book, act=lambda hook: answer if hook == "step" else None), Notes(book, "b ")])
        with group.during(TRAINING):
            group.tell("on_step", 120)
        assert group.stopped_by == "Notes"
        assert ("b step", 120) in book
        assert book[-2:] == [("end", 120, "stopped"), ("b end", 120, "stopped")]

    @pytest.mark.parametrize("answer", [True, None, 0, 0.0, "", np.True_])
    def test_no_other_return_value_stops(self, answer: Any):
        group = Callbacks(lambda step, metrics: answer)
        with group.during(TRAINING):
            group.tell("on_metrics", 100, ROW)
        assert group.stopped_by is None

    def test_raising_stop_training_stops_and_is_forgotten_at_the_next_start(self):
        group = Callbacks(Notes([], act=at("metrics", StopTraining())))
        with group.during(TRAINING):
            group.tell("on_metrics", 100, ROW)
        assert group.stopped_by == "Notes"
        with group.during(TRAINING):
            assert group.stopped_by is None

    @pytest.mark.parametrize("hook", ["start", "step", "metrics", "evaluation", "end"])
    def test_an_error_names_its_callback_and_all_callbacks_see_the_end(self, hook: str):
        book: list[Any] = []
        cause = KeyError("eval/UT")
        group = Callbacks([Notes(book, "a "), Notes(book, "b ", at(hook, cause))])

        def train() -> None:
            with group.during(TRAINING):
                group.tell("on_step", 120)
                group.tell("on_metrics", 120, ROW)
                group.tell("on_evaluation", 120, EVALUATION)

        place = rf"\({re.escape(__file__)}, line \d+, in act\)$"
        said = rf"the callback Notes failed in on_{hook} at step \d+: KeyError: 'eval/UT' {place}"
        with pytest.raises(CallbackError, match=said) as error:
            train()
        assert error.value.__cause__ is cause
        ends = [row[-1] for row in book if row[0].endswith("end")]
        assert ends == ["done" if hook == "end" else "failed"] * 2

    def test_an_error_at_the_end_does_not_hide_the_one_before(self):
        group = Callbacks(Notes([], act=at("end", OSError("disk full"))))
        with pytest.raises(ZeroDivisionError) as error, group.during(TRAINING):
            raise ZeroDivisionError
        assert "disk full" in error.value.__notes__[0]

    @pytest.mark.parametrize(("error", "end"), [(KeyboardInterrupt, "stopped"), (ValueError, "failed")])
    def test_on_end_says_how_training_ended(self, error: type[BaseException], end: str):
        book: list[Any] = []
        group = Callbacks(Notes(book))
        with pytest.raises(error), group.during(TRAINING):
            raise error
        assert book[-1] == ("end", 100, end)

    @pytest.mark.parametrize(
        ("given", "complaint"),
        [
            (Notes, r"got the class Notes: write Notes\(...\)"),
            (3, r"a function \(step, metrics\) or an object with a method on_start, .*, got 3"),
            ([print, "x"], "got 'x'"),
        ],
    )
    def test_what_is_no_callback_is_refused(self, given: Any, complaint: str):
        with pytest.raises(TypeError, match=complaint):
            Callbacks(given)


def test_callbacks_are_found_in_modules_of_the_working_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    (tmp_path / "my_own_callbacks.py").write_text(
        "class Stop:\n    def on_step(self, step):\n        return False\n\ndef show(step, metrics): pass\n"
    )
    monkeypatch.chdir(tmp_path)
    before = list(sys.path)
    stop, show = find_callbacks(["my_own_callbacks:Stop", "my_own_callbacks:show"])
    assert sys.path == before
    assert (type(stop).__name__, callable(show)) == ("Stop", True)


@pytest.mark.parametrize(("slip", "meant"), [("on_stpe", "on_step"), ("on_evaluate", "on_evaluation")])
def test_a_method_that_would_never_be_called_is_refused(slip: str, meant: str):
    one = type("Slip", (Callback,), {slip: lambda self, *_: False})()
    with pytest.raises(TypeError, match=f"the callback Slip has a method {slip}, .*; did you mean {meant}\\?$"):
        Callbacks([one])
