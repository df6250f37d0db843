"""CN-DER on DDPG: one conditioned network, trained on every transition under two preferences.

Source: Abels et al., Dynamic Weights in Multi-Objective Deep RL (ICML 2019). Values are vectors Q(s, a; lam). Each
sampled transition is used under the current preference and a random earlier one, and its priority comes from both
errors. The original is a dueling double DQN. The Q-Pensieve paper uses DDPG for continuous actions, without details, so
policy, noise and networks are choices of this project. There is a single critic, as in DDPG. The preference under which
a transition was collected is not used.
"""

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Annotated

import equinox as eqx
import jax
import jax.numpy as jnp
import optax
from jaxtyping import Array, Float, Key

from qpensieve.algos.mosac import NetworkConfig
from qpensieve.learning.acting import noisy_acting
from qpensieve.learning.interface import ActionValues, Algorithm, Hints, Info, PrioritizedLearning, Transition
from qpensieve.learning.losses import gradient_step, polyak, scalarize, start_optimizer
from qpensieve.learning.nets import Critic, DeterministicActor
from qpensieve.preferences import Sampler
from qpensieve.settings import NOT_NEGATIVE, Since
from qpensieve.types import EnvSpec

NOISE_SCALE = 0.1
"""Standard deviation of the exploration noise, a choice of this project; actions are in [-1, 1]."""
PRIORITY_OFFSET = 0.01
"""Added to the error before the power, so that every transition can be sampled again."""


@dataclass(frozen=True)
class CnDerConfig(NetworkConfig):
    """Settings of CN-DER.

    Defaults are those of the Q-Pensieve paper for all baselines. `layer_norm` and `priority_exponent` are choices of
    this project (deviation D20).
    """

    sampler: Sampler = "uniform-sum"
    """Distribution of the preferences that episodes act under."""
    layer_norm: Annotated[bool, Since(False)] = True
    """Standardise the input of each ReLU of the critic over the units of its layer. Without this the values diverge on
    DST2d (deviation D20). DDPG's authors normalise over batches."""
    priority_exponent: Annotated[float, NOT_NEGATIVE] = 1.0
    """The priority is the error to this power. The original uses 2. On DST2d the errors near rocks and treasures never
    vanish; with their squares other transitions are sampled too rarely, and the values diverge (deviation D20)."""


class Optimizers(eqx.Module):
    """Adam's state for policy and critic."""

    actor: optax.OptState
    critic: optax.OptState


class State(eqx.Module):
    """Everything that learning changes."""

    actor: DeterministicActor
    target_actor: DeterministicActor
    critic: Critic
    target_critic: Critic
    optimizers: Optimizers


def init(cfg: CnDerConfig, spec: EnvSpec, key: Key[Array, ""]) -> State:
    sizes = (spec.obs_size, spec.action_size, spec.num_objectives, cfg.hidden)
    key_actor, key_critic = jax.random.split(key)
    actor, critic = DeterministicActor(*sizes, key=key_actor), Critic(*sizes, key=key_critic)
    start = partial(start_optimizer, _adam(cfg))
    optimizers = Optimizers(start(actor), start(critic))
    target_actor, target_critic = jax.tree.map(jnp.copy, (actor, critic))  # own buffers: the loop donates every leaf
    return State(actor, target_actor, critic, target_critic, optimizers)


def update(
    cfg: CnDerConfig, state: State, batch: Transition, hints: Hints, key: Key[Array, ""]
) -> tuple[State, Info, Float[Array, " b"]]:
    """Update critic, policy against the new critic, and target networks; return new priorities too.

    Args:
        cfg: Settings.
        state: State.
        batch: Transitions [b].
        hints: The current preference [d], and for each transition of the batch an earlier one [b, d].
        key: Unused, nothing is random here.
    """
    del key
    adam, opt = _adam(cfg), state.optimizers
    prefs = relabel(cfg, jnp.broadcast_to(hints.lam, batch.r.shape), hints.past)

    y = targets(cfg, state, batch, prefs)
    loss_of_critic = lambda critic: critic_loss(cfg, critic, batch, prefs, y)
    critic, critic_opt, q_loss, (q, errors) = gradient_step(adam, loss_of_critic, state.critic, opt.critic)

    loss_of_actor = lambda actor: policy_loss(cfg, actor, critic, batch.s, prefs)
    actor, actor_opt, pi_loss, _ = gradient_step(adam, loss_of_actor, state.actor, opt.actor)

    target_actor = polyak(state.target_actor, actor, cfg.tau)
    target_critic = polyak(state.target_critic, critic, cfg.tau)
    new = State(actor, target_actor, critic, target_critic, Optimizers(actor_opt, critic_opt))
    priorities = priority_of_errors(cfg, errors)
    info = {
        "critic_loss": q_loss,
        "policy_loss": pi_loss,
        "q": jnp.mean(scalarize(prefs, q)),
        "td_error": jnp.mean(errors),
        "priority": jnp.mean(priorities),
        "priority_max": jnp.max(priorities),
    }
    return new, info, priorities


