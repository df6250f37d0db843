"""Twenty updates of every method from a stored state and stored batches: python tools/golden.py --make | --check.

`--make` writes `tests/golden/updates.npz`; `--check` repeats the updates and compares losses and the first moments of
Adam, leaf by leaf, to within a thousandth of the largest value of each. A refactoring must pass; a decision that
changes numbers makes the file again, with `--only` for the methods it concerns, and says so in its commit.

What a refactoring may rename is imported in `_cases` alone.
"""

import argparse
import json
import sys
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

PATH = Path(__file__).resolve().parents[1] / "tests" / "golden" / "updates.npz"
UPDATES, WARM_UPDATES, BATCH = 20, 60, 16
"""Updates that are compared, those before the stored state, and rows of a batch."""
TOLERANCE = 1e-3
HIDDEN = 32
SMALL: dict[str, Any] = {"hidden": HIDDEN, "batch_size": BATCH, "learning_rate": 3e-3, "num_preferences": 3}
SMALL |= {
    "push_after": 0,
    "push_period": 10,
    "num_snapshots": 2,
    "switch_after": 10,
    "preferences": ("0.4,0.3,0.2,0.1",),
}
SMALL |= {"bins": 3, "width_factors": (2, 2), "anneal_updates": 100, "anneal_steps": 100}
SMALL_POPULATION: dict[str, Any] = {"hidden": HIDDEN, "epochs": 5, "minibatches": 4, "rollout_steps": 16}
ALGOS = {
    "qpensieve": ("qpensieve", "LunarLander4d", "paper"),
    "qpensieve-robust": ("qpensieve", "LunarLander4d", "robust"),
    "mosac": ("mosac", "LunarLander4d", "paper"),
    "sac": ("sac", "LunarLander4d", "paper"),
    "hybrid-sac": ("hybrid-sac", "LunarLander4d", "paper"),
    "cnder": ("cnder", "LunarLander4d", "paper"),
    "envelope": ("envelope", "LunarLander4d", "paper"),
    "pgmorl": ("pgmorl", "LunarLander4d", "paper"),
    "pfa": ("pfa", "DST2d", "paper"),
}
"""Case -> method, domain (observations, actions and objectives of different sizes) and preset."""

Arrays = dict[str, np.ndarray]
Learn = Callable[[Any, Any], tuple[Any, Any]]


@dataclass(frozen=True)
class Case:
    """One method.

    Attributes:
        settings: Its settings, as JSON.
        like: A fresh state, whose leaves the stored ones replace.
        given: Input of the updates: leaves lead with their number, except of populations, which get one rollout.
        learn: (state, input) -> state, what is logged.
        end_block: (state, number of updates) -> state.
    """

    settings: str
    like: Any
    given: Any
    learn: Learn
    end_block: Callable[[Any, Any], Any] = lambda state, num: state


