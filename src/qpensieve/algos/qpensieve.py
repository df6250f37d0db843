"""Q-Pensieve: MO-SAC with another policy loss, the best value over several preferences and over past critics.

Paper: Q-Pensieve (ICLR 2023), Algorithm 1 and eq. (11). The candidates of a sample are the critic and its snapshots,
each under lam and under further preferences. The minimum of twins is taken, then the maximum of each sample. With one
preference and no snapshots it is exactly MO-SAC.
"""

from dataclasses import dataclass, field, replace
from functools import partial
from typing import Annotated

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int, Key

from qpensieve.algos import mosac
from qpensieve.learning.acting import gaussian_acting
from qpensieve.learning.guards import SNAPSHOT_MARGIN, LossTrack, is_usual, start_loss_track, with_loss
from qpensieve.learning.improvement import Eligible, best_value
from qpensieve.learning.interface import Algorithm, Info, Transition, from_one_lane
from qpensieve.learning.nets import Critic, GaussianActor
from qpensieve.learning.snapshots import Snapshots, empty, pick, push_if, with_current
from qpensieve.settings import NOT_NEGATIVE, WHOLE_BLOCKS, Scheduled, at_least
from qpensieve.types import EnvSpec

ORDER, MEMORY = 3, 4
"""Folded into an update's key, to choose snapshots and to decide whether there is memory. `mosac.draw` uses the keys 0
to 2."""


@dataclass(frozen=True)
class QPensieveConfig:
    """Settings of Q-Pensieve; defaults are the paper's."""

    sac: mosac.SacConfig = field(default_factory=mosac.SacConfig)
    """Settings shared with MO-SAC."""
    num_preferences: Annotated[int, at_least(1, "lam itself")] = 5
    """Preferences offered to the policy at every gradient step, lam itself included."""
    num_snapshots: Annotated[int, NOT_NEGATIVE] = 4
    """Number of past critics that are kept. The current critic is always a candidate too. 0: the paper's "Vanilla"."""
    snapshots_per_update: Annotated[int | None, at_least(1)] = None
    """Past critics that an update uses, drawn at random. None: all, as in the paper."""
    push_period: Annotated[Scheduled, at_least(1), WHOLE_BLOCKS] = 1000
    """Updates between two snapshots; a multiple of the updates of a block (block x updates_per_step). None: a twentieth
    of the run's updates, at most 1 000."""
    push_after: Annotated[Scheduled, NOT_NEGATIVE] = 20_000
    """Snapshots are taken only after this many updates. None: a tenth of the run's updates, at most 20 000."""
    memory_updates: Annotated[Scheduled, NOT_NEGATIVE] = 0
    """Updates over which memory fades: the share of updates with past critics and other preferences as candidates falls
    on a line from 1 to 0. 0: all updates, as in the paper. None: half of the run's updates. Training longer keeps the
    number, so memory that has faded stays away. Hybrid SAC counts from its switch."""


class State(eqx.Module):
    """MO-SAC's state and the Q replay buffer."""

    sac: mosac.State
    snapshots: Snapshots
    loss_track: LossTrack | None = None
    """Recent losses, which decide whether a snapshot is taken. None without `guards`."""


def init(cfg: QPensieveConfig, spec: EnvSpec, key: Key[Array, ""]) -> State:
    sac = mosac.init(cfg.sac, spec, key)
    loss_track = start_loss_track() if cfg.sac.guards else None
    return State(sac, empty(sac.critic, cfg.num_snapshots), loss_track)


class Draws(mosac.Draws):
    """Random numbers of an update: those of MO-SAC, and one for each slot of the Q replay buffer."""

    order: Float[Array, " k"] = eqx.field(kw_only=True)
    """The snapshots with the largest numbers are used."""
    has_memory: Bool[Array, ""] | None = eqx.field(kw_only=True, default=None)
    """Whether the update uses snapshots and preferences other than lam. None: memory does not fade, so all do."""


def draw(cfg: QPensieveConfig, batch: Transition, key: Key[Array, ""], num_updates: mosac.Count = 0) -> Draws:
    """Draw the random numbers of an update."""
    key_order = jax.random.fold_in(jax.random.clone(key), ORDER)
    sac = mosac.draw(cfg.sac, cfg.num_preferences, batch, key, num_updates)
    draws = Draws(**vars(sac), order=jax.random.uniform(key_order, (cfg.num_snapshots,)))
    has_memory = draw_memory(cfg, key, num_updates)
    if has_memory is None:
        return draws
    return replace(draws, prefs=jnp.where(has_memory, sac.prefs, sac.prefs[:1]), has_memory=has_memory)


