"""L_critic: compare the critics of a run with Monte-Carlo returns of the policy whose values they learn.

The policy visits states in fresh episodes. From each state a first action is taken, and then the policy is followed
several times. Returns are those of the critics' target: discounted, with the entropy bonus of every later action,
beyond time limits, up to a real end or until the rest is negligible. So an exact critic equals the expected return.
"""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import lru_cache, partial
from pathlib import Path
from typing import Annotated, Any, Literal

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float32, Float64

from qpensieve import config as configs
from qpensieve import settings
from qpensieve.config import RunConfig
from qpensieve.console import Progress
from qpensieve.envs import LaneOptions, Lanes, make_lanes
from qpensieve.envs.simulator import State
from qpensieve.envs.split_lanes import join_states, split_state
from qpensieve.errors import UserError
from qpensieve.learning.interface import ActionValues, Algorithm
from qpensieve.learning.losses import over_agents
from qpensieve.learning.predictor import nearest
from qpensieve.learning.streams import Purpose, derived_seed, generator
from qpensieve.methods import METHODS, make_algorithm
from qpensieve.metrics.critic import critic_error
from qpensieve.preferences import ArrayLike, check_preference, parse_preference
from qpensieve.records import critic_errors, folder
from qpensieve.records.checkpoint import POLICY, CheckpointError
from qpensieve.records.critic_errors import CriticErrors, CriticRow
from qpensieve.records.files import check_can_write
from qpensieve.records.trees import arrays_to_tree, tree_to_arrays
from qpensieve.settings import NOT_NEGATIVE, at_least
from qpensieve.train.evaluate import curve_preferences
from qpensieve.train.saved import SavedPolicies
from qpensieve.train.session import Arrays, check_finite, environment_errors
from qpensieve.types import EnvSpec

TOLERANCE = 1e-3
"""Rollouts are long enough when the rest could add less than this share of the value."""
LEAST_WEIGHT = 1e-6
"""Rollouts end at the latest when rewards have this weight: values near 0 would never come within `TOLERANCE`."""
UNLIMITED = 1000
"""Steps within which states are drawn if an environment has no time limit."""
PAPER_PREFERENCES = ((0.1, 0.9), (0.3, 0.7), (0.5, 0.5), (0.7, 0.3), (0.9, 0.1))
"""The preferences of the paper's tables."""
Draw = Literal["policy", "uniform"]
MEASURING = "measuring"
"""Phase that the progress line shows."""
_NOISE, _BEGIN, _LANE, _ACTION = range(4)
"""First number of each random stream of a measurement."""


@dataclass(frozen=True)
class Sampling:
    """Pairs (s, a) of a measurement, and how often each is followed.

    Attributes:
        pairs: Pairs per seed and preference, each from episodes of its own.
        rollouts: Returns per pair; policies that are not random get one.
        actions: How the action of a pair is drawn: by the policy, or uniformly.
        seed: Seed of the measurement; equal seeds give equal numbers.
    """

    pairs: Annotated[int, at_least(2, "else there is no standard error")] = 64
    rollouts: Annotated[int, at_least(2, "else there is no standard error")] = 4
    actions: Draw = "policy"
    seed: Annotated[int, NOT_NEGATIVE] = 0


Follow = Callable[
    [Float32[np.ndarray, "p rows obs"], int], tuple[Float32[np.ndarray, "p rows a"], Float32[np.ndarray, "p rows"]]
]
"""(observations, number of the noise) -> actions as the replay stores them, and their bonus, for every preference."""


