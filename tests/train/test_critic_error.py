"""L_critic on probes whose soft values are known: an exact critic has no error but the noise of the returns."""

from dataclasses import replace
from functools import cache
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from qpensieve.algos.cnder import CnDerConfig
from qpensieve.algos.envelope import EnvelopeConfig
from qpensieve.algos.hybrid_sac import HybridConfig
from qpensieve.algos.mosac import SacConfig
from qpensieve.algos.qpensieve import QPensieveConfig
from qpensieve.algos.sac import SingleSacConfig
from qpensieve.config import RunConfig, spec_of
from qpensieve.methods import make_algorithm
from qpensieve.population.pgmorl import PgmorlConfig
from qpensieve.records.checkpoint import CheckpointError
from qpensieve.records.critic_errors import CriticRow
from qpensieve.records.trees import tree_to_arrays
from qpensieve.train import critic_error
from qpensieve.train.critic_error import CriticMeter, Sampling
from qpensieve.train.session import Arrays, DivergedError, EnvFailedError
from tests.oracles.walk import MEAN, SLOPE, WalkValues, actor_leaves, critic_leaves

WALK, ENDLESS = "tests.probes:walk", "tests.probes:endless_walk"
HIDDEN, DISCOUNT, TEMPERATURE = 12, 0.8, 0.3
LAM, OTHER = (0.7, 0.3), (0.1, 0.9)
SAC = SacConfig(hidden=HIDDEN, discount=DISCOUNT)
MOSAC = RunConfig(WALK, "mosac", seeds=2, agent=SAC)
MANY = Sampling(pairs=48)
FEW = Sampling(pairs=2, rollouts=2)


