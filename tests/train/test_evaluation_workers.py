"""Evaluations in worker processes: the same numbers and files as in one process, whatever happens meanwhile."""

import json
import signal
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from qpensieve.algos import mosac
from qpensieve.callbacks import CallbackError
from qpensieve.callbacks.group import Callbacks
from qpensieve.config import RunConfig
from qpensieve.envs import DOMAINS
from qpensieve.errors import EnvError
from qpensieve.learning.acting import num_parameters
from qpensieve.records.log import MetricsLog
from qpensieve.train import run as runs
from qpensieve.train import trainer as trainers
from qpensieve.train.run_loop import Options, Run
from qpensieve.train.session import EnvFailedError
from qpensieve.train.trainer import Trainer, spare_cores
from qpensieve.train.workers import EvaluationJob, EvaluationWorkers
from tests.train.kill_run import assert_same_run, complete, refuse, rows, tiny_run

SEEDS, HIDDEN = [3, 4, 9], 64
PREFERENCES = np.array([[0.2, 0.8], [0.5, 0.5], [0.9, 0.1]])
QUIET = Options(quiet=True)


def job_of(domain: str, own: np.ndarray | None = None, max_steps: int = 100) -> EvaluationJob:
    acting = mosac.make(mosac.SacConfig(hidden=HIDDEN), DOMAINS[domain].spec).acting
    return EvaluationJob(domain, SEEDS, acting, own, max_steps)


def some_parameters(domain: str, num_agents: int) -> np.ndarray:
    spec = DOMAINS[domain].spec
    width = num_parameters((spec.obs_size + spec.num_objectives, HIDDEN, HIDDEN, 2 * spec.action_size))
    draws = np.random.default_rng(5).standard_normal((num_agents, width))
    return (0.5 * draws).astype(np.float32)


@contextmanager
def workers_of(job: EvaluationJob, num: int = 2) -> Iterator[EvaluationWorkers]:
    made = EvaluationWorkers(job, num)
    try:
        yield made
    finally:
        made.close()


def expected(job: EvaluationJob, flat: np.ndarray, episodes: int = 2) -> np.ndarray:
    return job.evaluate(flat, PREFERENCES, episodes)


@pytest.mark.filterwarnings("ignore:.*did not end within")
@pytest.mark.parametrize("own", [None, np.array([[0.3, 0.7], [0.6, 0.4]])], ids=["one agent", "own preferences"])
def test_other_processes_play_the_same_numbers_time_and_again(own: np.ndarray | None):
    job = job_of("Hopper2d", own)
    flat = some_parameters("Hopper2d", len(SEEDS) * (1 if own is None else len(own)))
    with workers_of(job) as workers:
        for shift in (0.0, 0.01):
            moved = flat + np.float32(shift)
            given = moved.copy()
            workers.begin(given, 0, PREFERENCES, 2)
            given[:] = 0.0  # training goes on
            np.testing.assert_array_equal(workers.result(), expected(job, moved))
    assert (expected(job, flat) != expected(job, flat + np.float32(0.01))).any()


@pytest.mark.filterwarnings("ignore:.*did not end within")
def test_a_process_that_dies_is_named_and_the_evaluation_is_played_again():
    job = job_of("Hopper2d")
    flat = some_parameters("Hopper2d", len(SEEDS))
    with workers_of(job) as workers:
        given = flat.copy()
        workers.begin(given, 0, PREFERENCES, 2)
        given[:] = 0.0  # training goes on
        processes = [worker.process for worker in workers.processes]
        processes[1].kill()
        with pytest.raises(EnvError, match=r"^Hopper2d: the process that evaluates seeds 4, 9 was killed by SIGKILL"):
            workers.result()
        assert all(process.poll() is not None for process in processes)
        np.testing.assert_array_equal(workers.result(), expected(job, flat))
        workers.processes[0].process.kill()  # while it waits for the next: no one loses anything
        workers.processes[0].process.wait()
        workers.begin(flat, 0, PREFERENCES, 1)
        np.testing.assert_array_equal(workers.result(), expected(job, flat, 1))


def test_closing_does_not_wait_for_episodes():
    job = job_of("Hopper2d", max_steps=10_000)
    workers = EvaluationWorkers(job, 1)
    workers.begin(some_parameters("Hopper2d", len(SEEDS)), 0, np.repeat(PREFERENCES, 200, axis=0), 50)
    process = workers.processes[0].process
    workers.close()
    assert process.returncode == -signal.SIGKILL


