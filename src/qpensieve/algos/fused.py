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
from qpensieve.learning.kernels import candidates, networks
from qpensieve.learning.kernels.calls import Tile, is_interpreted
from qpensieve.learning.kernels.candidates import Best, Candidates, Rival
from qpensieve.learning.kernels.networks import ADAM, Climbed, Gradients, Inputs, Learned, Now, Rates, Seen
from qpensieve.learning.kernels.packing import Layout, Packed, Sizes, actor_layout, critic_layout
from qpensieve.learning.tally import PEAK
from qpensieve.settings import flat
from qpensieve.types import EnvSpec, Infos, Transition

Precision = Literal["half", "full"]
Block = Callable[[Any, tuple[Transition, ...], Any], tuple[Any, Infos]]
"""`UniformLearning.block`."""
UNROLLED = 5
"""Updates of one turn of the loop. A turn costs the card 4 to 8 microseconds of its own, and what one update leaves to
the end runs beside the beginning of the next."""
WIDEST = 256
"""Hidden units beyond which a program's share does not fit on the chip."""
COVERED = {
    "policy_loss": "paper",
    "preferences_per": "batch",
    "max_critic_gradient": None,
    "temperature_per": "run",
    "target_entropy": -1.0,
    "target_entropy_end": None,
    "bounded_targets": "off",
    "max_push_loss": None,
    "snapshot_margin": None,
    "over_critics": "max",
}
"""Settings for which there is one value that the kernels cover."""
LOGGED = ("critic_loss", "policy_loss", "temperature", "q", "entropy", "snapshot_share", "other_preference_share")


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
    score: Tile
    score_new: Tile
    climb: Tile
    split: bool = False
    split_new: bool = True
    climbs_beside: bool = True


_ROWS = Tile(32, 32, 4, 2)
FEW = Tiles(
    *(Tile(16, 32, 4, 3), Tile(16, 64, 8, 2), Tile(16, 64, 8, 2), Tile(16, 64, 4, 2), Tile(32, 64, 4, 2)),
    *(Tile(128, 32, 8, 1), Tile(32, 64, 4, 1), Tile(64, 64, 4, 1)),
    split=True,
)
SOME = Tiles(
    *(_ROWS, _ROWS, _ROWS, Tile(32, 64, 4, 2), Tile(32, 256, 4, 1)),
    *(Tile(128, 64, 8, 1), Tile(128, 128, 8, 1), Tile(128, 64, 8, 1)),
    split=True,
)
MANY = Tiles(
    *(_ROWS, _ROWS, _ROWS, Tile(32, 64, 4, 2), Tile(64, 32, 4, 3)),
    *(Tile(64, 256, 8, 1), Tile(64, 256, 8, 1), Tile(128, 64, 8, 1)),
    split_new=False,
    climbs_beside=False,
)
"""Chosen for 1, 5 and 50 seeds on an H200, kernel by kernel (`results/h200/kernels.json`)."""


def choose_tiles(seeds: int, precision: Precision) -> Tiles:
    tiles = FEW if seeds <= 2 else SOME if seeds <= 16 else MANY
    # In full precision the second layer does not fit on the chip: it comes in chunks, as in other kernels.
    return tiles if precision == "half" else replace(tiles, score=_ROWS, score_new=_ROWS, climb=_ROWS)


def fit(tiles: Tiles, sizes: Sizes) -> Tiles:
    """The same, not larger than batch and networks allow."""
    rows = sizes.batch & -sizes.batch

    def smaller(name: str, tile: Any) -> Any:
        if isinstance(tile, bool):
            return tile
        of_rows, of_units = (sizes.width, rows) if name == "learn" else (rows, sizes.width)
        return replace(tile, rows=min(tile.rows, of_rows), chunk=min(tile.chunk, of_units))

    return Tiles(**{name: smaller(name, tile) for name, tile in vars(tiles).items()})


