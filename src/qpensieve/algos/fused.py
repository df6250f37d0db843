"""The updates of a block of MO-SAC and Q-Pensieve on fused kernels: the same step, all seeds at once.

Networks are packed before the first update of a block and unpacked after its last, so that states, checkpoints and the
plain step (`mosac.step`, `qpensieve.step`), which is the oracle, know nothing of it.
"""

import math
import warnings
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, Literal

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Int

from qpensieve.algos import mosac, qpensieve
from qpensieve.learning.guards import (
    LONGEST_GRADIENT,
    SNAPSHOT_MARGIN,
    LossTrack,
    RewardRange,
    entropy_range,
    temperature_rise,
    with_loss,
)
from qpensieve.learning.interface import PEAK, Infos, Transition
from qpensieve.learning.kernels import candidates, networks
from qpensieve.learning.kernels.calls import Tile, is_interpreted
from qpensieve.learning.kernels.candidates import Best, Candidates, Margin, Rival, Scored
from qpensieve.learning.kernels.networks import ADAM, Bounds, Climbed, Gradients, Inputs, Learned, Now, Rates, Seen
from qpensieve.learning.kernels.packing import Layout, Packed, Sizes, actor_layout, critic_layout
from qpensieve.types import EnvSpec

Precision = Literal["half", "full"]
Block = Callable[[Any, tuple[Transition, ...], Any], tuple[Any, Infos]]
"""`UniformLearning.block`."""
UNROLLED = 5
"""Updates of one turn of the loop. A turn costs the card 4 to 8 microseconds of its own, and what one update leaves to
the end runs beside the beginning of the next."""
WIDEST = 256
"""Hidden units beyond which a program's share does not fit on the chip."""
NARROW = 64
"""Columns of inputs (observation, action and preference, to a power of two) with which all cuts fit on the chip."""
MOST_INPUTS = 128
"""Numbers of observation, action and preference with which any cut does."""
LOGGED = ("critic_loss", "policy_loss", "temperature", "q", "entropy", "snapshot_share", "other_preference_share")
OF_MEMORY = LOGGED[5:]
"""What only Q-Pensieve logs."""


@dataclass(frozen=True)
class Tiles:
    """How each kernel is cut; whether one program scores one preference or all; and when snapshots are climbed.

    Beside the critics' step they are climbed for every sample, also where the critic will turn out better. That hides
    their time from few seeds, which leave the card idle. Many seeds would pay for it, and climb them afterwards.
    """

    act: Tile
    values: Tile
    forward: Tile
    slopes: Tile
    learn: Tile
    measure: Tile
    score: Tile
    score_new: Tile
    climb: Tile
    split: bool = False
    split_new: bool = True
    climbs_beside: bool = True


_ROWS = Tile(32, 32, 4, 2)
_SQUARES = Tile(32, 64, 4, 2)
"""Of gradients that are measured: 256 rows at a time, as `learn` takes them, do not fit into the registers: 137 of an
update's 358 microseconds, which became 232."""
FEW = Tiles(
    *(Tile(16, 32, 4, 3), Tile(16, 64, 8, 2), Tile(16, 64, 8, 2), Tile(16, 64, 4, 2), Tile(32, 64, 4, 2), _SQUARES),
    *(Tile(128, 32, 8, 1), Tile(32, 64, 4, 1), Tile(64, 64, 4, 1)),
    split=True,
)
SOME = Tiles(
    *(_ROWS, _ROWS, _ROWS, Tile(32, 64, 4, 2), Tile(32, 64, 4, 3), _SQUARES),
    *(Tile(128, 256, 8, 1, part=128), Tile(128, 128, 8, 1), Tile(64, 32, 8, 3, streams=True)),
)
MANY = Tiles(
    *(_ROWS, _ROWS, _ROWS, Tile(32, 64, 4, 2), Tile(64, 32, 4, 3), _SQUARES),
    *(Tile(64, 256, 8, 1), Tile(64, 256, 8, 1), Tile(128, 64, 8, 1)),
    split_new=False,
    climbs_beside=False,
)
"""Chosen for 1, 5 and 50 seeds on an H200, kernel by kernel (`results/h200/kernels.json`; `score`, `learn` and `climb`
of SOME for the settings of `robust`, `tiles.json`)."""


