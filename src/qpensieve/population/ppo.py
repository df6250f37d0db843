"""PPO with a vector critic for one preference: the learner of every member of PGMORL's and PFA's populations.

Source: the PPO worker of Xu et al., Prediction-Guided MORL (ICML 2020). The critic learns every objective on the scale
of normalised rewards; the policy climbs lam . A on the raw scale, so that a preference means the same for every member.

Functions are for one member. The host acts, normalises observations and rewards and keeps their running statistics.
"""

from dataclasses import dataclass
from functools import partial
from math import gcd
from typing import Annotated

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import optax
from jaxtyping import Array, Bool, Float, Int, Key

from qpensieve.learning.interface import Info
from qpensieve.learning.losses import gradient_step, scalarize, start_optimizer
from qpensieve.learning.nets import TanhMlp
from qpensieve.settings import NOT_NEGATIVE, OPEN_SHARE, above, at_least, from_to
from qpensieve.types import EnvSpec

STD_EPSILON = 1e-5
"""Added to the standard deviation by which advantages are divided."""
VARIANCE_EPSILON = 1e-8
"""Added to the variance of the returns that the values are to explain."""


@dataclass(frozen=True)
class PpoConfig:
    """Settings of PPO; defaults are those of PGMORL's authors."""

    hidden: Annotated[int, at_least(1)] = 64
    """Width of the two hidden layers of policy and critic."""
    learning_rate: Annotated[float, above(0)] = 3e-4
    """Adam's step size at the start; it falls linearly to 0 over the run."""
    discount: Annotated[float, OPEN_SHARE] = 0.995
    """Discount factor gamma."""
    gae_lambda: Annotated[float, from_to(0, 1)] = 0.95
    """Decay of the generalised advantage estimate: 0 uses one step, 1 uses the whole episode."""
    num_lanes: int = 4
    """Environments of each task."""
    rollout_steps: int = 2048
    """Steps of each of these environments per iteration."""
    epochs: Annotated[int, at_least(1)] = 10
    """Passes over the transitions of an iteration."""
    minibatches: int = 32
    """Gradient steps per pass; they share its transitions equally."""
    clip: Annotated[float, above(0)] = 0.2
    """Clipping range: how far the probability ratio may be from 1, and a value from its old value."""
    value_coefficient: Annotated[float, NOT_NEGATIVE] = 0.5
    """Coefficient of the value loss."""
    entropy_coefficient: float = 0.0
    """Coefficient of the policy's entropy, which is subtracted from the loss."""
    max_gradient_norm: Annotated[float, above(0)] = 0.5
    """Largest norm of the gradient of policy and critic together; longer gradients are scaled down to it."""
    adam_epsilon: Annotated[float, above(0)] = 1e-5
    """Adam's epsilon."""

    def conflicts(self) -> list[str]:
        """Minibatches must share the transitions of an iteration equally."""
        size, num = self.num_lanes * self.rollout_steps, self.minibatches
        if min(self.num_lanes, self.rollout_steps, num) < 1:
            return ["num_lanes, rollout_steps and minibatches must be at least 1"]
        if size % num == 0:
            return []
        fitting = max(n for n in range(1, num + 1) if size % n == 0)
        return [
            f"{self.num_lanes} lanes x {self.rollout_steps} rollout_steps = {size} transitions do not split into "
            f"{num} equal minibatches: set minibatches to {fitting}, "
            f"or rollout_steps to a multiple of {num // gcd(num, self.num_lanes)}"
        ]


class Actor(eqx.Module):
    """Diagonal Gaussian, not squashed: its mean depends on the state, its standard deviation does not."""

    net: TanhMlp
    log_std: Float[Array, " act"]


Model = tuple[Actor, TanhMlp]
"""What one optimiser moves together: policy and vector critic."""


class State(eqx.Module):
    """Everything that learning changes."""

    actor: Actor
    critic: TanhMlp
    optimizer: optax.OptState


class Rollout(eqx.Module):
    """K steps of l lanes, as the host hands them over: observations and rewards already normalised."""

    obs: Float[Array, "K l obs"]
    action: Float[Array, "K l act"]
    """The policy's sample, not clipped to what the environment takes."""
    reward: Float[Array, "K l d"]
    terminated: Bool[Array, "K l"]
    truncated: Bool[Array, "K l"]
    last_obs: Float[Array, "l obs"]
    """Observation to act on after the last step; if an episode ended there, the first of the next episode."""


