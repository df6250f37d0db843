"""Multi-objective SAC: one preference-conditioned policy, vector twin critics, automatic temperature.

Paper: Q-Pensieve (ICLR 2023), eqs. (9) to (11) with W = {lam} and no snapshots. ED is measured against MO-SAC. Every
gradient step draws a new preference for the whole batch (deviation D12). Q-Pensieve is the same step with another
policy loss, which is an argument of `step`.
"""

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from typing import Annotated, Any, Literal

import equinox as eqx
import jax
import jax.numpy as jnp
import optax
from jaxtyping import Array, Float, Int, Key

from qpensieve.learning.acting import gaussian_acting
from qpensieve.learning.guards import (
    LONGEST_GRADIENT,
    RewardRange,
    bounded,
    clip_by_median,
    entropy_range,
    start_reward_range,
    temperature_rise,
    with_rewards,
)
from qpensieve.learning.improvement import Eligible, best_value
from qpensieve.learning.interface import ActionValues, Algorithm, Info, Transition, from_one_lane
from qpensieve.learning.losses import (
    between_twins,
    gradient_step,
    polyak,
    sample_preferences,
    scalarize,
    squash,
    start_optimizer,
)
from qpensieve.learning.nets import Critic, GaussianActor
from qpensieve.preferences import Sampler
from qpensieve.settings import OPEN_SHARE, STEP_SHARE, above, at_least, from_to
from qpensieve.types import EnvSpec

TEMPERATURE_FACTOR = "temperature_raise"
"""Name in the log: the factor by which `guards` raise the temperature in the policy's loss."""
TARGET_ENTROPY = -1.0
"""First target of the policy's entropy, per component of an action."""
LAST_VALUES = ("target_entropy_end", "learning_rate_end")
"""Settings that are the last value of another setting, which moves there over `anneal_updates`."""
WHOLE_RUN = 1_500_000
"""Updates of a run in the paper."""
BINS = 5
"""Bins of lam1 in diagnostics; bin i holds (i - 1) / 5 to i / 5."""
SATURATED = 0.99
"""A component of an action counts as saturated from this size on."""


@dataclass(frozen=True)
class NetworkConfig:
    """Settings that SAC for one preference, MO-SAC and CN-DER share; defaults are the paper's."""

    hidden: Annotated[int, at_least(1)] = 256
    """Width of the two hidden layers of every network."""
    learning_rate: Annotated[float, above(0)] = 3e-4
    """Adam's step size, for every network and the temperature."""
    discount: Annotated[float, OPEN_SHARE] = 0.99
    """Discount factor gamma."""
    tau: Annotated[float, STEP_SHARE] = 0.005
    """Share of the distance to the networks that the target networks move at every update."""
    batch_size: Annotated[int, at_least(1)] = 256
    """Transitions per gradient step."""


@dataclass(frozen=True)
class SacConfig(NetworkConfig):
    """Settings of (MO-)SAC; defaults are the paper's."""

    learning_rate_end: Annotated[float | None, above(0)] = None
    """Last step size of policy and critics. The step size moves there from `learning_rate` on a line, over
    `anneal_updates`. The step size of the temperature is fixed. None: all are fixed, as in the paper."""
    sampler: Sampler = "uniform-sum"
    """Distribution of preferences in acting and learning. uniform-sum: the authors' code. dirichlet: uniform on the
    simplex. abs-normal: Envelope's authors."""
    guards: bool = False
    """Keep values from running away: shortened gradients of the critics, bounded targets, and a temperature for every
    preference, which rises at once where entropy is missing. Q-Pensieve also takes no snapshot while losses are
    unusually large, and limits how far a candidate's value may exceed the current value. The paper has no guards."""
    target_entropy_end: Annotated[float | None, from_to(-4, 0)] = None
    """Last target of the policy's entropy, per component of an action. The target moves from -1 to it on a line, over
    `anneal_updates`. An entropy of -1 means a standard deviation of 0.09 on the scale from -1 to 1, and -2 means 0.03.
    None: the target stays -1, as in the paper."""
    anneal_updates: Annotated[int | None, at_least(1)] = None
    """Updates over which the entropy's target moves to `target_entropy_end` and the step size to `learning_rate_end`.
    One of the two must be set. None: all updates of the run."""
    pessimism: Annotated[float, from_to(0.5, 1)] = 1.0
    """Weight of the smaller twin in the critics' targets. The larger twin has the rest. 1: the smaller twin alone, as
    in the paper. 0.5: the mean of both."""

    def conflicts(self) -> list[str]:
        """Return a sentence if `anneal_updates` is set without an end value."""
        if self.anneal_updates is None or any(getattr(self, end) is not None for end in LAST_VALUES):
            return []
        return [f"anneal_updates needs {' or '.join(LAST_VALUES)}, got {self.anneal_updates} alone"]

    @property
    def least_target_entropy(self) -> float:
        """Lowest target of the entropy in a run, per component of an action."""
        return TARGET_ENTROPY if (end := self.target_entropy_end) is None else min(TARGET_ENTROPY, end)


