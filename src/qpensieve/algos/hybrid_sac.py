"""Hybrid SAC: SAC for one preference that, after a switch, also climbs the snapshots of a Q-Pensieve helper.

Paper: Q-Pensieve (ICLR 2023), the test of whether snapshots of another model help a stuck SAC. An agent has two
learners with a lane and a replay each: the SAC, and its helper, a whole Q-Pensieve of the same seed. Both take one
environment step and one update at a time, so the snapshots are up to date. To rounding, the helper equals the
Q-Pensieve run of that seed, and until the switch the SAC equals the SAC run. The helper needs samples of its own.
"""

from dataclasses import dataclass, field, fields, replace
from functools import partial
from typing import Annotated, Literal

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float, Int, Key

from qpensieve.algos import mosac, qpensieve, sac
from qpensieve.algos.qpensieve import QPensieveConfig
from qpensieve.algos.sac import SingleSacConfig
from qpensieve.errors import UserError
from qpensieve.learning.acting import Exportable, PolicyArrays, continuous_acting, gaussian_acting, num_parameters
from qpensieve.learning.improvement import Eligible, best_value
from qpensieve.learning.interface import Algorithm, Info, Transition, UniformLearning
from qpensieve.learning.losses import sample_preferences
from qpensieve.learning.nets import GaussianActor, Mlp
from qpensieve.learning.snapshots import Snapshots
from qpensieve.settings import NOT_NEGATIVE
from qpensieve.types import (
    Acting,
    Actions,
    EnvSpec,
    HostPolicy,
    Noise,
    Observations,
    Parameters,
    Preferences,
    StoredActions,
)

CASES = {"DST2d": ("0.9,0.1", "0.8,0.2"), "HalfCheetah2d": ("0.5,0.5", "0.6,0.4")}
"""Domain -> preferences in the paper's figure."""
FIXED = (*mosac.LAST_VALUES, "anneal_updates")
"""Settings of the helper that must be the paper's, because the SAC has no such setting."""
SHARED = (*(field.name for field in fields(mosac.NetworkConfig)), "sampler")
"""Settings that helper and SAC share."""
HELPER_ONLY = tuple(field.name for field in fields(mosac.SacConfig) if field.name not in (*FIXED, *SHARED))
"""Settings that only the helper uses, such as guards. The SAC learns as plain SAC, with which it is compared."""
OFFERED = 2**31 - 1
"""Folded into an update's key for the offered preferences. A large number, because `split` makes the same keys as
folding in small numbers."""


@dataclass(frozen=True)
class HybridConfig:
    """Settings of hybrid SAC; defaults are the paper's."""

    preferences: tuple[str, ...] = ()
    """Preferences such as 0.9,0.1 0.8,0.2; each has its own agent. Default: the paper's figure for the domain."""
    switch_after: Annotated[int, NOT_NEGATIVE] = 90_000
    """Updates of plain SAC before the switch. With 10 000 random steps, 90 000 updates end at step 100 000."""
    noise_for: Literal["both", "helper"] = "both"
    """Learners that use the run's `random_noise`: both, or the helper alone. With `helper` the random actions of the
    SAC are white, as in the plain SAC that it is compared with."""
    pensieve: QPensieveConfig = field(default_factory=QPensieveConfig)
    """Settings of the helper; the SAC uses the same network sizes, rates and batch size, and none of `HELPER_ONLY`."""

    def conflicts(self) -> list[str]:
        """Return one sentence for each setting of `FIXED` that was changed."""
        sac, plain = self.sac, mosac.SacConfig()
        return [
            f"{name} must be {getattr(plain, name)} for hybrid-sac, whose SAC has no such setting, got {value}"
            for name in FIXED
            if (value := getattr(sac, name)) != getattr(plain, name)
        ]

    @property
    def sac(self) -> mosac.SacConfig:
        return self.pensieve.sac

    @property
    def single(self) -> SingleSacConfig:
        shared = {field.name: getattr(self.sac, field.name) for field in fields(mosac.NetworkConfig)}
        return SingleSacConfig(**shared, preferences=self.preferences)


class State(eqx.Module):
    """The SAC and its helper."""

    own: sac.State
    helper: qpensieve.State


class Draws(eqx.Module):
    """Random numbers of an update: further preferences offered to the SAC, and the numbers of SAC and helper."""

    others: Float[Array, "m d"]
    own: sac.Draws
    helper: qpensieve.Draws
    has_memory: Bool[Array, ""] | None
    """Whether the SAC may use snapshots in this update; None: their use does not fade."""


class Offer(eqx.Module):
    """Snapshots of the helper, the preferences to read them under, and whether the SAC climbs them."""

    snapshots: Snapshots
    prefs: Float[Array, "m d"]
    is_on: Bool[Array, ""]


def init(cfg: HybridConfig, spec: EnvSpec, key: Key[Array, ""], lam: Float[Array, " d"]) -> State:
    # Both get the same key, so that SAC and helper start as they would alone.
    helper = qpensieve.init(cfg.pensieve, spec, jax.random.clone(key))
    return State(sac.init(cfg.single, spec, key, lam), helper)


def draw(
    cfg: HybridConfig, batches: tuple[Transition, ...], key: Key[Array, ""], num_updates: mosac.Count = 0
) -> Draws:
    """Draw the random numbers of an update. SAC and helper get the same key, so each draws as it would alone."""
    own_batch, helper_batch = batches
    key_others, d = jax.random.fold_in(jax.random.clone(key), OFFERED), own_batch.r.shape[1]
    others = sample_preferences(key_others, cfg.pensieve.num_preferences - 1, d, cfg.sac.sampler)
    own = sac.draw(own_batch, jax.random.clone(key))
    has_memory = qpensieve.draw_memory(cfg.pensieve, key, num_updates - cfg.switch_after)
    return Draws(others, own, qpensieve.draw(cfg.pensieve, helper_batch, key, num_updates), has_memory)