class Goal(eqx.Module):
    """Goal of an update: the preference, the scale of the normalised rewards, and Adam's step size."""

    lam: Float[Array, " d"]
    scale: Float[Array, " d"]
    learning_rate: Float[Array, ""]


class Batch(eqx.Module):
    """Transitions, with the outputs of the networks that collected them."""

    obs: Float[Array, "*b obs"]
    action: Float[Array, "*b act"]
    logp: Float[Array, "*b"]
    values: Float[Array, "*b d"]
    returns: Float[Array, "*b d"]
    advantage: Float[Array, "*b"]


def init(cfg: PpoConfig, spec: EnvSpec, stream: np.random.Generator) -> State:
    """A new member; its networks are drawn on the host, so this is not for `jax.jit`."""
    net = TanhMlp(spec.obs_size, cfg.hidden, spec.action_size, 1.0, stream=stream)
    actor = Actor(net, jnp.zeros(spec.action_size))
    critic = TanhMlp(spec.obs_size, cfg.hidden, spec.num_objectives, 2.0**0.5, stream=stream)
    return State(actor, critic, start_optimizer(_optimizer(cfg, jnp.zeros(())), (actor, critic)))


def log_prob(actor: Actor, obs: Float[Array, " obs"], action: Float[Array, " act"]) -> Float[Array, ""]:
    """Log-density of an action."""
    z = (action - actor.net(obs)) * jnp.exp(-actor.log_std)
    return jnp.sum(-0.5 * jnp.square(z) - actor.log_std - 0.5 * jnp.log(2.0 * jnp.pi))


def entropy(actor: Actor) -> Float[Array, ""]:
    """Differential entropy of the policy, the same in every state."""
    return jnp.sum(actor.log_std + 0.5 * jnp.log(2.0 * jnp.pi) + 0.5)


def returns_and_values(
    cfg: PpoConfig, critic: TanhMlp, rollout: Rollout
) -> tuple[Float[Array, "K l d"], Float[Array, "K l d"]]:
    """Returns (the targets of the values), by generalised advantage estimation for every objective, and the values.

    After an end the next value is 0. At a time limit the advantage is 0, so the return is the value: the rollout does
    not hold what would follow, because its next observation belongs to another episode. No sum crosses either of them.
    """
    all_values = jax.vmap(jax.vmap(critic))(jnp.concatenate([rollout.obs, rollout.last_obs[None]]))
    values = all_values[:-1]
    goes_on = ~(rollout.terminated | rollout.truncated)[..., None]
    delta = rollout.reward + cfg.discount * goes_on * all_values[1:] - values
    delta = jnp.where(rollout.truncated[..., None], 0.0, delta)
    decay = jnp.broadcast_to(cfg.discount * cfg.gae_lambda * goes_on, delta.shape)
    return _discounted_sums(delta, decay) + values, values


def _discounted_sums(x: Float[Array, "K *b"], decay: Float[Array, "K *b"]) -> Float[Array, "K *b"]:
    """The sums y[t] = x[t] + decay[t] y[t + 1], zero after the last, by an associative scan, which takes few steps."""

    def join(late: tuple[Array, Array], early: tuple[Array, Array]) -> tuple[Array, Array]:
        return early[0] + early[1] * late[0], early[1] * late[1]

    return jax.lax.associative_scan(join, (x, decay), reverse=True)[0]


def advantages(
    lam: Float[Array, " d"], scale: Float[Array, " d"], returns: Float[Array, "K l d"], values: Float[Array, "K l d"]
) -> Float[Array, "K l"]:
    """Advantages lam . A on the scale of raw rewards, standardised over all of them."""
    scaled = scalarize(jnp.broadcast_to(lam * scale, returns.shape), returns - values)
    return (scaled - jnp.mean(scaled)) / (jnp.std(scaled) + STD_EPSILON)


def loss(cfg: PpoConfig, model: Model, batch: Batch) -> tuple[Float[Array, ""], Info]:
    """Clipped policy loss plus value loss minus entropy, each times its coefficient; auxiliary: what to log."""
    actor, critic = model
    log_ratio = jax.vmap(partial(log_prob, actor))(batch.obs, batch.action) - batch.logp
    ratio = jnp.exp(log_ratio)
    pi_loss = policy_loss(cfg.clip, ratio, batch.advantage)
    v_loss = value_loss(cfg.clip, jax.vmap(critic)(batch.obs), batch.values, batch.returns)
    total = pi_loss + cfg.value_coefficient * v_loss - cfg.entropy_coefficient * entropy(actor)
    is_clipped = jnp.abs(ratio - 1.0) > cfg.clip
    return total, {
        "policy_loss": pi_loss,
        "value_loss": v_loss,
        "kl": jnp.mean(ratio - 1.0 - log_ratio),
        "clip_share": jnp.mean(is_clipped.astype(jnp.float32)),
    }


