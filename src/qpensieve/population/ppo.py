"""PPO with a vector critic for one preference: the learner of every member of PGMORL's and PFA's populations.

Source: the PPO worker of Xu et al., Prediction-Guided MORL (ICML 2020). The critic learns every objective on the scale
of normalised rewards; the policy climbs lam . A on the raw scale, so that a preference means the same for every member.

The host acts, normalises observations and rewards and keeps their `RunningStatistics`. `Learner` updates all members in
one call of the device; the other functions are for one member.
"""

from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache, partial
from math import gcd
from typing import Annotated, Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import optax
from jaxtyping import Array, Bool, Float, Float64, Int, Key

from qpensieve.learning.interface import Info
from qpensieve.learning.losses import flatten, gradient_step, over_agents, scalarize, start_optimizer
from qpensieve.learning.nets import TanhMlp
from qpensieve.learning.streams import Purpose, generator
from qpensieve.machine import KEPT_PROGRAMS, options_of_updates
from qpensieve.settings import OPEN_SHARE, above, at_least
from qpensieve.types import EnvSpec

GAE_LAMBDA = 0.95
"""Decay of the generalised advantage estimate: 0 uses one step, 1 uses the whole episode."""
CLIP = 0.2
"""Clipping range: how far the probability ratio may be from 1, and a value from its old value."""
VALUE_COEFFICIENT = 0.5
"""Coefficient of the value loss."""
MAX_GRADIENT_NORM = 0.5
"""Largest norm of the gradient of policy and critic together; longer gradients are scaled down to it."""
ADAM_EPSILON = 1e-5
STD_EPSILON = 1e-5
"""Added to the standard deviation by which advantages are divided."""
VARIANCE_EPSILON = 1e-8
"""Added to a variance before its root is taken or something is divided by it."""
FIRST_COUNT = 1e-4
"""Statistics start from a standard normal that counts as this many samples."""


@dataclass(frozen=True)
class PpoConfig:
    """Settings of PPO; defaults are those of PGMORL's authors."""

    hidden: Annotated[int, at_least(1)] = 64
    """Width of the two hidden layers of policy and critic."""
    learning_rate: Annotated[float, above(0)] = 3e-4
    """Adam's step size at the start; it falls linearly to 0 over the run."""
    discount: Annotated[float, OPEN_SHARE] = 0.995
    """Discount factor gamma."""
    num_lanes: int = 4
    """Environments of each task."""
    rollout_steps: int = 2048
    """Steps of each environment per iteration."""
    epochs: Annotated[int, at_least(1)] = 10
    """Passes over the transitions of an iteration."""
    minibatches: int = 32
    """Gradient steps per pass, between which its transitions are divided equally."""

    def conflicts(self) -> list[str]:
        """Return a sentence if a size is below 1, or the transitions do not split into equal minibatches."""
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
"""Policy and vector critic, which one optimiser updates together."""


class State(eqx.Module):
    """Everything that learning changes."""

    actor: Actor
    critic: TanhMlp
    optimizer: optax.OptState


class Rollout(eqx.Module):
    """K steps of l lanes, of one member or of all, with observations and rewards already normalised."""

    obs: Float[Array, "*n K l obs"]
    action: Float[Array, "*n K l act"]
    """Sample of the policy, not clipped to the environment's box."""
    reward: Float[Array, "*n K l d"]
    terminated: Bool[Array, "*n K l"]
    truncated: Bool[Array, "*n K l"]
    last_obs: Float[Array, "*n l obs"]
    """Observation to act on after the last step; if an episode ended there, the first of the next episode."""


class Goal(eqx.Module):
    """Inputs of an update, of one member or of all: preference, scale of the normalised rewards, Adam's step size."""

    lam: Float[Array, "*n d"]
    scale: Float[Array, "*n d"]
    learning_rate: Float[Array, "*n"]


class Batch(eqx.Module):
    """Transitions, with the outputs of the networks that collected them."""

    obs: Float[Array, "*b obs"]
    action: Float[Array, "*b act"]
    logp: Float[Array, "*b"]
    values: Float[Array, "*b d"]
    returns: Float[Array, "*b d"]
    advantage: Float[Array, "*b"]


def init(cfg: PpoConfig, spec: EnvSpec, stream: np.random.Generator) -> State:
    """Return a new member. Its networks are drawn on the host, so this function cannot be jitted."""
    net = TanhMlp(spec.obs_size, cfg.hidden, spec.action_size, 1.0, stream=stream)
    actor = Actor(net, jnp.zeros(spec.action_size))
    critic = TanhMlp(spec.obs_size, cfg.hidden, spec.num_objectives, 2.0**0.5, stream=stream)
    return State(actor, critic, start_optimizer(_optimizer(cfg, jnp.zeros(())), (actor, critic)))


def log_prob(actor: Actor, obs: Float[Array, " obs"], action: Float[Array, " act"]) -> Float[Array, ""]:
    """Return the log-density of an action."""
    z = (action - actor.net(obs)) * jnp.exp(-actor.log_std)
    return jnp.sum(-0.5 * jnp.square(z) - actor.log_std - 0.5 * jnp.log(2.0 * jnp.pi))


