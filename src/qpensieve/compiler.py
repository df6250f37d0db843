"""Compiler settings, made before JAX starts a device; every result records them (`provenance`)."""

import os

GPU_FLAGS = (
    "--xla_gpu_enable_command_buffer=FUSION,CUBLAS,CUBLASLT,CUSTOM_CALL,WHILE,CONDITIONAL,DYNAMIC_SLICE_FUSION",
    "--xla_gpu_graph_min_graph_size=1",
    "--xla_gpu_command_buffer_scheduling_mode=CONCURRENT",
)
"""Whole loops become one CUDA graph: updates are many small kernels, and most of their time is the launch. Kernels of a
graph that do not need each other run at the same time; each computes what it computes alone."""


def set_flags() -> None:
    """Add our flags to XLA_FLAGS, except those that the user has set; without a GPU they have no effect."""
    given = os.environ.get("XLA_FLAGS", "")
    missing = [flag for flag in GPU_FLAGS if flag.split("=")[0] not in given]
    os.environ["XLA_FLAGS"] = " ".join([given, *missing]).strip()