def choose_tiles(seeds: int, precision: Precision, columns: int = NARROW) -> Tiles:
    """By what is fastest; for inputs of many columns those that fit on the chip at all."""
    tiles = FEW if seeds <= 2 or columns > NARROW else SOME if seeds <= 16 else MANY
    # In full precision the second layer does not fit on the chip: it comes in chunks, as in other kernels.
    return tiles if precision == "half" else replace(tiles, score=_ROWS, score_new=_ROWS, climb=_ROWS)


def fit(tiles: Tiles, sizes: Sizes) -> Tiles:
    """The same, not larger than batch and networks allow."""
    rows = sizes.batch & -sizes.batch

    def smaller(name: str, tile: Any) -> Any:
        if isinstance(tile, bool):
            return tile
        of_rows, of_units = (sizes.width, rows) if name in ("learn", "measure") else (rows, sizes.width)
        return replace(
            tile, rows=min(tile.rows, of_rows), chunk=min(tile.chunk, of_units), part=min(tile.part, sizes.width)
        )

    return Tiles(**{name: smaller(name, tile) for name, tile in vars(tiles).items()})


class Memory(eqx.Module):
    """What updates of a block change; everything leads with seeds, or with networks seed by seed."""

    actor: Learned
    critic: Learned
    log_alpha: Float[Array, "seed _"]
    """Of the run, or of each objective in the columns of a critic's answer; so are the next two."""
    mu: Float[Array, "seed _"]
    nu: Float[Array, "seed _"]
    sums: Float[Array, "seed logged"]
    peak: Float[Array, " seed"]
    """The largest loss of the critics so far."""
    loss_track: LossTrack | None = None
    """Only with `guards`."""
    median: Float[Array, "seed 1"] | None = None
    """Of lengths of the critics' gradient, its logarithm; only with `guards`."""


class Past(eqx.Module):
    """The snapshots, fixed through a block; None if there are no slots for any."""

    nets: Packed | None
    second: Any
    """Second layers in the precision of scoring."""
    filled: Float[Array, "seed k"]

    @property
    def candidates(self) -> Candidates:
        assert self.nets is not None
        return Candidates(self.nets, self.second, self.filled)


@dataclass(frozen=True)
class Plan:
    """Everything about a block but its numbers."""

    sac: mosac.SacConfig
    sizes: Sizes
    precision: Precision
    margin: float | None = None
    """`SNAPSHOT_MARGIN` of Q-Pensieve with `guards`."""
    tiles: Tiles | None = None
    """None: by the number of seeds."""

    def tiles_for(self, given: Inputs) -> Tiles:
        seeds, columns = given.x.shape[1], self.sizes.columns
        return fit(self.tiles or choose_tiles(seeds, self.precision, columns), self.sizes)

    @property
    def dtype(self) -> Any:
        return jnp.float16 if self.precision == "half" else jnp.float32

    @property
    def logged(self) -> tuple[str, ...]:
        """What updates log."""
        return (*LOGGED, mosac.RAISE) if self.sac.guards else LOGGED

    @property
    def layouts(self) -> tuple[Layout, Layout]:
        """Of policy and critics."""
        return actor_layout(self.sizes), critic_layout(self.sizes)


def plan_mosac(cfg: mosac.SacConfig, spec: EnvSpec, precision: Precision, past: tuple[int, int] = (0, 1)) -> Plan:
    """The plan of MO-SAC; `past`: numbers of snapshots and of preferences."""
    sizes = Sizes(spec.obs_size, spec.action_size, spec.num_objectives, cfg.hidden, cfg.batch_size, *past)
    return Plan(cfg, sizes, precision)


def plan_qpensieve(cfg: qpensieve.QPensieveConfig, spec: EnvSpec, precision: Precision) -> Plan:
    plan = plan_mosac(cfg.sac, spec, precision, (cfg.num_snapshots, cfg.num_preferences))
    return replace(plan, margin=SNAPSHOT_MARGIN if cfg.sac.guards else None)