def _cases(
    names: list[str], batches: Callable[[str, tuple[int, ...]], np.ndarray], num: int, first: int = 0
) -> dict[str, Case]:
    """Return the methods of this tree.

    Args:
        names: Which of them.
        batches: (kind, shape) -> numbers of that kind, drawn or stored.
        num: Number of updates.
        first: Number of the first of them.
    """
    from qpensieve.config import RunConfig, default_config, override, spec_of
    from qpensieve.learning.interface import Hints, Transition, UniformLearning
    from qpensieve.methods import make_algorithm
    from qpensieve.population import ppo
    from qpensieve.settings import flat

    def config_of(algo: str, domain: str, preset: str, small: dict[str, Any]) -> RunConfig:
        config = default_config(domain, algo, preset)
        return override(config, {name: value for name, value in small.items() if name in flat(config)})

    def transitions(spec: Any, action_size: int, lane: int) -> Transition:
        draw = lambda kind, size: jnp.asarray(batches(f"{kind}{lane}", (num, BATCH, size)))
        a = draw("index", action_size) if action_size == 1 else jnp.tanh(draw("a", action_size))
        ends = (draw("end", 1)[..., 0] > 1.0).astype(jnp.float32)
        return Transition(
            draw("s", spec.obs_size), a, draw("r", spec.num_objectives), draw("next", spec.obs_size), ends
        )

    def keys() -> Any:
        return jax.random.split(jax.random.key(7), num)

    def preferences(kind: str, *shape: int) -> Any:
        raw = jnp.abs(jnp.asarray(batches(kind, shape))) + 0.1
        return raw / raw.sum(axis=-1, keepdims=True)

    def of_replay(algo: str, domain: str, preset: str) -> Case:
        config = config_of(algo, domain, preset, SMALL)
        spec, settings = spec_of(config), json.dumps(asdict(config.agent), sort_keys=True)
        algorithm = make_algorithm(algo, config.agent, spec)
        learning, d = algorithm.learning, spec.num_objectives
        lam = jnp.asarray((0.4, 0.3, 0.2, 0.1))
        state = jax.jit(algorithm.init)(jax.random.key(3), lam)
        size = algorithm.acting.action_size
        if isinstance(learning, UniformLearning):
            lanes = tuple(transitions(spec, size, lane) for lane in range(algorithm.num_lanes))
            numbers = first + jnp.arange(num, dtype=jnp.int32)

            def learn(state: Any, given: Any) -> tuple[Any, Any]:
                batch, key, number = given
                return learning.update(state, batch, learning.draw(batch, key, number))

            return Case(settings, state, (lanes, keys(), numbers), learn, algorithm.end_block)

        hints = Hints(preferences("lam", num, d), preferences("past", num, BATCH, d))

        def learn_by_priority(state: Any, given: Any) -> tuple[Any, Any]:
            batch, hint, key = given
            state, info, priorities = learning.update(state, batch, hint, key)
            logged = {} if priorities is None else {"loss_priority": jnp.mean(priorities)}
            return state, info | logged

        return Case(settings, state, (transitions(spec, size, 0), hints, keys()), learn_by_priority)

    def of_population(algo: str, domain: str, preset: str) -> Case:
        config = config_of(algo, domain, preset, SMALL_POPULATION)
        spec, cfg = spec_of(config), config.agent.ppo
        state = ppo.init(cfg, spec, np.random.default_rng(3))
        k, lanes, d = cfg.rollout_steps, cfg.num_lanes, spec.num_objectives
        draw = lambda kind, *shape: jnp.asarray(batches(f"{kind}-{algo}", shape))
        ended = draw("end", k, lanes)
        rollout = ppo.Rollout(
            obs=draw("s", k, lanes, spec.obs_size),
            action=draw("a", k, lanes, spec.action_size),
            reward=draw("r", k, lanes, d),
            terminated=ended > 1.2,
            truncated=ended < -1.2,
            last_obs=draw("next", lanes, spec.obs_size),
        )
        scale = 1.0 + jnp.abs(draw("scale", d))
        goal = ppo.Goal(preferences(f"lam-{algo}", d), scale, jnp.asarray(3e-3))
        learn = lambda state, given: ppo.update(cfg, state, rollout, goal, given)
        return Case(json.dumps(asdict(config.agent.ppo)), state, jax.random.split(jax.random.key(7), 1), learn)

    is_population = lambda algo: algo in ("pgmorl", "pfa")
    return {name: (of_population if is_population(ALGOS[name][0]) else of_replay)(*ALGOS[name]) for name in names}


def _drawn(generator: np.random.Generator, stored: Arrays) -> Callable[[str, tuple[int, ...]], np.ndarray]:
    """Return normal numbers, or small whole numbers for indices, the same for equal kind and shape."""

    def draw(kind: str, shape: tuple[int, ...]) -> np.ndarray:
        name = f"batch/{kind}/{'x'.join(map(str, shape))}"
        if name not in stored:
            is_index = kind.startswith("index")
            numbers = generator.integers(9, size=shape) if is_index else generator.normal(size=shape)
            stored[name] = numbers.astype(np.float16)  # half the size of the file
        return stored[name].astype(np.float32)

    return draw


def _named(tree: Any) -> Arrays:
    """Return name -> leaf."""
    leaves, _ = jax.tree_util.tree_flatten_with_path(tree)
    return {jax.tree_util.keystr(path): np.asarray(leaf) for path, leaf in leaves}


def _with_leaves(like: Any, stored: Arrays, notes: list[str]) -> Any:
    """Return the tree with stored leaves, found by name, or for a renamed leaf by shape and the most similar name."""
    fresh, left = _named(like), dict(stored)
    found = {name: left.pop(name) for name in fresh if name in left and left[name].shape == fresh[name].shape}
    for name, leaf in fresh.items():
        if name in found:
            continue
        ends = lambda other, name=name: _shared_end(name, other)
        fitting = [other for other, array in left.items() if array.shape == leaf.shape]
        if not fitting:
            notes.append(f"no stored leaf for {name}: its first value is taken")
            found[name] = leaf
            continue
        best = max(fitting, key=ends)
        notes.append(f"{name} is taken from {best}")
        found[name] = left.pop(best)
    notes += [f"the stored leaf {name} is not used" for name in left]
    return jax.tree.unflatten(jax.tree.structure(like), [jnp.asarray(found[name]) for name in fresh])


def _shared_end(one: str, other: str) -> int:
    """Count the characters that two names share at their ends."""
    pairs = zip(reversed(one), reversed(other), strict=False)
    return next((i for i, (a, b) in enumerate(pairs) if a != b), min(len(one), len(other)))


