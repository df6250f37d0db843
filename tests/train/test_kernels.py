"""Training on fused kernels (interpreted): chosen by the configuration, stored with it, and exactly resumable."""

from dataclasses import replace
from typing import Any

import jax
import numpy as np
import pytest

from qpensieve import config as configs
from qpensieve import methods
from qpensieve.algos.mosac import SacConfig
from qpensieve.config import RunConfig, override
from qpensieve.envs.registry import spec_of
from qpensieve.learning.interface import UniformLearning
from qpensieve.methods import choose_kernels, get_method, make_algorithm
from qpensieve.presets import default_config
from qpensieve.replay.layout import layout_of
from qpensieve.train.learner import Block, make_learner
from qpensieve.train.trainer import Trainer
from tests.rounding import assert_same_to_rounding

SMALL: dict[str, Any] = {
    **{"seeds": 2, "steps": 100, "random_steps": 10, "block": 2, "hidden": 64, "batch_size": 64, "kernels": "on"},
    **{"num_snapshots": 2, "num_preferences": 2, "push_after": 0, "push_period": 2, "updates_per_step": 1},
}
DST = spec_of("DST2d")
LAYOUT = layout_of(DST, make_algorithm("mosac", get_method("mosac").config(), DST).behaviour)


def _config(**changes: Any) -> RunConfig:
    return override(default_config("DST2d", "qpensieve", "quick"), SMALL | changes)


def _trainer(config: RunConfig, num_blocks: int) -> Trainer:
    trainer = Trainer(config)
    for _ in range(num_blocks):
        trainer.advance()
    return trainer


def _assert_same(arrays: dict[str, np.ndarray], others: dict[str, np.ndarray]) -> None:
    assert arrays.keys() == others.keys()
    for name, array in arrays.items():
        np.testing.assert_array_equal(array, others[name], err_msg=name)


def test_a_run_that_was_stopped_continues_with_the_same_bits():
    stopped, undisturbed = _trainer(_config(), 7), _trainer(_config(), 9)
    rows, first = stopped.replay_rows()
    resumed = Trainer(_config())
    resumed.restore(stopped.arrays(), rows, first)
    for _ in range(2):
        resumed.advance()
    arrays = undisturbed.arrays()
    _assert_same(resumed.arrays(), arrays)
    assert arrays["state.agent.snapshots.filled"].all()
    plain = _trainer(_config(kernels="off"), 9).arrays()
    assert arrays.keys() == plain.keys()
    name = "state.agent.sac.critic.net.second.weight"
    np.testing.assert_allclose(arrays[name], plain[name], atol=1e-4)
    assert np.any(arrays[name] != plain[name])
    for trainer in (stopped, undisturbed, resumed):
        trainer.close()


def _has_kernels(algo: str, kernels: Any, **changes: Any) -> bool:
    config = override(default_config("DST2d", algo), changes)
    algorithm = make_algorithm(algo, config.agent, Trainer(_config(kernels="off")).spec, kernels)
    return isinstance(algorithm.learning, UniformLearning) and algorithm.learning.block is not None


def test_the_configuration_decides():
    assert _has_kernels("qpensieve", "on")
    assert _has_kernels("mosac", "full")
    assert not _has_kernels("qpensieve", "off")
    assert not _has_kernels("qpensieve", "auto")  # there is no GPU here
    assert not _has_kernels("qpensieve", "on", hidden=100)
    assert not _has_kernels("cnder", "on")


