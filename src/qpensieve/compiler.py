"""Compiler options, number of CPU devices, and compiled programs on disk. Importing this changes no setting."""

import hashlib
import os
from contextlib import suppress
from functools import cache
from importlib.metadata import version
from pathlib import Path

from qpensieve.machine import features

GPU_OPTIONS = {
    "xla_gpu_enable_command_buffer": "FUSION,CUBLAS,CUBLASLT,CUSTOM_CALL,WHILE,CONDITIONAL,DYNAMIC_SLICE_FUSION",
    "xla_gpu_graph_min_graph_size": "1",
    "xla_gpu_command_buffer_scheduling_mode": "CONCURRENT",
}
"""Whole loops become one CUDA graph: updates are many small kernels, and most of their time is the launch. Kernels of a
graph that do not need each other run at the same time; each computes what it computes alone."""
MOST_DEVICES = 32
"""At most so many CPU devices."""
COUNT_FLAG = "xla_force_host_platform_device_count"
CACHE_VARIABLE = "QPENSIEVE_CACHE"
"""Environment variable: the folder of compiled programs, or `off`."""
CACHE_BYTES = 2**29
"""At most so much stays on disk."""
WORTH_KEEPING_SECONDS = 0.2
KEPT_PROGRAMS = 32
"""So many sets of jitted functions stay in memory: a second agent with the same settings is neither traced nor compiled
again."""
OPTIMISATION = "xla_backend_optimization_level"


def options_of_updates() -> dict[str, str] | None:
    """Compiler options of programs that update networks on a GPU, for `jax.jit`; None elsewhere. Starts JAX.

    Left out are options that the user's XLA_FLAGS set, and those that this version of JAX does not know.
    """
    import jax

    if jax.default_backend() != "gpu":
        return None
    given = os.environ.get("XLA_FLAGS", "")
    return {name: value for name, value in GPU_OPTIONS.items() if name not in given and is_known(name, value)}


@cache
def is_known(name: str, value: str) -> bool:
    """Whether the compiler takes an option; in XLA_FLAGS an unknown one would end the process."""
    import jax

    try:
        jax.jit(lambda: 0, compiler_options={name: value}).lower().compile()
    except jax.errors.JaxRuntimeError:
        return False
    return True


def num_parts(num_agents: int, num_cores: int) -> int:
    """Into how many equal parts to split the agents: no fewer than cores if that is possible, and not many more.

    More parts than cores share them: three agents on two cores take 1.5 times as long as two.
    """
    parts = [n for n in range(1, min(num_agents, MOST_DEVICES) + 1) if num_agents % n == 0]
    return next((n for n in parts if n >= num_cores), parts[-1])


def make_devices(num: int) -> None:
    """Let JAX start with `num` CPU devices; too late if it has started, and the user's own number stays."""
    import jax

    if jax.config.values["jax_num_cpu_devices"] >= 0 or COUNT_FLAG in os.environ.get("XLA_FLAGS", ""):
        return
    try:
        jax.config.update("jax_num_cpu_devices", num)
    except RuntimeError:  # JAX has started
        return


def options_to_run_once() -> dict[str, int] | None:
    """Compiler options of a program that runs once; unless the user has set the level.

    The last passes of LLVM take most of its compiling, and change no number of what is not summed up.
    """
    import jax

    if jax.default_backend() != "cpu" or OPTIMISATION in os.environ.get("XLA_FLAGS", ""):
        return None
    return {OPTIMISATION: 1}


def keep_compiled() -> None:
    """Keep compiled programs on disk, so that the second start with the same shapes need not compile.

    JAX's own setting counts more: where a folder is set there, nothing changes. Without a folder to write to there is
    no cache, and nothing else is different.
    """
    import jax

    folder = cache_folder()
    if folder is None or jax.config.values["jax_compilation_cache_dir"]:
        return
    try:
        folder.mkdir(parents=True, exist_ok=True)
        shrink(folder.parent, CACHE_BYTES)
    except OSError:
        return
    jax.config.update("jax_compilation_cache_dir", str(folder))
    jax.config.update("jax_persistent_cache_min_compile_time_secs", WORTH_KEEPING_SECONDS)


def cache_folder() -> Path | None:
    """Where compiled programs of this version of JAX for this processor are kept; None: they are not."""
    chosen = os.environ.get(CACHE_VARIABLE, "")
    if chosen == "off":
        return None
    try:
        users = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "qpensieve"
    except RuntimeError:  # there is no home
        return None
    processor = hashlib.sha256(features().encode()).hexdigest()[:8]
    return Path(chosen or users) / "compiled" / f"jax-{version('jaxlib')}-{processor}"


def shrink(folder: Path, limit: int) -> None:
    """Remove the oldest files below a folder until no more than `limit` bytes are left."""
    files = [path for path in folder.rglob("*") if path.is_file() and not path.is_symlink()]
    sizes: list[tuple[float, int, Path]] = []
    for path in files:
        with suppress(FileNotFoundError):  # another process was faster
            status = path.stat()
            sizes.append((status.st_mtime, status.st_size, path))
    total = sum(size for _, size, _ in sizes)
    for _, size, path in sorted(sizes):
        if total <= limit:
            return
        path.unlink(missing_ok=True)
        total -= size
