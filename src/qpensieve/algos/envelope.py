"""Envelope DQN: vector values of binned actions, conditioned on the preference; targets use the best of several.

Paper: Yang, Sun and Narasimhan, "A Generalized Algorithm for Multi-Objective Reinforcement Learning and Policy
Adaptation" (NeurIPS 2019). Every transition is paired with preferences W, drawn for each update. The target of a pair
takes the best action under the best preference of W, not only under its own. The authors' code omits this maximum
(`envelope=False`). Their code is the source of what the paper omits: network, homotopy schedule, clipped gradients, and
priorities that are set once. The online network selects and the target network evaluates, as in double DQN.

With the authors' settings the values of a domain with 121 actions diverge. The defaults prevent this: a target takes
the smaller of two networks, the target network follows softly and acts, and the discount is shorter (deviation D22).

Actions are indices of a table: the joint bins of continuous axes, or the actions of a discrete environment.
"""

from dataclasses import dataclass, replace
from functools import partial
from typing import Annotated, Any, Literal

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import optax
from jaxtyping import Array, Float, Float32, Int, Key

from qpensieve.algos.mosac import WHOLE_RUN
from qpensieve.errors import UserError
from qpensieve.learning.acting import Greedy, greedy_acting, num_parameters
from qpensieve.learning.interface import ActionValues, Algorithm, Hints, Info, PrioritizedLearning, Transition
from qpensieve.learning.losses import (
    between_twins,
    gradient_step,
    polyak,
    sample_preferences,
    scalarize,
    start_optimizer,
)
from qpensieve.learning.nets import QHead
from qpensieve.preferences import Sampler
from qpensieve.settings import (
    NOT_NEGATIVE,
    OPEN_SHARE,
    STEP_SHARE,
    Since,
    above,
    at_least,
    from_to,
)
from qpensieve.types import EnvSpec

MAX_ACTIONS = 100_000
"""Largest number of joint actions. Every update scores all, and the last layer has a column for each."""
MIN_PRIORITY = 1e-5
"""Added to every priority, so that every transition can be sampled."""
MAX_PARAMETERS = 200_000_000
"""Largest number of parameters. With Adam and the target network they take 3.2 GB per seed."""
WIDEST_UNIT = 32
"""Largest input width of which hidden layers are multiples, for one-hot observations, whose entries are mostly 0."""
GRADIENT_CLIP = 1.0
"""Every entry of the gradient is clipped to plus or minus this."""
HOMOTOPY_START = 0.01
"""Share of the scalar loss at the start; the rest is the vector loss."""
HOMOTOPY_SCALE = 1000.0
"""The rising part of the homotopy starts at 1 divided by this."""


