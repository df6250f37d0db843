"""Policies read from files alone are those that a session would have."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from qpensieve import config as configs
from qpensieve.config import RunConfig, default_config
from qpensieve.learning.losses import flatten
from qpensieve.learning.predictor import FLAT, AgentPredictor
from qpensieve.methods import make_algorithm
from qpensieve.records import checkpoint, folder
from qpensieve.records.checkpoint import POLICY, CheckpointError
from qpensieve.records.trees import tree_to_arrays
from qpensieve.train.loop import open_session
from qpensieve.train.saved import SavedPolicies, save_agent
from qpensieve.train.session import play
from tests.train.kill_run import POPULATION

SEEDS = 2
DOMAINS = {"envelope": "DeepSeaTreasure"}


def numbered(config: RunConfig) -> Any:
    """A state of the algorithm for all agents, in which every number differs, without running its init."""
    spec = configs.spec_of(config)
    algorithm = make_algorithm(config.algo, config.agent, spec)
    lam = jax.ShapeDtypeStruct((spec.num_objectives,), np.float32)
    state = jax.eval_shape(lambda lam: algorithm.init(jax.random.key(0), lam), lam)
    num, count = config.seeds * algorithm.agents_per_seed, iter(range(10**9))

    def fill(leaf: Any) -> Any:
        first = next(count)
        values = np.arange(num * int(np.prod(leaf.shape)), dtype=np.float64).reshape(num, *leaf.shape)
        return jnp.asarray((values + 1000 * first).astype(leaf.dtype))

    return algorithm, jax.tree.map(fill, state)


def arrays_of(algorithm: Any, state: Any) -> dict[str, np.ndarray]:
    """What a file of parameters holds of a state: its policies and its networks."""
    flat = np.asarray(jax.vmap(flatten)(algorithm.actor(state)))
    networks = {name: value for name, value in tree_to_arrays(state).items() if ".optimizers" not in name}
    return networks | {POLICY + FLAT: flat}


@pytest.fixture(params=["qpensieve", "hybrid-sac", "envelope", "envelope, scaled", "cnder", "sac"])
def config(request: pytest.FixtureRequest) -> RunConfig:
    algo, *is_scaled = request.param.split(", ")
    quick = default_config(DOMAINS.get(algo, "DST2d"), algo, "quick")
    hidden = {"hidden": 4} if hasattr(quick.agent, "hidden") else {}
    hidden |= {"scale_obs": True, "acts_with": "target"} if is_scaled else {}
    return configs.with_schedule(replace(quick, seeds=SEEDS, agent=replace(quick.agent, **hidden)))


@pytest.mark.parametrize("kind", ["parameters", "checkpoint"])
def test_policies_and_networks_are_those_that_were_saved(config: RunConfig, kind: str, tmp_path: Path):
    algorithm, state = numbered(config)
    configs.save(config, tmp_path / folder.CONFIG)
    arrays = arrays_of(algorithm, state)
    if kind == "parameters":
        checkpoint.save_parameters(tmp_path, 500, arrays)
    else:
        whole = tree_to_arrays(state, "state.agent") | {POLICY + FLAT: arrays[POLICY + FLAT]}
        checkpoint.save(tmp_path, 500, whole, {})
    saved = SavedPolicies(tmp_path)
    predictor, step = saved.newest()
    assert step == 500
    assert np.array_equal(saved.own_preferences, algorithm.preferences)  # pyright: ignore[reportArgumentType]
    assert isinstance(predictor, AgentPredictor)
    np.testing.assert_array_equal(predictor.flat, arrays[POLICY + FLAT])
    networks = {name: value for name, value in saved.parameters(500).items() if not name.startswith(POLICY)}
    assert networks.keys() == arrays.keys() - {POLICY + FLAT}
    for name, value in networks.items():
        np.testing.assert_array_equal(value, arrays[name])


@pytest.mark.parametrize("algo", ["qpensieve", "sac", "pgmorl"])
def test_a_session_saves_the_policies_that_it_evaluates(algo: str, tmp_path: Path):
    settings = {"hidden": 8, "seeds": SEEDS} | (POPULATION if algo == "pgmorl" else {})
    session = open_session(configs.with_schedule(configs.override(default_config("DST2d", algo, "quick"), settings)))
    session.advance()  # nothing is learned yet
    save_agent(session, tmp_path)
    policies = SavedPolicies(tmp_path).newest()[0]
    kept = {name: value for name, value in session.parameters().items() if name.startswith(POLICY)}
    assert kept.keys() == {POLICY + name for name in policies.arrays()}
    for name, value in policies.arrays().items():
        np.testing.assert_array_equal(value, kept[POLICY + name])
    table = np.array([[0.2, 0.8], [0.6, 0.4], [0.7, 0.3]])
    played = play(policies, session.config, session.step, table, 2)
    np.testing.assert_array_equal(policies.share(played, table), session.evaluate(table, 2))
    session.close()


@pytest.mark.parametrize("damage", ["checkpoint", "parameters", "both"])
def test_what_is_damaged_is_named_and_the_newest_that_can_be_read_taken(damage: str, tmp_path: Path):
    config = replace(default_config("DST2d", "mosac", "quick"), seeds=1)
    configs.save(config, tmp_path / folder.CONFIG)
    arrays = arrays_of(*numbered(config))
    other = {name: value + 1 for name, value in arrays.items()}
    checkpoint.save_parameters(tmp_path, 500, arrays)
    newest = checkpoint.save(tmp_path, 600, {POLICY + FLAT: other[POLICY + FLAT]}, {})
    kept = checkpoint.save_parameters(tmp_path, 600, other) if damage != "checkpoint" else None
    if damage != "parameters":
        (newest / "arrays.npz").write_bytes(b"no")
    if kept is not None:
        kept.write_bytes(b"no")
    said: list[str] = []
    found, step = SavedPolicies(tmp_path).newest(said.append)
    assert isinstance(found, AgentPredictor)
    if damage == "parameters":  # the checkpoint of the same step has them too
        assert (step, said) == (600, [])
        return
    (line,) = said
    assert step == 500
    assert f"checkpoint {newest} is damaged: arrays.npz has 2 bytes" in line
    assert line.endswith("; policies of an earlier step are taken, 500")
    with pytest.raises(CheckpointError, match=rf"^checkpoint {newest} is damaged"):
        SavedPolicies(tmp_path).predictor(600)
    kept = tmp_path / "parameters" / "step_000000500.npz"
    kept.write_bytes(b"no")
    with pytest.raises(CheckpointError, match=rf"^cannot read the parameters in {kept}: (?!cannot)"):
        SavedPolicies(tmp_path).predictor(500)
    with pytest.raises(CheckpointError, match=rf"^checkpoint {newest} is damaged"):
        SavedPolicies(tmp_path).newest(said.append)


def test_no_device_is_started(tmp_path: Path):
    """Watching must leave a GPU to whoever trains on it."""
    import subprocess
    import sys

    config = configs.override(default_config("DST2d", "envelope", "quick"), {"seeds": 1, "scale_obs": True})
    configs.save(config, tmp_path / folder.CONFIG)
    checkpoint.save_parameters(tmp_path, 500, arrays_of(*numbered(config)))
    program = (
        "import sys; from pathlib import Path; from qpensieve.train.saved import SavedPolicies\n"
        "SavedPolicies(Path(sys.argv[1])).newest()\n"
        "from jax.extend import backend\n"
        "import jax._src.xla_bridge as bridge; sys.exit(len(bridge._backends))"
    )
    assert subprocess.run([sys.executable, "-c", program, str(tmp_path)], check=False).returncode == 0
