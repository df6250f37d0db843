"""Q-Pensieve: MO-SAC with another policy loss, the best value over several preferences and over past critics.

Paper: Q-Pensieve (ICLR 2023), Algorithm 1 and eq. (11). The candidates of a sample are the critic's snapshots and the
critic itself, each read under lam and under further preferences; twins by minimum; the maximum is taken per sample.
With one preference and no snapshots it is MO-SAC, exactly.
"""

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Annotated, Literal

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Int, Key

from qpensieve.algos import mosac
from qpensieve.learning import snapshots as ring
from qpensieve.learning.acting import gaussian_acting
from qpensieve.learning.guards import Calm, is_calm, no_losses, with_loss
from qpensieve.learning.improvement import Choice, best_value
from qpensieve.learning.nets import Critic, GaussianActor
from qpensieve.learning.snapshots import Snapshots
from qpensieve.settings import NOT_NEGATIVE, WHOLE_BLOCKS, Scheduled, at_least
from qpensieve.types import Algorithm, EnvSpec, Info, Transition, from_one_lane


@dataclass(frozen=True)
class QPensieveConfig:
    """Settings of Q-Pensieve; defaults are the paper's."""

    sac: mosac.SacConfig = field(default_factory=mosac.SacConfig)
    """Settings shared with MO-SAC."""
    num_preferences: Annotated[int, at_least(1, "lam itself")] = 5
    """Preferences offered to the policy at every gradient step, lam itself included."""
    num_snapshots: Annotated[int, NOT_NEGATIVE] = 4
    """Number of past critics kept; the current critic is always a candidate too. 0 is the paper's "Vanilla"."""
    push_period: Annotated[Scheduled, at_least(1), WHOLE_BLOCKS] = 1000
    """Updates between two snapshots; a multiple of the updates of a block (block x updates_per_step). None: a twentieth
    of the run's updates, at most 1 000."""
    push_after: Annotated[Scheduled, NOT_NEGATIVE] = 20_000
    """Snapshots are taken only after this many updates. None: a tenth of the run's updates, at most 20 000."""
    policy_loss: Literal["paper", "official-2023"] = "paper"
    """Eq. (11), or what the authors' code did until July 2024."""
    max_push_loss: Annotated[float | None, at_least(1)] = None
    """No snapshot is taken while the critics' loss is above this many times its running median. None: always taken."""
    snapshot_margin: Annotated[float | None, NOT_NEGATIVE] = None
    """The policy climbs a candidate only where its value exceeds the critic's own under lam by at most this share of
    the batch's mean size of values. None: whatever it promises, as in the paper."""
    over_critics: Literal["max", "median"] = "max"
    """Which critic the policy climbs: the one with the largest value (the paper's), or with the median."""

    def conflicts(self) -> list[str]:
        """Guards of the policy's value are for the paper's loss."""
        guards = {
            "snapshot_margin": self.snapshot_margin is not None,
            "over_critics": self.over_critics != "max",
            "temperature_gain": self.sac.temperature_gain > 0,
        }
        if self.policy_loss == "paper" or not any(guards.values()):
            return []
        named = " and ".join(name for name, is_on in guards.items() if is_on)
        return [f"policy_loss must be paper with {named}, got {self.policy_loss}"]


class State(eqx.Module):
    """MO-SAC's state and the Q replay buffer."""

    sac: mosac.State
    snapshots: Snapshots
    calm: Calm | None = None
    """Only with `max_push_loss`."""


def init(cfg: QPensieveConfig, spec: EnvSpec, key: Key[Array, ""]) -> State:
    sac = mosac.init(cfg.sac, spec, key)
    calm = None if cfg.max_push_loss is None else no_losses()
    return State(sac, ring.empty(sac.critic, cfg.num_snapshots), calm)


def update(cfg: QPensieveConfig, state: State, batch: Transition, key: Key[Array, ""]) -> tuple[State, Info]:
    """One gradient step: that of MO-SAC, but the policy climbs the pensieve value instead of the current critic."""
    return step(cfg, state, batch, draw_chance(cfg, batch, key))


def step(cfg: QPensieveConfig, state: State, batch: Transition, chance: mosac.Chance) -> tuple[State, Info]:
    """`update`, with what is random in it drawn before."""
    loss = partial(pensieve_loss, cfg=cfg) if cfg.policy_loss == "paper" else official_2023_loss
    sac, info = mosac.step(cfg.sac, state.sac, batch, chance, partial(loss, state.snapshots))
    calm = None if state.calm is None else with_loss(state.calm, info["critic_loss"])
    return State(sac, state.snapshots, calm), info