class CriticMeter:
    """Measures critics of one configuration under some preferences; close it to end threads of the environments.

    Args:
        config: The configuration of the run.
        preferences: Preferences, as numbers or as text such as 0.9,0.1. None: those of `_preferences`.
        sampling: Pairs to measure.

    Raises:
        ValueError: The method has no critic to measure, or a preference or `sampling` cannot be used.
    """

    def __init__(
        self,
        config: RunConfig,
        preferences: ArrayLike | None = None,
        sampling: Sampling = Sampling(),
    ):
        if wrong := settings.problems(sampling):
            raise UserError("; ".join(wrong))
        self.config, self.spec = config, configs.spec_of(config)
        self._algorithm, self._measured = _algorithm_of(config, self.spec)
        self._sampling, self._discount = sampling, self._algorithm.discount
        self.num_rollouts = sampling.rollouts if self._measured.is_sampled else 1
        """Returns of each pair; 1 if the policy is not random."""
        self.preferences = _preferences(preferences, self._algorithm, self.spec)
        self._lam = jnp.asarray(self.preferences, jnp.float32)
        self._act, self._values = _compiled(self._measured, self._algorithm.acting.action_size)
        self.num_visited = self.spec.max_steps or UNLIMITED
        """Steps within which states are drawn."""
        self.most_steps = self.num_visited + math.ceil(math.log(LEAST_WEIGHT) / math.log(self._discount))
        """Most steps that the measurement of a seed takes."""
        num = len(self.preferences) * sampling.pairs
        self._visiting = make_lanes(config.domain, num, 0)
        alone = LaneOptions(autoreset=False, time_limit=False)
        self._rolling = make_lanes(config.domain, num * self.num_rollouts, 0, alone)

    def errors(self, rows: Sequence[CriticRow]) -> CriticErrors:
        """Return measured rows together with domain, method, seeds, discount and objectives."""
        config = self.config
        names = ["lam . r"] if self._measured.is_scalar else list(self.spec.objectives)
        return CriticErrors(config.domain_id, config.algo, config.seed_list, self._discount, names, list(rows))

    def measure(
        self, parameters: Arrays, step: int, told: Callable[[int, int], object] = lambda seed, done: None
    ) -> list[CriticRow]:
        """Measure the errors of all seeds; returns a row for each preference.

        Args:
            parameters: What `Session.parameters` returned.
            step: The environment step of the parameters.
            told: Called with the index of the seed and the steps played for it, at most `most_steps`.
        """
        agents = _agents(self._algorithm, self.config, self.spec, parameters)
        with environment_errors(f"while the critics of step {step} were measured"):
            per_seed = [self._measure_seed(agents, row, step, partial(told, row)) for row in range(self.config.seeds)]
        return [
            CriticRow(
                step=step,
                preference=lam.tolist(),
                actions=self._sampling.actions,
                pairs=self._sampling.pairs,
                rollouts=self.num_rollouts,
                seed=self._sampling.seed,
                **{name: [of_seed[i][name] for of_seed in per_seed] for name in per_seed[0][i]},
            )
            for i, lam in enumerate(self.preferences)
        ]

    def close(self) -> None:
        self._visiting.close()
        self._rolling.close()

    def _measure_seed(self, agents: object, row: int, step: int, told: Callable[[int], object]) -> list[dict[str, Any]]:
        """Measure one seed, for every preference."""
        seed, own = self.config.seed_list[row], self._algorithm.preferences
        first = row * self._algorithm.agents_per_seed
        chosen = first + (np.zeros(len(self._lam), int) if own is None else nearest(own, self.preferences))
        states = jax.device_put(jax.tree.map(lambda leaf: leaf[chosen], agents))
        follow = self.follow(states, seed)

        state, obs = self._visit(follow, seed, told)
        if self._sampling.actions == "policy":
            actions = follow(obs, self.num_visited)[0]
        else:
            streams = [generator(self._sampling.seed, Purpose.CRITIC, _ACTION, seed, i) for i in range(len(obs))]
            draw = self._algorithm.acting.draw_actions
            actions = np.stack([draw(stream, obs.shape[1]) for stream in streams])
        values = np.asarray(self._values(states, self._lam, obs, actions), np.float64)
        check_finite("a value of the critics", values, lambda _: f"seed {seed}", step)
        tally = self._play(follow, state, actions, told)
        return [self._compare(values[i], tally, i) for i in range(len(values))]

    def follow(self, states: Any, seed: int) -> Follow:
        """Return a function that acts as one seed's policy; numbers of a preference do not depend on the others."""
        rows = range(len(self.preferences))
        seeds = [derived_seed(self._sampling.seed, Purpose.CRITIC, _NOISE, seed, row) for row in rows]
        keys = jax.vmap(jax.random.key)(jnp.asarray(np.array(seeds, np.uint32)))

        def act(obs: Float32[np.ndarray, "p rows obs"], t: int) -> tuple[np.ndarray, np.ndarray]:
            return jax.tree.map(np.asarray, self._act(states, self._lam, keys, obs, t))

        return act

    def _compare(self, values: Float64[np.ndarray, "twins pairs d"], tally: "_Tally", i: int) -> dict[str, Any]:
        lam = np.ones(1) if self._measured.is_scalar else self.preferences[i]
        returns = tally.returns[i].reshape(values.shape[1], self.num_rollouts, -1)
        numbers = {name: np.asarray(value).tolist() for name, value in vars(critic_error(values, returns, lam)).items()}
        how = {"horizon": tally.horizon, "rest": tally.rest, "ended": tally.ended}
        return numbers | {name: value[i].item() for name, value in how.items()}

    def _visit(
        self, follow: Follow, seed: int, told: Callable[[int], object]
    ) -> tuple[State, Float32[np.ndarray, "p pairs obs"]]:
        """Visit states in the policy's own episodes, each at a random one of the first `num_visited` steps.

        Each lane begins its episode so late that all lanes reach their states at the same time.
        """
        lanes, num, total = self._visiting, self._sampling.pairs, self.num_visited
        rows = range(len(self.preferences))
        derive = lambda row, pair: derived_seed(self._sampling.seed, Purpose.CRITIC, _LANE, seed, row, pair)
        lanes.reseed([derive(row, pair) for row in rows for pair in range(num)])
        streams = [generator(self._sampling.seed, Purpose.CRITIC, _BEGIN, seed, row) for row in rows]
        begins = total - np.concatenate([stream.integers(total, size=num) for stream in streams])
        lanes.reset()
        for t in range(total):  # not from the first begin on: numbers of a lane must not depend on the others
            lanes.reset(begins == t)
            actions, _ = follow(self._grouped(lanes), t)
            lanes.step(self._decoded(actions))
            told(t + 1)
        lanes.reset(begins == total)
        return lanes.state(), self._grouped(lanes)

    def _play(
        self, follow: Follow, state: State, first: Float32[np.ndarray, "p pairs a"], told: Callable[[int], object]
    ) -> "_Tally":
        """Follow the policy from every pair, `num_rollouts` times; returns the discounted sums."""
        lanes, times, (num, pairs, _) = self._rolling, self.num_rollouts, first.shape
        alone = split_state(state, np.arange(num * pairs + 1))
        lanes.restore(join_states([one for one in alone for _ in range(times)]))
        shape, lam = (num, pairs * times), np.repeat(self.preferences, pairs * times, axis=0)
        is_scalar = self._measured.is_scalar
        tally = _Tally(self._discount, *shape, 1 if is_scalar else self.spec.num_objectives)
        actions, bonus = np.repeat(first, times, axis=1), np.zeros(shape)
        start = self.num_visited + 1  # of the noise: those before have gone into visiting and first actions
        while True:
            is_running = lanes.running.reshape(shape).copy()  # the step changes it, and its last reward counts
            reward = lanes.step(self._decoded(actions)).reward
            valued = (reward * lam).sum(axis=1) if is_scalar else reward  # as the critics learn it
            tally.add(np.where(is_running[..., None], valued.reshape(*shape, -1) + bonus[..., None], 0.0))
            told(self.num_visited + tally.num_steps)
            if tally.is_enough(lanes.running.reshape(shape)):
                return tally
            lanes.rest(np.repeat(~tally.is_open, shape[1]))
            actions, bonus = follow(self._grouped(lanes), start + tally.num_steps)

    def _grouped(self, lanes: Lanes) -> Float32[np.ndarray, "p rows obs"]:
        return lanes.obs.reshape(len(self.preferences), -1, self.spec.obs_size)

    def _decoded(self, actions: Float32[np.ndarray, "p rows a"]) -> Float32[np.ndarray, "n act"]:
        decoded = self._algorithm.acting.decode(actions)
        return decoded.reshape(-1, decoded.shape[-1])


