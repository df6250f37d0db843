"""Kernels of eq. (11): score every candidate, then climb the winner of each sample.

Scoring needs the sign of a difference, not its last digits: its large product may be taken in half precision, with the
same number of digits that TF32 has and at twice its rate.
"""

from functools import partial, reduce
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jax.experimental import pallas as pl
from jaxtyping import Array, Float

from qpensieve.learning.kernels.calls import Ref, Tile, call, dot, of_net, relu, rows_of, shape, whole
from qpensieve.learning.kernels.networks import Now
from qpensieve.learning.kernels.packing import Packed, Sizes

LARGEST = 6e4
"""Activations above this are cut: float16 ends at 65504."""
ON_CHIP = 160 * 1024
"""Bytes of weights that a program keeps on the chip through all its preferences."""


class Best(NamedTuple):
    """The best of some networks per sample: its value, and whether under another preference than lam."""

    value: Float[Array, "seed b"]
    is_other: Float[Array, "seed b"]


class Candidates(NamedTuple):
    """Networks [n], twin by twin, as many for every seed: the snapshots, or the critic."""

    nets: Packed
    second: Any
    """Second layers in the precision of scoring."""
    exists: Float[Array, "seed k"]
    """Which twins there are."""

    @property
    def leaves(self) -> list[Any]:
        nets = self.nets
        return [nets.w1, nets.b1, self.second, nets.b2, nets.w3, nets.b3]


