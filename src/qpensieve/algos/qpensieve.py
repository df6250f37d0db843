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
from jaxtyping import Array, Bool, Float, Int, Key

from qpensieve.algos import mosac
from qpensieve.learning import snapshots as ring
from qpensieve.learning.acting import gaussian_acting
from qpensieve.learning.forms import Form, judge, preferences_of
from qpensieve.learning.guards import Calm, is_calm, no_losses, with_loss
from qpensieve.learning.improvement import Choice, Offer, best_value, judged_value
from qpensieve.learning.nets import Critic, GaussianActor
from qpensieve.learning.snapshots import Snapshots
from qpensieve.settings import NOT_NEGATIVE, WHOLE_BLOCKS, RunSettings, at_least
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
    push_period: Annotated[int, at_least(1), WHOLE_BLOCKS] = 1000
    """Updates between two snapshots; a multiple of the updates of a block (block x updates_per_step)."""
    push_after: Annotated[int, NOT_NEGATIVE] = 20_000
    """Snapshots are taken only after this many updates."""
    policy_loss: Literal["paper", "official-2023"] = "paper"
    """Eq. (11), or what the authors' code did until July 2024."""
    max_push_loss: Annotated[float | None, at_least(1)] = None
    """No snapshot is taken while the critics' loss is above this many times its running median. None: always taken."""
    snapshot_margin: Annotated[float | None, NOT_NEGATIVE] = None
    """The policy climbs a candidate only where its value exceeds the critic's own under lam by at most this share of
    the batch's mean size of values. None: whatever it promises, as in the paper."""
    over_critics: Literal["max", "median"] = "max"
    """Which critic the policy climbs: the one with the largest value (the paper's), or with the median."""
    form: Form = "all"
    """Candidates of the policy's value. all: every critic under every preference, as in the paper. The other forms draw
    one snapshot for every update. few: it and the current critic under every preference. pairs: the current critic
    under lam and the snapshot under the other preference. spread: few, with snapshots of geometrically growing ages.
    batch: few, one candidate for the whole batch. drift: few, without the snapshot's mean difference from the current
    critic. outlier: drift, only where a candidate exceeds the own value by two standard deviations of that difference;
    `snapshot_margin` has no effect then."""

    def conflicts(self) -> list[str]:
        """Guards of the policy's value are for the paper's loss; forms with one snapshot need a snapshot."""
        return self._of_the_form() + self._of_the_guards()

    def _of_the_form(self) -> list[str]:
        if self.form == "all":
            return []
        found = []
        if self.num_snapshots < 1:
            found.append(f"num_snapshots must be at least 1 with form {self.form}, got {self.num_snapshots}")
        if self.policy_loss != "paper" or self.over_critics != "max":
            given = f"{self.policy_loss} and {self.over_critics}"
            found.append(f"policy_loss and over_critics must be paper and max with form {self.form}, got {given}")
        if self.form == "pairs" and self.num_preferences != 2:
            found.append(f"num_preferences must be 2 with form pairs, got {self.num_preferences}")
        return found

    def _of_the_guards(self) -> list[str]:
        guards = {
            "snapshot_margin": self.snapshot_margin is not None,
            "over_critics": self.over_critics != "max",
            "temperature_gain": self.sac.temperature_gain > 0,
        }
        if self.policy_loss == "paper" or not any(guards.values()):
            return []
        named = " and ".join(name for name, is_on in guards.items() if is_on)
        return [f"policy_loss must be paper with {named}, got {self.policy_loss}"]


class Chance(mosac.Chance):
    """Everything random in an update that draws one snapshot."""

    recall: Float[Array, ""]
    """Which snapshot, from 0 to 1."""


class State(eqx.Module):
    """MO-SAC's state and the Q replay buffer."""

    sac: mosac.State
    snapshots: Snapshots
    calm: Calm | None = None
    """Only with `max_push_loss`."""


def resolve(cfg: QPensieveConfig, run: RunSettings) -> QPensieveConfig:
    """The settings of a run."""
    return replace(cfg, sac=mosac.resolve(cfg.sac, run))


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
    snapshots = state.snapshots
    if cfg.form != "all":
        assert isinstance(chance, Chance)
        snapshots = ring.draw_one(snapshots, chance.recall)
    sac, info = mosac.step(cfg.sac, state.sac, batch, chance, partial(loss, snapshots))
    calm = None if state.calm is None else with_loss(state.calm, info["critic_loss"])
    return State(sac, state.snapshots, calm), info


def draw_chance(cfg: QPensieveConfig, batch: Transition, key: Key[Array, ""]) -> mosac.Chance:
    """Everything random in an update; the loss of 2023 takes an action under every preference."""
    chance = mosac.draw_chance(cfg.sac, cfg.num_preferences, batch, jax.random.clone(key))
    if cfg.form != "all":  # 0 to 2 are the keys that MO-SAC's draw splits off
        return Chance(**vars(chance), recall=jax.random.uniform(jax.random.fold_in(jax.random.clone(key), 3)))
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
    if cfg.form != "all":
        value, info = value_of_form(cfg, critics, filled, query, a)
        return jnp.mean(query.weigh(logp) - value), (logp, info)
    cap = None if cfg.snapshot_margin is None else largest_promise(cfg.snapshot_margin, critic, query, a)
    value, winner = best_value(critics, Choice(filled, cfg.over_critics, cap), query.prefs, query.s, a)
    info = {
        "snapshot_share": jnp.mean((winner.critic < filled.size - 1).astype(jnp.float32)),
        "other_preference_share": jnp.mean((winner.preference > 0).astype(jnp.float32)),
    }
    return jnp.mean(query.weigh(logp) - value), (logp, info)


def value_of_form(
    cfg: QPensieveConfig, critics: Critic, filled: Bool[Array, " k"], query: mosac.Query, a: Float[Array, "b act"]
) -> tuple[Float[Array, " b"], Info]:
    """The value that the policy climbs in a form with one snapshot, and what to log."""
    prefs = preferences_of(cfg.form, query.prefs, len(filled))
    rule = partial(judge, cfg.form, cfg.snapshot_margin, filled)
    value, winner = judged_value(Offer(critics, prefs, query.prefs[0]), rule, query.s, a)
    is_snapshot = winner.critic < len(filled) - 1
    is_other = is_snapshot if cfg.form == "pairs" else winner.preference > 0
    share = lambda is_so: jnp.mean(is_so.astype(jnp.float32))
    return value, {"snapshot_share": share(is_snapshot), "other_preference_share": share(is_other)}


def largest_promise(margin: float, critic: Critic, query: mosac.Query, a: Float[Array, "b act"]) -> Float[Array, " b"]:
    """The largest value that a candidate may have: what the critic itself says under lam, and a margin."""
    s, a, lam = jax.lax.stop_gradient((query.s, a, query.lam))
    own = mosac.smaller_value(critic, s, a, lam)
    return jax.lax.stop_gradient(own + margin * jnp.mean(jnp.abs(own)))


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
    put = ring.push_spread if cfg.form == "spread" else ring.push
    return State(state.sac, ring.push_if(due, state.snapshots, state.sac.critic, put), state.calm)


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
