"""What describes this machine, how many threads BLAS may use, flags of the compiler, and compiled programs on disk."""

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import jax
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


def test_blas_has_one_thread_until_all_have_left():
    blas = machine.one_blas_thread()
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


PROGRAM = """
import os, sys
import qpensieve.api, qpensieve.cli
assert "XLA_FLAGS" not in os.environ  # importing sets none
import jax, jax.numpy as jnp
from qpensieve import machine

own, file = sys.argv[1:]
jax.config.update("jax_compilation_cache_dir", own)
machine.keep_compiled()
assert jax.config.jax_compilation_cache_dir == own  # JAX's own folder stays
jax.config.update("jax_compilation_cache_dir", None)
chosen = os.environ["QPENSIEVE_CACHE"]
for no_folder in ("off", file):
    os.environ["QPENSIEVE_CACHE"] = no_folder
    machine.keep_compiled()
    assert jax.config.jax_compilation_cache_dir is None, no_folder
os.environ["QPENSIEVE_CACHE"] = chosen
machine.WORTH_KEEPING_SECONDS = 0.0
machine.keep_compiled()
print(jax.config.jax_compilation_cache_dir)
print(float(jax.jit(lambda x: jnp.sin(x) @ x)(jnp.ones((7, 7)))[0, 0]))
"""


def test_a_second_process_reads_what_the_first_compiled_unless_that_is_turned_off(tmp_path: Path):
    (tmp_path / "file").write_text("mine")
    kept = {name: value for name, value in os.environ.items() if not name.startswith(("JAX_COMPILATION", "XLA_FLAGS"))}
    given = kept | {"JAX_PLATFORMS": "cpu", "QPENSIEVE_CACHE": str(tmp_path / "cache"), "XDG_CACHE_HOME": str(tmp_path)}
    command = [sys.executable, "-c", PROGRAM, str(tmp_path / "own"), str(tmp_path / "file")]
    start = lambda: subprocess.run(command, env=given, capture_output=True, text=True, check=True).stdout.split()
    entries = lambda: {path: path.stat().st_mtime_ns for path in tmp_path.rglob("*-cache")}
    folder, first = start()
    assert Path(folder).parent == tmp_path / "cache" / "compiled"
    written = entries()
    assert written
    assert start() == [folder, first]
    assert entries() == written
    assert (tmp_path / "file").read_text() == "mine"
    assert sorted(path.name for path in tmp_path.iterdir()) == ["cache", "file"]


def test_the_folder_is_below_the_users_cache_and_bound_to_jax_and_processor(monkeypatch, tmp_path: Path):
    monkeypatch.delenv("QPENSIEVE_CACHE", raising=False)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    monkeypatch.setattr(machine, "features", lambda: "avx2")
    here = machine.cache_folder()
    monkeypatch.setattr(machine, "features", lambda: "avx2 avx512f")
    there = machine.cache_folder()
    assert here is not None
    assert there is not None
    assert here.parent == there.parent == tmp_path / "qpensieve" / "compiled"
    assert here != there


def test_the_oldest_files_go_first(tmp_path: Path):
    for age, name in enumerate(("newest", "middle", "oldest")):
        (tmp_path / name).write_bytes(bytes(100))
        os.utime(tmp_path / name, (1_000_000 - age, 1_000_000 - age))
    machine.shrink(tmp_path, 300)
    assert len(list(tmp_path.iterdir())) == 3
    machine.shrink(tmp_path, 299)
    assert {path.name for path in tmp_path.iterdir()} == {"newest", "middle"}
    machine.shrink(tmp_path, 0)
    assert not list(tmp_path.iterdir())


def test_options_of_updates_are_for_gpus_and_leave_the_users_flags_alone(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.delenv("XLA_FLAGS", raising=False)
    assert machine.options_of_updates() is None
    monkeypatch.setattr(jax, "default_backend", lambda: "gpu")
    assert machine.options_of_updates() == machine.GPU_OPTIONS  # this version of JAX knows all of them
    monkeypatch.setenv("XLA_FLAGS", "--xla_gpu_graph_min_graph_size=5 --xla_gpu_enable_command_buffer=")
    assert machine.options_of_updates() == {"xla_gpu_command_buffer_scheduling_mode": "CONCURRENT"}


@pytest.mark.parametrize(
    ("flags", "backend", "options"),
    [
        ("", "cpu", {"xla_backend_optimization_level": 1}),
        ("--xla_backend_optimization_level=0", "cpu", None),
        ("", "gpu", None),
    ],
    ids=["on a CPU", "the user's level", "on a GPU"],
)
def test_a_program_that_runs_once_is_compiled_quickly(
    monkeypatch: pytest.MonkeyPatch, flags: str, backend: str, options: Any
):
    monkeypatch.setenv("XLA_FLAGS", flags)
    monkeypatch.setattr(jax, "default_backend", lambda: backend)
    assert machine.options_to_run_once() == options