@dataclass(frozen=True)
class EnvelopeConfig:
    """Settings of Envelope DQN; defaults are from the authors' code unless marked; bins from the Q-Pensieve paper.

    `AUTHORS` has the authors' values where the defaults differ.
    """

    learning_rate: Annotated[float, above(0)] = 5e-4
    """Adam's step size. The authors use 1e-3, for 4 actions (deviation D22)."""
    learning_rate_end: Annotated[float | None, above(0), Since(None)] = 5e-5
    """Adam's step size from `anneal_steps` on; until then it falls on a line. None: it is fixed (the authors)."""
    discount: Annotated[float, OPEN_SHARE] = 0.97
    """Discount factor gamma. The authors use 0.99. With 0.99 a step of standing still costs 0.01 of the value, less
    than the network's error where time hardly counts, and DST2d's boats idle (deviation D22)."""
    batch_size: Annotated[int, at_least(1)] = 256
    """Transitions per gradient step."""
    num_preferences: Annotated[int, at_least(1)] = 8
    """Preferences drawn at every gradient step. Each is paired with every transition of the batch. The authors use 32,
    which takes four times as long."""
    bins: Annotated[int | None, at_least(2)] = None
    """Number of values on every action axis, evenly spaced with both ends. None: 11 for one or two axes, 5 for more."""
    width_factors: tuple[int, ...] = (16, 32, 64, 32)
    """Widths of the hidden layers, as multiples of the input width (observation and preference; 32 at most where the
    environment observes indices)."""
    target_period: Annotated[int, at_least(1)] = 1000
    """With `--tau None`: updates between two copies of the network to the target network. The authors use 100: too few
    to learn the values of a copy before the next one, so errors grow from copy to copy (deviation D22)."""
    tau: Annotated[float | None, STEP_SHARE, Since(None)] = 0.005
    """Share of the way that the target network moves to the network at every update, as SAC's does. None: it is copied
    every `target_period` updates (the authors)."""
    acts_with: Annotated[Literal["newest", "target"], Since("newest")] = "target"
    """The network that acts, in training and evaluations: the newest (the authors), or the target network. With a small
    `tau` the target network is a mean over many updates, which tells nearly equal actions apart."""
    twin: Annotated[bool, Since(False)] = True
    """Learn two networks. A target takes the whole vector of the network with the smaller lam . Q, as in SAC. The first
    network chooses and acts. The authors learn one network."""
    layer_norm: Annotated[bool, Since(False)] = True
    """Standardise the input of each hidden ReLU over the units of its layer. The authors do not; then the values of
    DST2d's 121 actions diverge (deviation D22)."""
    scale_obs: Annotated[bool, Since(False)] = True
    """Standardise observations by their running mean and spread, unless they are indices. The authors do not. Then,
    with layer norm, a network starts with the same values along every ray from the origin."""
    sampler: Sampler = "abs-normal"
    """Distribution of preferences in acting and learning."""
    envelope: bool = True
    """Take the target's maximum over all drawn preferences (the paper), or under the pair's own (authors' code)."""
    loss_a: Annotated[Literal["squared", "huber"], Since("squared")] = "huber"
    """Vector loss: squared differences (the authors), or Huber, which is linear above 1, so that the few transitions at
    the edge of a treasure or rock do not dominate (deviation D22)."""
    loss_b: Literal["squared", "absolute", "huber"] = "huber"
    """Scalar loss of lam . Q: squared (the authors' code), absolute (their paper), or Huber."""
    priority_exponent: Annotated[float, NOT_NEGATIVE, Since(1.0)] = 0.0
    """The priority of a transition is its error to this power; 0 samples uniformly. The authors use 1 with a replay of
    4000. Priorities are set once, so in a large replay early errors would decide the samples until the end (deviation
    D22)."""
    epsilon_start: Annotated[float, from_to(0, 1)] = 0.5
    """Share of random actions at the start."""
    epsilon_end: Annotated[float, from_to(0, 1)] = 0.05
    """Share of random actions from `anneal_steps` on."""
    anneal_steps: Annotated[int | None, at_least(1)] = None
    """Environment steps over which epsilon falls, and updates over which the homotopy rises. None: the whole run."""

    @property
    def anneal_length(self) -> int:
        """`anneal_steps`, or the length of a run in the Q-Pensieve paper."""
        return WHOLE_RUN if self.anneal_steps is None else self.anneal_steps


AUTHORS: dict[str, Any] = {
    "learning_rate_end": None,
    "tau": None,
    "acts_with": "newest",
    "twin": False,
    "scale_obs": False,
    "learning_rate": 1e-3,
    "discount": 0.99,
    "num_preferences": 32,
    "target_period": 100,
    "layer_norm": False,
    "loss_a": "squared",
    "loss_b": "squared",
    "priority_exponent": 1.0,
}
"""The authors' settings that differ from the defaults. Their code also has `envelope=False` and a replay of 4000."""


LEAST_SPREAD = 0.01
"""Least spread, so that observations that hardly change are not scaled up without limit."""


class Scale(eqx.Module):
    """Running means of observations and of their squares, and the number of batches."""

    mean: Float[Array, " obs"]
    square: Float[Array, " obs"]
    count: Float[Array, ""]

    @property
    def spread(self) -> Float[Array | np.ndarray, "*agents obs"]:
        """Standard deviation."""
        variance = (self.square - self.mean**2).clip(0.0)
        return (variance**0.5).clip(LEAST_SPREAD)


def new_scale(obs_size: int) -> Scale:
    """Return mean 0 and spread 1, the scale before the first batch."""
    return Scale(jnp.zeros(obs_size), jnp.ones(obs_size), jnp.zeros(()))


def updated_scale(scale: Scale, s: Float[Array, "b obs"]) -> Scale:
    """Return the scale after another batch. Every batch has the same weight."""
    count = scale.count + 1.0
    mean = scale.mean + (jnp.mean(s, axis=0) - scale.mean) / count
    square = scale.square + (jnp.mean(jnp.square(s), axis=0) - scale.square) / count
    return Scale(mean, square, count)


