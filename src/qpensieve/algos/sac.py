"""Single-objective SAC, one agent per preference: scalar reward lam . r, scalar twin critics, no preference input.

Paper: Haarnoja et al. 2018, with automatic temperature. The Q-Pensieve paper trains it once for each of 19 preferences.
The preference is part of the state, so agents with different preferences are an axis. Hybrid SAC is the same step with
another policy loss, which is an argument of `step`.
"""

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import optax
from jaxtyping import Array, Float, Float64, Key

from qpensieve.algos.mosac import LossAndAux, NetworkConfig, Optimizers, temperature_loss, update_diagnostics
from qpensieve.errors import UserError
from qpensieve.learning.acting import gaussian_acting
from qpensieve.learning.interface import ActionValues, Algorithm, Info, Transition, from_one_lane
from qpensieve.learning.losses import gradient_step, polyak, scalarize, squash, start_optimizer
from qpensieve.learning.nets import GaussianActor, Mlp
from qpensieve.preferences import parse_preference, sac_preferences
from qpensieve.types import EnvSpec


@dataclass(frozen=True)
class SingleSacConfig(NetworkConfig):
    """Settings of SAC for one preference; defaults are the Q-Pensieve paper's."""

    preferences: tuple[str, ...] = ()
    """Preferences such as 0.9,0.1 0.8,0.2; each has its own agent. Default: the paper's 19."""


class State(eqx.Module):
    """Everything that learning changes, and the agent's preference."""

    actor: GaussianActor
    """The policy. Its preference input is empty."""
    critic: Mlp
    """Twins: leaves lead with [2]."""
    target: Mlp
    log_alpha: Float[Array, ""]
    optimizers: Optimizers
    lam: Float[Array, " d"]


class Draws(eqx.Module):
    """Random numbers of an update: noise of the next actions and of the policy's."""

    next_noise: Float[Array, "b act"]
    noise: Float[Array, "b act"]


class Query(eqx.Module):
    """Input of a policy loss: temperature, states, the preference, and the noise of actions."""

    alpha: Float[Array, ""]
    s: Float[Array, "b obs"]
    lam: Float[Array, " d"]
    noise: Float[Array, "b act"]


PolicyLoss = Callable[[GaussianActor, Mlp, Query], LossAndAux]


def parse_preferences(words: tuple[str, ...], spec: EnvSpec) -> Float64[np.ndarray, "p d"]:
    """Parse preferences such as `0.9,0.1`. Without words return the paper's 19, which are for two objectives.

    Raises:
        ValueError: A word is no preference or occurs twice, or there are no words and not two objectives.
    """
    if not words:
        if spec.num_objectives != 2:
            example = ",".join(["..."] * spec.num_objectives)
            raise UserError(
                f"preferences must be given for {spec.id}: the paper's 19 are for two objectives, and it has "
                f"{spec.num_objectives}; use --preferences {example}"
            )
        return sac_preferences()
    parsed = np.stack([parse_preference(word, spec.num_objectives) for word in words])
    for i, lam in enumerate(parsed):
        if (parsed[:i] == lam).all(axis=1).any():
            raise UserError(f"preferences must differ, or an agent is trained twice; got {words[i]} again")
    return parsed


def init(cfg: SingleSacConfig, spec: EnvSpec, key: Key[Array, ""], lam: Float[Array, " d"]) -> State:
    key_actor, key_critic = jax.random.split(key)
    actor = GaussianActor(spec.obs_size, spec.action_size, 0, cfg.hidden, key=key_actor)
    new_critic = lambda k: Mlp(spec.obs_size + spec.action_size, cfg.hidden, 1, key=k)
    critic = jax.vmap(new_critic)(jax.random.split(key_critic))
    log_alpha = jnp.zeros(())
    start = partial(start_optimizer, _adam(cfg))
    optimizers = Optimizers(start(actor), start(critic), start(log_alpha))
    target = jax.tree.map(jnp.copy, critic)  # own buffers, because the loop donates every leaf
    return State(actor, critic, target, log_alpha, optimizers, lam)


def draw(batch: Transition, key: Key[Array, ""]) -> Draws:
    """Draw the random numbers of an update."""
    key_next, key_policy = jax.random.split(key)
    return Draws(jax.random.normal(key_next, batch.a.shape), jax.random.normal(key_policy, batch.a.shape))


def own_loss(actor: GaussianActor, critic: Mlp, query: Query) -> LossAndAux:
    """Return the mean of alpha log pi(a) - min over twins of Q(s, a)."""
    a, logp = sample_actions(actor, query.s, query.noise)
    return jnp.mean(query.alpha * logp - own_value(critic, query.s, a)), (logp, {})


