"""Cores, memory and cards of this machine, and how JAX compiles for it. The import changes no setting."""

import ctypes
import hashlib
import importlib.util
import os
import platform
import subprocess
from contextlib import suppress
from functools import cache
from importlib.metadata import version
from pathlib import Path
from threading import Lock

CORES_VARIABLE = "QPENSIEVE_CORES"
"""Environment variable: number of cores that a process may use, for several runs on one machine."""


def available_cores() -> int:
    """Return the number of cores that this process may use: `QPENSIEVE_CORES`, or what the system allows."""
    given = os.environ.get(CORES_VARIABLE, "")
    if given.isdecimal() and int(given) > 0:
        return int(given)
    try:
        return len(os.sched_getaffinity(0))
    except AttributeError:
        return os.cpu_count() or 1


LIMITS = (Path("/sys/fs/cgroup/memory.max"), Path("/sys/fs/cgroup/memory/memory.limit_in_bytes"))
"""Files with the memory limit of a container, in both versions of control groups."""


def memory() -> int | None:
    """Return the bytes of memory of this machine, or of the container if that is less; None if unknown."""
    found = []
    with suppress(AttributeError, ValueError, OSError):  # not on every system
        found.append(os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES"))
    for path in LIMITS:
        text = path.read_text().strip() if path.is_file() else ""
        found += [int(text)] if text.isdecimal() else []  # "max": no limit
    return min((num for num in found if num > 0), default=None)


class _OneBlasThread:
    """A context that keeps NumPy's OpenBLAS at one thread, and restores the number of threads at its end."""

    def __init__(self):
        found = importlib.util.find_spec("numpy._core._multiarray_umath")
        library = None if found is None or found.origin is None else ctypes.CDLL(found.origin)
        names = (f"{before}openblas_{{}}_num_threads{after}" for before in ("scipy_", "") for after in ("64_", ""))
        name = next((name for name in names if hasattr(library, name.format("set"))), None)
        self._get = (lambda: 1) if name is None else getattr(library, name.format("get"))
        self._set = (lambda _: None) if name is None else getattr(library, name.format("set"))
        self._lock, self._num_inside, self._before = Lock(), 0, 1

    def __enter__(self) -> None:
        with self._lock:
            if self._num_inside == 0:
                self._before = self._get()
                self._set(1)
            self._num_inside += 1

    def __exit__(self, *_: object) -> None:
        with self._lock:
            self._num_inside -= 1
            if self._num_inside == 0:
                self._set(self._before)


@cache
def one_blas_thread() -> _OneBlasThread:
    """Return the context in which NumPy's matrix products use one thread of OpenBLAS. Other libraries are unaffected.

    Some kernels of OpenBLAS (Haswell, Zen) round differently with another number of threads. So a run computes its
    products in this context; otherwise it would not resume exactly with another number of threads.
    """
    return _OneBlasThread()


def processor() -> str:
    """Return the name of the processor."""
    return _cpuinfo("model name")


def features() -> str:
    """Return the instruction sets of the processor. Compiled programs may fail on a processor with others."""
    return f"{platform.machine()} {_cpuinfo('flags')}"


def _cpuinfo(field: str) -> str:
    """Return a field of the first core, or "unknown". Without the file return the processor's name in Python."""
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        return platform.processor()
    return next((line.split(":", 1)[1].strip() for line in lines if line.startswith(field)), "unknown")


def gpus() -> list[str]:
    """List the NVIDIA cards that this process may use, as CUDA_VISIBLE_DEVICES names them, without starting JAX."""
    if os.environ.get("JAX_PLATFORMS", "").startswith("cpu"):
        return []
    given = os.environ.get("CUDA_VISIBLE_DEVICES")
    if given is not None:
        return [name.strip() for name in given.split(",") if name.strip() not in ("", "-1")]
    return [str(i) for i in range(len(gpu_names()))]


def gpu_names() -> list[str]:
    """List the names of all NVIDIA cards of this machine, without starting JAX."""
    try:
        listed = subprocess.run(["nvidia-smi", "-L"], capture_output=True, text=True, timeout=60, check=False)
    except (OSError, subprocess.TimeoutExpired):
        return []
    lines = listed.stdout.splitlines() if listed.returncode == 0 else []
    return [line.partition(": ")[2].partition(" (UUID")[0] for line in lines if line.startswith("GPU ")]


def accelerator() -> str:
    """Return the name of the device that JAX computes on. Starts JAX."""
    import jax

    return jax.devices()[0].device_kind


GPU_OPTIONS = {
    "xla_gpu_enable_command_buffer": "FUSION,CUBLAS,CUBLASLT,CUSTOM_CALL,WHILE,CONDITIONAL,DYNAMIC_SLICE_FUSION",
    "xla_gpu_graph_min_graph_size": "1",
    "xla_gpu_command_buffer_scheduling_mode": "CONCURRENT",
}
"""Compiler options: whole loops become one CUDA graph, because launching the many small kernels of an update takes most
of its time. Independent kernels of a graph run at the same time, which changes no number."""
MOST_DEVICES = 32
"""Largest number of CPU devices."""
COUNT_FLAG = "xla_force_host_platform_device_count"
CACHE_VARIABLE = "QPENSIEVE_CACHE"
"""Environment variable: the folder of compiled programs, or `off`."""
CACHE_BYTES = 2**29
"""Most bytes of compiled programs on disk."""
WORTH_KEEPING_SECONDS = 0.2
KEPT_PROGRAMS = 32
"""Sets of jitted functions that stay in memory, so that a second agent with the same settings is not compiled again."""
OPTIMISATION = "xla_backend_optimization_level"


def options_of_updates() -> dict[str, str] | None:
    """Return compiler options of programs that update networks on a GPU; None on other devices. Starts JAX.

    Options in the user's XLA_FLAGS, and options that this compiler does not know, are left out.
    """
    import jax

    if jax.default_backend() != "gpu":
        return None
    given = os.environ.get("XLA_FLAGS", "")
    return {name: value for name, value in GPU_OPTIONS.items() if name not in given and is_known(name, value)}


@cache
def is_known(name: str, value: str) -> bool:
    """Return whether this compiler accepts an option with this value; tried with a trivial program."""
    import jax

    try:
        jax.jit(lambda: 0, compiler_options={name: value}).lower().compile()
    except jax.errors.JaxRuntimeError:
        return False
    return True


def num_parts(num_agents: int, num_cores: int) -> int:
    """Return the number of equal parts to split the agents into: the smallest that gives every core a part.

    If there is none, return the largest number up to `MOST_DEVICES`. There may be more parts than cores, which then
    share them: three agents on two cores take 1.5 times as long as two.
    """
    parts = [n for n in range(1, min(num_agents, MOST_DEVICES) + 1) if num_agents % n == 0]
    return next((n for n in parts if n >= num_cores), parts[-1])


def make_devices(num: int) -> None:
    """Let JAX start with `num` CPU devices, unless JAX has started or the user has set a number."""
    import jax

    if jax.config.values["jax_num_cpu_devices"] >= 0 or COUNT_FLAG in os.environ.get("XLA_FLAGS", ""):
        return
    try:
        jax.config.update("jax_num_cpu_devices", num)
    except RuntimeError:  # JAX has started
        return


def options_to_run_once() -> dict[str, int] | None:
    """Return compiler options of a program that runs once on a CPU; None on other devices, or if the user has set one.

    They skip the last passes of LLVM, which take most of the time and change no number of a program without sums.
    """
    import jax

    if jax.default_backend() != "cpu" or OPTIMISATION in os.environ.get("XLA_FLAGS", ""):
        return None
    return {OPTIMISATION: 1}


def keep_compiled() -> None:
    """Keep compiled programs on disk, so that a second start with the same shapes does not compile.

    If JAX's own setting names a folder, or no folder can be written, nothing changes.
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
    """Return the folder of compiled programs for this version of JAX and this processor; None if none are kept."""
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
