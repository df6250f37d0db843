"""Kernels of single networks: what a policy does, what critics say, their gradients, and Adam's step.

Rows of a batch are cut over programs. The second layer is taken in chunks of hidden units, so that activations of the
first layer never leave the chip unless a later kernel needs them.
"""

from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jax.experimental import pallas as pl
from jaxtyping import Array, Float, Int

from qpensieve.learning.guards import shorten
from qpensieve.learning.kernels.calls import Ref, Tile, call, column, dot, of_net, relu, rows_of, shape, whole
from qpensieve.learning.kernels.packing import Packed, Sizes
from qpensieve.learning.nets import LOG_STD_RANGE

ADAM = (0.9, 0.999, 1e-8)
"""Adam's decays and epsilon, optax's defaults."""


class Bounds(NamedTuple):
    """What targets may be: the sums that rewards allow, lowest and highest, and what a unit of temperature adds."""

    sums: Float[Array, "k seed 2 values"]
    bonus: tuple[float, float]


class Inputs(NamedTuple):
    """What the updates of a block are given; k is the update.

    Rows of `x` are (s, a, lam), then (s', 0, lam); noise stands in the columns of the action.
    """

    x: Float[Array, "k seed b2 columns"]
    noise: Float[Array, "k seed b2 columns"]
    r: Float[Array, "k seed b values"]
    going_on: Float[Array, "k seed b"]
    """Discount, or 0 where the episode has ended."""
    prefs: Float[Array, "k seed m columns"]
    """In the columns of lam; the first is lam itself."""
    lam: Float[Array, "k seed values"]
    adam: Float[Array, "k 3"]
    """Adam's corrections of the moments, and its step size."""
    entropy_target: Float[Array, " k"]
    """Target of the entropy of the whole action."""
    bounds: Bounds | None = None
    """Only with `guards`."""


class Now(NamedTuple):
    """One update: its number, what the updates of the block are given, and their sizes."""

    at: Int[Array, " 1"]
    given: Inputs
    sizes: Sizes


class Acted(NamedTuple):
    """What a policy did: inputs for critics, log-probabilities, and for its own gradient what it computed.

    Rows are in s, then in s'; only the first half is read of the last three.
    """

    x: Float[Array, "seed b2 columns"]
    logp: Float[Array, "seed b2"]
    log_std: Float[Array, "seed b2 columns"]
    h1: Float[Array, "seed b2 width"]
    h2: Float[Array, "seed b2 width"]


class Slopes(NamedTuple):
    """Gradients of a loss by the sums into each layer."""

    z1: Float[Array, "n b width"]
    z2: Float[Array, "n b width"]
    out: Float[Array, "n b out"]