@pytest.fixture(autouse=True)
def _short_visits(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(critic_error, "UNLIMITED", 12)


def fresh(config: RunConfig) -> Arrays:
    """Parameters of untrained agents."""
    return {name: leaf.copy() for name, leaf in _fresh(config).items()}


@cache
def _fresh(config: RunConfig) -> Arrays:
    spec = spec_of(config)
    algorithm = make_algorithm(config.algo, config.agent, spec)
    num = config.seeds * algorithm.agents_per_seed
    own = np.zeros((1, spec.num_objectives)) if algorithm.preferences is None else algorithm.preferences
    lams = jnp.asarray(np.tile(own, (config.seeds, 1)), jnp.float32)
    state = jax.jit(jax.vmap(algorithm.init))(jax.random.split(jax.random.key(0), num), lams)
    return {name: leaf for name, leaf in tree_to_arrays(state).items() if ".optimizers" not in name}


def put(parameters: Arrays, prefix: str, leaves: Arrays) -> None:
    for name, leaf in leaves.items():
        parameters[prefix + name] = np.broadcast_to(leaf, parameters[prefix + name].shape).copy()


def exact(config: RunConfig, lam: tuple[float, float] = LAM, part: str = "") -> Arrays:
    """Parameters with a known policy, its exact critic under `lam` as twin 0, and a twin that is larger by 5."""
    parameters = fresh(config)
    values = WalkValues(lam, DISCOUNT, TEMPERATURE)
    put(parameters, f"{part}.actor", actor_leaves(HIDDEN))
    put(parameters, f"{part}.critic", critic_leaves(values, config.domain == ENDLESS, HIDDEN))
    parameters[f"{part}.critic.net.last.bias"][:, 1] += 5.0
    parameters[f"{part}.log_alpha"][:] = np.log(TEMPERATURE)
    return parameters


def measure(config: RunConfig, parameters: Arrays, preferences: Any, sampling: Sampling = FEW) -> list[CriticRow]:
    meter = CriticMeter(config, preferences, sampling)
    try:
        return meter.measure(parameters, 100)
    finally:
        meter.close()


@pytest.mark.parametrize(
    ("domain", "lam", "actions"),
    [(WALK, LAM, "policy"), (WALK, OTHER, "uniform"), (ENDLESS, OTHER, "policy"), (ENDLESS, LAM, "uniform")],
)
def test_an_exact_critic_has_no_error_but_the_noise(domain: str, lam: tuple[float, float], actions: Any):
    config = replace(MOSAC, domain=domain, seeds=1)
    (row,) = measure(config, exact(config, lam), [lam], replace(MANY, actions=actions))
    # Without the bonus, through the limit, under another lam or a step off, the bias would be above 0.2.
    np.testing.assert_array_less(np.array(row.bias_se), 0.05)
    np.testing.assert_array_less(np.abs(row.bias), 4.0 * np.array(row.bias_se) + 2e-3 * np.array(row.value)[:, None])
    np.testing.assert_allclose(row.error, row.noise, rtol=0.25)
    np.testing.assert_array_less(row.rms, 0.75 * np.array(row.return_se))
    assert max(row.rest) <= critic_error.TOLERANCE


def test_a_critic_that_is_off_is_found_out():
    parameters = exact(MOSAC)
    parameters[".critic.net.last.bias"] += np.array([3.0, -4.0], np.float32)
    (row,) = measure(MOSAC, parameters, [LAM], MANY)
    np.testing.assert_allclose(row.error, 5.0, atol=0.2)
    np.testing.assert_allclose(row.rms, 5.0, atol=0.2)
    np.testing.assert_allclose(row.bias, [[3.0, -4.0]] * 2, atol=0.2)
    np.testing.assert_allclose(row.scalar_bias, 3.0 * LAM[0] - 4.0 * LAM[1], atol=0.2)
    np.testing.assert_allclose(np.array(row.twins)[:, 1], np.hypot(8.0, 1.0), atol=0.2)  # the other is 5 larger


def test_qpensieve_is_measured_by_its_newest_critic():
    config = replace(MOSAC, algo="qpensieve", seeds=1, agent=QPensieveConfig(sac=SAC, num_snapshots=1))
    (row,) = measure(config, exact(config, part=".sac"), [LAM], MANY)
    assert abs(row.bias[0][0]) < 4.0 * row.bias_se[0][0]
    np.testing.assert_allclose(row.error, row.noise, rtol=0.25)


@pytest.mark.parametrize(
    ("algo", "agent", "part"),
    [
        ("sac", SingleSacConfig(preferences=("0.1,0.9", "0.7,0.3"), hidden=HIDDEN, discount=DISCOUNT), ""),
        ("hybrid-sac", HybridConfig(("0.1,0.9", "0.7,0.3"), pensieve=QPensieveConfig(sac=SAC)), ".own"),
    ],
)
def test_single_preferences_have_scalar_values(algo: str, agent: Any, part: str):
    config = replace(MOSAC, algo=algo, seeds=1, agent=agent)
    parameters = fresh(config)
    leaves = actor_leaves(HIDDEN)
    mean, log_std = leaves[".net.last.bias"]
    leaves[".net.last.bias"] = np.array([mean + SLOPE * LAM[0], log_std], np.float32)  # the policy gets no preference
    leaves[".net.first.weight"] = np.zeros((1, HIDDEN), np.float32)
    put(parameters, f"{part}.actor", leaves)
    critic = critic_leaves(WalkValues(LAM, DISCOUNT, TEMPERATURE), False, HIDDEN)
    critic[".net.first.weight"] = critic[".net.first.weight"][:2]
    critic |= {
        name: (critic[name] @ np.array(LAM, np.float32))[..., None] for name in (".net.last.weight", ".net.last.bias")
    }
    put(parameters, f"{part}.critic", {name.removeprefix(".net"): leaf for name, leaf in critic.items()})
    parameters[f"{part}.log_alpha"][:] = np.log(TEMPERATURE)
    (row,) = measure(config, parameters, [LAM], MANY)
    np.testing.assert_allclose(row.error, row.noise, rtol=0.25)
    assert np.shape(row.bias) == (1, 1)
    assert abs(row.bias[0][0]) < 4.0 * row.bias_se[0][0] < 0.4
    everyone = CriticMeter(config, None, FEW)
    np.testing.assert_allclose(everyone.preferences, [(0.1, 0.9), LAM])
    with pytest.raises(ValueError, match=r"must be those that have an agent: 0.1,0.9 0.7,0.3; got 0.5,0.5"):
        CriticMeter(config, [(0.5, 0.5)])


def test_a_policy_without_chance_is_followed_once():
    config = replace(MOSAC, domain=ENDLESS, algo="cnder", seeds=1, agent=CnDerConfig(hidden=HIDDEN, discount=DISCOUNT))
    parameters = fresh(config)
    leaves = actor_leaves(HIDDEN)
    put(
        parameters,
        ".actor",
        leaves | {f".net.last.{name}": leaves[f".net.last.{name}"][..., :1] for name in ("weight", "bias")},
    )
    for name in (".critic.net.last.weight", ".critic.net.last.bias"):
        parameters[name][:] = 0.0
    (row,) = measure(config, parameters, [LAM], Sampling(pairs=3, rollouts=4))
    action = np.tanh(MEAN + SLOPE * LAM[0])
    np.testing.assert_allclose(row.bias, [[-5.0, -5.0 * action]], rtol=2e-3)
    assert (row.rollouts, row.noise, row.return_se) == (1, [0.0], [0.0])


def test_envelope_is_measured_on_its_greedy_policy():
    plain = EnvelopeConfig(acts_with="newest", scale_obs=False)
    agent = replace(plain, discount=DISCOUNT, width_factors=(1,), bins=3, layer_norm=False)
    config = replace(MOSAC, domain=ENDLESS, algo="envelope", seeds=1, agent=agent)
    parameters = fresh(config)
    for name in parameters:
        parameters[name][:] = 0
    parameters[".net.layers[1].bias"][0] = [0, 0, 2, 0, 1, 6]  # action 2, which is 1, is the best for both
    (row,) = measure(config, parameters, [LAM], Sampling(pairs=3))
    np.testing.assert_allclose(row.bias, [[1.0 - 5.0, 6.0 - 5.0]], atol=0.01)


def test_a_measurement_can_be_repeated_and_each_preference_stands_alone():
    parameters = exact(MOSAC)
    one = measure(MOSAC, parameters, [LAM, OTHER])
    assert measure(MOSAC, parameters, [LAM, OTHER]) == one
    assert measure(MOSAC, parameters, [LAM, (0.5, 0.5)])[0] == one[0]
    other = measure(MOSAC, parameters, [LAM, OTHER], replace(FEW, seed=1))[0]
    assert other.error != one[0].error
    assert one[0].error[0] != one[0].error[1]  # seeds differ though their networks are equal


def test_preferences_are_those_of_the_paper_or_of_the_curves():
    assert CriticMeter(MOSAC, None, FEW).preferences.tolist() == [
        [0.1, 0.9],
        [0.3, 0.7],
        [0.5, 0.5],
        [0.7, 0.3],
        [0.9, 0.1],
    ]
    hopper = replace(MOSAC, domain="Hopper3d")
    assert len(CriticMeter(hopper, None, FEW).preferences) == 4


def test_a_population_has_no_such_critic():
    with pytest.raises(ValueError, match=r"pgmorl has no critic Q\(s, a; lam\).*runs of qpensieve"):
        CriticMeter(RunConfig("Hopper2d", "pgmorl", agent=PgmorlConfig()))


def test_parameters_of_other_networks_are_refused():
    parameters = exact(MOSAC)
    del parameters[".critic.net.last.bias"]
    with pytest.raises(CheckpointError, match=r"leaf .critic.net.last.bias is missing"):
        measure(MOSAC, parameters, [LAM])


def test_values_that_are_not_finite_are_named():
    parameters = exact(MOSAC)
    parameters[".critic.net.last.bias"][1] = np.nan
    with pytest.raises(DivergedError, match="a value of the critics of seed 1 is no longer finite at step 100"):
        measure(MOSAC, parameters, [LAM])


def test_an_environment_that_cannot_go_on_says_so():
    config = replace(MOSAC, domain="tests.probes:time_limit")
    with pytest.raises(EnvFailedError, match=r"while the critics of step 100 were measured.*the episode is over"):
        measure(config, exact(MOSAC), [LAM])