def learn_mosac(plan: Plan, states: mosac.State, batch: Transition, draws: mosac.Draws) -> tuple[mosac.State, Infos]:
    """All updates of a block of MO-SAC; states lead with seeds, batch and draws with [seed, K]."""
    given = _inputs(plan, states, batch, draws)
    memory, infos = _learn(plan, _no_past(len(states.log_alpha)), given, _pack(plan, states))
    states = _unpack(plan, memory, states, batch)
    return states, {name: value for name, value in infos.items() if name not in OF_MEMORY}


def learn_qpensieve(
    plan: Plan, states: qpensieve.State, batch: Transition, draws: mosac.Draws
) -> tuple[qpensieve.State, Infos]:
    """All updates of a block of Q-Pensieve; states lead with seeds, batch and draws with [seed, K]."""
    ring = states.snapshots
    if plan.sizes.snapshots:
        nets = plan.layouts[1].pack(ring.critics.net)
        past = Past(nets, nets.w2.astype(plan.dtype), ring.filled.astype(jnp.float32))
    else:
        past = _no_past(len(ring.filled))
    given = _inputs(plan, states.sac, batch, draws)
    memory, infos = _learn(plan, past, given, replace(_pack(plan, states.sac), loss_track=states.loss_track))
    learned = _unpack(plan, memory, states.sac, batch), memory.loss_track
    return eqx.tree_at(lambda state: (state.sac, state.loss_track), states, learned, is_leaf=lambda x: x is None), infos


def _no_past(seeds: int) -> Past:
    return Past(None, None, jnp.zeros((seeds, 1)))


def _learn(plan: Plan, past: Past, given: Inputs, memory: Memory) -> tuple[Memory, Infos]:
    num = len(given.x)
    step = partial(_step, plan, past, given)
    body = lambda i, memory: step(jnp.full((1,), i, jnp.int32), memory)
    memory = jax.lax.fori_loop(0, num, body, memory, unroll=math.gcd(num, UNROLLED))
    infos = {name: memory.sums[:, i] / num for i, name in enumerate(plan.logged)} | {LOGGED[0] + PEAK: memory.peak}
    return memory, infos


def _inputs(plan: Plan, states: mosac.State, batch: Transition, draws: mosac.Draws) -> Inputs:
    """Everything that updates are given, update by update, in the columns of packed networks."""
    sizes, num = plan.sizes, batch.r.shape[1]
    adam: Any = states.optimizers.actor
    prefs = draws.prefs
    lam = jnp.broadcast_to(prefs[:, :, :1], (*batch.r.shape[:3], sizes.d))
    none = jnp.zeros_like(batch.a)
    now, then = jnp.concatenate([batch.s, batch.a, lam], -1), jnp.concatenate([batch.s_next, none, lam], -1)
    noise = jnp.concatenate([draws.noise, draws.next_noise], 2)
    place = lambda part, first, width: jnp.pad(part, [(0, 0)] * 3 + [(first, width - first - part.shape[-1])])
    before = adam[0].count[0] + jnp.arange(num)
    after = (before + 1).astype(jnp.float32)
    by_update = lambda x: jnp.swapaxes(x, 0, 1)
    bounds = None
    if states.rewards is not None:
        horizon, seen = 1.0 / (1.0 - plan.sac.discount), _rewards(states.rewards, batch)
        sums = horizon * place(jnp.stack([seen.low, seen.high], 2), 0, sizes.values)
        least, most = entropy_range(plan.sac.least_target_entropy, sizes.act)
        bounds = Bounds(by_update(sums), (horizon * least, horizon * most))
    return Inputs(
        x=by_update(place(jnp.concatenate([now, then], 2), 0, sizes.columns)),
        noise=by_update(place(noise, sizes.obs, sizes.columns)),
        r=by_update(place(batch.r, 0, sizes.values)),
        going_on=by_update(plan.sac.discount * (1.0 - batch.terminated)),
        prefs=by_update(place(prefs, sizes.obs + sizes.act, sizes.columns)),
        lam=by_update(place(prefs, 0, sizes.values)[:, :, 0]),
        adam=jnp.stack([1.0 - ADAM[0] ** after, 1.0 - ADAM[1] ** after, mosac.learning_rate_at(plan.sac, before)], -1),
        entropy_target=sizes.act * mosac.target_entropy_at(plan.sac, jnp.asarray(draws.num_updates)[0]),
        bounds=bounds,
    )