def act(now: Now, actor: Packed, tile: Tile) -> Acted:
    """Actions in s, read without lam as candidates need them, and in s', read under lam as the target needs them."""
    at, given, sizes = now
    seeds, (b, columns, width) = given.x.shape[1], (sizes.batch, sizes.columns, sizes.width)
    return Acted(
        *call(
            partial(_act, sizes=sizes, tile=tile),
            (seeds, 2 * b // tile.rows),
            [whole(at), whole(given.x), whole(given.noise), *map(of_net, _leaves(actor))],
            [
                rows_of(shape(seeds, 2 * b, columns), tile.rows),
                rows_of(shape(seeds, 2 * b), tile.rows),
                rows_of(shape(seeds, 2 * b, columns), tile.rows),
                rows_of(shape(seeds, 2 * b, width), tile.rows),
                rows_of(shape(seeds, 2 * b, width), tile.rows),
            ],
            tile,
        )
    )


def _leaves(net: Packed) -> list[Any]:
    return jax.tree.leaves(net)


def _act(at: Ref, x_ref: Ref, noise_ref: Ref, *refs: Ref, sizes: Sizes, tile: Tile) -> None:
    w1, b1, w2, b2, w3, b3, x_out, logp_out, log_std_out, h1_out, h2_out = refs
    seed, block, k, c = pl.program_id(0), pl.program_id(1), at[0], sizes.columns
    is_policy = block < sizes.batch // tile.rows
    rows, number = pl.ds(block * tile.rows, tile.rows), column(c)
    is_action = (number >= sizes.obs) & (number < sizes.obs + sizes.act)
    x = jnp.where(is_action, 0.0, x_ref[k, seed, rows, :])
    noise = noise_ref[k, seed, rows, :]

    def chunk(i: Any, sums: Any) -> Any:
        units = pl.ds(i * tile.chunk, tile.chunk)
        h1 = relu(dot(x, w1[:, units]) + b1[0, units][None])
        h1_out[:, units] = h1  # a condition here would cost more than the rows in s', which nobody reads
        return sums + dot(h1, w2[units, :])

    sums = jax.lax.fori_loop(0, sizes.width // tile.chunk, chunk, jnp.zeros((tile.rows, sizes.width)))
    h2 = relu(sums + b2[0, :][None])
    mean = dot(h2, w3[pl.ds(0, c), :], trans_b=True) + b3[0, pl.ds(0, c)][None]
    log_std = dot(h2, w3[pl.ds(c, c), :], trans_b=True) + b3[0, pl.ds(c, c)][None]
    u = mean + jnp.exp(_clip(log_std)) * noise
    logp = -0.5 * noise * noise - _clip(log_std) - 0.5 * jnp.log(2.0 * jnp.pi) - _log_det(u)
    logp_out[:] = jnp.sum(jnp.where(is_action, logp, 0.0), axis=1)
    is_lam = (number >= sizes.obs + sizes.act) & (number < sizes.obs + sizes.act + sizes.d)
    x_out[...] = jnp.where(is_action, _tanh(u), jnp.where(is_lam & is_policy, 0.0, x))
    h2_out[...] = h2
    log_std_out[...] = log_std


def _clip(log_std: Any) -> Any:
    low, high = LOG_STD_RANGE
    return jnp.minimum(jnp.maximum(log_std, low), high)


def _log_det(u: Any) -> Any:
    """Log of the derivative of tanh, stable."""
    return 2.0 * (jnp.log(2.0) - u - relu(-2.0 * u) - jnp.log1p(jnp.exp(-jnp.abs(2.0 * u))))


def _tanh(u: Any) -> Any:
    return jnp.tanh(u)


def values(x: Any, critics: Packed, sizes: Sizes, tile: Tile) -> Float[Array, "n b values"]:
    """Vectors of target critics [seed x 2] in the second half of the rows of x."""
    n, b = len(critics.w1), sizes.batch
    return call(
        partial(_values, sizes=sizes, tile=tile),
        (n, b // tile.rows),
        [rows_of(x, tile.rows, share=2, first=b // tile.rows), *map(of_net, _leaves(critics))],
        [rows_of(shape(n, b, sizes.values), tile.rows)],
        tile,
    )[0]


def _values(x_ref: Ref, *refs: Ref, sizes: Sizes, tile: Tile) -> None:
    w1, b1, w2, b2, w3, b3, out = refs
    h2 = _hidden(x_ref[...], (w1, b1, w2, b2), None, sizes, tile)
    out[...] = dot(h2, w3[...], trans_b=True) + b3[0, :][None]


def _hidden(x: Any, layers: tuple[Ref, ...], h1_out: Ref | None, sizes: Sizes, tile: Tile) -> Any:
    """The second hidden layer; the first is written out if it is wanted."""
    w1, b1, w2, b2 = layers

    def chunk(i: Any, sums: Any) -> Any:
        units = pl.ds(i * tile.chunk, tile.chunk)
        h1 = relu(dot(x, w1[:, units]) + b1[0, units][None])
        if h1_out is not None:
            h1_out[:, units] = h1
        return sums + dot(h1, w2[units, :])

    sums = jax.lax.fori_loop(0, sizes.width // tile.chunk, chunk, jnp.zeros((tile.rows, sizes.width)))
    return relu(sums + b2[0, :][None])


def forward(
    now: Now, critics: Packed, tile: Tile
) -> tuple[Float[Array, "n b values"], Float[Array, "n b width"], Float[Array, "n b width"]]:
    """Vectors and activations of critics [seed x 2] for the transitions of the batch."""
    at, given, sizes = now
    n, b = len(critics.w1), sizes.batch
    return call(
        partial(_forward, sizes=sizes, tile=tile),
        (n, b // tile.rows),
        [whole(at), whole(given.x), *map(of_net, _leaves(critics))],
        [
            rows_of(shape(n, b, sizes.values), tile.rows),
            rows_of(shape(n, b, sizes.width), tile.rows),
            rows_of(shape(n, b, sizes.width), tile.rows),
        ],
        tile,
    )


def _forward(at: Ref, x_ref: Ref, *refs: Ref, sizes: Sizes, tile: Tile) -> None:
    w1, b1, w2, b2, w3, b3, out, h1_out, h2_out = refs
    rows = pl.ds(pl.program_id(1) * tile.rows, tile.rows)
    h2 = _hidden(x_ref[at[0], pl.program_id(0) // 2, rows, :], (w1, b1, w2, b2), h1_out, sizes, tile)
    h2_out[...] = h2
    out[...] = dot(h2, w3[...], trans_b=True) + b3[0, :][None]


class Seen(NamedTuple):
    """What the loss of the critics is made of."""

    q: Float[Array, "n b values"]
    h1: Float[Array, "n b width"]
    h2: Float[Array, "n b width"]
    target: Float[Array, "n b values"]
    """Vectors of the target critics."""
    logp: Float[Array, "seed b2"]
    log_alpha: Float[Array, "seed _"]
    """Of the run, or of each objective."""


def critic_slopes(
    now: Now, seen: Seen, critics: Packed, tile: Tile, pessimism: float = 1.0
) -> tuple[Slopes, Float[Array, "n b"], Float[Array, "n b"]]:
    """Gradients of loss (10) with target (9); and per row the loss and lam . Q."""
    at, given, sizes = now
    n, b, width = len(critics.w1), sizes.batch, sizes.width
    blocks, bounds = b // tile.rows, given.bounds
    out = call(
        partial(_critic_slopes, sizes=sizes, tile=tile, bonus=bounds and bounds.bonus, pessimism=pessimism),
        (n, blocks),
        [
            whole(at),
            whole(given.r),
            whole(given.going_on),
            whole(given.lam),
            rows_of(seen.q, tile.rows),
            rows_of(seen.h1, tile.rows),
            rows_of(seen.h2, tile.rows),
            whole(seen.target),
            rows_of(seen.logp, tile.rows, share=2, first=blocks),
            of_net(seen.log_alpha, share=2),
            of_net(critics.w2),
            of_net(critics.w3),
            *([] if bounds is None else [whole(bounds.sums)]),
        ],
        [
            rows_of(shape(n, b, width), tile.rows),
            rows_of(shape(n, b, width), tile.rows),
            rows_of(shape(n, b, sizes.values), tile.rows),
            rows_of(shape(n, b), tile.rows),
            rows_of(shape(n, b), tile.rows),
        ],
        tile,
    )
    return Slopes(*out[:3]), out[3], out[4]


def _critic_slopes(
    at: Ref, *refs: Ref, sizes: Sizes, tile: Tile, bonus: tuple[float, float] | None, pessimism: float
) -> None:
    r, going_on, lams, q_ref, h1, h2, target, logp, log_alpha, w2, w3, *bounds = refs[:-5]
    z1_out, z2_out, out, loss, scalar = refs[-5:]
    k, net = at[0], pl.program_id(0)
    seed, rows = net // 2, pl.ds(pl.program_id(1) * tile.rows, tile.rows)
    lam = lams[k, seed, :][None]
    one, two = target[2 * seed, rows, :], target[2 * seed + 1, rows, :]
    is_one = jnp.sum(one * lam, axis=1) <= jnp.sum(two * lam, axis=1)
    value, alpha = jnp.where(is_one[:, None], one, two), _temperature(log_alpha, lams, (k, seed))
    if pessimism < 1:
        other = jnp.where(is_one[:, None], two, one)
        value = other + pessimism * (value - other)
    soft = value - (alpha * logp[:])[:, None]
    q = q_ref[...]
    y = r[k, seed, rows, :] + going_on[k, seed, rows][:, None] * soft
    if bonus is not None:
        low, high = (bounds[0][k, seed, i, :] + alpha * bonus[i] for i in range(2))
        y = jnp.minimum(jnp.maximum(y, low[None]), high[None])
    delta = q - y
    slope = (2.0 / sizes.batch) * lam * delta
    out[...] = slope
    loss[:] = jnp.sum(lam * delta * delta, axis=1)
    scalar[:] = jnp.sum(lam * q, axis=1)
    _back(dot(slope, w3[...]), (h1, h2), w2, (z1_out, z2_out), tile)


def _temperature(log_alpha: Ref, lams: Ref | None, where: tuple[Any, Any]) -> Any:
    """That of the run; or where there is one for each objective, that of lam."""
    if lams is None or log_alpha.shape[0] == 1:
        return jnp.exp(log_alpha[0])
    return jnp.exp(jnp.sum(lams[*where, :] * log_alpha[:]))


def _back(by_h2: Any, hidden: tuple[Ref, Ref], w2: Ref, outs: tuple[Ref, Ref], tile: Tile) -> None:
    """From the gradient by the second hidden layer to those by the sums into both layers."""
    h1, h2 = hidden
    z1_out, z2_out = outs
    z2 = jnp.where(h2[...] > 0, by_h2, 0.0)
    z2_out[...] = z2

    def chunk(i: Any, _: Any) -> Any:
        units = pl.ds(i * tile.chunk, tile.chunk)
        z1_out[:, units] = jnp.where(h1[:, units] > 0, dot(z2, w2[units, :], trans_b=True), 0.0)
        return _

    jax.lax.fori_loop(0, z2.shape[1] // tile.chunk, chunk, 0)


class Climbed(NamedTuple):
    """What the loss of the policy is made of: of snapshots (if there are any) and critic, and the temperature."""

    best: list[tuple[Float[Array, "n b columns"], Any]]
    """Gradients of values by (s, a, lam), and the values; where a snapshot is as good as the critic, its own count."""
    log_alpha: Float[Array, "seed _"]
    """Of the run, or of each objective."""


def actor_slopes(now: Now, acted: Acted, climbed: Climbed, actor: Packed, tile: Tile) -> Slopes:
    """Gradients of the policy loss, given the gradient of each network's share of the value by the action."""
    (at, given, sizes), (best, log_alpha) = now, climbed
    values = [rows_of(one.value, tile.rows) for _, one in best] if len(best) > 1 else []
    lams = [whole(given.lam)] if log_alpha.shape[1] > 1 else []
    seeds, b, width = len(actor.w1), sizes.batch, sizes.width
    out = call(
        partial(_actor_slopes, sizes=sizes, tile=tile, num=len(best)),
        (seeds, b // tile.rows),
        [
            whole(at),
            whole(given.noise),
            rows_of(acted.x, tile.rows),
            rows_of(acted.log_std, tile.rows),
            rows_of(acted.h1, tile.rows),
            rows_of(acted.h2, tile.rows),
            of_net(log_alpha),
            of_net(actor.w2),
            of_net(actor.w3),
            *(whole(by_inputs) for by_inputs, _ in best),
            *values,
            *lams,
        ],
        [
            rows_of(shape(seeds, b, width), tile.rows),
            rows_of(shape(seeds, b, width), tile.rows),
            rows_of(shape(seeds, b, 2 * sizes.columns), tile.rows),
        ],
        tile,
    )
    return Slopes(*out)


def _actor_slopes(at: Ref, *refs: Ref, sizes: Sizes, tile: Tile, num: int) -> None:
    noise_ref, x, log_std_ref, h1, h2, log_alpha, w2, w3, *rest = refs
    climbs, others, (z1_out, z2_out, out) = rest[:num], rest[num:-3], rest[-3:]
    values, lams = (others[:num], others[num:]) if num > 1 else ([], others)
    seed, rows, c = pl.program_id(0), pl.ds(pl.program_id(1) * tile.rows, tile.rows), sizes.columns
    number = column(c)
    is_action = (number >= sizes.obs) & (number < sizes.obs + sizes.act)
    sum_of = lambda ref, nets: sum(ref[seed * nets + i, rows, :] for i in range(nets))
    climb: Any = sum_of(climbs[-1], 2)
    if num > 1:
        is_past = values[0][:] >= values[1][:]
        climb += jnp.where(is_past[:, None], sum_of(climbs[0], 2 * sizes.snapshots), 0.0)
    a, log_std = x[...], log_std_ref[...]
    alpha = _temperature(log_alpha, lams[0] if lams else None, (at[0], seed))
    by_u = (2.0 * alpha * a - climb * (1.0 - a * a)) / sizes.batch
    by_mean = jnp.where(is_action, by_u, 0.0)
    spread = jnp.exp(_clip(log_std)) * noise_ref[at[0], seed, rows, :]
    is_inside = is_action & (log_std > LOG_STD_RANGE[0]) & (log_std < LOG_STD_RANGE[1])
    by_log_std = jnp.where(is_inside, by_u * spread - alpha / sizes.batch, 0.0)
    out[:, pl.ds(0, c)] = by_mean
    out[:, pl.ds(c, c)] = by_log_std
    by_h2 = dot(by_mean, w3[pl.ds(0, c), :]) + dot(by_log_std, w3[pl.ds(c, c), :])
    _back(by_h2, (h1, h2), w2, (z1_out, z2_out), tile)


class Learned(NamedTuple):
    """A network with Adam's moments, and its target if it has one."""

    net: Packed
    mu: Packed
    nu: Packed
    target: Packed | None = None


class Rates(NamedTuple):
    """How far a target moves, and a type in which the second layer is wanted too."""

    tau: float
    half: Any = None


class Gradients(NamedTuple):
    """What gradients of weights are made of: hidden layers, and slopes of the loss."""

    h1: Float[Array, "n b width"]
    h2: Float[Array, "n b width"]
    slopes: Slopes


def learn(now: Now, gradients: Gradients, old: Learned, rates: Rates, tile: Tile) -> tuple[Learned, Any]:
    """Gradients of the weights, Adam's step and the target's; and the second layer as `rates.half`, if given."""
    (at, given, sizes), (h1, h2, slopes), half = now, gradients, rates.half
    n = len(old.net.w1)
    seeds = given.x.shape[1]
    columns, rows = (sizes.width // tile.rows,) * 2
    before = jax.tree.leaves(old)
    extra = [] if half is None else [of_net(shape(n, sizes.width, sizes.width, dtype=half))]
    inputs = [whole(at), whole(given.x), whole(given.adam), *map(of_net, (h1, h2, *slopes))]
    out = call(
        partial(_learn, rates=rates, sizes=sizes, tile=tile, share=n // seeds, num=len(before)),
        (n, columns, rows),
        [*inputs, *map(of_net, before)],
        [*(of_net(shape(*leaf.shape)) for leaf in before), *extra],
        tile,
        {len(inputs) + i: i for i in range(len(before))},
    )
    new = jax.tree.unflatten(jax.tree.structure(old), out[: len(before)])
    return new, None if half is None else out[-1]


def _learn(  # noqa: PLR0913 (what Pallas calls with blocks only)
    at: Ref, *refs: Ref, rates: Rates, sizes: Sizes, tile: Tile, share: int, num: int
) -> None:
    x, adam, h1, h2, z1, z2, out = refs[:7]
    before, after = refs[7 : 7 + num], refs[7 + num :]
    k, net, i, j = at[0], pl.program_id(0), pl.program_id(2), pl.program_id(1)
    mine, theirs = pl.ds(j * tile.rows, tile.rows), pl.ds(i * tile.rows, tile.rows)
    scales = (adam[k, 0], adam[k, 1], adam[k, 2])
    part = lambda number, where: _Part(before[number:num:6], after[number:num:6], where, scales, rates)
    gradients = _Products(x, Gradients(h1, h2, Slopes(z1, z2, out)), (k, net), sizes, tile, share)

    second, old = part(2, (theirs, mine)), part(2, (theirs, mine)).read()  # before the product: they come meanwhile
    moved = second.step(gradients.second(theirs, mine), old)
    if len(after) > num:
        after[-1][theirs, mine] = moved.astype(after[-1].dtype)

    @pl.when(i == 0)
    def _() -> None:
        for number, where, gradient in gradients.others(mine):
            one = part(number, (where, mine))
            one.step(gradient, one.read())

    @pl.when((i == 0) & (j == 0))
    def _() -> None:
        last = part(5, (0, slice(None)))
        last.step(gradients.last(), last.read())


class _Products(NamedTuple):
    """Gradients of a network's weights, part by part: sums over the batch."""

    x: Ref
    of: Gradients
    where: tuple[Any, Any]
    """Update and network."""
    sizes: Sizes
    tile: Tile
    share: int

    @property
    def _steps(self) -> int:
        return self.sizes.batch // self.tile.chunk

    def _rows(self, step: Any) -> Any:
        return pl.ds(step * self.tile.chunk, self.tile.chunk)

    def second(self, theirs: Any, mine: Any) -> Any:
        """Of the second layer, from some units of the first to some of the second."""
        h1, z2, rows_at = self.of.h1, self.of.slopes.z2, self._rows
        add = lambda b, sums: sums + dot(h1[rows_at(b), theirs], z2[rows_at(b), mine], trans_a=True)
        return jax.lax.fori_loop(0, self._steps, add, jnp.zeros((self.tile.rows, self.tile.rows)))

    def others(self, mine: Any) -> tuple[tuple[int, Any, Any], ...]:
        """Of all but the second layer and the last bias, at some hidden units: numbers, places and gradients."""
        (_, h2, (z1, z2, out)), sizes, rows = self.of, self.sizes, self.tile.rows
        number, (k, net), rows_at = column(sizes.columns), self.where, self._rows
        is_action = (number >= sizes.obs) & (number < sizes.obs + sizes.act)

        def add(b: Any, sums: Any) -> Any:
            x = self.x[k, net // self.share, rows_at(b), :]
            x = jnp.where(is_action, 0.0, x) if self.share == 1 else x  # a policy does not see the action
            by1, by2, by_out = z1[rows_at(b), mine], z2[rows_at(b), mine], out[rows_at(b), :]
            parts = dot(x, by1, trans_a=True), dot(by_out, h2[rows_at(b), mine], trans_a=True), by1.sum(0), by2.sum(0)
            return tuple(a + part for a, part in zip(sums, parts, strict=True))

        shapes = ((sizes.columns, rows), (out.shape[1], rows), (rows,), (rows,))
        w1, w3, b1, b2 = jax.lax.fori_loop(0, self._steps, add, tuple(map(jnp.zeros, shapes)))
        return (0, slice(None), w1), (4, slice(None), w3), (1, 0, b1), (3, 0, b2)

    def last(self) -> Any:
        """Of the last bias."""
        out: Any = self.of.slopes.out
        add = lambda b, sums: sums + out[self._rows(b), :].sum(0)
        return jax.lax.fori_loop(0, self._steps, add, jnp.zeros(out.shape[1]))


class Measured(NamedTuple):
    """Gradients of critics' weights, and what the lengths of those of both twins are made of."""

    gradients: Packed
    second: Float[Array, "n parts"]
    """Sums of squares over parts of the second layer."""
    others: Float[Array, "n columns"]
    """The same of all other weights."""


def measure(now: Now, gradients: Gradients, critics: Packed, tile: Tile) -> Measured:
    """Gradients of critics [seed x 2], written out: their length must be known before the first step is taken."""
    (at, given, sizes), (h1, h2, slopes) = now, gradients
    n = len(critics.w1)
    columns, rows = (sizes.width // tile.rows,) * 2
    shapes = [shape(*leaf.shape) for leaf in _leaves(critics)]
    out = call(
        partial(_measure, sizes=sizes, tile=tile),
        (n, columns, rows),
        [whole(at), whole(given.x), *map(of_net, (h1, h2, *slopes))],
        [*map(of_net, shapes), of_net(shape(n, columns * rows)), of_net(shape(n, columns))],
        tile,
    )
    return Measured(Packed(*out[:6]), *out[6:])


def _measure(at: Ref, x: Ref, *refs: Ref, sizes: Sizes, tile: Tile) -> None:
    h1, h2, z1, z2, out = refs[:5]
    outs, (of_second, of_others) = refs[5:11], refs[11:]
    i, j = pl.program_id(2), pl.program_id(1)
    mine, theirs = pl.ds(j * tile.rows, tile.rows), pl.ds(i * tile.rows, tile.rows)
    where = (at[0], pl.program_id(0))
    gradients = _Products(x, Gradients(h1, h2, Slopes(z1, z2, out)), where, sizes, tile, 2)
    second = gradients.second(theirs, mine)
    outs[2][theirs, mine] = second
    of_second[j * (sizes.width // tile.rows) + i] = _squares(second)

    @pl.when(i == 0)
    def _() -> None:
        sums = jnp.where(j == 0, _squares(gradients.last()), 0.0)
        for number, first, gradient in gradients.others(mine):
            outs[number][first, mine] = gradient
            sums += _squares(gradient)
        of_others[j] = sums

    @pl.when((i == 0) & (j == 0))
    def _() -> None:
        outs[5][0, :] = gradients.last()


def _squares(x: Any) -> Any:
    return jnp.sum(x * x if x.ndim == 1 else jnp.sum(x * x, axis=1))


class Lengths(NamedTuple):
    """How long gradients of critics may be: at most `most` times their running median, whose logarithm this is."""

    median: Float[Array, "seed 1"]
    most: float


def learn_measured(  # noqa: PLR0913
    now: Now, measured: Measured, lengths: Lengths, old: Learned, rates: Rates, tile: Tile
) -> tuple[Learned, Any, Float[Array, "seed 1"]]:
    """`learn` of critics, with gradients that are not longer than allowed; and the new median."""
    (at, given, sizes), n, seeds = now, len(old.net.w1), len(lengths.median)
    columns, rows = (sizes.width // tile.rows,) * 2
    before = jax.tree.leaves(old)
    of_twins = lambda part: of_net(part.reshape(seeds, -1), share=2)
    inputs = [
        *(whole(at), whole(given.adam), *map(of_net, _leaves(measured.gradients))),
        *(of_twins(measured.second), of_twins(measured.others), of_twins(lengths.median)),
    ]
    second = shape(n, sizes.width, sizes.width, dtype=rates.half)
    out = call(
        partial(_learn_measured, rates=rates, tile=tile, most=lengths.most, num=len(before)),
        (n, columns, rows),
        [*inputs, *map(of_net, before)],
        [*(of_net(shape(*leaf.shape)) for leaf in before), of_net(second), of_net(shape(seeds, 1), share=2)],
        tile,
        {len(inputs) + i: i for i in range(len(before))},
    )
    return jax.tree.unflatten(jax.tree.structure(old), out[: len(before)]), *out[-2:]


def _learn_measured(at: Ref, *refs: Ref, rates: Rates, tile: Tile, most: float, num: int) -> None:
    adam, *gradients = refs[:7]
    of_second, of_others, old_median = refs[7:10]
    before, after, (second_out, median_out) = refs[10 : 10 + num], refs[10 + num : -2], refs[-2:]
    k, net, i, j = at[0], pl.program_id(0), pl.program_id(2), pl.program_id(1)
    mine, theirs = pl.ds(j * tile.rows, tile.rows), pl.ds(i * tile.rows, tile.rows)
    scales = (adam[k, 0], adam[k, 1], adam[k, 2])
    length = jnp.sqrt(jnp.sum(of_second[:]) + jnp.sum(of_others[:]))
    shorter, median = shorten(length, old_median[0], most)

    def step(number: int, where: Any) -> Any:
        part = _Part(before[number:num:6], after[number:num:6], where, scales, rates)
        return part.step(shorter * gradients[number][where], part.read())

    second_out[theirs, mine] = step(2, (theirs, mine)).astype(second_out.dtype)

    @pl.when(i == 0)
    def _() -> None:
        for number, first in ((0, slice(None)), (4, slice(None)), (1, 0), (3, 0)):
            step(number, (first, mine))

    @pl.when((i == 0) & (j == 0))
    def _() -> None:
        step(5, (0, slice(None)))

    @pl.when((i == 0) & (j == 0) & (net % 2 == 0))
    def _() -> None:
        median_out[0] = median


class _Part(NamedTuple):
    """A part of a weight, with its moments and its target if it has one: where they lie before and after."""

    before: tuple[Ref, ...]
    after: tuple[Ref, ...]
    where: Any
    scales: Any
    """The update's row of `Inputs.adam`."""
    rates: Rates

    def read(self) -> list[Any]:
        return [ref[self.where] for ref in self.before]

    def step(self, gradient: Any, old: list[Any]) -> Any:
        """Adam's step, and the target's; returns the new weight."""
        decay, decay2, epsilon = ADAM
        mu = decay * old[1] + (1.0 - decay) * gradient
        nu = decay2 * old[2] + (1.0 - decay2) * gradient * gradient
        step = (mu / self.scales[0]) / (jnp.sqrt(nu / self.scales[1]) + epsilon)
        new = [old[0] - self.scales[2] * step, mu, nu]
        if len(old) == 4:
            new.append(old[3] + self.rates.tau * (new[0] - old[3]))
        for ref, value in zip(self.after, new, strict=True):
            ref[self.where] = value
        return new[0]