def draw_memory(cfg: QPensieveConfig, key: Key[Array, ""], num_updates: mosac.Count) -> Bool[Array, ""] | None:
    """Draw whether an update has memory, `num_updates` after memory began to fade; None: memory does not fade."""
    if not cfg.memory_updates:  # also None: without a run there is no length
        return None
    return jax.random.uniform(jax.random.fold_in(jax.random.clone(key), MEMORY)) >= num_updates / cfg.memory_updates


def snapshots_used(cfg: QPensieveConfig, snapshots: Snapshots, draws: Draws) -> Snapshots:
    """Return the snapshots that an update uses: all, or some at random, or empty slots if there is no memory."""
    num = cfg.snapshots_per_update
    if num is not None and num < cfg.num_snapshots:
        snapshots = pick(snapshots, draws.order, num)
    if draws.has_memory is None:
        return snapshots
    return replace(snapshots, filled=snapshots.filled & draws.has_memory)


def step(cfg: QPensieveConfig, state: State, batch: Transition, draws: Draws) -> tuple[State, Info]:
    """Make one update of MO-SAC in which the policy climbs the pensieve value instead of the current critic."""
    margin = SNAPSHOT_MARGIN if cfg.sac.guards else None
    loss = partial(pensieve_loss, snapshots_used(cfg, state.snapshots, draws), margin=margin)
    if draws.has_memory is not None and jax.default_backend() == "cpu":
        loss = partial(loss_by_memory, draws.has_memory, loss)
    sac, info = mosac.step(cfg.sac, state.sac, batch, draws, loss)
    loss_track = None if state.loss_track is None else with_loss(state.loss_track, info["critic_loss"])
    return State(sac, state.snapshots, loss_track), info


def pensieve_loss(
    snapshots: Snapshots, actor: GaussianActor, critic: Critic, query: mosac.Query, margin: float | None = None
) -> mosac.LossAndAux:
    """Return loss (11): alpha log pi(a) - max over (Q', lam') of min over twins of lam . Q'(s, a; lam')."""
    a, logp = mosac.sample_actions(actor, query.s, query.lam, query.noise)
    critics, filled = with_current(snapshots, critic)
    value, winner = best_value(critics, Eligible(filled, margin), query.prefs, query.s, a)
    info = {
        "snapshot_share": jnp.mean((winner.critic < filled.size - 1).astype(jnp.float32)),
        "other_preference_share": jnp.mean((winner.preference > 0).astype(jnp.float32)),
    }
    return jnp.mean(query.weigh(logp) - value), (logp, info)


def loss_by_memory(
    has_memory: Bool[Array, ""], loss: mosac.PolicyLoss, actor: GaussianActor, critic: Critic, query: mosac.Query
) -> mosac.LossAndAux:
    """Return `loss` if there is memory, else MO-SAC's loss, which saves time on a CPU."""

    def alone(actor: GaussianActor) -> mosac.LossAndAux:
        value, (logp, _) = mosac.single_preference_loss(actor, critic, query)
        return value, (logp, {"snapshot_share": jnp.zeros(()), "other_preference_share": jnp.zeros(())})

    return jax.lax.cond(has_memory, lambda actor: loss(actor, critic, query), alone, actor)


def end_block(cfg: QPensieveConfig, state: State, num_updates: Int[Array, ""]) -> State:
    """Push the critic into the Q replay buffer if a snapshot is due after `num_updates`."""
    due = (num_updates > cfg.push_after) & (num_updates % cfg.push_period == 0)
    if state.loss_track is not None:
        due &= is_usual(state.loss_track)
    return State(state.sac, push_if(due, state.snapshots, state.sac.critic), state.loss_track)


def make(cfg: QPensieveConfig, spec: EnvSpec) -> Algorithm[State]:
    return Algorithm(
        init=lambda key, _: init(cfg, spec, key),
        actor=lambda state: state.sac.actor,
        acting=gaussian_acting(spec, cfg.sac.hidden, is_conditioned=True),
        learning=from_one_lane(partial(step, cfg), partial(draw, cfg)),
        batch_size=cfg.sac.batch_size,
        discount=cfg.sac.discount,
        sampler=cfg.sac.sampler,
        end_block=partial(end_block, cfg),
        action_values=mosac.ACTION_VALUES.of_part(lambda state: state.sac),
        inspect=lambda state, batches, key: mosac.inspect(cfg.sac, state.sac, batches[0], key),
    )