def _rewards(before: RewardRange, batch: Transition) -> RewardRange:
    """The range of rewards at each update [seed, K, d], its own batch included."""
    least, most = batch.r.min(axis=2), batch.r.max(axis=2)
    low = jnp.minimum(before.low[:, None], jax.lax.cummin(least, axis=1))
    high = jnp.maximum(before.high[:, None], jax.lax.cummax(most, axis=1))
    return eqx.tree_at(lambda seen: (seen.low, seen.high), before, (low, high))


def _pack(plan: Plan, states: mosac.State) -> Memory:
    actor, critic = plan.layouts
    opt: Any = states.optimizers
    moments = lambda layout, state: (layout.pack(state[0].mu.net), layout.pack(state[0].nu.net))
    pack = critic.pack
    lengths, adam = opt.critic if plan.sac.guards else (None, opt.critic)
    return Memory(
        Learned(actor.pack(states.actor.net), *moments(actor, opt.actor)),
        Learned(pack(states.critic.net), *moments(critic, adam), pack(states.target.net)),
        _columns(plan, states.log_alpha),
        _columns(plan, opt.temperature[0].mu),
        _columns(plan, opt.temperature[0].nu),
        jnp.zeros((len(states.log_alpha), len(plan.logged))),
        jnp.full(len(states.log_alpha), -jnp.inf),
        median=None if lengths is None else lengths.median[:, None],
    )


def _columns(plan: Plan, of_temperature: Any) -> Any:
    """What there is one of for each seed, or one for each objective, for kernels."""
    if of_temperature.ndim == 1:
        return of_temperature[:, None]
    return jnp.pad(of_temperature, [(0, 0), (0, plan.sizes.values - plan.sizes.d)])


def _unpack(plan: Plan, memory: Memory, states: mosac.State, batch: Transition) -> mosac.State:
    """The states after the updates on these batches."""
    (actor, critic), num = plan.layouts, batch.r.shape[1]
    opt: Any = states.optimizers

    def adam(layout: Layout, learned: Learned, state: Any) -> Any:
        moments = {name: layout.unpack(getattr(learned, name), getattr(state[0], name)) for name in ("mu", "nu")}
        return _counted(state[0]._replace(**moments), num), *(_counted(part, num) for part in state[1:])

    def clipped(state: Any) -> Any:
        if memory.median is None:
            return adam(critic, memory.critic, state)
        return state[0]._replace(median=memory.median[:, 0]), adam(critic, memory.critic, state[1])

    mine = lambda part: part[:, 0] if states.log_alpha.ndim == 1 else part[:, : plan.sizes.d]
    temperature = opt.temperature[0]
    temperature = _counted(temperature._replace(mu=mine(memory.mu), nu=mine(memory.nu)), num)
    assert memory.critic.target is not None
    learned = (
        actor.unpack(memory.actor.net, states.actor),
        critic.unpack(memory.critic.net, states.critic),
        critic.unpack(memory.critic.target, states.target),
        mine(memory.log_alpha),
        adam(actor, memory.actor, opt.actor),
        clipped(opt.critic),
        (temperature, *opt.temperature[1:]),
    )
    of = lambda state: (state.optimizers.actor, state.optimizers.critic, state.optimizers.temperature)
    # Not by the constructor, which is for one seed.
    states = eqx.tree_at(lambda s: (s.actor, s.critic, s.target, s.log_alpha, *of(s)), states, learned)
    if states.rewards is None:
        return states
    last = jax.tree.map(lambda leaf: leaf[:, -1], _rewards(states.rewards, batch))
    return eqx.tree_at(lambda s: s.rewards, states, last)


def _counted(part: Any, num: int) -> Any:
    """A part of an optimiser's state after `num` more updates, if it counts them."""
    return part._replace(count=part.count + num) if "count" in part._fields else part