class Memory(eqx.Module):
    """What updates of a block change; everything leads with seeds, or with networks seed by seed."""

    actor: Learned
    critic: Learned
    log_alpha: Float[Array, "seed 1"]
    mu: Float[Array, "seed 1"]
    nu: Float[Array, "seed 1"]
    sums: Float[Array, "seed logged"]
    peak: Float[Array, " seed"]
    """The largest loss of the critics so far."""


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
    tiles: Tiles | None = None
    """None: by the number of seeds."""

    def tiles_for(self, given: Inputs) -> Tiles:
        return fit(self.tiles or choose_tiles(given.x.shape[1], self.precision), self.sizes)

    @property
    def dtype(self) -> Any:
        return jnp.float16 if self.precision == "half" else jnp.float32

    @property
    def layouts(self) -> tuple[Layout, Layout]:
        """Of policy and critics."""
        return actor_layout(self.sizes), critic_layout(self.sizes)


def plan_mosac(cfg: mosac.SacConfig, spec: EnvSpec, precision: Precision, past: tuple[int, int] = (0, 1)) -> Plan:
    """The plan of MO-SAC; `past`: numbers of snapshots and of preferences."""
    sizes = Sizes(spec.obs_size, spec.action_size, spec.num_objectives, cfg.hidden, cfg.batch_size, *past)
    return Plan(cfg, sizes, precision)


def plan_qpensieve(cfg: qpensieve.QPensieveConfig, spec: EnvSpec, precision: Precision) -> Plan:
    return plan_mosac(cfg.sac, spec, precision, (cfg.num_snapshots, cfg.num_preferences))


def learn_mosac(plan: Plan, states: mosac.State, batch: Transition, chance: mosac.Chance) -> tuple[mosac.State, Infos]:
    """All updates of a block of MO-SAC; states lead with seeds, batch and chance with [seed, K]."""
    past = _no_past(len(states.log_alpha))
    states, infos = _learn(plan, states, past, batch, chance)
    return states, {name: infos[name] for name in (*LOGGED[:5], LOGGED[0] + PEAK)}


def learn_qpensieve(
    plan: Plan, states: qpensieve.State, batch: Transition, chance: mosac.Chance
) -> tuple[qpensieve.State, Infos]:
    """All updates of a block of Q-Pensieve; states lead with seeds, batch and chance with [seed, K]."""
    ring = states.snapshots
    if plan.sizes.snapshots:
        nets = plan.layouts[1].pack(ring.critics.net)
        past = Past(nets, nets.w2.astype(plan.dtype), ring.filled.astype(jnp.float32))
    else:
        past = _no_past(len(ring.filled))
    sac, infos = _learn(plan, states.sac, past, batch, chance)
    return eqx.tree_at(lambda state: state.sac, states, sac), infos


def _no_past(seeds: int) -> Past:
    return Past(None, None, jnp.zeros((seeds, 1)))


def _learn(
    plan: Plan, states: mosac.State, past: Past, batch: Transition, chance: mosac.Chance
) -> tuple[mosac.State, Infos]:
    num = batch.r.shape[1]
    adam: Any = states.optimizers.actor
    given = _inputs(plan, batch, chance, adam[0].count)
    step = partial(_step, plan, past, given)
    body = lambda i, memory: step(jnp.full((1,), i, jnp.int32), memory)
    memory = jax.lax.fori_loop(0, num, body, _pack(plan, states), unroll=math.gcd(num, UNROLLED))
    infos = {name: memory.sums[:, i] / num for i, name in enumerate(LOGGED)} | {LOGGED[0] + PEAK: memory.peak}
    return _unpack(plan, memory, states, num), infos