@pytest.mark.parametrize(
    ("given", "machine", "spare"),
    [
        ((None, 5), (16, "cpu"), 0),  # the cores learn
        ((None, 5), (16, "gpu"), 10),
        ((None, 95), (16, "gpu"), 1),
        ((None, 5), (1, "gpu"), 0),
        ((2, 5), (16, "cpu"), 2),
        ((1, 5), (16, "gpu"), 1),
    ],
)
def test_as_many_cores_evaluate_as_are_to_spare(
    given: tuple[int | None, int], machine: tuple[int, str], spare: int, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(trainers, "available_cores", lambda: machine[0])
    monkeypatch.setattr(trainers.jax, "default_backend", lambda: machine[1])
    assert spare_cores(*given) == spare


def tiny(**settings: Any) -> RunConfig:
    """With a process for evaluations."""
    return tiny_run(num_threads=1, **settings)


def slowly(run: Run) -> list[int]:
    """Have evaluations be ready only when they are waited for; returns the list of steps at which they were taken."""
    assert isinstance(run.session, Trainer)
    workers, taken = run.session.evaluation_workers, list[int]()
    assert workers is not None
    result = workers.result

    def noted() -> Any:
        returns = result()
        taken.append(run.session.step)
        return returns

    workers.is_ready, workers.result = lambda: False, noted  # pyright: ignore[reportAttributeAccessIssue]
    return taken


class TestRuns:
    def test_files_and_what_callbacks_are_told_are_those_of_a_run_that_waits(self, whole: Path, tmp_path: Path):
        told: list[tuple[str, int]] = []

        class Notes:
            def on_metrics(self, step: int, metrics: Any) -> None:
                told.append(("train", step))

            def on_evaluation(self, step: int, evaluation: Any) -> None:
                told.append(("full evaluation" if evaluation.is_full else "evaluation", step))

        run = runs.start(tmp_path / "run", tiny(), QUIET)
        taken = slowly(run)
        run.callbacks = Callbacks([Notes()])
        complete(run)
        assert taken == [400, 600]  # each when the next was due
        assert_same_run(tmp_path / "run", whole)
        logged = [event for event in map(event_of, rows(whole)) if event[0] != "alarm"]
        assert sorted(told) == sorted(logged)
        assert told.index(("evaluation", 200)) > told.index(("train", 240))  # nothing waits for it

    def test_no_later_checkpoint_lacks_an_evaluation(self, whole: Path, tmp_path: Path):
        run = runs.start(tmp_path / "run", tiny(checkpoint_seconds=0.0), QUIET)
        taken = slowly(run)
        complete(run)
        assert taken == [220, 420]
        assert_same_run(tmp_path / "run", whole)

    def test_a_callback_that_fails_twice_still_leaves_the_run_saved(self, whole: Path, tmp_path: Path):
        class Broken:
            def on_step(self, step: int) -> None:
                if step == 260:
                    raise OSError("disk full")

            def on_evaluation(self, step: int, evaluation: Any) -> None:
                raise OSError("no network")

        run = runs.start(tmp_path / "run", tiny(), QUIET)
        slowly(run)
        run.callbacks = Callbacks([Broken()])
        with pytest.raises(
            CallbackError,
            match=r"on_step at step 260: OSError: disk full \(.*test_evaluation_workers\.py, .*\); continue with",
        ):
            complete(run)
        assert run.last_checkpoint_step == 260
        complete(runs.resume(tmp_path / "run", QUIET, refuse))
        assert_same_run(tmp_path / "run", whole)

    @pytest.mark.parametrize("again", [False, True])
    def test_a_lost_process_stops_the_run_which_goes_on(self, again: bool, whole: Path, tmp_path: Path):
        run = runs.start(tmp_path / "run", tiny(), QUIET)
        slowly(run)
        trainer = run.session
        assert isinstance(trainer, Trainer)
        workers = trainer.evaluation_workers
        assert workers is not None
        ask = workers.begin

        def begun(*given: Any) -> None:
            ask(*given)
            workers.processes[0].process.kill()

        def lost() -> Any:
            raise EnvError("lost again")

        workers.begin = begun  # pyright: ignore[reportAttributeAccessIssue]
        if again:
            workers.result = lost  # pyright: ignore[reportAttributeAccessIssue]
        why = "lost again" if again else "DST2d: the process that evaluates seeds 0, 1 was killed by SIGKILL"
        saved = " as of step 200" if again else ""
        with pytest.raises(
            EnvFailedError, match=rf"^the environment failed in the evaluation at step 200: {why}.*saved{saved}, cont"
        ):
            complete(run)
        assert run.last_checkpoint_step == (200 if again else 400)
        complete(runs.resume(tmp_path / "run", QUIET, refuse))
        assert_same_run(tmp_path / "run", whole)

    def test_an_evaluation_that_is_in_its_file_alone_gets_its_row(
        self, whole: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ):
        write = MetricsLog.write

        def killed(self: MetricsLog, event: str, step: int, *values: Any) -> None:
            if (event, step) == ("evaluation", 200):
                raise KeyboardInterrupt
            write(self, event, step, *values)

        with monkeypatch.context() as patch:
            patch.setattr(MetricsLog, "write", killed)
            with pytest.raises(KeyboardInterrupt):
                complete(runs.start(tmp_path / "run", tiny(), QUIET))
        assert ("evaluation", 200) not in map(event_of, rows(tmp_path / "run"))
        run = runs.resume(tmp_path / "run", QUIET, refuse)
        assert run.session.step == 200
        complete(run)
        assert_same_run(tmp_path / "run", whole)


def event_of(row: str) -> tuple[str, int]:
    parsed = json.loads(row)
    return parsed["event"], parsed["step"]