class _Tally:
    """Discounted sums of each preference's rollouts; a preference is closed when the rest is negligible."""

    def __init__(self, discount: float, num_preferences: int, num_rollouts: int, num_values: int):
        self._discount, self._weight, self.num_steps = discount, 1.0, 0
        self.returns = np.zeros((num_preferences, num_rollouts, num_values))
        self.horizon = np.zeros(num_preferences, np.int64)
        self.rest, self.ended = np.zeros((2, num_preferences))
        self._largest = np.zeros(num_preferences)
        self.is_open = np.ones(num_preferences, bool)

    def add(self, paid: Float64[np.ndarray, "p rollouts d"]) -> None:
        """Add the rewards of the next step, with its bonus."""
        self.returns[self.is_open] += self._weight * paid[self.is_open]
        self.horizon[self.is_open] += 1
        self._largest = np.maximum(self._largest, np.linalg.norm(paid, axis=2).max(axis=1))
        self._weight *= self._discount
        self.num_steps += 1

    def is_enough(self, is_running: Bool[np.ndarray, "p rollouts"]) -> bool:
        """Close preferences whose rest is negligible if no later step pays more than the largest so far.

        Returns whether all are closed.
        """
        bound = self._weight * self._largest / (1.0 - self._discount) * is_running.any(axis=1)
        value = np.linalg.norm(self.returns, axis=2).mean(axis=1)
        share = np.divide(bound, value, out=np.where(bound > 0, np.inf, 0.0), where=value > 0)
        is_closing = self.is_open & ((share <= TOLERANCE) | (self._weight <= LEAST_WEIGHT))
        self.rest[is_closing] = np.minimum(share, np.finfo(float).max)[is_closing]
        self.ended[is_closing] = 1.0 - is_running[is_closing].mean(axis=1)
        self.is_open &= ~is_closing
        return not self.is_open.any()