class Optimizers(eqx.Module):
    """Adam's states of policy, critics and temperature."""

    actor: optax.OptState
    critic: optax.OptState
    temperature: optax.OptState


class State(eqx.Module):
    """Everything that learning changes."""

    actor: GaussianActor
    critic: Critic
    """Twins: leaves lead with [2]."""
    target: Critic
    log_alpha: Float[Array, "*d"]
    """Logarithm of the temperature. With `guards` there is one for each objective, weighted by the preference."""
    optimizers: Optimizers
    rewards: RewardRange | None = None
    """Range of rewards, which bounds targets; None without `guards`."""


Count = Int[Array, ""] | int
"""A number of updates."""


class Draws(eqx.Module):
    """Random numbers of an update: preferences (the first is lam), noise of the next actions and of the policy's."""

    prefs: Float[Array, "m d"]
    next_noise: Float[Array, "b act"]
    noise: Float[Array, "b act"]
    num_updates: Count = 0
    """Updates before this one."""


class Query(eqx.Module):
    """Input of a policy loss: temperature, states, preferences (the first is lam) and the noise of actions."""

    alpha: Float[Array, "*b"]
    s: Float[Array, "b obs"]
    prefs: Float[Array, "m d"]
    noise: Float[Array, "b act"]
    entropy_target: Float[Array, ""] | float = 0.0
    """Target of the entropy of the whole action."""
    has_guards: bool = eqx.field(static=True, default=False)

    @property
    def lam(self) -> Float[Array, "b d"]:
        return jnp.broadcast_to(self.prefs[0], (self.s.shape[0], self.prefs.shape[1]))

    def weigh(self, logp: Float[Array, " b"]) -> Float[Array, " b"]:
        """Multiply log-probabilities with the temperature, which guards raise where entropy is missing."""
        return self.alpha * self.factor(logp) * logp if self.has_guards else self.alpha * logp

    def factor(self, logp: Float[Array, " b"]) -> Float[Array, ""]:
        """Return the factor by which guards raise the temperature."""
        return jnp.exp(temperature_rise(jnp.mean(logp), self.entropy_target, self.noise.shape[-1]))


LossAndAux = tuple[Float[Array, ""], tuple[Float[Array, " b"], Info]]
"""A policy loss, the log-probabilities, and values to log."""
PolicyLoss = Callable[[GaussianActor, Critic, Query], LossAndAux]


def init(cfg: SacConfig, spec: EnvSpec, key: Key[Array, ""]) -> State:
    sizes = (spec.obs_size, spec.action_size, spec.num_objectives)
    key_actor, key_critic = jax.random.split(key)
    actor = GaussianActor(*sizes, cfg.hidden, key=key_actor)
    critic = jax.vmap(lambda k: Critic(*sizes, cfg.hidden, key=k))(jax.random.split(key_critic))
    log_alpha = jnp.zeros(spec.num_objectives if cfg.guards else ())
    optimizers = Optimizers(*map(start_optimizer, _optimizers(cfg), (actor, critic, log_alpha)))
    target = jax.tree.map(jnp.copy, critic)  # own buffers, because the loop donates every leaf
    rewards = start_reward_range(spec.num_objectives) if cfg.guards else None
    return State(actor, critic, target, log_alpha, optimizers, rewards)