def returns_and_values(
    cfg: PpoConfig, critic: TanhMlp, rollout: Rollout
) -> tuple[Float[Array, "K l d"], Float[Array, "K l d"]]:
    """Return returns (the targets of values), by generalised advantage estimation per objective, and the values.

    After an end the next value is 0. At a time limit the advantage is 0, so the return is the value: the rollout lacks
    the last observation of the episode, because its next one belongs to another episode. No sum goes beyond an episode.
    """
    all_values = jax.vmap(jax.vmap(critic))(jnp.concatenate([rollout.obs, rollout.last_obs[None]]))
    values = all_values[:-1]
    goes_on = ~(rollout.terminated | rollout.truncated)[..., None]
    delta = rollout.reward + cfg.discount * goes_on * all_values[1:] - values
    delta = jnp.where(rollout.truncated[..., None], 0.0, delta)
    decay = jnp.broadcast_to(cfg.discount * GAE_LAMBDA * goes_on, delta.shape)
    return _discounted_sums(delta, decay) + values, values


def _discounted_sums(x: Float[Array, "K *b"], decay: Float[Array, "K *b"]) -> Float[Array, "K *b"]:
    """Return the sums y[t] = x[t] + decay[t] y[t + 1], zero after the last, by an associative scan of few steps."""

    def join(late: tuple[Array, Array], early: tuple[Array, Array]) -> tuple[Array, Array]:
        return early[0] + early[1] * late[0], early[1] * late[1]

    return jax.lax.associative_scan(join, (x, decay), reverse=True)[0]


def advantages(
    lam: Float[Array, " d"], scale: Float[Array, " d"], returns: Float[Array, "K l d"], values: Float[Array, "K l d"]
) -> Float[Array, "K l"]:
    """Return the advantages lam . A on the scale of raw rewards, standardised over all transitions."""
    scaled = scalarize(jnp.broadcast_to(lam * scale, returns.shape), returns - values)
    return (scaled - jnp.mean(scaled)) / (jnp.std(scaled) + STD_EPSILON)


def loss(cfg: PpoConfig, model: Model, batch: Batch) -> tuple[Float[Array, ""], Info]:
    """Return the clipped policy loss plus the value loss times its coefficient; auxiliary: values to log."""
    actor, critic = model
    log_ratio = jax.vmap(partial(log_prob, actor))(batch.obs, batch.action) - batch.logp
    ratio = jnp.exp(log_ratio)
    pi_loss = policy_loss(CLIP, ratio, batch.advantage)
    v_loss = value_loss(CLIP, jax.vmap(critic)(batch.obs), batch.values, batch.returns)
    is_clipped = jnp.abs(ratio - 1.0) > CLIP
    return pi_loss + VALUE_COEFFICIENT * v_loss, {
        "policy_loss": pi_loss,
        "value_loss": v_loss,
        "kl": jnp.mean(ratio - 1.0 - log_ratio),
        "clip_share": jnp.mean(is_clipped.astype(jnp.float32)),
    }


def policy_loss(clip: float, ratio: Float[Array, " b"], advantage: Float[Array, " b"]) -> Float[Array, ""]:
    """Return minus the mean of ratio x advantage, with the clipped ratio where that gives less."""
    return -jnp.mean(jnp.minimum(ratio * advantage, jnp.clip(ratio, 1.0 - clip, 1.0 + clip) * advantage))


def value_loss(
    clip: float, values: Float[Array, "b d"], old: Float[Array, "b d"], returns: Float[Array, "b d"]
) -> Float[Array, ""]:
    """Return half the mean squared error over batch and objectives; of the clipped value if its error is larger."""
    held = old + jnp.clip(values - old, -clip, clip)
    return 0.5 * jnp.mean(jnp.maximum(jnp.square(values - returns), jnp.square(held - returns)))


def update(cfg: PpoConfig, state: State, rollout: Rollout, goal: Goal, key: Key[Array, ""]) -> tuple[State, Info]:
    """Make all epochs of one iteration, on transitions that `state` has collected."""
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
    """Return the transitions in one row, each with its log-probability, values, returns and advantage under `state`."""
    returns, values = returns_and_values(cfg, state.critic, rollout)
    logp = jax.vmap(jax.vmap(partial(log_prob, state.actor)))(rollout.obs, rollout.action)
    advantage = advantages(goal.lam, goal.scale, returns, values)
    batch = Batch(rollout.obs, rollout.action, logp, values, returns, advantage)
    return jax.tree.map(lambda leaf: leaf.reshape(-1, *leaf.shape[2:]), batch)


def deal(batch: Batch, order: Int[Array, " b"], minibatches: int) -> Batch:
    """Cut the transitions, in this order, into minibatches: every leaf leads with [minibatches, rows]."""
    return jax.tree.map(lambda leaf: leaf[order].reshape(minibatches, -1, *leaf.shape[1:]), batch)


