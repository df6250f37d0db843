"""What describes this machine."""

import os
from pathlib import Path

from qpensieve import machine


def test_cores_are_those_the_process_is_bound_to_or_all(monkeypatch):
    monkeypatch.setattr("os.sched_getaffinity", lambda _: {1, 5, 6})
    assert machine.available_cores() == 3
    monkeypatch.delattr("os.sched_getaffinity")  # as on macOS and Windows
    assert machine.available_cores() == os.cpu_count()
    monkeypatch.setattr("os.cpu_count", lambda: None)
    assert machine.available_cores() == 1


def test_the_processor_has_a_name_where_there_is_no_file_that_says_it(monkeypatch):
    assert machine.processor()

    def fail(_: Path) -> str:
        raise FileNotFoundError

    monkeypatch.setattr(Path, "read_text", fail)
    monkeypatch.setattr("platform.processor", lambda: "arm")
    assert machine.processor() == "arm"


def test_the_accelerator_has_a_name():
    assert machine.accelerator()