@pytest.mark.parametrize(
    ("algo", "asked", "changes", "choice", "words"),
    [
        ("qpensieve", "off", {}, "off", ""),
        ("qpensieve", "auto", {}, "off", ""),
        ("qpensieve", "on", {}, "on", "interpreted"),
        ("mosac", "full", {}, "full", "interpreted"),
        ("mosac", "on", {"batch_size": 100}, "off", "kernels are off: they cover batch sizes that are multiples of 64"),
        ("sac", "on", {}, "off", "kernels are off: there are none for sac"),
        ("pgmorl", "auto", {}, "off", ""),
    ],
)
def test_a_wish_that_is_not_met_is_said_in_one_sentence(algo: str, asked: Any, changes: Any, choice: str, words: str):
    config = override(default_config("DST2d", algo), changes | {"kernels": asked})
    made, said = choose_kernels(algo, config.agent, asked)
    assert made == choice
    assert words in said
    assert bool(words) == bool(said)
    assert "\n" not in said
    assert configs.resolve(config).kernels == choice
    assert configs.about_kernels(config) == said


def test_on_a_hopper_card_auto_is_on(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr("qpensieve.algos.fused.is_interpreted", lambda: False)
    monkeypatch.setattr("qpensieve.algos.fused.unavailable", lambda: "")
    agent = get_method("qpensieve").config()
    assert choose_kernels("qpensieve", agent, "auto") == ("on", "")
    robust = default_config("HalfCheetah2d", "qpensieve", "robust").agent
    assert choose_kernels("qpensieve", robust, "auto") == ("on", "")
    monkeypatch.setattr("qpensieve.algos.fused.unavailable", lambda: "they are made for Hopper cards")
    assert choose_kernels("qpensieve", agent, "auto") == ("off", "kernels are off: they are made for Hopper cards")


def test_an_environment_that_does_not_fit_on_the_chip_has_none(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr("qpensieve.algos.fused.is_interpreted", lambda: False)
    monkeypatch.setattr("qpensieve.algos.fused.unavailable", lambda: "")
    config = replace(default_config("DST2d"), kernels="auto")
    spec = configs.spec_of(config)  # two numbers of a preference, two of an action
    for size, chosen, said in (
        (124, "on", ""),
        (125, "off", "up to 128 numbers (observation, action and preference), and"),
    ):
        monkeypatch.setattr(configs, "spec_of", lambda _, size=size: replace(spec, obs_size=size))
        assert configs.resolve(config).kernels == chosen
        assert said in configs.about_kernels(config)


def test_a_configuration_of_before_kernels_has_none():
    values = configs.to_dict(_config())
    del values["kernels"]
    assert configs.from_dict(values).kernels == "off"
    assert configs.from_dict(configs.to_dict(_config())).kernels == "on"


def test_settings_that_cannot_run_are_left_to_the_check():
    config = _config(hidden=0)
    assert configs.resolve(config).kernels == "on"
    assert configs.about_kernels(config) == ""


def test_looks_at_a_seed_do_not_depend_on_how_many_share_a_core():
    """They are computed outside the kernels, for every seed by itself."""
    learned: list[dict[str, np.ndarray]] = []
    for seeds in (1, 2):
        learner = make_learner(make_algorithm("mosac", SacConfig(hidden=64, batch_size=64), DST, "on"), LAYOUT, 20)
        rows = np.random.default_rng(0).normal(size=(1, 20, LAYOUT.width)).astype(np.float32).repeat(seeds, axis=0)
        state = learner.write(learner.init(jax.device_put(np.arange(seeds))), Block(jax.device_put(rows)))
        _, _, info = learner.learn(state, Block(jax.device_put(rows[:, :2])))
        learned.append({name: np.asarray(value)[0] for name, value in info.items() if "_bin_" in name})
    assert len(learned[0]) == 10
    assert_same_to_rounding(learned[0], learned[1])


def test_devices_are_made_for_all_seeds_before_jax_starts(monkeypatch: pytest.MonkeyPatch):
    def stop(num: int) -> None:
        raise RuntimeError(f"{num} devices")

    monkeypatch.setattr(methods, "available_cores", lambda: 8)
    monkeypatch.setattr(methods, "make_devices", stop)
    with pytest.raises(RuntimeError, match="6 devices"):
        Trainer(_config(seeds=6))