def step(
    cfg: SingleSacConfig, state: State, batch: Transition, draws: Draws, policy_loss: PolicyLoss = own_loss
) -> tuple[State, Info]:
    """Update critics, policy against the new critics, temperature and target critics, in the order of MO-SAC."""
    adam, opt = _adam(cfg), state.optimizers
    y = soft_target(cfg, state, batch, draws.next_noise)
    loss_of_critic = partial(critic_loss, batch=batch, y=y)
    critic, critic_opt, q_loss, q_mean = gradient_step(adam, loss_of_critic, state.critic, opt.critic)

    query = Query(jnp.exp(state.log_alpha), batch.s, state.lam, draws.noise)
    loss_of_actor = lambda actor: policy_loss(actor, critic, query)
    actor, actor_opt, pi_loss, (logp, info) = gradient_step(adam, loss_of_actor, state.actor, opt.actor)

    loss_of_temperature = lambda log_alpha: temperature_loss(log_alpha, logp, -float(batch.a.shape[1]))
    log_alpha, alpha_opt, _, _ = gradient_step(adam, loss_of_temperature, state.log_alpha, opt.temperature)

    target = polyak(state.target, critic, cfg.tau)
    new = State(actor, critic, target, log_alpha, Optimizers(actor_opt, critic_opt, alpha_opt), state.lam)
    logged = {"critic_loss": q_loss, "policy_loss": pi_loss, "temperature": query.alpha, "q": q_mean}
    return new, info | logged | {"entropy": -jnp.mean(logp)}


def soft_target(
    cfg: SingleSacConfig, state: State, batch: Transition, noise: Float[Array, "b act"]
) -> Float[Array, " b"]:
    """Return lam . r + gamma (min over twins of Q_target(s', a') - alpha log pi); a time limit does not stop it."""
    a_next, logp = sample_actions(state.actor, batch.s_next, noise)
    q = twin_values(state.target, batch.s_next, a_next).min(axis=0)
    soft_value = q - jnp.exp(state.log_alpha) * logp
    reward = scalarize(jnp.broadcast_to(state.lam, batch.r.shape), batch.r)
    return jax.lax.stop_gradient(reward + cfg.discount * (1.0 - batch.terminated) * soft_value)


def critic_loss(critic: Mlp, batch: Transition, y: Float[Array, " b"]) -> tuple[Float[Array, ""], Float[Array, ""]]:
    """Return the mean squared error, summed over twins; auxiliary: the mean of Q."""
    q = twin_values(critic, batch.s, batch.a)
    return jnp.sum(jnp.mean(jnp.square(q - y[None]), axis=1)), jnp.mean(q[0])


def own_value(critic: Mlp, s: Float[Array, "b obs"], a: Float[Array, "b act"]) -> Float[Array, " b"]:
    # Not `min`: its gradient is NaN where the compiler rounds one value in two ways.
    return jnp.minimum(*twin_values(jax.lax.stop_gradient(critic), s, a))


def sample_actions(
    actor: GaussianActor, s: Float[Array, "b obs"], noise: Float[Array, "b act"]
) -> tuple[Float[Array, "b act"], Float[Array, " b"]]:
    """Return reparameterised actions and their log-probabilities."""
    mean, log_std = actor(s, jnp.zeros((len(s), 0)))
    return jax.vmap(squash)(mean, log_std, noise)


def twin_values(critic: Mlp, s: Float[Array, "b obs"], a: Float[Array, "b act"]) -> Float[Array, "2 b"]:
    x = jnp.concatenate([s, a], axis=1)
    return jax.vmap(lambda net: net(x)[:, 0])(critic)


def soft_actions(
    state: State, s: Float[Array, "b obs"], lam: Float[Array, "b d"], noise: Float[Array, "b act"]
) -> tuple[Float[Array, "b act"], Float[Array, " b"]]:
    """Return actions of the policy, and the bonus -alpha log pi that `soft_target` adds."""
    del lam
    a, logp = sample_actions(state.actor, s, noise)
    return a, -jnp.exp(state.log_alpha) * logp


def inspect(cfg: SingleSacConfig, state: State, batch: Transition, key: Key[Array, ""]) -> Info:
    """Return diagnostics of policy and critics, without bins because there is one preference."""
    key_next, key_now = jax.random.split(key)
    y = soft_target(cfg, state, batch, jax.random.normal(key_next, batch.a.shape))
    gradient, _ = jax.grad(partial(critic_loss, batch=batch, y=y), has_aux=True)(state.critic)
    errors = (twin_values(state.critic, batch.s, batch.a)[0] - y)[:, None]
    a, _ = sample_actions(state.actor, batch.s, jax.random.normal(key_now, batch.a.shape))
    return update_diagnostics(gradient, errors, a)


ACTION_VALUES: ActionValues[State] = ActionValues(
    lambda state, s, a, lam: twin_values(state.critic, s, a)[..., None], soft_actions, is_scalar=True
)
"""The critics: they learn discounted sums of lam . r under the agent's own preference."""


def make(cfg: SingleSacConfig, spec: EnvSpec) -> Algorithm[State]:
    return Algorithm(
        init=partial(init, cfg, spec),
        actor=lambda state: state.actor,
        acting=gaussian_acting(spec, cfg.hidden, is_conditioned=False),
        learning=from_one_lane(partial(step, cfg), lambda batch, key, number: draw(batch, key)),
        batch_size=cfg.batch_size,
        discount=cfg.discount,
        preferences=parse_preferences(cfg.preferences, spec),
        action_values=ACTION_VALUES,
        inspect=lambda state, batches, key: inspect(cfg, state, batches[0], key),
    )


def _adam(cfg: SingleSacConfig) -> optax.GradientTransformation:
    return optax.adam(cfg.learning_rate)