def priority(
    cfg: CnDerConfig, state: State, batch: Transition, hints: Hints, key: Key[Array, ""]
) -> Float[Array, " K"]:
    """Return first priorities of new transitions, under the preference of their episode and an earlier one.

    Args:
        cfg: Settings.
        state: State.
        batch: Transitions [K].
        hints: For each transition the preference of its episode [K, d] and earlier ones [K, m, d].
        key: Unused, nothing is random here.
    """
    del key
    prefs = relabel(cfg, hints.lam, hints.past[:, 0])
    _, (_, errors) = critic_loss(cfg, state.critic, batch, prefs, targets(cfg, state, batch, prefs))
    return priority_of_errors(cfg, errors)


def relabel(cfg: CnDerConfig, lam: Float[Array, "b d"], past: Float[Array, "b d"]) -> Float[Array, "m b d"]:
    """Return the preferences that each transition is used under."""
    return jnp.stack([lam, past])


def targets(cfg: CnDerConfig, state: State, batch: Transition, prefs: Float[Array, "m b d"]) -> Float[Array, "m b d"]:
    """Return r + gamma Q'(s', pi'(s'; lam); lam) of the target networks; only `terminated` stops the bootstrap."""

    def target(step: Transition, lam: Float[Array, " d"]) -> Float[Array, " d"]:
        q = value(cfg, state.target_critic, step.s_next, state.target_actor(step.s_next, lam), lam)
        return step.r + cfg.discount * (1.0 - step.terminated) * q

    return _over_rows(target)(batch, prefs)


def critic_loss(
    cfg: CnDerConfig, critic: Critic, batch: Transition, prefs: Float[Array, "m b d"], y: Float[Array, "m b d"]
) -> tuple[Float[Array, ""], tuple[Float[Array, "m b d"], Float[Array, " b"]]]:
    """Return the mean absolute error over preferences, transitions and objectives.

    Auxiliary: the values, and for each transition the mean absolute error over preferences and objectives.
    """
    q = _over_rows(lambda step, lam: value(cfg, critic, step.s, step.a, lam))(batch, prefs)
    errors = jnp.abs(q - y)
    return jnp.mean(errors), (q, jnp.mean(errors, axis=(0, 2)))


def policy_loss(
    cfg: CnDerConfig, actor: DeterministicActor, critic: Critic, s: Float[Array, "b obs"], prefs: Float[Array, "m b d"]
) -> tuple[Float[Array, ""], None]:
    """Return minus the mean of lam . Q(s, pi(s; lam); lam) over transitions and preferences."""
    scalar = lambda s, lam: scalarize(lam, value(cfg, critic, s, actor(s, lam), lam))
    return -jnp.mean(_over_rows(scalar)(s, prefs)), None


def value(
    cfg: CnDerConfig, critic: Critic, s: Float[Array, " obs"], a: Float[Array, " act"], lam: Float[Array, " d"]
) -> Float[Array, " d"]:
    """Return Q(s, a; lam)."""
    return critic.net(jnp.concatenate([s, a, lam]), cfg.layer_norm)


def priority_of_errors(cfg: CnDerConfig, errors: Float[Array, " b"]) -> Float[Array, " b"]:
    return (errors + PRIORITY_OFFSET) ** cfg.priority_exponent


def own_values(
    cfg: CnDerConfig, state: State, s: Float[Array, "b obs"], a: Float[Array, "b act"], lam: Float[Array, "b d"]
) -> Float[Array, "1 b d"]:
    """Return Q(s, a; lam) of every row, for one critic."""
    return jax.vmap(partial(value, cfg, state.critic))(s, a, lam)[None]


def policy_actions(
    state: State, s: Float[Array, "b obs"], lam: Float[Array, "b d"], noise: Float[Array, "b act"]
) -> tuple[Float[Array, "b act"], Float[Array, " b"]]:
    """Return actions without exploration, whose values the critic learns, without a bonus."""
    del noise
    return jax.vmap(state.actor)(s, lam), jnp.zeros(s.shape[0])


def make(cfg: CnDerConfig, spec: EnvSpec) -> Algorithm[State]:
    learning = PrioritizedLearning(
        keeps="diverse",
        priority=partial(priority, cfg),
        update=partial(update, cfg),
        forces_newest=True,
        num_past=cfg.batch_size,
    )
    return Algorithm(
        init=lambda key, _: init(cfg, spec, key),
        actor=lambda state: state.actor,
        acting=noisy_acting(spec, cfg.hidden, NOISE_SCALE),
        learning=learning,
        batch_size=cfg.batch_size,
        discount=cfg.discount,
        sampler=cfg.sampler,
        action_values=ActionValues(partial(own_values, cfg), policy_actions, is_sampled=False),
    )


def _over_rows(function: Callable[..., Array]) -> Callable[..., Array]:
    """Apply a function of one transition and one preference to transitions [b] under preferences [m, b]."""
    return jax.vmap(jax.vmap(function), in_axes=(None, 0))


def _adam(cfg: CnDerConfig) -> optax.GradientTransformation:
    return optax.adam(cfg.learning_rate)
