"""Flags of the compiler (ours are added, the user's are kept), and compiled programs on disk."""

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import jax
import pytest

from qpensieve import machine

PROGRAM = """
import jax, jax.numpy as jnp
from qpensieve import machine
machine.WORTH_KEEPING_SECONDS = 0.0
machine.keep_compiled()
print(jax.config.jax_compilation_cache_dir)
print(float(jax.jit(lambda x: jnp.sin(x) @ x)(jnp.ones((7, 7)))[0, 0]))
"""


def start(**environment: str) -> list[str]:
    kept = {name: value for name, value in os.environ.items() if not name.startswith(("QPENSIEVE_", "JAX_COMPILATION"))}
    given = kept | {"JAX_PLATFORMS": "cpu"} | environment
    done = subprocess.run([sys.executable, "-c", PROGRAM], env=given, capture_output=True, text=True, check=True)
    return done.stdout.split()


def entries(folder: Path) -> dict[str, int]:
    return {path.name: path.stat().st_mtime_ns for path in folder.rglob("*") if path.name.endswith("-cache")}


def test_a_second_process_reads_what_the_first_compiled(tmp_path: Path):
    folder, first = start(QPENSIEVE_CACHE=str(tmp_path))
    assert Path(folder).parent == tmp_path / "compiled"
    written = entries(tmp_path)
    assert written
    assert start(QPENSIEVE_CACHE=str(tmp_path)) == [folder, first]
    assert entries(tmp_path) == written


def test_the_cache_can_be_turned_off_and_jaxs_own_folder_stays(tmp_path: Path):
    assert start(QPENSIEVE_CACHE="off", XDG_CACHE_HOME=str(tmp_path))[0] == "None"
    own = str(tmp_path / "own")
    assert start(JAX_COMPILATION_CACHE_DIR=own, XDG_CACHE_HOME=str(tmp_path))[0] == own
    assert not (tmp_path / "qpensieve").exists()


def test_a_folder_that_cannot_be_made_means_no_cache(tmp_path: Path):
    (tmp_path / "file").write_text("mine")
    assert start(QPENSIEVE_CACHE=str(tmp_path / "file"))[0] == "None"
    assert (tmp_path / "file").read_text() == "mine"


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


def test_importing_sets_no_flags():
    code = "import os, qpensieve.api, qpensieve.cli; print('XLA_FLAGS' in os.environ)"
    environment = {name: value for name, value in os.environ.items() if name != "XLA_FLAGS"}
    done = subprocess.run([sys.executable, "-c", code], env=environment, capture_output=True, text=True, check=True)
    assert done.stdout == "False\n"


def test_options_of_updates_are_for_gpus_and_leave_the_users_flags_alone(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.delenv("XLA_FLAGS", raising=False)
    assert machine.options_of_updates() is None
    monkeypatch.setattr(jax, "default_backend", lambda: "gpu")
    assert machine.options_of_updates() == machine.GPU_OPTIONS  # this version of JAX knows all of them
    monkeypatch.setenv("XLA_FLAGS", "--xla_gpu_graph_min_graph_size=5 --xla_gpu_enable_command_buffer=")
    assert machine.options_of_updates() == {"xla_gpu_command_buffer_scheduling_mode": "CONCURRENT"}


def test_an_option_that_jax_does_not_know_is_left_out(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.delenv("XLA_FLAGS", raising=False)
    monkeypatch.setattr(jax, "default_backend", lambda: "gpu")
    known = {"xla_gpu_graph_min_graph_size": "1"}
    wrong = {"xla_gpu_removed_in_1_0": "1", "xla_gpu_command_buffer_scheduling_mode": "NO_SUCH_MODE"}
    monkeypatch.setattr(machine, "GPU_OPTIONS", known | wrong)
    assert machine.options_of_updates() == known


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