def permutation(key: Key[Array, ""], num: int) -> Int[Array, " num"]:
    """Return the numbers below `num` in random order, by one sort of words: random high digits, then the number.

    On a CPU this is ten times as fast as `jax.random.permutation`, which took a fifth of an update. Numbers with equal
    random digits stay in order: of 8192 numbers about one in 60 has such a partner.
    """
    # Halved, so that the sum stays below 2^32 for any `num`.
    high = (jax.random.bits(key, (num,), jnp.uint32) >> 1) // num
    return (jnp.sort(high * num + jnp.arange(num, dtype=jnp.uint32)) % num).astype(jnp.int32)


def explained_variance(batch: Batch) -> Float[Array, ""]:
    """Return the share of the returns' variance that the values explain, over all objectives: 1 is perfect."""
    left = jnp.var(batch.returns - batch.values, axis=0)
    return 1.0 - jnp.sum(left) / (jnp.sum(jnp.var(batch.returns, axis=0)) + VARIANCE_EPSILON)


def _optimizer(cfg: PpoConfig, learning_rate: Float[Array, ""]) -> optax.GradientTransformation:
    return optax.chain(
        optax.clip_by_global_norm(MAX_GRADIENT_NORM),
        optax.scale_by_adam(eps=ADAM_EPSILON),
        optax.scale_by_learning_rate(learning_rate),
    )


@jax.tree_util.register_dataclass  # an Equinox module's methods would take longer than the arithmetic
@dataclass(frozen=True)
class RunningStatistics:
    """Running mean, sum of squared deviations and number of samples of every column, for many members.

    Batches are merged exactly (Chan et al., 1979): how samples were cut into batches matters only to rounding.
    """

    mean: Float64[np.ndarray, "*member column"]
    squares: Float64[np.ndarray, "*member column"]
    count: Float64[np.ndarray, "*member column"]

    @property
    def scale(self) -> Float64[np.ndarray, "*member column"]:
        """Standard deviation, never 0."""
        return np.sqrt(self.squares / self.count + VARIANCE_EPSILON)

    def merge(self, batch: Float64[np.ndarray, "member rows column"], columns: slice = slice(None)) -> None:
        """Add new samples of some columns, in place."""
        rows = batch.shape[1]
        centre = np.add.reduce(batch, axis=1) / rows
        deviation = batch - centre[:, None]
        count = self.count[:, columns]
        total = count + rows
        shift = centre - self.mean[:, columns]
        share = shift * (rows / total)
        self.squares[:, columns] += np.add.reduce(deviation * deviation, axis=1) + shift * share * count
        self.mean[:, columns] += share
        self.count[:, columns] = total


def standard(num_members: int, num_columns: int) -> RunningStatistics:
    """Return the statistics of a standard normal, with so few samples that the first real ones replace it."""
    shape = (num_members, num_columns)
    return RunningStatistics(np.zeros(shape), np.full(shape, FIRST_COUNT), np.full(shape, FIRST_COUNT))


@dataclass(frozen=True)
class Place:
    """The seed of a member and its task within that seed; all its randomness comes from these two."""

    seed: int
    task: int


class Learner:
    """The device side of members that train at `places`; every leaf leads with the axis of members."""

    def __init__(self, cfg: PpoConfig, spec: EnvSpec, places: tuple[Place, ...]):
        self._cfg, self._spec, self._places = cfg, spec, places
        self._numbers = np.array([(place.seed, place.task) for place in places], np.int32).T

    def init(self) -> State:
        """Return the first state."""
        streams = [generator(place.seed, Purpose.FIRST_PARAMETERS, place.task) for place in self._places]
        states = [init(self._cfg, self._spec, stream) for stream in streams]
        return jax.tree.map(lambda *leaves: jnp.asarray(np.stack(leaves)), *states)

    def update(
        self, state: State, rollout: Rollout, goal: Goal, iteration: int
    ) -> tuple[State, dict[str, Float[Array, " n"]]]:
        """Run all epochs of all members; return the state and values to log."""
        return _update_of_members(self._cfg)(state, rollout, goal, self._numbers, np.int32(iteration))


@lru_cache(maxsize=KEPT_PROGRAMS)
def _update_of_members(cfg: PpoConfig) -> Callable[..., tuple[State, Any]]:
    """Compile the update. Seeds and tasks are inputs, so all members share one program."""

    def update_one(args: Any) -> tuple[State, Info]:
        state, rollout, goal, *place = args
        return update(cfg, state, rollout, goal, member_key(*place))

    def update_all(state: State, rollout: Rollout, goal: Goal, numbers: Any, iteration: Array) -> tuple[State, Any]:
        seeds, tasks = numbers
        return over_agents(update_one, (state, rollout, goal, seeds, tasks, jnp.full(len(seeds), iteration)))

    return jax.jit(update_all, compiler_options=options_of_updates())


@jax.jit
def flat_actors(state: State) -> Float[Array, "n parameters"]:
    """Return one row for each member: all parameters of its policy."""
    return jax.vmap(flatten)(state.actor)


def member_key(seed: Array | int, task: Array | int, iteration: Array | int) -> Key[Array, ""]:
    """Return the key of one iteration of a member."""
    return jax.random.fold_in(jax.random.fold_in(jax.random.key(seed), task), iteration)
