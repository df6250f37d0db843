"""What describes this machine, and how many threads BLAS may use."""

import os
from pathlib import Path

import pytest

from qpensieve import machine


def test_cores_are_those_the_process_is_bound_to_or_all(monkeypatch):
    monkeypatch.delenv(machine.CORES_VARIABLE, raising=False)
    monkeypatch.setattr("os.sched_getaffinity", lambda _: {1, 5, 6})
    assert machine.available_cores() == 3
    monkeypatch.delattr("os.sched_getaffinity")  # as on macOS and Windows
    assert machine.available_cores() == os.cpu_count()
    monkeypatch.setattr("os.cpu_count", lambda: None)
    assert machine.available_cores() == 1


def test_a_variable_says_how_many_cores_a_process_may_use(monkeypatch):
    monkeypatch.setenv(machine.CORES_VARIABLE, "7")
    assert machine.available_cores() == 7
    for nothing in ("", "0", "many"):
        monkeypatch.setenv(machine.CORES_VARIABLE, nothing)
        assert machine.available_cores() == len(os.sched_getaffinity(0))


def test_cards_are_those_that_the_process_may_see(monkeypatch, tmp_path: Path):
    program = tmp_path / "nvidia-smi"
    program.write_text("#!/bin/sh\necho 'GPU 0: one (UUID: x)'\necho '  MIG 1g'\necho 'GPU 1: two (UUID: y)'\n")
    program.chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path), prepend=os.pathsep)
    monkeypatch.delenv("JAX_PLATFORMS", raising=False)
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    assert machine.gpus() == ["0", "1"]
    program.write_text("#!/bin/sh\nexit 9\n")
    assert machine.gpus() == []
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "3, 5")
    assert machine.gpus() == ["3", "5"]
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "")
    assert machine.gpus() == []
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "3")
    monkeypatch.setenv("JAX_PLATFORMS", "cpu")
    assert machine.gpus() == []


def test_the_processor_has_a_name_where_there_is_no_file_that_says_it(monkeypatch):
    assert machine.processor()

    def fail(_: Path) -> str:
        raise FileNotFoundError

    monkeypatch.setattr(Path, "read_text", fail)
    monkeypatch.setattr("platform.processor", lambda: "arm")
    assert machine.processor() == "arm"


def test_the_accelerator_has_a_name():
    assert machine.accelerator()


def test_blas_has_one_thread_until_all_have_left():
    blas = machine._OneBlasThread()
    given = blas._get()
    blas._set(2)
    threads = blas._get()  # 1 where the machine has one core
    with blas:
        assert blas._get() == 1
        with pytest.raises(ZeroDivisionError), blas:  # as by another thread
            _ = 1 / 0
        assert blas._get() == 1
    assert blas._get() == threads
    blas._set(given)
