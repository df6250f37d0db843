"""One training run in memory: collect a block on the host while the device learns from the one before.

Schedule, fixed so that a run is deterministic: block n is collected with the policy that had learned from block n - 2;
while the device learns from block n, block n + 1 is collected. Everything that changes is in `arrays()`.
"""

from dataclasses import dataclass, replace
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Float, Float32, Float64, Shaped

from qpensieve import config as configs
from qpensieve import replay
from qpensieve.config import RunConfig
from qpensieve.envs import LaneOptions, make_lanes
from qpensieve.envs.base import State as LaneState
from qpensieve.train.checkpoint import CheckpointError, arrays_to_tree, tree_to_arrays
from qpensieve.train.collect import Collector, HostPolicy
from qpensieve.train.evaluate import evaluate
from qpensieve.train.learner import Learner, TrainState, make_learner

Infos = dict[str, Float32[np.ndarray, " seed"]]


class DivergedError(RuntimeError):
    """A loss or parameter is no longer finite."""


class EnvFailedError(RuntimeError):
    """The environment raised; the run stands as it was at the start of the block."""


@dataclass
class _Pending:
    """What the device has been asked for and not yet handed over: the policy after the newest block, and its log."""

    flat: Any
    info: Any
    step: int


class Trainer:
    """A run that advances block by block.

    Args:
        config: What to train; checked first.
    """

    def __init__(self, config: RunConfig):
        configs.check(config)
        self.config = config
        lanes = make_lanes(config.domain, config.seeds, config.seed_list, _lane_options(config))
        self.spec = lanes.spec
        self.collector = Collector(lanes, config.seed_list, config.block, config.sac.sampler)
        self._learner = _make_learner(config, self.spec)
        self._sizes = (self.spec.obs_size + self.spec.num_objectives, config.sac.hidden, 2 * self.spec.action_size)
        self.step = 0
        self._state = self._learner.init(jnp.asarray(config.seed_list))
        self._begin()
        self._boundary: LaneState = lanes.state()
        self._acting = np.asarray(self._learner.flat_actors(self._state))
        self._pending = _Pending(self._acting, None, 0)
        self._written = 0
        self._sums: Infos = {}
        self._num_summed = 0
        self.summed_to = 0

    def _begin(self) -> None:
        """Start the first episodes."""
        try:
            self.collector.start()
        except Exception as error:
            self.close()
            raise EnvFailedError(f"the environment failed at its first reset: {error}") from error

    @property
    def block_number(self) -> int:
        return self.step // self.config.block

    def advance(self) -> Float32[np.ndarray, "seed K width"]:
        """Collect one block and hand it to the device; gives the block's rows."""
        policy = None if self.step < self.config.random_steps else HostPolicy(self._acting, self._sizes)
        # Without a saved replay a resumed run has to fill it again before it learns on.
        is_learning = self._written >= self.config.random_steps
        try:
            rows = self.collector.collect(policy, self.block_number)
        except Exception as error:
            raise EnvFailedError(f"the environment failed after step {self.step}: {error}") from error
        self.step += self.config.block
        self._written += self.config.block
        if is_learning:
            self._state, flat, info = self._learner.learn(self._state, jnp.asarray(rows))
        else:
            self._state, flat, info = self._learner.write(self._state, jnp.asarray(rows)), self._pending.flat, None
        self._hand_over()
        self._pending = _Pending(flat, info, self.step)
        self._boundary = self.collector.lanes.state()
        return rows

    def drain(self) -> None:
        """Wait for the device and take over the log of the newest block; acting still lags as scheduled."""
        info, self._pending.info, self.summed_to = self._pending.info, None, self._pending.step
        if info is None:
            return
        for name, value in jax.device_get(info).items():
            self._check_finite(name, value)
            self._sums[name] = self._sums.get(name, np.zeros_like(value)) + value
        self._num_summed += 1
        self._check_finite("a parameter of the policy", np.asarray(self._pending.flat))

    def take_log(self) -> Infos:
        """Mean of what was logged since the last call, up to `summed_to`, per seed; empty while nothing was learned."""
        means = {name: value / self._num_summed for name, value in self._sums.items()}
        self._sums, self._num_summed = {}, 0
        return means

    def evaluate(self, preferences: Float64[np.ndarray, "p d"], episodes: int) -> Float64[np.ndarray, "seed p e d"]:
        """Returns of the policies as they are now."""
        try:
            return evaluate(self.config.domain, self.config.seed_list, self.act, preferences, episodes)
        except (RuntimeError, ArithmeticError) as error:
            raise EnvFailedError(f"the environment failed in the evaluation at step {self.step}: {error}") from error

    def act(
        self, obs: Float[np.ndarray, "seed rows obs"], lam: Float[np.ndarray, "seed rows d"]
    ) -> Float32[np.ndarray, "seed rows act"]:
        """Deterministic actions of the newest policies."""
        return np.asarray(self._learner.act(self._state, obs, lam))

    def newest_policy(self) -> HostPolicy:
        """The newest policies as plain NumPy."""
        return HostPolicy(np.asarray(self._learner.flat_actors(self._state)), self._sizes)

    def parameters(self) -> dict[str, np.ndarray]:
        """Policy, critics, target and snapshots of every seed, without optimisers and replay."""
        arrays = tree_to_arrays(self._state.agent)
        return {name: value for name, value in arrays.items() if ".optimizers" not in name}

    def arrays(self) -> dict[str, np.ndarray]:
        """Everything but the replay's rows, as of the end of the newest block, by name; nothing that is not finite."""
        self.drain()
        arrays = tree_to_arrays(self._without_rows(), "state")
        for name, value in arrays.items():
            self._check_finite(name, value)
        arrays |= {f"lanes/{name}": value for name, value in self._boundary.items()}
        arrays |= {f"log/{name}": value for name, value in self._sums.items()}
        arrays["acting"] = self._acting
        arrays["counters"] = np.array([self.step, self._num_summed], np.int64)
        return arrays

    def restore(
        self, arrays: dict[str, np.ndarray], rows: Float32[np.ndarray, "seed rows width"] | None, first: int
    ) -> None:
        """Take over what `arrays` gave.

        Args:
            arrays: All of it.
            rows: The replay's newest rows, in the order written; None forgets the replay.
            first: How many rows were written before them.
        """
        like = self._without_rows()
        restored = arrays_to_tree(like, arrays, "state")
        self._state = replace(restored, replay=self._ring(rows, first, restored.replay.written))
        self.collector.lanes.restore(_under(arrays, "lanes/"))
        self.collector.refresh_preferences(range(self.config.seeds))
        self._boundary = self.collector.lanes.state()
        self.step, self._num_summed = (int(value) for value in arrays["counters"])
        self.summed_to, self._written = self.step, 0 if rows is None else self.step
        self._acting = arrays["acting"]
        self._sums = _under(arrays, "log/")
        self._pending = _Pending(np.asarray(self._learner.flat_actors(self._state)), None, self.step)

    def replay_rows(self) -> tuple[Float32[np.ndarray, "seed rows width"], int]:
        """The replay's rows in the order written, and how many were written before them."""
        ring, written = np.asarray(self._state.replay.rows), int(self._state.replay.written[0])
        first = max(0, written - ring.shape[1])
        return ring[:, np.arange(first, written) % ring.shape[1]], first

    def extend(self, steps: int) -> None:
        """Plan for `steps` in all; the replay grows where it is still smaller than it may become."""
        config = replace(self.config, steps=steps)
        configs.check(config)
        self.config = config
        missing = self.config.capacity - self._state.replay.rows.shape[1]
        if missing > 0:
            rows = jnp.pad(self._state.replay.rows, ((0, 0), (0, missing), (0, 0)))
            self._state = replace(self._state, replay=replace(self._state.replay, rows=rows))

    def close(self) -> None:
        self.collector.lanes.close()

    def _without_rows(self) -> TrainState:
        """The state with an empty array in place of the replay's rows, which are saved apart."""
        empty = jnp.zeros((self.config.seeds, 0, replay.row_width(self.spec)))
        return replace(self._state, replay=replace(self._state.replay, rows=empty))

    def _ring(self, rows: Float32[np.ndarray, "seed rows width"] | None, first: int, written: Any) -> replay.Replay:
        capacity = self.config.capacity
        ring = np.zeros((self.config.seeds, capacity, replay.row_width(self.spec)), np.float32)
        if rows is None:
            return replay.Replay(jnp.asarray(ring), jnp.zeros_like(written))
        if first + rows.shape[1] != int(written[0]):
            raise CheckpointError(
                f"the replay ends at transition {first + rows.shape[1]}, the state at {int(written[0])}"
            )
        ring[:, (first + np.arange(rows.shape[1])) % capacity] = rows
        return replay.Replay(jnp.asarray(ring), written)

    def _hand_over(self) -> None:
        """The policy of the block before becomes the one that acts next; waits for the device to have made it."""
        self.drain()
        self._acting = np.asarray(self._pending.flat)

    def _check_finite(self, what: str, value: Shaped[np.ndarray, "seed *rest"]) -> None:
        """Stop the run where the newest block has left something that is not a number."""
        is_finite = np.isfinite(value.reshape(len(value), -1)).all(axis=1)
        if not is_finite.all():
            seed = self.config.seed_list[int(np.argmin(is_finite))]
            raise DivergedError(f"{what} of seed {seed} is no longer finite at step {self._pending.step}")


def _under(arrays: dict[str, np.ndarray], prefix: str) -> dict[str, np.ndarray]:
    return {name.removeprefix(prefix): value for name, value in arrays.items() if name.startswith(prefix)}


def _lane_options(config: RunConfig) -> LaneOptions:
    return LaneOptions(num_threads=config.num_threads)


def _make_learner(config: RunConfig, spec: Any) -> Learner:
    algorithm = configs.ALGORITHMS[config.algo][1](config.agent, spec)
    return make_learner(algorithm, spec, config.sac.batch_size, config.capacity)