def _step(plan: Plan, past: Past, given: Inputs, at: Int[Array, " 1"], memory: Memory) -> Memory:
    """One update of all seeds, in the order of `mosac.step`."""
    now, tiles, old, log_alpha = Now(at, given, plan.sizes), plan.tiles_for(given), memory.critic, memory.log_alpha
    assert old.target is not None
    acted = networks.act(now, memory.actor.net, tiles.act)
    score = partial(candidates.score, now, acted.x)
    climb = partial(candidates.climb, now, acted.x, tile=tiles.climb)
    of_past, climbed = None, []
    if past.nets is not None:  # beside the critics' step, which they do not need
        of_past = Scored(score(past.candidates, tiles.score, tiles.split), past.candidates)
        if tiles.climbs_beside and plan.margin is None:
            climbed.append(climb(*of_past))
    q, h1, h2 = networks.forward(now, old.net, tiles.forward)
    target = networks.values(acted.x, old.target, plan.sizes, tiles.values)
    seen = Seen(q, h1, h2, target, acted.logp, log_alpha)
    slopes, losses, scalars = networks.critic_slopes(now, seen, old.net, tiles.slopes, plan.sac.pessimism)
    rates = Rates(plan.sac.tau, plan.dtype)
    critic, second, median = _learn_critics(plan, now, Gradients(h1, h2, slopes), memory, rates)

    current = Candidates(critic.net, second, jnp.ones((len(log_alpha), 1)))
    of_critic = Scored(score(current, tiles.score_new, tiles.split_new), current)
    if plan.margin is None:
        climbed = _climb(climb, of_past, of_critic, climbed)
    else:
        climbed = _climb_within(plan.margin, climb, of_past, of_critic)

    logp = acted.logp[:, : plan.sizes.batch]
    mean_logp = jnp.mean(logp, axis=1, keepdims=True)
    lam = given.lam[at[0]] if log_alpha.shape[1] > 1 else None
    entropy_target = given.entropy_target[at[0]]
    own = log_alpha if lam is None else jnp.sum(lam * log_alpha, axis=1, keepdims=True)
    raise_by = None
    if plan.sac.guards:
        raise_by = temperature_rise(mean_logp, entropy_target, plan.sizes.act)
        log_alpha = own + raise_by
    slopes = networks.actor_slopes(now, acted, Climbed(climbed, log_alpha), memory.actor.net, tiles.slopes)
    gradients = Gradients(acted.h1, acted.h2, slopes)
    actor, _ = networks.learn(now, gradients, memory.actor, rates._replace(half=None), tiles.learn)
    temperature = _temperature(plan, given.adam[at[0]], entropy_target + mean_logp, lam, memory)
    logged = _logged((own, raise_by), (losses, scalars), logp, [best for _, best in climbed])
    sums, loss, loss_track = memory.sums + logged, logged[:, 0], memory.loss_track
    loss_track = loss_track if loss_track is None else jax.vmap(with_loss)(loss_track, loss)
    return Memory(actor, critic, *temperature, sums, jnp.maximum(memory.peak, loss), loss_track, median)


def _learn_critics(
    plan: Plan, now: Now, gradients: Gradients, memory: Memory, rates: Rates
) -> tuple[Learned, Any, Any]:
    """Critics after Adam's step, their second layers for scoring, and the median of the gradient's length."""
    tiles, old = plan.tiles_for(now.given), memory.critic
    if memory.median is None:
        return *networks.learn(now, gradients, old, rates, tiles.learn), None
    measured = networks.measure(now, gradients, old.net, tiles.measure)
    lengths = networks.Lengths(memory.median, LONGEST_GRADIENT)
    return networks.learn_measured(now, measured, lengths, old, rates, tiles.measure)


def _climb(climb: Any, past: Scored | None, current: Scored, climbed: list[Any]) -> list[Any]:
    """Climb what was not `climbed` beside the critics' step."""
    if past is not None and not climbed:
        seeds = len(past.candidates.exists)
        climbed = [climb(*past, rival=Rival(candidates.best_value(current.scores, seeds), loses_ties=True))]
    rival = Rival(climbed[0][1].value, loses_ties=False) if climbed else None
    return [*climbed, climb(*current, rival=rival)]


def _climb_within(margin: float, climb: Any, past: Scored | None, current: Scored) -> list[Any]:
    """Climb what promises no more than the critic's own value and a margin: nobody can before the critic has scores."""
    climbed = [] if past is None else [climb(*past, rival=Margin(margin, current, loses_ties=True))]
    return [*climbed, climb(*current, rival=Margin(margin, past, loses_ties=False))]


