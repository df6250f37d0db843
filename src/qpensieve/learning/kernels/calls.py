"""How kernels are called: one grid of programs, compiled by Triton on a GPU, interpreted elsewhere."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp
from jax.experimental import pallas as pl

Ref = Any
"""A block of memory that a program reads or writes; Pallas gives it no public type."""


@dataclass(frozen=True)
class Tile:
    """How the work of one kernel is cut.

    Attributes:
        rows: Rows of a batch that one program takes, or rows and columns of a weight.
        chunk: Hidden units, or rows, that a program holds at a time.
        warps: Warps of a program.
        stages: Loads in flight ahead of their use.
        part: Units of the second layer whose sums scoring holds at a time, with the whole first layer in registers. 0:
            those of all units, with a chunk of the first layer.
        streams: Candidates load their second layer as they go, `stages` ahead, also where it would fit on the chip.
    """

    rows: int
    chunk: int = 32
    warps: int = 4
    stages: int = 2
    part: int = 0
    streams: bool = False


def is_interpreted() -> bool:
    """Whether kernels run as plain JAX, for tests: there is no GPU."""
    return jax.default_backend() != "gpu"


def call(  # noqa: PLR0913 (those of Pallas)
    kernel: Callable[..., None],
    grid: tuple[int, ...],
    inputs: Sequence[tuple[Any, Any]],
    outputs: Sequence[tuple[Any, Any]],
    tile: Tile,
    aliases: dict[int, int] | None = None,
) -> Any:
    """Run `kernel` once for every place of the grid.

    Args:
        kernel: Takes the blocks of inputs and outputs of its place.
        grid: Number of programs along each axis.
        inputs: Arrays, each with its block (`whole`, `rows_of`, `of_net`).
        outputs: Shapes, likewise.
        tile: Its warps and stages; the rest is the kernel's own business.
        aliases: Inputs that are overwritten by an output.
    """
    arrays, in_specs = zip(*inputs, strict=True)
    shapes, out_specs = zip(*outputs, strict=True)
    settings: Any = None
    if not is_interpreted():
        from jax.experimental.pallas import triton

        settings = triton.CompilerParams(num_warps=tile.warps, num_stages=tile.stages)
    return pl.pallas_call(
        kernel,
        grid=grid,
        in_specs=list(in_specs),
        out_specs=list(out_specs),
        out_shape=list(shapes),
        interpret=is_interpreted(),
        input_output_aliases=aliases or {},
        compiler_params=settings,
    )(*arrays)


def shape(*sizes: int, dtype: Any = jnp.float32) -> jax.ShapeDtypeStruct:
    return jax.ShapeDtypeStruct(sizes, dtype)


def whole(array: Any) -> tuple[Any, pl.BlockSpec]:
    """The whole array, for every program."""
    return array, pl.BlockSpec(array.shape, lambda *_: (0,) * len(array.shape))


def rows_of(array: Any, rows: int, share: int = 1, first: int = 0) -> tuple[Any, pl.BlockSpec]:
    """Rows of [n, rows, ...] for grid axes (net, rows); `share` nets read the same, from block `first` on."""
    rest = array.shape[2:]
    return array, pl.BlockSpec((None, rows, *rest), lambda n, r, *_: (n // share, first + r, *(0,) * len(rest)))


def of_net(array: Any, share: int = 1) -> tuple[Any, pl.BlockSpec]:
    """Everything of one net of [n, ...]; `share` programs along the first axis of the grid read the same."""
    rest = array.shape[1:]
    return array, pl.BlockSpec((None, *rest), lambda n, *_: (n // share, *(0,) * len(rest)))


def dot(a: Any, b: Any, trans_a: bool = False, trans_b: bool = False) -> Any:
    """A product with a float32 sum; float32 factors are rounded as XLA does by default on GPUs (TF32)."""
    axes = (((0 if trans_a else 1,), (1 if trans_b else 0,)), ((), ()))
    return jax.lax.dot_general(a, b, axes, precision=jax.lax.Precision.HIGH, preferred_element_type=jnp.float32)


def relu(x: Any) -> Any:
    return jnp.maximum(x, 0.0)


def column(width: int) -> Any:
    """The number of each column, [1, width]."""
    return jax.lax.broadcasted_iota(jnp.int32, (1, width), 1)