def _learned(case: Case, state: Any, options: dict[str, Any] | None = None) -> Arrays:
    """Return the logged values of every update, and the first moments after the last update."""
    learn = jax.jit(lambda state, given: jax.lax.scan(case.learn, state, given), compiler_options=options)
    end, logged = learn(state, case.given)
    moments = {f"moment{name}": leaf for name, leaf in _named(end).items() if ".mu" in name}
    if not moments:
        raise AssertionError("no first moments were found in the state: Adam's states have them under .mu")
    return {f"logged/{name}": np.asarray(value) for name, value in logged.items() if "loss" in name} | moments


def _warm(case: Case) -> Any:
    """Return a state like one after training: networks differ, moments are set, snapshots are taken."""
    end_block = jax.jit(case.end_block)
    learn, state, num = jax.jit(case.learn), case.like, len(jax.tree.leaves(case.given)[0])
    for i in range(num):
        state, _ = learn(state, jax.tree.map(lambda leaf, i=i: leaf[i], case.given))
        if (i + 1) % 10 == 0:
            state = end_block(state, jnp.asarray(i + 1))
    return state


def make(names: list[str]) -> None:
    """Write the states, the batches and what is learned from them."""
    stored: Arrays = _read() if PATH.exists() else {}
    stored = {key: value for key, value in stored.items() if key.split("/")[0] not in names}
    warm = _cases(names, _drawn(np.random.default_rng(1), {}), WARM_UPDATES)
    cases = _cases(names, _drawn(np.random.default_rng(2), stored), UPDATES, WARM_UPDATES)
    for name, case in cases.items():
        state = _warm(warm[name])
        stored |= {f"{name}/state{key}": value for key, value in _named(state).items()}
        stored |= {f"{name}/{key}": value for key, value in _learned(case, state).items()}
        stored[f"{name}/settings"] = np.array(case.settings)
        print(f"{name}: made", file=sys.stderr)
    PATH.parent.mkdir(exist_ok=True)
    np.savez_compressed(PATH, allow_pickle=False, **stored)  # pyright: ignore[reportArgumentType]


def check(names: list[str], options: dict[str, Any] | None = None) -> tuple[list[str], list[str]]:
    """Return problems and notes of updates compiled with these options, compared with the stored numbers."""
    stored, problems, notes = _read(), [], []
    cases = _cases(names, _drawn(np.random.default_rng(2), stored), UPDATES, WARM_UPDATES)
    for name, case in cases.items():
        mine = {key.removeprefix(f"{name}/"): value for key, value in stored.items() if key.startswith(f"{name}/")}
        said: list[str] = _changed(str(mine.pop("settings")), case.settings)
        state = {key.removeprefix("state"): mine.pop(key) for key in list(mine) if key.startswith("state")}
        found = _learned(case, _with_leaves(case.like, state, said), options)
        problems += [f"{name}: {problem}" for problem in _compare(mine, found)]
        notes += [f"{name}: {note}" for note in said]
    return problems, notes


def _changed(before: str, now: str) -> list[str]:
    """Return the settings that differ from those of the stored numbers."""

    def flat(content: dict[str, Any]) -> dict[str, Any]:
        parts = [flat(value) if isinstance(value, dict) else {name: value} for name, value in content.items()]
        return {name: value for part in parts for name, value in part.items()}

    one, other = flat(json.loads(before)), flat(json.loads(now))
    shared = one.keys() & other.keys()
    return [f"{name} was {one[name]}, is {other[name]}" for name in sorted(shared) if one[name] != other[name]]


def _compare(stored: Arrays, found: Arrays) -> list[str]:
    """Return every array that is missing or differs, relative to its largest value."""
    problems, renamed = [], {}
    for name in stored.keys() - found.keys():
        others = [other for other in found.keys() - stored.keys() if found[other].shape == stored[name].shape]
        renamed[name] = max(others, key=lambda other, name=name: _shared_end(name, other), default=None)
    for name, expected in stored.items():
        got = found.get(renamed.get(name, name))
        if got is None:
            problems.append(f"{name} is missing")
            continue
        largest = float(np.abs(expected).max())
        off = float(np.abs(got - expected).max()) / (largest or 1.0)
        if not off <= TOLERANCE:
            problems.append(f"{name} differs by {off:.2g} of its largest value, {largest:.3g}")
    return problems


def _read() -> Arrays:
    with np.load(PATH, allow_pickle=False) as file:
        return dict(file)


def main() -> None:
    parser = argparse.ArgumentParser(description="Compare twenty updates of every method with stored ones.")
    group = parser.add_mutually_exclusive_group(required=True)
    group.add_argument("--make", action="store_true", help=f"write {PATH.name}")
    group.add_argument("--check", action="store_true", help="compare with it")
    parser.add_argument("--only", nargs="+", choices=list(ALGOS), default=list(ALGOS), metavar="CASE")
    given = parser.parse_args()
    if given.make:
        make(given.only)
        return
    problems, notes = check(given.only)
    print("\n".join([*notes, *(problems or ["all as stored"])]))
    sys.exit(1 if problems else 0)


if __name__ == "__main__":
    main()