def _temperature(plan: Plan, adam: Any, lack: Any, lam: Any, memory: Memory) -> tuple[Any, Any, Any]:
    """Adam's step of the log temperature by what the entropy lacks to its target.

    Of each objective's by its share in lam, if that is given.
    """
    decay, decay2, epsilon = ADAM
    slope = -lack if lam is None else -lam * lack
    mu, nu = decay * memory.mu + (1.0 - decay) * slope, decay2 * memory.nu + (1.0 - decay2) * slope * slope
    step = (mu / adam[0]) / (jnp.sqrt(nu / adam[1]) + epsilon)
    return memory.log_alpha - plan.sac.learning_rate * step, mu, nu


def _logged(logs: tuple[Any, Any], of_critics: Any, logp: Any, best: list[Best]) -> Float[Array, "seed _"]:
    """What an update logs, in the order of `Plan.logged`.

    Args:
        logs: Log of the temperature, and by how much it is raised; None: it never is.
        of_critics: Losses and values lam . Q, row by row.
        logp: Log-probabilities of the batch.
        best: Of snapshots, if there are any, and of the critic.
    """
    current, past = best[-1], best[0]
    is_snapshot = past.value >= current.value if len(best) > 1 else jnp.zeros_like(current.value, bool)
    value, is_other = (jnp.where(is_snapshot, *both) for both in zip(past, current, strict=True))
    losses, scalars = of_critics
    alpha, factors = jnp.exp(logs[0]), [] if logs[1] is None else [jnp.exp(logs[1])]
    by_twin = lambda rows: rows.reshape(len(alpha), 2, -1)
    mean = lambda rows: jnp.mean(rows, axis=1)
    columns = [
        jnp.sum(jnp.mean(by_twin(losses), axis=2), axis=1),
        mean(math.prod(factors, start=alpha) * logp - value),
        alpha[:, 0],
        mean(by_twin(scalars)[:, 0]),
        -mean(logp),
        mean(is_snapshot.astype(jnp.float32)),
        mean(is_other),
        *(factor[:, 0] for factor in factors),
    ]
    return jnp.stack(columns, axis=1)


def fuse_mosac(cfg: mosac.SacConfig, spec: EnvSpec, precision: Precision) -> Block:
    plan = plan_mosac(cfg, spec, precision)
    return lambda states, batches, draws: learn_mosac(plan, states, batches[0], draws)


def fuse_qpensieve(cfg: qpensieve.QPensieveConfig, spec: EnvSpec, precision: Precision) -> Block:
    plan = plan_qpensieve(cfg, spec, precision)
    return lambda states, batches, draws: learn_qpensieve(plan, states, batches[0], draws)


def unavailable() -> str:
    """Why this machine does not run the kernels, in words; empty if it does."""
    if is_interpreted():
        return "there is no GPU"
    card = jax.devices()[0]
    if not str(getattr(card, "compute_capability", "")).startswith("9."):
        return f"they are made for Hopper cards (H100, H200), and this is {card.device_kind}"
    try:
        from jax.experimental.pallas import triton
    except ImportError:
        return "this version of JAX has no Triton"
    del triton
    warnings.filterwarnings("ignore", "The Pallas Triton backend is deprecated")
    return ""


def too_wide(spec: EnvSpec) -> str:
    """Why the kernels do not cover this environment, in words; empty if they do."""
    numbers = spec.obs_size + spec.action_size + spec.num_objectives
    needed = f"they cover environments of up to {MOST_INPUTS} numbers (observation, action and preference)"
    return f"{needed}, and {spec.id} has {numbers}" if numbers > MOST_INPUTS else ""


def uncovered(settings: Any) -> str:
    """What of these settings the kernels do not cover, in words; empty if they cover them."""
    sac = getattr(settings, "sac", settings)
    if sac.hidden % 64 or sac.hidden > WIDEST:
        return f"they cover widths (hidden) that are multiples of 64 up to {WIDEST}, not {sac.hidden}"
    if sac.batch_size % 64:
        return f"they cover batch sizes that are multiples of 64, not {sac.batch_size}"
    return ""