def with_folded_scale(scale: Scale | None, net: QHead) -> QHead:
    """Return the network for plain observations, with the scale folded into its first layer; also for stacked agents.

    NumPy arrays stay NumPy arrays, because policies are read from files without a device.
    """
    if scale is None:
        return net
    xp = np if isinstance(scale.mean, np.ndarray) else jnp
    first, size = net.layers[0], scale.mean.shape[-1]
    of_obs = first.weight[..., :size, :] / scale.spread[..., None]
    weight = xp.concatenate([of_obs, first.weight[..., size:, :]], axis=-2)
    bias = first.bias - xp.einsum("...i,...io->...o", scale.mean, of_obs)
    where = lambda net: (net.layers[0].weight, net.layers[0].bias)
    return eqx.tree_at(where, net, (weight, bias))


class Twin(eqx.Module):
    """The second network, with its own target network and optimiser."""

    net: QHead
    target: QHead
    optimizer: optax.OptState


class State(eqx.Module):
    """Everything that learning changes."""

    net: QHead
    target: QHead
    optimizer: optax.OptState
    num_updates: Int[Array, ""]
    twin: Twin | None = None
    scale: Scale | None = None


class Choice(eqx.Module):
    """The preference of W and the action of the target, for every transition and preference."""

    preference: Int[Array, "b m"]
    action: Int[Array, "b m"]


def action_table(num_axes: int, bins: int) -> Float32[np.ndarray, "actions axes"]:
    """Return all joint actions of `bins` evenly spaced values in [-1, 1] per axis, both ends included.

    Row i is the number i in base `bins`; the first axis is its highest digit. An odd number of bins has an exact zero;
    an even one has none, so no axis can stay at rest.

    Raises:
        ValueError: If an axis has fewer than two bins or there are more than `MAX_ACTIONS` joint actions.
    """
    if bins < 2:
        raise UserError(f"bins must be 2 or more to hold both ends of an action axis, got {bins}")
    if bins**num_axes > MAX_ACTIONS:
        fitting = [fewer for fewer in range(2, bins) if fewer**num_axes <= MAX_ACTIONS]
        advice = f"set bins to {fitting[-1]} or fewer" if fitting else "use an algorithm for continuous actions"
        raise UserError(
            f"{bins} bins on each of {num_axes} action axes make {bins**num_axes} joint actions, "
            f"more than {MAX_ACTIONS}: {advice}"
        )
    digits = np.indices((bins,) * num_axes).reshape(num_axes, -1).T
    return ((2 * digits - (bins - 1)) / (bins - 1)).astype(np.float32)


def actions_of(cfg: EnvelopeConfig, spec: EnvSpec) -> Float32[np.ndarray, "actions act"]:
    """Return the action of each index: a joint bin of continuous axes, or the discrete action of that number."""
    if spec.num_actions is not None:
        return np.arange(spec.num_actions, dtype=np.float32)[:, None]
    bins = cfg.bins if cfg.bins is not None else (11 if spec.action_size <= 2 else 5)
    return action_table(spec.action_size, bins)


def widths(cfg: EnvelopeConfig, spec: EnvSpec) -> tuple[int, ...]:
    """Return the widths of the network from input to output.

    Raises:
        ValueError: The network has more than `MAX_PARAMETERS`; the message says what to set.
    """
    size_in = spec.obs_size + spec.num_objectives
    unit = size_in if spec.obs_indices is None else min(size_in, WIDEST_UNIT)
    hidden = (factor * unit for factor in cfg.width_factors)
    sizes = (size_in, *hidden, len(actions_of(cfg, spec)) * spec.num_objectives)
    total = num_parameters(sizes)
    if total > MAX_PARAMETERS:
        raise UserError(
            f"the network of envelope for {spec.id} must have at most {MAX_PARAMETERS:,} parameters, got {total:,} "
            f"(hidden layers of {sizes[1:-1]}, multiples of {unit} inputs): set smaller ones, such as "
            "--width-factors 1 1 1"
        )
    return sizes


def init(cfg: EnvelopeConfig, spec: EnvSpec, key: Key[Array, ""]) -> State:
    first = _new_network(cfg, spec, jax.random.clone(key))
    twin = Twin(*_new_network(cfg, spec, jax.random.fold_in(key, 1))) if cfg.twin else None
    is_scaled = cfg.scale_obs and spec.obs_indices is None  # rare one-hot entries would become very large
    return State(*first, jnp.zeros((), jnp.int32), twin, new_scale(spec.obs_size) if is_scaled else None)


