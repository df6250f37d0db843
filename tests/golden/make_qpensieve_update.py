"""One Q-Pensieve update worked out with loops in float64 NumPy, gradients by finite differences.

Writes `qpensieve_update.npz`: `python -m tests.golden.make_qpensieve_update` from the repository's root. The formulas
are those of `tests/oracles/mosac.py`; nothing of JAX or of the package under test is used.
"""

from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace

import numpy as np

from tests.oracles import mosac as oracle

PATH = Path(__file__).parent / "qpensieve_update.npz"

OBS, ACT, D, HIDDEN, BATCH = 3, 2, 2, 6, 8
NUM_PREFERENCES, NUM_SNAPSHOTS = 3, 2
ALPHA, DISCOUNT, TAU, LEARNING_RATE = 0.3, 0.9, 0.2, 0.05
STEP = 1e-6
"""Half the width of the finite differences."""

Flat = dict[str, np.ndarray]
"""Parameters by name: `weight0`, `bias0`, ... with leading axes for twins and snapshots."""


def inputs(seed: int = 20230501) -> dict[str, np.ndarray]:
    """Networks, one batch, preferences and noise; float32 numbers, so that both sides start from the same."""
    generator = np.random.default_rng(seed)
    normal = lambda *shape: generator.normal(size=shape)
    values = {f"actor_{name}": value for name, value in _network(normal, (), OBS + D, 2 * ACT).items()}
    for net, lead in (("critic", (2,)), ("target", (2,)), ("snapshots", (NUM_SNAPSHOTS, 2))):
        values |= {f"{net}_{name}": value for name, value in _network(normal, lead, OBS + ACT + D, D).items()}
    prefs = generator.random((NUM_PREFERENCES, 1, D))
    values |= {
        "s": normal(BATCH, OBS),
        "a": np.tanh(normal(BATCH, ACT)),
        "r": normal(BATCH, D),
        "s_next": normal(BATCH, OBS),
        "terminated": (np.arange(BATCH) % 4 == 1).astype(float),
        "prefs": prefs / prefs.sum(axis=-1, keepdims=True),
        "noise_next": normal(BATCH, ACT),
        "noise": normal(BATCH, ACT),
    }
    return {name: value.astype(np.float32) for name, value in values.items()}


def update(given: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
    """Losses, gradients and the state after the update, in the order target, critics, policy, temperature, target."""
    given = {name: value.astype(np.float64) for name, value in given.items()}
    part = lambda net: {k.removeprefix(f"{net}_"): v for k, v in given.items() if k.startswith(f"{net}_")}
    actor, critic, snapshots = part("actor"), part("critic"), part("snapshots")
    prefs = np.broadcast_to(given["prefs"], (NUM_PREFERENCES, BATCH, D))
    batch = SimpleNamespace(**{name: given[name] for name in ("s", "a", "r", "s_next", "terminated")})

    at_next = oracle.Question(_net(actor), ALPHA, batch.s_next, prefs, given["noise_next"])
    y = oracle.target(_twins(part("target")), at_next, batch.r, batch.terminated, DISCOUNT)
    critic_loss = lambda flat: oracle.critic_loss(_twins(flat), batch, prefs[0], y)
    critic_gradient = _differences(critic_loss, critic)
    new_critic = _step(critic, critic_gradient)

    candidates = [*(_twins(snapshots, k) for k in range(NUM_SNAPSHOTS)), _twins(new_critic)]
    at = lambda flat: oracle.Question(_net(flat), ALPHA, batch.s, prefs, given["noise"])
    policy = lambda flat: oracle.policy_loss(candidates, at(flat))
    actor_gradient = _differences(lambda flat: policy(flat)[0], actor)
    policy_loss, logp = policy(actor)

    slope = -(logp + -ACT)
    new_target = {name: (1 - TAU) * value + TAU * new_critic[name] for name, value in part("target").items()}
    answer = {
        "target": y,
        "critic_loss": np.array(critic_loss(critic)),
        "policy_loss": np.array(policy_loss),
        "entropy": np.array(-logp),
        "new_log_alpha": oracle.adam_step(np.log(ALPHA), np.array(slope), LEARNING_RATE),
    }
    trees = {
        "critic_gradient": critic_gradient,
        "actor_gradient": actor_gradient,
        "new_critic": new_critic,
        "new_actor": _step(actor, actor_gradient),
        "new_target": new_target,
    }
    return answer | {f"{tree}_{name}": value for tree, flat in trees.items() for name, value in flat.items()}


def _network(normal: Callable[..., np.ndarray], lead: tuple[int, ...], size_in: int, size_out: int) -> Flat:
    sizes = ((size_in, HIDDEN), (HIDDEN, HIDDEN), (HIDDEN, size_out))
    weights = {f"weight{i}": 0.5 * normal(*lead, *size) for i, size in enumerate(sizes)}
    return weights | {f"bias{i}": 0.3 * normal(*lead, size[1]) for i, size in enumerate(sizes)}


def _net(flat: Flat, *index: int) -> oracle.Net:
    return [(flat[f"weight{i}"][index], flat[f"bias{i}"][index]) for i in range(3)]


def _twins(flat: Flat, *index: int) -> oracle.Twins:
    return [_net(flat, *index, twin) for twin in (0, 1)]


def _differences(function: Callable[[Flat], float], flat: Flat) -> Flat:
    """Central differences by every single parameter."""
    gradient = {name: np.zeros_like(value) for name, value in flat.items()}
    for name, value in flat.items():
        for index in np.ndindex(value.shape):
            ends = []
            for sign in (1, -1):
                moved = value.copy()
                moved[index] += sign * STEP
                ends.append(function(flat | {name: moved}))
            gradient[name][index] = (ends[0] - ends[1]) / (2 * STEP)
    return gradient


def _step(flat: Flat, gradient: Flat) -> Flat:
    return {name: oracle.adam_step(value, gradient[name], LEARNING_RATE) for name, value in flat.items()}


def main() -> None:
    given = inputs()
    expected = {f"expected_{name}": value for name, value in update(given).items()}
    np.savez_compressed(PATH, allow_pickle=False, **given, **expected)


if __name__ == "__main__":
    main()