def draw(cfg: SacConfig, num_preferences: int, batch: Transition, key: Key[Array, ""], num_updates: Count = 0) -> Draws:
    """Draw the random numbers of an update whose policy loss uses `num_preferences` preferences."""
    key_prefs, key_next, key_policy = jax.random.split(key, 3)
    prefs = sample_preferences(key_prefs, num_preferences, batch.r.shape[1], cfg.sampler)
    next_noise, noise = jax.random.normal(key_next, batch.a.shape), jax.random.normal(key_policy, batch.a.shape)
    return Draws(prefs, next_noise, noise, num_updates)


def single_preference_loss(actor: GaussianActor, critic: Critic, query: Query) -> LossAndAux:
    """Return the mean of alpha log pi(a) - min over twins of lam . Q(s, a; lam)."""
    a, logp = sample_actions(actor, query.s, query.lam, query.noise)
    alone = jax.tree.map(lambda leaf: leaf[None], critic)
    value, _ = best_value(alone, Eligible(jnp.ones(1, bool)), query.prefs[:1], query.s, a)
    return jnp.mean(query.weigh(logp) - value), (logp, {})


def step(
    cfg: SacConfig, state: State, batch: Transition, draws: Draws, loss: PolicyLoss = single_preference_loss
) -> tuple[State, Info]:
    """Update critics (10), policy (11) against the new critics (deviation D13), temperature and target critics."""
    opt, lam = state.optimizers, jnp.broadcast_to(draws.prefs[0], batch.r.shape)
    of_actor, of_critic, of_temperature = _optimizers(cfg)

    rewards = None if state.rewards is None else with_rewards(state.rewards, batch.r)
    y = soft_target(cfg, replace(state, rewards=rewards), batch, lam, draws.next_noise)
    loss_of_critic = partial(critic_loss, batch=batch, lam=lam, y=y)
    critic, critic_opt, q_loss, q_mean = gradient_step(of_critic, loss_of_critic, state.critic, opt.critic)

    entropy_target = annealed(cfg, "target_entropy", jnp.asarray(draws.num_updates)) * batch.a.shape[1]
    alpha = temperature(state.log_alpha, lam)
    query = Query(alpha, batch.s, draws.prefs, draws.noise, entropy_target, cfg.guards)
    loss_of_actor = lambda actor: loss(actor, critic, query)
    actor, actor_opt, pi_loss, (logp, info) = gradient_step(of_actor, loss_of_actor, state.actor, opt.actor)

    loss_of_temperature = lambda log_alpha: temperature_loss(log_alpha, logp, entropy_target, lam)
    log_alpha, alpha_opt, _, _ = gradient_step(of_temperature, loss_of_temperature, state.log_alpha, opt.temperature)

    target = polyak(state.target, critic, cfg.tau)
    new = State(actor, critic, target, log_alpha, Optimizers(actor_opt, critic_opt, alpha_opt), rewards)
    logged = {"critic_loss": q_loss, "policy_loss": pi_loss, "temperature": jnp.mean(alpha), "q": q_mean}
    logged |= {"entropy": -jnp.mean(logp)} | ({TEMPERATURE_FACTOR: query.factor(logp)} if cfg.guards else {})
    return new, info | logged


def soft_target(
    cfg: SacConfig, state: State, batch: Transition, lam: Float[Array, "b d"], noise: Float[Array, "b act"]
) -> Float[Array, "b d"]:
    """Return the backup (9): r + gamma (Q_target(s', a'; lam) - alpha log pi 1).

    Q_target is the whole vector of the smaller twin; with `pessimism` below 1 the other twin has a share. Only
    `terminated` stops the bootstrap; a time limit does not.
    """
    a_next, logp = sample_actions(state.actor, batch.s_next, lam, noise)
    twins = jnp.swapaxes(twin_values(state.target, batch.s_next, a_next, lam), 0, 1)
    q = jax.vmap(partial(between_twins, pessimism=cfg.pessimism))(lam, twins)
    alpha = temperature(state.log_alpha, lam)
    soft = q - (alpha * logp)[:, None]
    y = batch.r + cfg.discount * (1.0 - batch.terminated)[:, None] * soft
    if state.rewards is not None:
        bonus = entropy_range(cfg.least_target_entropy, a_next.shape[1])
        y = bounded(y, state.rewards, cfg.discount, jnp.broadcast_to(alpha, logp.shape), bonus)
    return jax.lax.stop_gradient(y)