def policy_loss(clip: float, ratio: Float[Array, " b"], advantage: Float[Array, " b"]) -> Float[Array, ""]:
    """Minus the mean of ratio x advantage, or of the same with the clipped ratio where that is less."""
    return -jnp.mean(jnp.minimum(ratio * advantage, jnp.clip(ratio, 1.0 - clip, 1.0 + clip) * advantage))


def value_loss(
    clip: float, values: Float[Array, "b d"], old: Float[Array, "b d"], returns: Float[Array, "b d"]
) -> Float[Array, ""]:
    """Half the mean squared error over batch and objectives; the error of the clipped value counts if it is larger."""
    held = old + jnp.clip(values - old, -clip, clip)
    return 0.5 * jnp.mean(jnp.maximum(jnp.square(values - returns), jnp.square(held - returns)))


def update(cfg: PpoConfig, state: State, rollout: Rollout, goal: Goal, key: Key[Array, ""]) -> tuple[State, Info]:
    """All epochs of one iteration, on transitions that `state` has collected."""
    batch = judge(cfg, state, rollout, goal)
    optimizer = _optimizer(cfg, goal.learning_rate)

    def step(carry, minibatch):
        model, opt_state, _, info = gradient_step(optimizer, partial(loss, cfg, batch=minibatch), *carry)
        return (model, opt_state), info

    def epoch(carry, order):
        return jax.lax.scan(step, carry, deal(batch, order, cfg.minibatches))

    orders = jax.vmap(lambda key: permutation(key, batch.advantage.shape[0]))(jax.random.split(key, cfg.epochs))
    start = ((state.actor, state.critic), state.optimizer)
    ((actor, critic), opt_state), infos = jax.lax.scan(epoch, start, orders)
    info = jax.tree.map(jnp.mean, infos)
    info |= {"std": jnp.mean(jnp.exp(actor.log_std)), "explained_variance": explained_variance(batch)}
    return State(actor, critic, opt_state), info


def judge(cfg: PpoConfig, state: State, rollout: Rollout, goal: Goal) -> Batch:
    """The transitions in one row, each with its log-probability, values, returns and advantage under `state`."""
    returns, values = returns_and_values(cfg, state.critic, rollout)
    logp = jax.vmap(jax.vmap(partial(log_prob, state.actor)))(rollout.obs, rollout.action)
    advantage = advantages(goal.lam, goal.scale, returns, values)
    batch = Batch(rollout.obs, rollout.action, logp, values, returns, advantage)
    return jax.tree.map(lambda leaf: leaf.reshape(-1, *leaf.shape[2:]), batch)


def deal(batch: Batch, order: Int[Array, " b"], minibatches: int) -> Batch:
    """The transitions in that order, cut into minibatches: every leaf leads with [minibatches, rows]."""
    return jax.tree.map(lambda leaf: leaf[order].reshape(minibatches, -1, *leaf.shape[1:]), batch)


def permutation(key: Key[Array, ""], num: int) -> Int[Array, " num"]:
    """The numbers below `num` in random order, by one sort of words: random high digits, then the number.

    On a CPU this is ten times as fast as `jax.random.permutation`, which took a fifth of an update. Numbers with equal
    random digits stay in order: of 8192 numbers about one in 60 has such a partner.
    """
    # Halved, so that the sum stays below 2^32 for any `num`.
    high = (jax.random.bits(key, (num,), jnp.uint32) >> 1) // num
    return (jnp.sort(high * num + jnp.arange(num, dtype=jnp.uint32)) % num).astype(jnp.int32)


def explained_variance(batch: Batch) -> Float[Array, ""]:
    """Share of the returns' variance that the values explained, over all objectives: 1 is perfect, 0 a constant."""
    left = jnp.var(batch.returns - batch.values, axis=0)
    return 1.0 - jnp.sum(left) / (jnp.sum(jnp.var(batch.returns, axis=0)) + VARIANCE_EPSILON)


def _optimizer(cfg: PpoConfig, learning_rate: Float[Array, ""]) -> optax.GradientTransformation:
    return optax.chain(
        optax.clip_by_global_norm(cfg.max_gradient_norm),
        optax.scale_by_adam(eps=cfg.adam_epsilon),
        optax.scale_by_learning_rate(learning_rate),
    )
