"""The machine that this process runs on: cores, processor, accelerator."""

import ctypes
import importlib.util
import os
import platform
import subprocess
from contextlib import suppress
from functools import cache
from pathlib import Path
from threading import Lock

CORES_VARIABLE = "QPENSIEVE_CORES"
"""Environment variable: how many cores a process may use; for several runs side by side on one machine."""


def available_cores() -> int:
    """Number of cores this process may use; all cores if neither `QPENSIEVE_CORES` nor the system tells."""
    given = os.environ.get(CORES_VARIABLE, "")
    if given.isdecimal() and int(given) > 0:
        return int(given)
    try:
        return len(os.sched_getaffinity(0))
    except AttributeError:
        return os.cpu_count() or 1


LIMITS = (Path("/sys/fs/cgroup/memory.max"), Path("/sys/fs/cgroup/memory/memory.limit_in_bytes"))
"""Where a container says how much memory it may use, by version of its kernel's control groups."""


def memory() -> int | None:
    """Bytes of memory of this machine, or of the container where that has less; None if nobody tells."""
    found = []
    with suppress(AttributeError, ValueError, OSError):  # not on every system
        found.append(os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES"))
    for path in LIMITS:
        text = path.read_text().strip() if path.is_file() else ""
        found += [int(text)] if text.isdecimal() else []  # "max": no limit
    return min((num for num in found if num > 0), default=None)


class _OneBlasThread:
    """Keeps NumPy's OpenBLAS at one thread while anyone is inside; then its own number of threads returns."""

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
    """Return the context in which NumPy's products use one thread of OpenBLAS; other BLAS libraries are left alone.

    Some kernels of OpenBLAS (Haswell, Zen) round differently with another number of threads. So a product that a run
    depends on is computed in this context, or the run would not resume exactly with another number of threads.
    """
    return _OneBlasThread()


def processor() -> str:
    """Name of the processor."""
    return _cpuinfo("model name")


def features() -> str:
    """What the processor can do, as one line: a program compiled for one such line may fail on another."""
    return f"{platform.machine()} {_cpuinfo('flags')}"


def _cpuinfo(field: str) -> str:
    """A field of the first core; without the file, the name that Python knows."""
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        return platform.processor()
    return next((line.split(":", 1)[1].strip() for line in lines if line.startswith(field)), "unknown")


def gpus() -> list[str]:
    """NVIDIA cards that this process may use, as CUDA_VISIBLE_DEVICES names them; does not start JAX."""
    if os.environ.get("JAX_PLATFORMS", "").startswith("cpu"):
        return []
    given = os.environ.get("CUDA_VISIBLE_DEVICES")
    if given is not None:
        return [name.strip() for name in given.split(",") if name.strip() not in ("", "-1")]
    return [str(i) for i in range(len(gpu_names()))]


def gpu_names() -> list[str]:
    """Names of all NVIDIA cards of this machine; does not start JAX."""
    try:
        listed = subprocess.run(["nvidia-smi", "-L"], capture_output=True, text=True, timeout=60, check=False)
    except (OSError, subprocess.TimeoutExpired):
        return []
    lines = listed.stdout.splitlines() if listed.returncode == 0 else []
    return [line.partition(": ")[2].partition(" (UUID")[0] for line in lines if line.startswith("GPU ")]


def accelerator() -> str:
    """Name of the device that JAX computes on; starts JAX if it has not started."""
    import jax

    return jax.devices()[0].device_kind