def temperature(log_alpha: Float[Array, "*d"], lam: Float[Array, "b d"]) -> Float[Array, "*b"]:
    """Return the temperature: one for all samples, or one for the preference of each sample."""
    return jnp.exp(log_alpha if log_alpha.ndim == 0 else lam @ log_alpha)


def annealed(
    cfg: SacConfig, setting: Literal["target_entropy", "learning_rate"], num_updates: Int[Array, "*k"]
) -> Float[Array, "*k"]:
    """Return a setting after `num_updates`: the entropy's target per component of an action, or the step size."""
    start = TARGET_ENTROPY if setting == "target_entropy" else cfg.learning_rate
    end = cfg.target_entropy_end if setting == "target_entropy" else cfg.learning_rate_end
    if end is None:
        return jnp.full(num_updates.shape, start, jnp.float32)
    length = WHOLE_RUN if cfg.anneal_updates is None else cfg.anneal_updates
    return start + (end - start) * jnp.minimum(num_updates.astype(jnp.float32) / length, 1.0)


def critic_loss(
    critic: Critic, batch: Transition, lam: Float[Array, "b d"], y: Float[Array, "b d"]
) -> tuple[Float[Array, ""], Float[Array, ""]]:
    """Return loss (10), the sum over twins of mean_b sum_i lam_i delta_i^2; auxiliary: the mean of lam . Q."""
    q = twin_values(critic, batch.s, batch.a, lam)
    delta = jnp.square(q - y[None])
    return jnp.sum(jnp.mean(jnp.sum(lam[None] * delta, axis=-1), axis=-1)), jnp.mean(scalarize(lam, q[0]))


def temperature_loss(
    log_alpha: Float[Array, "*d"],
    logp: Float[Array, " b"],
    entropy_target: float | Float[Array, ""],
    lam: Float[Array, "b d"] | None = None,
) -> tuple[Float[Array, ""], None]:
    """Return a loss whose descent raises the temperature (of each `lam`) while entropy is below its target."""
    if lam is None or log_alpha.ndim == 0:
        return -log_alpha * jax.lax.stop_gradient(jnp.mean(logp) + entropy_target), None
    return -jnp.mean((lam @ log_alpha) * jax.lax.stop_gradient(logp + entropy_target)), None


def sample_actions(
    actor: GaussianActor, s: Float[Array, "b obs"], lam: Float[Array, "b d"], noise: Float[Array, "b act"]
) -> tuple[Float[Array, "b act"], Float[Array, " b"]]:
    """Return reparameterised actions and their log-probabilities."""
    mean, log_std = actor(s, lam)
    return jax.vmap(squash)(mean, log_std, noise)


def twin_values(
    critic: Critic, s: Float[Array, "b obs"], a: Float[Array, "b act"], lam: Float[Array, "b d"]
) -> Float[Array, "2 b d"]:
    return jax.vmap(lambda net: net(s, a, lam))(critic)


def soft_actions(
    state: State, s: Float[Array, "b obs"], lam: Float[Array, "b d"], noise: Float[Array, "b act"]
) -> tuple[Float[Array, "b act"], Float[Array, " b"]]:
    """Return actions of the policy, and the bonus -alpha log pi that `soft_target` adds to every objective."""
    a, logp = sample_actions(state.actor, s, lam, noise)
    return a, -temperature(state.log_alpha, lam) * logp