def step(cfg: HybridConfig, state: State, batches: tuple[Transition, ...], draws: Draws) -> tuple[State, Info]:
    """Update SAC and helper once, each on its own batch. After the switch the SAC climbs the helper's snapshots."""
    prefs = offered_preferences(state.own.lam, draws.others)
    drawn = replace(draws.helper, has_memory=draws.has_memory)
    snapshots = qpensieve.snapshots_used(cfg.pensieve, state.helper.snapshots, drawn)
    is_on = (draws.helper.num_updates >= cfg.switch_after) & snapshots.filled.any()
    loss = partial(hybrid_loss, Offer(snapshots, prefs, is_on))
    own_batch, helper_batch = batches
    own, info = sac.step(cfg.single, state.own, own_batch, draws.own, loss)
    helper, helper_info = qpensieve.step(cfg.pensieve, state.helper, helper_batch, draws.helper)
    info |= {f"helper_{name}": value for name, value in helper_info.items()}
    return State(own, helper), info


def hybrid_loss(offer: Offer, actor: GaussianActor, critic: Mlp, query: sac.Query) -> mosac.LossAndAux:
    """Return SAC's policy loss before the switch, then the loss that climbs the best of own value and snapshots."""

    def plain(actor: GaussianActor) -> mosac.LossAndAux:
        loss, (logp, _) = sac.own_loss(actor, critic, query)
        return loss, (logp, {"snapshot_share": jnp.zeros(())})

    if offer.snapshots.filled.size == 0:
        return plain(actor)
    # A branch instead of a selection, so that it costs no more than SAC before the switch.
    return jax.lax.cond(offer.is_on, lambda actor: shared_loss(offer, actor, critic, query), plain, actor)


def offered_preferences(lam: Float[Array, " d"], others: Float[Array, "m1 d"]) -> Float[Array, "m d"]:
    """Return W: the agent's own preference first, then random preferences."""
    return jnp.concatenate([lam[None], others])


def shared_loss(offer: Offer, actor: GaussianActor, critic: Mlp, query: sac.Query) -> mosac.LossAndAux:
    """Return the mean of alpha log pi(a) - max(own Q(s, a), max over Q' and lam' in W of lam . Q'(s, a; lam')).

    The minimum of twins is taken after scalarisation, and the maximum per sample. Own Q is always a candidate.
    """
    a, logp = sac.sample_actions(actor, query.s, query.noise)
    own = sac.own_value(critic, query.s, a)
    shared, _ = best_value(offer.snapshots.critics, Eligible(offer.snapshots.filled), offer.prefs, query.s, a)
    share = jnp.mean((shared > own).astype(jnp.float32))
    return jnp.mean(query.alpha * logp - jnp.maximum(own, shared)), (logp, {"snapshot_share": share})


def end_block(cfg: HybridConfig, state: State, num_updates: Int[Array, ""]) -> State:
    return State(state.own, qpensieve.end_block(cfg.pensieve, state.helper, num_updates))


class BothPolicies:
    """The SAC explores in row 0 and its helper in row 1; all other actions are the SAC's."""

    def __init__(self, flat: Parameters, halves: tuple[Acting, Acting], split: int):
        self._own: HostPolicy = halves[0].policy(flat[:, :split])
        self._helper: HostPolicy = halves[1].policy(flat[:, split:])

    def explore(self, obs: Observations, lam: Preferences, noise: Noise, step: int) -> StoredActions:
        own = self._own.explore(obs[:, :1], lam[:, :1], noise[:, :1], step)
        return np.concatenate([own, self._helper.explore(obs[:, 1:], lam[:, 1:], noise[:, 1:], step)], axis=1)

    def sample(self, obs: Observations, lam: Preferences, noise: Noise, step: int) -> StoredActions:
        return self._own.explore(obs, lam, noise, step)

    def exploit(self, obs: Observations, lam: Preferences) -> Actions:
        return self._own.exploit(obs, lam)

    def exported(self, step: int) -> PolicyArrays:
        """Return the SAC alone."""
        assert isinstance(self._own, Exportable)
        return self._own.exported(step)


def both_acting(cfg: HybridConfig, spec: EnvSpec) -> Acting:
    hidden = cfg.sac.hidden
    halves = (gaussian_acting(spec, hidden, is_conditioned=False), gaussian_acting(spec, hidden, is_conditioned=True))
    split = num_parameters((spec.obs_size, hidden, hidden, 2 * spec.action_size))
    return continuous_acting(spec, partial(BothPolicies, halves=halves, split=split))


def make(cfg: HybridConfig, spec: EnvSpec) -> Algorithm[State]:
    words = cfg.preferences or CASES.get(spec.id, ())
    if not words:
        shown = " and ".join(CASES)
        raise UserError(
            f"preferences must be given for {spec.id}: the paper's figure has them for {shown} only; use --preferences"
        )
    return Algorithm(
        init=partial(init, cfg, spec),
        actor=lambda state: (state.own.actor, state.helper.sac.actor),
        acting=both_acting(cfg, spec),
        learning=UniformLearning(partial(step, cfg), partial(draw, cfg)),
        batch_size=cfg.sac.batch_size,
        discount=cfg.sac.discount,
        sampler=cfg.sac.sampler,
        end_block=partial(end_block, cfg),
        preferences=sac.parse_preferences(words, spec),
        num_lanes=2,
        num_white_lanes=1 if cfg.noise_for == "helper" else 0,
        action_values=sac.ACTION_VALUES.of_part(lambda state: state.own),
        inspect=lambda state, batches, key: sac.inspect(cfg.single, state.own, batches[0], key),
    )
