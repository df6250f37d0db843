r"""What the compiler makes of the fused kernels for a card that is not there: registers, spills, shared memory.

    python tools/without_gpu.py CARD "robust 5" "robust 5 learn=32,64,4,3 score=64,256,4,2,64" --domain Hopper2d

CARD is the description of a card that XLA writes beside a program that it compiled on one (XLA_FLAGS=--xla_dump_to=DIR,
DIR/*gpu_target_config.pbtxt); arms are words as in `cuts.py`. Needs JAX with its CUDA plugin, but no driver; half a
minute an arm. Kernels of an update are listed with their grid, threads, bytes of shared memory, registers of a thread
and bytes that are spilled to memory; "waits": products are issued one by one for want of registers. No time is known
from that, but a kernel that spills kilobytes is slow: `_measure` took 137 us of an update's 358, which became 232.

Leans on parts of JAX 0.11 that are not public.
"""

import argparse
import atexit
import os
import re
import shutil
import sys
import tempfile
import types
from pathlib import Path
from typing import Any

os.environ["JAX_PLATFORMS"] = "cpu"
made = Path(tempfile.mkdtemp(prefix="without-gpu-"))
atexit.register(shutil.rmtree, made)
os.environ["XLA_FLAGS"] = f"--xla_gpu_autotune_level=0 --xla_dump_hlo_as_text --xla_dump_to={made}"
os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")

import cuts  # noqa: E402 (the flags come first)
import jax  # noqa: E402
import jax.numpy as jnp  # noqa: E402
from jax._src import lib, xla_bridge  # noqa: E402
from jax._src.pallas.triton import pallas_call_registration as registration  # noqa: E402
from jax.experimental import topologies  # noqa: E402
from jax.sharding import SingleDeviceSharding  # noqa: E402

from benchmarks.update import REPLAY_ROWS  # noqa: E402
from qpensieve.envs import get_domain  # noqa: E402
from qpensieve.replay.layout import layout_of  # noqa: E402
from qpensieve.train.learner import Block, make_learner  # noqa: E402

UPDATES = 5
SAID = re.compile(r"entry function '(\w+)'.*?(\d+) bytes spill stores.*?Used (\d+) registers", re.DOTALL)
LISTED = re.compile(r"kCustomKernel.*?(_\w+) grid: (\[.*?\]) threads: \[(\d+).*?shared_memory: (\d+)")


def listen(assembler: Path) -> None:
    """Let XLA call the assembler by a script that keeps what it says, a file for each kernel."""
    script = made / "cuda" / "bin" / "ptxas"
    script.parent.mkdir(parents=True)
    script.write_text(f'#!/bin/sh\ncase "$*" in *--version*) exec {assembler} "$@" ;; esac\n')
    with script.open("a") as file:
        file.write(f'exec {assembler} -v "$@" 2> {made}/said-$$\n')
    script.chmod(0o755)
    (script.parents[1] / "nvvm").symlink_to(assembler.parents[1] / "nvvm")
    lib.cuda_path = str(script.parents[1])


def pretend(card: Path) -> Any:
    """Make JAX compile for a card; returns where arrays would lie."""
    known = xla_bridge.canonicalize_platform
    xla_bridge.canonicalize_platform = lambda name: "cuda" if name in ("gpu", "cuda") else known(name)
    described = card.read_text()
    topology = topologies.get_topology_desc("", "cuda", target_config=described, topology="1x1x1")
    capability = 10 * int(re.findall(r"major: (\d+)", described)[0])
    info = lambda: types.SimpleNamespace(compute_capability=capability)
    registration.gpu_info_lib = types.SimpleNamespace(get_gpu_info=info)
    jax.default_backend = lambda: "gpu"
    return SingleDeviceSharding(topology.devices[0])


def compile_arm(arm: cuts.Arm, domain: str, place: Any) -> None:
    spec = get_domain(domain).spec
    algorithm = cuts.make(arm, spec, {})
    layout = layout_of(spec, algorithm.behaviour)
    learner: Any = make_learner(algorithm, layout, REPLAY_ROWS)
    state = jax.eval_shape(learner.init, jax.ShapeDtypeStruct((arm.seeds,), jnp.int32))
    rows: Any = jax.ShapeDtypeStruct((arm.seeds, UPDATES, layout.width), jnp.float32)
    placed = lambda leaf: jax.ShapeDtypeStruct(leaf.shape, leaf.dtype, sharding=place)
    traced = learner.learn.trace(*jax.tree.map(placed, (state, Block(rows))))
    traced.lower(lowering_platforms=("cuda",)).compile()


def show() -> None:
    """One line for each kernel of the last program; forgets the program."""
    said = [path.read_text() for path in made.glob("said-*")]
    thunks = "".join(path.read_text() for path in made.glob("*thunk_sequence.txt"))
    grids = {name: (grid, threads, int(shared)) for name, grid, threads, shared in LISTED.findall(thunks)}
    kernels = sorted((*found, "serialized" in text) for text in said for found in SAID.findall(text))
    for name, spilled, registers, waits in kernels:
        if name in grids:
            grid, threads, shared = grids[name]
            line = f"registers {registers:>3}  spilled {spilled:>4}  {'waits' if waits else ''}"
            print(f"  {name:16} grid {grid:12} threads {threads}  shared {shared:6}  {line}".rstrip(), flush=True)
    for path in made.iterdir():
        if path.is_file():
            path.unlink()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("card", type=Path)
    parser.add_argument("arms", nargs="+")
    parser.add_argument("--domain", default="HalfCheetah2d")
    given = parser.parse_args()
    found = list(Path(lib.cuda_path or sys.prefix).rglob("bin/ptxas"))
    if not found:
        sys.exit("there is no ptxas: install JAX with its CUDA plugin (pip install 'jax[cuda13]')")
    listen(found[0])
    place = pretend(given.card)
    for arm in map(cuts.parse, given.arms):
        print(f"{arm.words}, {given.domain}", flush=True)
        compile_arm(arm, given.domain, place)
        show()


if __name__ == "__main__":
    main()