def spread_preferences(key: Key[Array, ""], num: int, d: int) -> Float[Array, "num d"]:
    """Draw preferences: lam1 uniform in bin i % 5 for row i, the rest uniform on the remaining simplex."""
    key_first, key_rest = jax.random.split(key)
    bins = jnp.arange(num) % BINS
    first = ((bins + jax.random.uniform(key_first, (num,))) / BINS)[:, None]
    rest = sample_preferences(key_rest, num, d - 1, "dirichlet") if d > 2 else jnp.ones((num, d - 1))
    return jnp.concatenate([first, (1.0 - first) * rest], axis=1) if d > 1 else jnp.ones((num, 1))


def by_bin(name: str, values: Float[Array, " b"]) -> Info:
    """Return the means of the rows of each bin."""
    bins = jnp.arange(len(values)) % BINS
    return {f"{name}_bin_{i + 1}": jnp.mean(values, where=bins == i) for i in range(BINS)}


def update_diagnostics(gradient: object, errors: Float[Array, "b d"], a: Float[Array, "b act"]) -> Info:
    """Return values to log: length of the critics' gradient, mean size of each objective's errors, and saturation.

    The saturation is the share of components of actions near -1 or 1.
    """
    sizes = jnp.mean(jnp.abs(errors), axis=0)
    seen = {"critic_gradient_max": optax.tree.norm(gradient)} | {f"td_error_{i + 1}": x for i, x in enumerate(sizes)}
    return seen | {"saturation": jnp.mean((jnp.abs(a) > SATURATED).astype(jnp.float32))}


def inspect(cfg: SacConfig, state: State, batch: Transition, key: Key[Array, ""]) -> Info:
    """Return diagnostics of policy and critics, with preferences of all bins."""
    b = len(batch.r)
    batch = batch if b >= BINS else jax.tree.map(lambda leaf: leaf[jnp.arange(BINS) % b], batch)
    key_lam, key_next, key_now = jax.random.split(key, 3)
    lam = spread_preferences(key_lam, *batch.r.shape)
    y = soft_target(cfg, state, batch, lam, jax.random.normal(key_next, batch.a.shape))
    gradient, _ = jax.grad(partial(critic_loss, batch=batch, lam=lam, y=y), has_aux=True)(state.critic)
    errors = twin_values(state.critic, batch.s, batch.a, lam)[0] - y
    a, logp = sample_actions(state.actor, batch.s, lam, jax.random.normal(key_now, batch.a.shape))
    value = jnp.sum(lam[None] * twin_values(state.critic, batch.s, a, lam), axis=-1).min(axis=0)
    info = by_bin("entropy", -logp) | by_bin("q", value) | update_diagnostics(gradient, errors, a)
    if state.log_alpha.ndim:  # a corner of the simplex has the largest temperature
        info["temperature_max"] = jnp.exp(state.log_alpha.max())
    return info


ACTION_VALUES: ActionValues[State] = ActionValues(
    lambda state, s, a, lam: twin_values(state.critic, s, a, lam), soft_actions
)
"""Values that the critics learn."""


def make(cfg: SacConfig, spec: EnvSpec) -> Algorithm[State]:
    return Algorithm(
        init=lambda key, _: init(cfg, spec, key),
        actor=lambda state: state.actor,
        acting=gaussian_acting(spec, cfg.hidden, is_conditioned=True),
        learning=from_one_lane(partial(step, cfg), partial(draw, cfg, 1)),
        batch_size=cfg.batch_size,
        discount=cfg.discount,
        sampler=cfg.sampler,
        action_values=ACTION_VALUES,
        inspect=lambda state, batches, key: inspect(cfg, state, batches[0], key),
    )


def _optimizers(cfg: SacConfig) -> tuple[optax.GradientTransformation, ...]:
    """Return Adam for policy, critics and temperature. Guards shorten the gradients of the critics."""
    rate: Any = cfg.learning_rate if cfg.learning_rate_end is None else partial(annealed, cfg, "learning_rate")
    adam = optax.adam(rate)
    of_critics = optax.chain(clip_by_median(LONGEST_GRADIENT), adam) if cfg.guards else adam
    return adam, of_critics, optax.adam(cfg.learning_rate)