@lru_cache(maxsize=4)
def _compiled(
    measured: ActionValues[object], size: int
) -> tuple[Callable[..., tuple[Array, Array]], Callable[..., Array]]:
    """Compile acting (actions of `size`) and valuing, for groups of rows that share a state and a preference.

    Kept, because a second meter of the same method then compiles nothing.
    """
    rows_of = lambda lam, s: jnp.broadcast_to(lam, (s.shape[0], lam.shape[0]))

    def act(args: tuple[object, Array, Array, Array]) -> tuple[Array, Array]:
        state, lam, key, s = args
        return measured.act(state, s, rows_of(lam, s), jax.random.normal(key, (s.shape[0], size)))

    def value(args: tuple[object, Array, Array, Array]) -> Array:
        state, lam, s, a = args
        return measured.values(state, s, a, rows_of(lam, s))

    key_of = jax.vmap(jax.random.fold_in, in_axes=(0, None))
    act_all = lambda states, lam, keys, s, t: over_agents(act, (states, lam, key_of(keys, t), s))
    return jax.jit(act_all), jax.jit(lambda *given: over_agents(value, given))


def _algorithm_of(config: RunConfig, spec: EnvSpec) -> tuple[Algorithm[object], ActionValues[object]]:
    fitting = [name for name, method in METHODS.items() if not method.is_population]
    advice = f"there are some in runs of {', '.join(fitting)}"
    if config.method.is_population:
        raise UserError(f"{config.algo} has no critic Q(s, a; lam) to measure, only values of states: {advice}")
    algorithm = make_algorithm(config.algo, config.agent, spec)
    if algorithm.action_values is None:
        raise UserError(f"{config.algo} does not say what its critic learns (Algorithm.action_values): {advice}")
    return algorithm, algorithm.action_values


