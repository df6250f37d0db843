"""Small networks and batches for the tests of algorithms."""

from collections.abc import Callable
from functools import cache, partial
from typing import Any

import jax
import numpy as np
from jaxtyping import Array, Float

from qpensieve.algos import mosac, qpensieve, sac
from qpensieve.learning import snapshots
from qpensieve.learning.interface import Transition
from qpensieve.learning.losses import sample_preferences
from qpensieve.learning.nets import GaussianActor
from qpensieve.machine import options_to_run_once
from qpensieve.replay.layout import RowLayout
from qpensieve.types import EnvSpec
from tests.oracles import mosac as oracle
from tests.rounding import plain

HIDDEN, BATCH = 16, 12
SPEC = EnvSpec("test", 4, 2, ("one", "two", "three"), None, None)
LAYOUT = RowLayout(SPEC.obs_size, SPEC.action_size, SPEC.num_objectives)
SAC = mosac.SacConfig(hidden=HIDDEN, batch_size=BATCH, discount=0.9, learning_rate=1e-2, tau=0.1)
OPTIMISED: dict[str, Any] = {"xla_backend_optimization_level": 3}
"""Compiler options of JAX by default: those of users. A few tests ask for them, whatever XLA_FLAGS says."""
if jax.__version_info__ < (0, 11):  # later versions do not know the option and always use the emitters
    OPTIMISED["xla_cpu_use_fusion_emitters"] = True


def once(function: Callable[..., Any]) -> Callable[..., Any]:
    """Jitted for a single call: not optimised beyond what its numbers need."""
    return jax.jit(function, compiler_options=options_to_run_once())


@cache
def transitions(seed: int, spec: EnvSpec = SPEC, num: int = BATCH) -> Transition:
    """Random transitions; every third one ends its episode."""
    generator = np.random.default_rng(seed)
    normal = lambda size: generator.normal(size=(num, size)).astype(np.float32)
    s, a, r, s_next = map(normal, (spec.obs_size, spec.action_size, spec.num_objectives, spec.obs_size))
    return Transition(*jax.device_put((s, np.tanh(a), r, s_next, (np.arange(num) % 3 == 0).astype(np.float32))))


def random_like(tree: Any, seed: int) -> Any:
    """Networks of that shape with random weights and biases, drawn by NumPy: nothing to compile."""
    generator = np.random.default_rng(seed)
    draw = lambda leaf: generator.normal(scale=0.35, size=leaf.shape).astype(leaf.dtype)
    return jax.device_put(jax.tree.map(draw, tree))


def zeros_like(tree: Any) -> Any:
    """Zeros of these shapes, also without anything to compile."""
    return jax.device_put(jax.tree.map(lambda leaf: np.zeros(leaf.shape, leaf.dtype), tree))


@cache
def sac_state(seed: int, spec: EnvSpec = SPEC, cfg: mosac.SacConfig = SAC) -> mosac.State:
    """A state as after some training: every network different, temperature 0.5, optimisers still fresh."""
    like = jax.eval_shape(partial(mosac.init, cfg, spec), jax.random.key(0))
    actor, critic, target = (
        random_like(net, 10 * seed + i) for i, net in enumerate((like.actor, like.critic, like.target))
    )
    log_alpha = jax.device_put(np.float32(np.log(0.5)))
    return mosac.State(actor, critic, target, log_alpha, zeros_like(like.optimizers))


@cache
def pensieve_state(seed: int, num_snapshots: int, num_filled: int, cfg: mosac.SacConfig = SAC) -> qpensieve.State:
    """The same with a ring in which `num_filled` past critics lie."""
    sac = sac_state(seed, SPEC, cfg)
    ring = snapshots.empty(sac.critic, num_snapshots)
    for i in range(num_filled):
        ring = snapshots.push(ring, random_like(sac.critic, 100 + i))
    return qpensieve.State(sac, ring)


@cache
def preferences(seed: int, num: int) -> Float[Array, "m d"]:
    """Preferences drawn by the key of that seed."""
    return sample_preferences(jax.random.key(seed), num, SPEC.num_objectives)


def mosac_update(cfg: mosac.SacConfig) -> Callable[..., Any]:
    """(state, batch, key, updates before) -> one update of MO-SAC with draws of that key."""
    return lambda state, batch, key, number=0: mosac.step(cfg, state, batch, mosac.draw(cfg, 1, batch, key, number))


def pensieve_update(cfg: qpensieve.QPensieveConfig) -> Callable[..., Any]:
    """(state, batch, key, updates before) -> one update of Q-Pensieve with draws of that key."""
    draw = partial(qpensieve.draw, cfg)
    return lambda state, batch, key, number=0: qpensieve.step(cfg, state, batch, draw(batch, key, number))


def sac_update(cfg: sac.SingleSacConfig) -> Callable[..., Any]:
    """(state, batch, key) -> one update of SAC with draws of that key."""
    return lambda state, batch, key: sac.step(cfg, state, batch, sac.draw(batch, key))


def action_noise(seed: int) -> Float[Array, "b act"]:
    """Noise of a batch of actions, drawn by the key of that seed."""
    return jax.random.normal(jax.random.key(seed), (BATCH, SPEC.action_size))


def every(prefs: Any) -> np.ndarray:
    """Preferences [m, d] or [m, b, d] as [m, b, d] for the oracle, in float64."""
    wide = np.asarray(prefs, np.float64)
    wide = wide[:, None] if wide.ndim == 2 else wide
    return np.broadcast_to(wide, (len(wide), BATCH, wide.shape[-1]))


def question(actor: GaussianActor, s: Any, prefs: Any, noise: Any) -> oracle.Question:
    """What the oracle is asked, at temperature 0.5, in float64."""
    wide = lambda x: np.asarray(x, np.float64)
    return oracle.Question(oracle.net_of(actor.net), 0.5, wide(s), every(prefs), wide(noise))


def assert_trees_equal(tree: Any, other: Any) -> None:
    """Same structure and the same bits in every leaf."""
    (leaves, structure), (others, other_structure) = jax.tree.flatten(tree), jax.tree.flatten(other)
    assert structure == other_structure
    for leaf, other_leaf in zip(leaves, others, strict=True):
        np.testing.assert_array_equal(plain(leaf), plain(other_leaf), strict=True)


def assert_trees_close(tree: Any, other: Any, tolerance: float) -> None:
    for leaf, other_leaf in zip(jax.tree.leaves(tree), jax.tree.leaves(other), strict=True):
        np.testing.assert_allclose(plain(leaf), plain(other_leaf), rtol=tolerance, atol=tolerance)