def _inputs(plan: Plan, batch: Transition, chance: mosac.Chance, count: Int[Array, " seed"]) -> Inputs:
    """Everything that updates are given, update by update, in the columns of packed networks."""
    sizes, num = plan.sizes, batch.r.shape[1]
    prefs = chance.prefs[:, :, :, 0]
    lam = jnp.broadcast_to(prefs[:, :, :1], (*batch.r.shape[:3], sizes.d))
    none = jnp.zeros_like(batch.a)
    now, then = jnp.concatenate([batch.s, batch.a, lam], -1), jnp.concatenate([batch.s_next, none, lam], -1)
    noise = jnp.concatenate([chance.noise, chance.next_noise], 2)
    place = lambda part, first, width: jnp.pad(part, [(0, 0)] * 3 + [(first, width - first - part.shape[-1])])
    after = (count[0] + 1 + jnp.arange(num)).astype(jnp.float32)
    by_update = lambda x: jnp.swapaxes(x, 0, 1)
    return Inputs(
        x=by_update(place(jnp.concatenate([now, then], 2), 0, sizes.columns)),
        noise=by_update(place(noise, sizes.obs, sizes.columns)),
        r=by_update(place(batch.r, 0, sizes.values)),
        going_on=by_update(plan.sac.discount * (1.0 - batch.terminated)),
        prefs=by_update(place(prefs, sizes.obs + sizes.act, sizes.columns)),
        lam=by_update(place(prefs, 0, sizes.values)[:, :, 0]),
        corrections=jnp.stack([1.0 - ADAM[0] ** after, 1.0 - ADAM[1] ** after], -1),
    )


def _pack(plan: Plan, states: mosac.State) -> Memory:
    actor, critic = plan.layouts
    opt: Any = states.optimizers
    moments = lambda layout, state: (layout.pack(state[0].mu.net), layout.pack(state[0].nu.net))
    pack = critic.pack
    return Memory(
        Learned(actor.pack(states.actor.net), *moments(actor, opt.actor)),
        Learned(pack(states.critic.net), *moments(critic, opt.critic), pack(states.target.net)),
        states.log_alpha[:, None],
        opt.temperature[0].mu[:, None],
        opt.temperature[0].nu[:, None],
        jnp.zeros((len(states.log_alpha), len(LOGGED))),
        jnp.full(len(states.log_alpha), -jnp.inf),
    )


def _unpack(plan: Plan, memory: Memory, states: mosac.State, num: int) -> mosac.State:
    """The states after `num` updates."""
    actor, critic = plan.layouts
    opt: Any = states.optimizers

    def adam(layout: Layout, learned: Learned, state: Any) -> Any:
        moments = {name: layout.unpack(getattr(learned, name), getattr(state[0], name)) for name in ("mu", "nu")}
        return state[0]._replace(count=state[0].count + num, **moments), *state[1:]

    temperature = opt.temperature[0]
    temperature = temperature._replace(count=temperature.count + num, mu=memory.mu[:, 0], nu=memory.nu[:, 0])
    assert memory.critic.target is not None
    learned = (
        actor.unpack(memory.actor.net, states.actor),
        critic.unpack(memory.critic.net, states.critic),
        critic.unpack(memory.critic.target, states.target),
        memory.log_alpha[:, 0],
        adam(actor, memory.actor, opt.actor),
        adam(critic, memory.critic, opt.critic),
        (temperature, *opt.temperature[1:]),
    )
    of = lambda state: (state.optimizers.actor, state.optimizers.critic, state.optimizers.temperature)
    # Not by the constructor, which is for one seed.
    return eqx.tree_at(lambda s: (s.actor, s.critic, s.target, s.log_alpha, *of(s)), states, learned)


def _step(plan: Plan, past: Past, given: Inputs, at: Int[Array, " 1"], memory: Memory) -> Memory:
    """One update of all seeds, in the order of `mosac.step`."""
    now, tiles, old, log_alpha = Now(at, given, plan.sizes), plan.tiles_for(given), memory.critic, memory.log_alpha
    assert old.target is not None
    acted = networks.act(now, memory.actor.net, tiles.act)
    score, climb = partial(candidates.score, now, acted.x), partial(candidates.climb, now, acted.x)
    past_scores, climbed = None, []
    if past.nets is not None:  # beside the critics' step, which they do not need
        past_scores = score(past.candidates, tiles.score, tiles.split)
        if tiles.climbs_beside:
            climbed.append(climb(past_scores, past.candidates, tiles.climb))
    q, h1, h2 = networks.forward(now, old.net, tiles.forward)
    target = networks.values(acted.x, old.target, plan.sizes, tiles.values)
    seen = Seen(q, h1, h2, target, acted.logp, log_alpha)
    slopes, losses, scalars = networks.critic_slopes(now, seen, old.net, tiles.slopes)
    rates = Rates(plan.sac.learning_rate, plan.sac.tau, plan.dtype)
    critic, second = networks.learn(now, Gradients(h1, h2, slopes), old, rates, tiles.learn)

    current = Candidates(critic.net, second, jnp.ones((len(log_alpha), 1)))
    scores = score(current, tiles.score_new, tiles.split_new)
    if past_scores is not None and not tiles.climbs_beside:
        rival = Rival(candidates.best_value(scores, len(log_alpha)), loses_ties=True)
        climbed.append(climb(past_scores, past.candidates, tiles.climb, rival))
    rival = Rival(climbed[0][1].value, loses_ties=False) if climbed else None
    climbed.append(climb(scores, current, tiles.climb, rival))

    slopes = networks.actor_slopes(now, acted, Climbed(climbed, log_alpha), memory.actor.net, tiles.slopes)
    gradients = Gradients(acted.h1, acted.h2, slopes)
    actor, _ = networks.learn(now, gradients, memory.actor, rates._replace(half=None), tiles.learn)
    logp = acted.logp[:, : plan.sizes.batch]
    temperature = _temperature(plan, given.corrections[at[0]], logp, memory)
    logged = _logged(memory, (losses, scalars), logp, [best for _, best in climbed])
    return Memory(actor, critic, *temperature, memory.sums + logged, jnp.maximum(memory.peak, logged[:, 0]))