def _preferences(asked: ArrayLike | None, algorithm: Algorithm[object], spec: EnvSpec) -> Float64[np.ndarray, "p d"]:
    """Return the given preferences, checked.

    Without any: the agents' own, else the paper's five for two objectives or those of its curves for more, else the
    centre.
    """
    num, own = spec.num_objectives, algorithm.preferences
    if asked is None:
        if own is not None:
            return own
        curves = np.array(PAPER_PREFERENCES) if num == 2 else curve_preferences(num)
        return curves if len(curves) else np.full((1, num), 1.0 / num)
    rows = asked if isinstance(asked, Sequence) else np.asarray(asked)
    numbers = [parse_preference(each, num) if isinstance(each, str) else each for each in rows]
    lam = np.atleast_2d(check_preference(numbers, num))
    if lam.ndim > 2 or lam.size == 0:
        raise UserError(f"preferences must be one, or rows of them, got shape {lam.shape}")
    if own is None:
        return lam
    is_own = np.array([np.isclose(row, own).all(axis=1).any() for row in lam], bool)
    if not is_own.all():
        words = lambda rows: " ".join(",".join(f"{x:g}" for x in row) for row in rows)
        raise UserError(f"preferences must be those that have an agent: {words(own)}; got {words(lam[~is_own])}")
    return lam


def _agents(algorithm: Algorithm[object], config: RunConfig, spec: EnvSpec, parameters: Arrays) -> object:
    """Return the states of all agents, on the host; optimisers, which parameters leave out, are zeros."""
    num = config.seeds * algorithm.agents_per_seed
    keys = jax.random.split(jax.random.key(0), num)
    shapes = jax.eval_shape(jax.vmap(algorithm.init), keys, jnp.zeros((num, spec.num_objectives)))
    like = jax.tree.map(lambda leaf: np.zeros(leaf.shape, leaf.dtype), shapes)
    unused = {name: leaf for name, leaf in tree_to_arrays(like).items() if ".optimizers" in name}
    networks = {name: value for name, value in parameters.items() if not name.startswith(POLICY)}
    return arrays_to_tree(like, unused | networks)


def measure_run(  # noqa: PLR0913 (each is an option of the command)
    run: Path,
    steps: tuple[int, ...] = (),
    all_steps: bool = False,
    preferences: ArrayLike | None = None,
    sampling: Sampling = Sampling(),
    trust: bool = False,
    say: Callable[[str], None] = lambda message: None,
    quiet: bool = False,
) -> tuple[CriticErrors, Path]:
    """Measure the critics of a run and add that to its `critic.json`; returns what was measured, and the file.

    Args:
        run: The run folder.
        steps: Steps of kept parameters or of checkpoints. Empty: the newest.
        all_steps: Measure all steps that the run kept.
        preferences: Preferences to measure under. None: those of `CriticMeter`.
        sampling: Pairs to measure.
        trust: Whether the code that the configuration names may be imported.
        say: Called with a line about the measurement.
        quiet: No progress line.

    Raises:
        ValueError: There is no such step, or the method has no critic to measure.
        CheckpointError: There are no parameters to measure, or they cannot be read.
    """
    saved = SavedPolicies(run, trust)
    if not (there := saved.steps):
        raise CheckpointError(f"{run} holds no parameters to measure: train it first (qpensieve train or resume)")
    for step in steps:
        saved.check_step(step)
    chosen = there if all_steps else sorted(set(steps)) or there[-1:]
    meter, out = CriticMeter(saved.config, preferences, sampling), run / folder.CRITIC
    per_seed, rows = meter.most_steps, []
    per_step = per_seed * meter.config.seeds
    progress = Progress(per_step * len(chosen), 0, quiet=quiet)
    try:
        check_can_write(out)  # before a measurement that may take minutes
        say(_announcement(meter, len(chosen), sampling))
        for i, step in enumerate(chosen):
            progress.enter(MEASURING)
            told = lambda seed, done, first=i * per_step: progress.show(first + seed * per_seed + done)
            measured = meter.measure(saved.parameters(step), step, told)
            critic_errors.add(out, meter.errors(measured))  # at once, so that Ctrl-C loses only the last
            rows += measured
        progress.show(per_step * len(chosen), force=True)
    finally:
        progress.end()
        meter.close()
    return meter.errors(rows), out


def _announcement(meter: CriticMeter, num_steps: int, sampling: Sampling) -> str:
    numbers = {"step": num_steps, "seed": meter.config.seeds, "preference": len(meter.preferences)}
    numbers |= {"pair": sampling.pairs, "rollout": meter.num_rollouts}
    sizes = [f"{num} {noun}{'s' * (num > 1)}" for noun, num in numbers.items()]
    return f"{meter.config.domain_id}, {meter.config.algo}: {' x '.join(sizes)}"