def score(now: Now, x: Any, candidates: Candidates, tile: Tile, split: bool) -> Float[Array, "n m b"]:
    """Scalars lam . Q of every network under every preference.

    Args:
        now: The update.
        x: (s, a, 0), first half of the rows.
        candidates: Networks.
        tile: How it is cut.
        split: One program per preference, instead of one for all.
    """
    (at, given, sizes), nets = now, candidates.nets
    n, m = len(nets.w1), sizes.preferences
    share = n // x.shape[0]
    each = 1 if split else m
    return call(
        partial(_score, sizes=sizes, tile=tile, share=share, num=each),
        (n, sizes.batch // tile.rows, m // each),
        [whole(at), whole(given.prefs), rows_of(x, tile.rows, share=share), *map(of_net, candidates.leaves)],
        [(shape(n, m, sizes.batch), pl.BlockSpec((None, each, tile.rows), lambda n, r, p: (n, p, r)))],
        tile,
    )[0]


def _score(at: Ref, *refs: Ref, sizes: Sizes, tile: Tile, share: int, num: int) -> None:
    prefs, x_ref, w1, b1, w2, b2, w3, b3, q = refs
    k, seed, first = at[0], pl.program_id(0) // share, pl.program_id(2) * num
    readout, constant = _readout(prefs, (k, seed), w3, b3, sizes)
    x, bias = x_ref[...], b2[0, :][None]
    if tile.part:
        last = lambda units: _readout(prefs, (k, seed), w3, b3, sizes, units)[0]
        value = _by_parts((w1, b1), _Second(w2, b2, last, tile), keeps=num > 1 and not tile.streams)
    else:
        over_chunks = _over_chunks((w1, b1, w2), sizes, tile)
        value = lambda x: jnp.sum(relu(_sums(over_chunks, x, bias)) * readout, axis=1)

    def of_preference(i: Any, _: Any) -> Any:
        q[i, :] = value(x + prefs[k, seed, first + i, :][None]) + constant
        return _

    jax.lax.fori_loop(0, num, of_preference, 0)


def _readout(  # noqa: PLR0913
    prefs: Ref, where: tuple[Any, Any], w3: Ref, b3: Ref, sizes: Sizes, units: Any = slice(None)
) -> tuple[Any, Any]:
    """The last layer of some units with lam folded in, and its bias."""
    first = sizes.obs + sizes.act
    lam = [prefs[*where, 0, first + i] for i in range(sizes.d)]
    row: Any = sum(x * w3[i, units] for i, x in enumerate(lam))
    return row[None], sum(x * b3[0, i] for i, x in enumerate(lam))


class _Second(NamedTuple):
    """The second layer, whose units come part by part."""

    weights: Ref
    bias: Ref
    last: Any
    """Units -> their weights in the last layer."""
    tile: Tile

    @property
    def num(self) -> int:
        return self.weights.shape[1] // self.tile.part

    @property
    def chunks(self) -> list[Any]:
        """Units of the first layer that are computed at once."""
        size = self.tile.chunk
        return [pl.ds(i * size, size) for i in range(self.weights.shape[0] // size)]

    def load(self, i: Any) -> tuple[list[Any], Any, Any]:
        """Of one part: weights from each chunk, biases and last layer."""
        units = pl.ds(i * self.tile.part, self.tile.part)
        return [self.weights[chunk, units] for chunk in self.chunks], self.bias[0, units][None], self.last(units)


def _by_parts(first: tuple[Ref, Ref], second: _Second, keeps: bool) -> Any:
    """Inputs -> values, with the whole first layer at hand and sums of a part of the second only.

    So sums leave registers free, products need not wait for each other, and two programs share a processor.

    Args:
        first: Weights and biases of the first layer.
        second: The layer that is cut.
        keeps: Whether weights are loaded once for all calls, not as each call needs them.
    """
    w1, b1 = first
    kept = [second.load(i) for i in range(second.num)] if keeps else None

    def add(units: list[Any], part: Any, value: Any) -> Any:
        weights, bias, last = part
        sums: Any = sum(map(dot, units, weights)) + bias
        return value + jnp.sum(relu(sums) * last, axis=1)

    def value(x: Any) -> Any:
        sums = [dot(x, w1[:, chunk]) + b1[0, chunk][None] for chunk in second.chunks]
        units = [jnp.minimum(relu(chunk), LARGEST).astype(second.weights.dtype) for chunk in sums]
        start = jnp.zeros(len(x))
        if kept is not None:
            return reduce(lambda value, part: add(units, part, value), kept, start)
        return jax.lax.fori_loop(0, second.num, lambda i, value: add(units, second.load(i), value), start)

    return value


class _Chunk(NamedTuple):
    """Weights of some units of the first layer: into them, and out of them into the second layer."""

    into: Any
    bias: Any
    out: Any

    def sums(self, x: Any) -> Any:
        return dot(x, self.into) + self.bias[None]


def _over_chunks(layers: tuple[Ref, Ref, Ref], sizes: Sizes, tile: Tile) -> Any:
    """(step, start) -> result of steps (chunk, result) -> result over all units of the first layer.

    Weights are loaded once for all calls, if they fit on the chip.
    """
    w1, b1, w2 = layers
    num = sizes.width // tile.chunk

    def load(i: Any) -> _Chunk:
        units = pl.ds(i * tile.chunk, tile.chunk)
        return _Chunk(w1[:, units], b1[0, units], w2[units, :])

    if tile.streams or sizes.width * (sizes.width * w2.dtype.itemsize + 4 * sizes.columns) > ON_CHIP:
        return lambda step, start: jax.lax.fori_loop(0, num, lambda i, result: step(load(i), result), start)
    chunks = [load(i) for i in range(num)]
    return lambda step, start: reduce(lambda result, chunk: step(chunk, result), chunks, start)


def _sums(over_chunks: Any, x: Any, bias: Any) -> Any:
    """Sums into the second layer."""

    def add(chunk: _Chunk, sums: Any) -> Any:
        first = jnp.minimum(relu(chunk.sums(x)), LARGEST)
        return sums + dot(first.astype(chunk.out.dtype), chunk.out)

    return over_chunks(add, jnp.zeros((len(x), bias.shape[1]))) + bias


class Rival(NamedTuple):
    """What candidates are compared with: its values, and whether it loses where both are equal."""

    value: Float[Array, "seed b"]
    loses_ties: bool


class Scored(NamedTuple):
    """Candidates, and what `score` says of them."""

    scores: Float[Array, "n m b"]
    candidates: Candidates


class Margin(NamedTuple):
    """How far a value may exceed the critic's own under lam, to count: a share of the mean size of these.

    Whoever climbs compares itself with the others' scores, so that snapshots and critic need not wait for each other.
    """

    share: float
    others: Scored | None
    """The critic where snapshots climb, the snapshots (if there are any) where the critic does."""
    loses_ties: bool
    """Whether the others do where both are equal: they are the critic."""

    def blocks(self, share: int) -> list[Any]:
        """What a program that climbs one of `share` networks reads of the others."""
        others = self.others
        return [] if others is None else [whole(others.scores), of_net(others.candidates.exists, share)]


def best_value(scores: Float[Array, "n m b"], seeds: int) -> Float[Array, "seed b"]:
    """The best value of candidates that all exist."""
    return jnp.max(jnp.min(scores.reshape(seeds, -1, 2, *scores.shape[1:]), axis=2), axis=(1, 2))


def climb(  # noqa: PLR0913
    now: Now,
    x: Any,
    scores: Float[Array, "n m b"],
    candidates: Candidates,
    tile: Tile,
    rival: Rival | Margin | None = None,
) -> tuple[Float[Array, "n b columns"], Best]:
    """Gradient by (s, a, lam) of the best value, of samples whose best network it is; zero for the others.

    Args:
        now: The update.
        x: (s, a, 0), first half of the rows.
        scores: What `score` says of the candidates.
        candidates: The snapshots, or the critic.
        tile: How it is cut.
        rival: Zero also for samples for which this is better; or what counts, and the others.
    """
    (at, given, sizes), nets = now, candidates.nets
    n, b, seeds = len(nets.w1), sizes.batch, x.shape[0]
    share = n // seeds
    of_seed = lambda array: (array, pl.BlockSpec((None, tile.rows), lambda n, r: (n // share, r)))
    rivals, margin = [], None
    if isinstance(rival, Rival):
        rivals = [of_seed(rival.value)]
    elif rival is not None:
        rivals, margin = rival.blocks(share), rival.share
    loses_ties = rival.loses_ties if rival is not None and rivals else None
    out = call(
        partial(_climb, sizes=sizes, tile=tile, share=share, loses_ties=loses_ties, margin=margin),
        (n, b // tile.rows),
        [
            whole(at),
            whole(given.prefs),
            of_net(candidates.exists, share),
            rows_of(x, tile.rows, share=share),
            *map(of_net, candidates.leaves),
            whole(scores),
            *rivals,
        ],
        [rows_of(shape(n, b, sizes.columns), tile.rows), of_seed(shape(seeds, b)), of_seed(shape(seeds, b))],
        tile,
    )
    return out[0], Best(*out[1:])


def _climb(  # noqa: PLR0913 (what Pallas calls with blocks only)
    at: Ref, *refs: Ref, sizes: Sizes, tile: Tile, share: int, loses_ties: bool | None, margin: float | None
) -> None:
    prefs, exists, x_ref, w1, b1, w2, b2, w3, b3, scores = refs[:10]
    rivals, (out, value_out, is_other) = refs[10:-3], refs[-3:]
    k, seed, own = at[0], pl.program_id(0) // share, pl.program_id(0) % share
    cap = None if margin is None else _cap(rivals[0] if loses_ties else scores, seed, margin, sizes, tile)
    best = partial(_best, seed=seed, num=sizes.preferences, tile=tile, cap=cap)
    value, net, preference = best(scores, exists)

    @pl.when(own == 0)
    def _() -> None:
        value_out[:] = value
        is_other[:] = (preference > 0).astype(jnp.float32)

    is_own = net == own
    if rivals:
        rival = rivals[0][:] if cap is None else best(*rivals)[0]
        is_own &= value >= rival if loses_ties else value > rival
    out[...] = jnp.zeros(out.shape)

    @pl.when(jnp.sum(is_own.astype(jnp.int32)) > 0)
    def _() -> None:
        x = x_ref[...]
        for i in range(sizes.preferences):
            x += (preference == i).astype(jnp.float32)[:, None] * prefs[k, seed, i, :][None]
        readout, _ = _readout(prefs, (k, seed), w3, b3, sizes)
        over_chunks = _over_chunks((w1, b1, w2), sizes, tile)
        sums = _sums(over_chunks, x, b2[0, :][None])
        by_sums = jnp.where(sums > 0, is_own.astype(jnp.float32)[:, None] * readout, 0.0).astype(w2.dtype)

        def back(chunk: _Chunk, by_x: Any) -> Any:
            by_first = jnp.where(chunk.sums(x) > 0, dot(by_sums, chunk.out, trans_b=True), 0.0)
            return by_x + dot(by_first, chunk.into, trans_b=True)

        out[...] = over_chunks(back, jnp.zeros((tile.rows, sizes.columns)))


def _best(  # noqa: PLR0913
    scores: Ref, exists: Ref, seed: Any, num: int, tile: Tile, cap: Any
) -> tuple[Any, Any, Any]:
    """Best value of each sample, the number of its network and of its preference; the first of equals wins.

    Values above a cap do not count; the critic's own under lam, from which it was made, is never above it.
    """
    critics = exists.shape[0]
    first, rows = seed * (2 * critics), pl.ds(pl.program_id(1) * tile.rows, tile.rows)
    value = jnp.full((tile.rows,), -jnp.inf)
    net, preference = (jnp.zeros((tile.rows,), jnp.int32) for _ in range(2))
    for critic in range(critics):
        one = first + 2 * critic
        for i in range(num):
            q, other = scores[one, i, rows], scores[one + 1, i, rows]
            least = jnp.minimum(q, other)
            is_better = (least > value) & (exists[critic] > 0)
            if cap is not None:
                is_better &= least <= cap
            value = jnp.where(is_better, least, value)
            net = jnp.where(is_better, 2 * critic + (other < q).astype(jnp.int32), net)
            preference = jnp.where(is_better, i, preference)
    return value, net, preference


def _cap(scores: Ref, seed: Any, margin: float, sizes: Sizes, tile: Tile) -> Any:
    """The largest value that counts, of each sample: what the critic says under lam, and the margin."""
    own = lambda i: jnp.minimum(*(scores[2 * seed + twin, 0, pl.ds(i * tile.rows, tile.rows)] for twin in range(2)))
    add = lambda i, sums: sums + jnp.abs(own(i))
    sums = jax.lax.fori_loop(0, sizes.batch // tile.rows, add, jnp.zeros((tile.rows,)))
    return own(pl.program_id(1)) + (margin / sizes.batch) * jnp.sum(sums)