def _temperature(plan: Plan, corrections: Any, logp: Any, memory: Memory) -> tuple[Any, Any, Any]:
    """Adam's step of the log temperature."""
    decay, decay2, epsilon = ADAM
    slope = plan.sizes.act - jnp.mean(logp, axis=1, keepdims=True)
    mu, nu = decay * memory.mu + (1.0 - decay) * slope, decay2 * memory.nu + (1.0 - decay2) * slope * slope
    step = (mu / corrections[0]) / (jnp.sqrt(nu / corrections[1]) + epsilon)
    return memory.log_alpha - plan.sac.learning_rate * step, mu, nu


def _logged(memory: Memory, of_critics: Any, logp: Any, best: list[Best]) -> Float[Array, "seed _"]:
    """What an update logs, in the order of `LOGGED`; `of_critics`: losses and values lam . Q, row by row."""
    current, past = best[-1], best[0]
    is_snapshot = past.value >= current.value if len(best) > 1 else jnp.zeros_like(current.value, bool)
    value, is_other = (jnp.where(is_snapshot, *both) for both in zip(past, current, strict=True))
    losses, scalars = of_critics
    alpha = jnp.exp(memory.log_alpha)
    by_twin = lambda rows: rows.reshape(len(alpha), 2, -1)
    mean = lambda rows: jnp.mean(rows, axis=1)
    columns = [
        jnp.sum(jnp.mean(by_twin(losses), axis=2), axis=1),
        mean(alpha * logp - value),
        alpha[:, 0],
        mean(by_twin(scalars)[:, 0]),
        -mean(logp),
        mean(is_snapshot.astype(jnp.float32)),
        mean(is_other),
    ]
    return jnp.stack(columns, axis=1)


def fuse_mosac(cfg: mosac.SacConfig, spec: EnvSpec, precision: Precision) -> Block:
    plan = plan_mosac(cfg, spec, precision)
    return lambda states, batches, chance: learn_mosac(plan, states, batches[0], chance)


def fuse_qpensieve(cfg: qpensieve.QPensieveConfig, spec: EnvSpec, precision: Precision) -> Block:
    plan = plan_qpensieve(cfg, spec, precision)
    return lambda states, batches, chance: learn_qpensieve(plan, states, batches[0], chance)


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


def uncovered(settings: Any) -> str:
    """What of these settings the kernels do not cover, in words; empty if they cover them."""
    sac = getattr(settings, "sac", settings)
    given = flat(settings)
    other = [name for name, value in COVERED.items() if given.get(name, value) != value]
    if other:
        return f"they do not cover {other[0]} {given[other[0]]}"
    if sac.hidden % 64 or sac.hidden > WIDEST:
        return f"they cover widths (hidden) that are multiples of 64 up to {WIDEST}, not {sac.hidden}"
    if sac.batch_size % 64:
        return f"they cover batch sizes that are multiples of 64, not {sac.batch_size}"
    return ""