def draw_chance(cfg: QPensieveConfig, batch: Transition, key: Key[Array, ""]) -> mosac.Chance:
    """Everything random in an update; the loss of 2023 takes an action under every preference."""
    chance = mosac.draw_chance(cfg.sac, cfg.num_preferences, batch, jax.random.clone(key))
    if cfg.policy_loss == "paper":
        return chance
    keys = jax.random.split(jax.random.split(key, 3)[2], cfg.num_preferences)
    return replace(chance, noise=jax.vmap(lambda k: jax.random.normal(k, batch.a.shape))(keys))


def pensieve_loss(
    snapshots: Snapshots,
    actor: GaussianActor,
    critic: Critic,
    query: mosac.Query,
    cfg: QPensieveConfig = QPensieveConfig(),  # noqa: B008
) -> mosac.LossAndAux:
    """Policy loss (11): alpha log pi(a) - max over (Q', lam') of min over twins of lam . Q'(s, a; lam')."""
    a, logp = mosac.sample_actions(actor, query.s, query.lam, query.noise)
    critics, filled = ring.with_current(snapshots, critic)
    value, winner = best_value(critics, Choice(filled, cfg.over_critics, cfg.snapshot_margin), query.prefs, query.s, a)
    info = {
        "snapshot_share": jnp.mean((winner.critic < filled.size - 1).astype(jnp.float32)),
        "other_preference_share": jnp.mean((winner.preference > 0).astype(jnp.float32)),
    }
    return jnp.mean(query.weigh(logp) - value), (logp, info)


def official_2023_loss(
    snapshots: Snapshots, actor: GaussianActor, critic: Critic, query: mosac.Query
) -> mosac.LossAndAux:
    """The public code until July 2024: mean over samples i, j of min over candidates of (-q_i - alpha H_j).

    Candidate (Q', lam'): the action and its entropy H come from pi(.|s, lam'), its value q is the minimum over twins of
    lam . Q'(s, a; lam). Rows of q and of H are combined crosswise, as that code did.
    """
    (m, _, d), b = query.prefs.shape, query.s.shape[0]
    every = jnp.broadcast_to(query.prefs, (m, b, d))
    a, logp = jax.vmap(mosac.sample_actions, in_axes=(None, None, 0, 0))(actor, query.s, every, query.noise)
    critics, filled = ring.with_current(snapshots, critic)
    over_actions = jax.vmap(mosac.twin_values, in_axes=(None, None, 0, None))
    over_critics = jax.vmap(over_actions, in_axes=(0, None, None, None))
    q = over_critics(jax.lax.stop_gradient(critics), query.s, a, query.lam)
    scalar = jnp.minimum(*jnp.moveaxis(jnp.sum(q * query.lam[None, None, None], axis=-1), 2, 0))
    best = _picked(jnp.where(filled[:, None, None], scalar, -jnp.inf), jnp.argmax)  # H does not depend on the critic
    pairs = -best[:, :, None] + query.alpha * logp[:, None, :]
    return jnp.mean(_picked(pairs, jnp.argmin)), (logp[0], {})


def _picked(values: Float[Array, "n *rest"], which: Callable[..., Array]) -> Float[Array, "*rest"]:
    """The entry along the first axis that `which` names, such as the largest.

    Not by `max`: for its gradient JAX looks for the maximum among the values, which the compiler may compute again and
    round otherwise, and divides by how many it finds. None gives NaN.
    """
    return jnp.take_along_axis(values, which(values, axis=0)[None], axis=0)[0]


def end_block(cfg: QPensieveConfig, state: State, num_updates: Int[Array, ""]) -> State:
    """Push the critic into the Q replay buffer when `num_updates` says it is due; called between blocks."""
    due = (num_updates > cfg.push_after) & (num_updates % cfg.push_period == 0)
    if state.calm is not None and cfg.max_push_loss is not None:
        due &= is_calm(state.calm, cfg.max_push_loss)
    return State(state.sac, ring.push_if(due, state.snapshots, state.sac.critic), state.calm)


def make(cfg: QPensieveConfig, spec: EnvSpec) -> Algorithm[State]:
    return Algorithm(
        init=lambda key, _: init(cfg, spec, key),
        actor=lambda state: state.sac.actor,
        act=mosac.act,
        acting=gaussian_acting(spec, cfg.sac.hidden, is_conditioned=True),
        learning=from_one_lane(partial(step, cfg), partial(draw_chance, cfg)),
        batch_size=cfg.sac.batch_size,
        discount=cfg.sac.discount,
        sampler=cfg.sac.sampler,
        end_block=partial(end_block, cfg),
        action_values=mosac.ACTION_VALUES.of_part(lambda state: state.sac),
        inspect=lambda state, batches, key: mosac.inspect(cfg.sac, state.sac, batches[0], key),
        keeps_preferences=cfg.sac.num_acting > 0,
        discount_after=mosac.moving_discount(cfg.sac),
    )
