"""Flags of the compiler: ours are added, the user's are kept, and a compiler without a GPU accepts them."""

import os
import subprocess
import sys

import pytest

from qpensieve import compiler


def test_flags_are_added_once_and_those_of_the_user_stay(monkeypatch: pytest.MonkeyPatch):
    own = "--xla_cpu_enable_fast_math=false --xla_gpu_command_buffer_scheduling_mode=SERIALIZE"
    monkeypatch.setenv("XLA_FLAGS", own)
    compiler.set_flags()
    flags = os.environ["XLA_FLAGS"]
    assert flags.startswith(own)
    assert "CONCURRENT" not in flags
    assert "--xla_gpu_graph_min_graph_size=1" in flags
    compiler.set_flags()
    assert os.environ["XLA_FLAGS"] == flags


def test_without_flags_of_the_user_all_of_ours_are_set(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.delenv("XLA_FLAGS", raising=False)
    compiler.set_flags()
    assert os.environ["XLA_FLAGS"].split() == list(compiler.GPU_FLAGS)


def test_a_compiler_without_a_gpu_accepts_them():
    """An unknown flag would end the process when JAX starts."""
    code = (
        "import qpensieve, jax, os; assert 'CONCURRENT' in os.environ['XLA_FLAGS']; print(jax.jit(lambda x: x + 1)(1))"
    )
    environment = {**os.environ, "JAX_PLATFORMS": "cpu", "XLA_FLAGS": ""}
    run = subprocess.run([sys.executable, "-c", code], env=environment, capture_output=True, text=True, check=False)
    assert (run.returncode, run.stdout.strip()) == (0, "2"), run.stderr