def of_plain_observations(state: State) -> State:
    """Return the state with networks that take plain observations."""
    fold, twin = partial(with_folded_scale, state.scale), state.twin
    if twin is not None:
        twin = replace(twin, net=fold(twin.net), target=fold(twin.target))
    return replace(state, net=fold(state.net), target=fold(state.target), twin=twin)


def _new_network(cfg: EnvelopeConfig, spec: EnvSpec, key: Key[Array, ""]) -> tuple[QHead, QHead, optax.OptState]:
    net = QHead(widths(cfg, spec), key=key)
    target = jax.tree.map(jnp.copy, net)  # its own buffers: the loop donates every leaf
    return net, target, start_optimizer(make_optimizer(cfg), net)


def envelope_choice(q: Float[Array, "b m actions d"], prefs: Float[Array, "m d"]) -> Choice:
    """Choose a' and lam' in W with the largest lam . Q(s', a'; lam'), for each lam in W; ties go to the first.

    First choose lam' by the maximum over actions, then a'. The scores [b, m, actions, m] of the first step are never
    stored, because products and maximum are one loop. On a CPU a matrix product took ten times as long.
    """
    best = jnp.max(_scores(q[..., None, :], prefs[None, None, None]), axis=2)
    winner = jnp.argmax(best, axis=1)
    of_winner = jnp.take_along_axis(q, winner[..., None, None], axis=1)
    return Choice(winner, _best_action(of_winner, prefs))


def own_choice(q: Float[Array, "b m actions d"], prefs: Float[Array, "m d"]) -> Choice:
    """Choose a' with the largest lam . Q(s', a'; lam)."""
    own = jnp.broadcast_to(jnp.arange(q.shape[1])[None], q.shape[:2])
    return Choice(own, _best_action(q, prefs))


def _best_action(q: Float[Array, "b m actions d"], prefs: Float[Array, "m d"]) -> Int[Array, "b m"]:
    return jnp.argmax(_scores(q, prefs[None, :, None]), axis=2)


def _scores(q: Float[Array, "*#batch d"], lam: Float[Array, "*#batch d"]) -> Float[Array, "*batch"]:
    """Return lam . Q, summed one objective after the other."""
    terms = [q[..., i] * lam[..., i] for i in range(q.shape[-1])]
    return sum(terms[1:], terms[0])


def chosen_values(q: Float[Array, "b m actions d"], choice: Choice) -> Float[Array, "b m d"]:
    """Return the whole vector at the chosen pair: arg_Q max over a' and lam' in the paper."""
    return jax.vmap(lambda q, i, a: q[i, a])(q, choice.preference, choice.action)


def all_values(
    cfg: EnvelopeConfig, net: QHead, s: Float[Array, "b obs"], prefs: Float[Array, "m d"]
) -> Float[Array, "b m actions d"]:
    """Return Q(s, .; lam) for every pair of state and preference."""
    b, m = s.shape[0], prefs.shape[0]
    q = jax.vmap(partial(net, is_normalized=cfg.layer_norm))(jnp.repeat(s, m, axis=0), jnp.tile(prefs, (b, 1)))
    return q.reshape(b, m, *q.shape[1:])


def bellman_target(
    cfg: EnvelopeConfig, state: State, batch: Transition, prefs: Float[Array, "m d"]
) -> tuple[Float[Array, "b m d"], Choice]:
    """Return r + gamma Q_target(s', a'; lam') of every transition and preference, and the choice of (a', lam')."""
    choose = envelope_choice if cfg.envelope else own_choice
    choice = choose(all_values(cfg, state.net, batch.s_next, prefs), prefs)
    bootstrap = chosen_values(all_values(cfg, state.target, batch.s_next, prefs), choice)
    if state.twin is not None:
        other = chosen_values(all_values(cfg, state.twin.target, batch.s_next, prefs), choice)
        bootstrap = smaller_of_twins(prefs, bootstrap, other)
    going_on = (1.0 - batch.terminated)[:, None, None]
    return batch.r[:, None] + cfg.discount * going_on * bootstrap, choice


def smaller_of_twins(
    prefs: Float[Array, "m d"], q: Float[Array, "b m d"], other: Float[Array, "b m d"]
) -> Float[Array, "b m d"]:
    """Return the whole vector with the smaller lam . Q, for every pair; ties go to the first."""
    twins = jnp.stack([q, other], axis=2)
    return jax.vmap(jax.vmap(between_twins), in_axes=(None, 0))(prefs, twins)


def taken_values(
    cfg: EnvelopeConfig, net: QHead, s: Float[Array, "b obs"], prefs: Float[Array, "m d"], a: Int[Array, " b"]
) -> Float[Array, "b m d"]:
    """Return Q(s_j, a_j; lam_i) for every pair. The last layer computes only the columns of the taken actions.

    A product with one-hot rows picks the columns. On a GPU the gradient of indexing would sum repeated actions in no
    fixed order.
    """
    (b, m), d, last = (s.shape[0], prefs.shape[0]), prefs.shape[1], net.layers[-1]
    pairs = jnp.concatenate([jnp.repeat(s, m, axis=0), jnp.tile(prefs, (b, 1))], axis=1)
    x = jax.vmap(partial(net.features, is_normalized=cfg.layer_norm))(pairs)
    is_taken = jax.nn.one_hot(a, last.bias.shape[0] // d)
    weight = jnp.einsum("ba,had->bhd", is_taken, last.weight.reshape(x.shape[1], -1, d))
    bias = is_taken @ last.bias.reshape(-1, d)
    return x.reshape(b, m, -1) @ weight + bias[:, None]


def homotopy_loss(
    cfg: EnvelopeConfig, q: Float[Array, "b m d"], y: Float[Array, "b m d"], prefs: Float[Array, "m d"]
) -> tuple[Float[Array, ""], Float[Array, ""]]:
    """Return two means of the chosen loss: over the entries of y - Q, and over lam . (y - Q)."""
    losses = {"squared": jnp.square, "absolute": jnp.abs, "huber": optax.huber_loss}
    delta = y - q
    scalar = scalarize(jnp.broadcast_to(prefs[None], delta.shape), delta)
    return jnp.mean(losses[cfg.loss_a](delta)), jnp.mean(losses[cfg.loss_b](scalar))


def homotopy(cfg: EnvelopeConfig, num_updates: Int[Array, ""]) -> Float[Array, ""]:
    """Return the share of loss B after k updates: beta_k = b0 + (1000 (1 - b0))^(k/N) / 1000, 1 from N on."""
    progress = jnp.minimum(num_updates / cfg.anneal_length, 1.0)
    rise = (HOMOTOPY_SCALE * (1.0 - HOMOTOPY_START)) ** progress / HOMOTOPY_SCALE
    return jnp.minimum(HOMOTOPY_START + rise, 1.0)


def update(
    cfg: EnvelopeConfig, state: State, batch: Transition, hints: Hints, key: Key[Array, ""]
) -> tuple[State, Info, None]:
    """Make one update on all pairs of transitions and new preferences. Priorities do not change."""
    del hints
    prefs = sample_preferences(key, cfg.num_preferences, batch.r.shape[1], cfg.sampler)
    scale = None if state.scale is None else updated_scale(state.scale, batch.s)
    y, choice = bellman_target(cfg, of_plain_observations(replace(state, scale=scale)), batch, prefs)
    beta, num_updates = homotopy(cfg, state.num_updates), state.num_updates + 1

    def loss(net: QHead) -> tuple[Float[Array, ""], Info]:
        q = taken_values(cfg, with_folded_scale(scale, net), batch.s, prefs, batch.a[:, 0].astype(jnp.int32))
        loss_a, loss_b = homotopy_loss(cfg, q, y, prefs)
        scalar = scalarize(jnp.broadcast_to(prefs[None], q.shape), q)
        info = {"loss_a": loss_a, "loss_b": loss_b, "q": jnp.mean(scalar), "q_max": jnp.max(scalar)}
        return (1.0 - beta) * loss_a + beta * loss_b, info

    def learn(of: State | Twin) -> tuple[QHead, QHead, optax.OptState, Info]:
        net, optimizer, _, info = gradient_step(make_optimizer(cfg), loss, of.net, of.optimizer)
        return net, moved_target(cfg, net, of.target, num_updates), optimizer, info

    net, target, optimizer, info = learn(state)
    twin = None if state.twin is None else Twin(*learn(state.twin)[:3])
    is_own = choice.preference == jnp.arange(cfg.num_preferences)[None]
    info |= {"beta": beta, "own_preference_share": jnp.mean(is_own.astype(jnp.float32))}
    return State(net, target, optimizer, num_updates, twin, scale), info, None


def moved_target(cfg: EnvelopeConfig, net: QHead, target: QHead, num_updates: Int[Array, ""]) -> QHead:
    """Return the target network after an update: moved towards the network, or a copy if one is due."""
    if cfg.tau is not None:
        return polyak(target, net, cfg.tau)
    return jax.tree.map(partial(jnp.where, num_updates % cfg.target_period == 0), net, target)


def priority(
    cfg: EnvelopeConfig, state: State, batch: Transition, hints: Hints, key: Key[Array, ""]
) -> Float[Array, " K"]:
    """Return the priorities of new transitions, each under a random lam.

    They are |lam . r + gamma max over a' of lam . Q(s', a'; lam) - lam . Q(s, a; lam)|^e + 1e-5. As in the authors'
    code, they use the online network alone, and never change.
    """
    del hints
    lam = sample_preferences(key, batch.r.shape[0], batch.r.shape[1], cfg.sampler)
    net = with_folded_scale(state.scale, state.net)

    def error(step: Transition, lam: Float[Array, " d"]) -> Float[Array, ""]:
        best = jnp.max(net(step.s_next, lam, cfg.layer_norm) @ lam)
        taken = net(step.s, lam, cfg.layer_norm)[step.a[0].astype(jnp.int32)]
        return jnp.abs(scalarize(lam, step.r) + cfg.discount * (1.0 - step.terminated) * best - scalarize(lam, taken))

    return jax.vmap(error)(batch, lam) ** cfg.priority_exponent + MIN_PRIORITY


def epsilon(cfg: EnvelopeConfig, step: int) -> float:
    """Return the share of random actions at an environment step: linear from start to end, then constant."""
    return cfg.epsilon_start + (cfg.epsilon_end - cfg.epsilon_start) * min(step / cfg.anneal_length, 1.0)


def acting_net(cfg: EnvelopeConfig, state: State) -> QHead:
    """Return the network that acts on plain observations."""
    return with_folded_scale(state.scale, state.target if cfg.acts_with == "target" else state.net)


def own_values(
    cfg: EnvelopeConfig, state: State, s: Float[Array, "b obs"], a: Float[Array, "b 1"], lam: Float[Array, "b d"]
) -> Float[Array, "1 b d"]:
    """Return Q(s, a; lam) of every row by the network that acts; actions are indices."""
    net = acting_net(cfg, state)
    of_row = lambda s, a, lam: net(s, lam, cfg.layer_norm)[a[0].astype(jnp.int32)]
    return jax.vmap(of_row)(s, a, lam)[None]


def greedy_indices(
    cfg: EnvelopeConfig, state: State, s: Float[Array, "b obs"], lam: Float[Array, "b d"], noise: Float[Array, "b 1"]
) -> tuple[Float[Array, "b 1"], Float[Array, " b"]]:
    """Return indices of the actions with the largest lam . Q(s, a; lam), without a bonus."""
    del noise
    net = acting_net(cfg, state)
    best = jax.vmap(lambda s, lam: jnp.argmax(net(s, lam, cfg.layer_norm) @ lam))(s, lam)
    return best[:, None].astype(jnp.float32), jnp.zeros(s.shape[0])


def make(cfg: EnvelopeConfig, spec: EnvSpec) -> Algorithm[State]:
    """Return the algorithm.

    Raises:
        ValueError: There are too many actions or parameters, or `bins` is below 2.
    """
    actions = actions_of(cfg, spec)
    return Algorithm(
        init=lambda key, _: init(cfg, spec, key),
        actor=partial(acting_net, cfg),
        acting=greedy_acting(Greedy(widths(cfg, spec), actions, partial(epsilon, cfg), cfg.layer_norm)),
        learning=PrioritizedLearning(
            keeps="newest",
            priority=partial(priority, cfg),
            update=partial(update, cfg),
            forces_newest=False,
            num_past=0,
        ),
        batch_size=cfg.batch_size,
        discount=cfg.discount,
        sampler=cfg.sampler,
        action_values=ActionValues(partial(own_values, cfg), partial(greedy_indices, cfg), is_sampled=False),
    )


def make_optimizer(cfg: EnvelopeConfig) -> optax.GradientTransformation:
    """Return Adam on clipped gradients; its step size falls if there is a `learning_rate_end`."""
    rate: float | optax.Schedule = cfg.learning_rate
    if cfg.learning_rate_end is not None:
        rate = optax.linear_schedule(cfg.learning_rate, cfg.learning_rate_end, cfg.anneal_length)
    return optax.chain(optax.clip(GRADIENT_CLIP), optax.adam(rate))
