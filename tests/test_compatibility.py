"""Which settings decide whether two configurations are of the same run."""

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from qpensieve import compatibility, settings
from qpensieve.compatibility import (
    EVERYTHING,
    LEARNING,
    SAME_NUMBERS,
    SAME_SETTINGS,
    recipe,
    settings_of,
    settings_that_differ,
)
from qpensieve.config import (
    RunConfig,
    completed,
    default_config,
    default_preset,
    from_dict,
    override,
    to_dict,
    with_schedule,
)
from qpensieve.methods import METHODS, RECIPE
from qpensieve.settings import EVALUATION, LENGTH, MACHINE, RECORDS, SEEDS, flat

RESULTS = list((Path(__file__).parents[1] / "results").rglob("*.json"))
PLAIN = default_config("DST2d", "mosac")


def saved(config: RunConfig) -> dict[str, Any]:
    return json.loads(json.dumps(to_dict(config)))


def names(before: RunConfig | dict[str, Any], now: RunConfig | dict[str, Any], decide: Any = EVERYTHING) -> list[str]:
    return [found.name for found in settings_that_differ(before, now, decide)]


@pytest.mark.parametrize(
    ("name", "value", "mark"),
    [
        *(("tau", 0.01, LEARNING), ("random_noise", "ar1", LEARNING), ("block", 10, LEARNING)),
        *(("replay_capacity", 500, LEARNING), ("updates_per_step", 2, LEARNING)),
        *(("steps", 100_000, LENGTH), ("seeds", 1, SEEDS), ("first_seed", 3, SEEDS)),
        *(("full_eval_episodes", 3, EVALUATION), ("reference", (0.0, -9.0), EVALUATION)),
        *(("eval_period", 500, RECORDS), ("eval_stride", 1, RECORDS), ("keep_replay", "off", RECORDS)),
        *(("num_threads", 2, MACHINE), ("checkpoint_seconds", 5.0, MACHINE)),
    ],
)
def test_what_a_setting_decides(name: str, value: Any, mark: settings.Mark):
    other = override(PLAIN, {name: value})
    assert names(PLAIN, other) == names(saved(PLAIN), saved(other)) == [name]
    assert [one for one in EVERYTHING if names(PLAIN, other, decide={one})] == [mark]
    assert bool(names(PLAIN, other, decide=SAME_NUMBERS)) == (mark is not MACHINE)
    assert bool(names(PLAIN, other, decide=SAME_SETTINGS)) == (mark in (LEARNING, LENGTH, EVALUATION))


def test_every_setting_decides_one_thing():
    every = [settings.marked(RunConfig("DST2d"), mark) for mark in EVERYTHING]
    assert sum(map(len, every)) == len(set().union(*every))


@pytest.mark.parametrize("algo", METHODS)
def test_settings_are_all_there_by_their_names(algo: str):
    config = default_config("DST2d", algo)
    assert settings_of(config).keys() == flat(config).keys()
    assert settings_of(config) == settings_of(saved(config))


def test_schedules_count_as_the_numbers_they_become():
    config = replace(default_config("DST2d", "qpensieve", "robust"), steps=300_000)
    assert names(config, override(config, {"anneal_updates": 580_000})) == []
    assert names(config, override(config, {"anneal_updates": 7})) == ["anneal_updates"]


def test_a_built_in_domain_has_several_names():
    assert names(PLAIN, replace(PLAIN, domain="qpensieve/DST2d-v0")) == []
    assert names(PLAIN, replace(PLAIN, domain="Hopper2d")) == ["domain"]


@pytest.mark.parametrize(("algo", "is_bound"), [("mosac", False), ("envelope", True), ("pgmorl", True), ("pfa", True)])
def test_what_depends_on_the_length(algo: str, is_bound: bool):
    assert compatibility.is_bound_to_length(default_config("DST2d", algo)) == is_bound
    assert compatibility.is_bound_to_length(default_config("DST2d", "mosac", "robust"))


class TestOlder:
    def test_a_missing_setting_is_what_runs_did_before_it(self):
        old = saved(default_config("DST2d", "envelope"))
        del old["agent"]["twin"], old["agent"]["bins"], old["num_threads"]
        assert settings_of(old)["twin"] is False
        assert (settings_of(old)["bins"], settings_of(old)["num_threads"]) == (None, None)

    def test_a_retired_setting_counts_where_it_changed_something(self):
        plain = saved(PLAIN)
        assert names(plain | {"target_steps": 1}, plain) == []
        found = settings_that_differ(plain | {"target_steps": 3}, plain)
        assert list(map(str, found)) == ["target_steps was 3, is 1"]

    def test_unknown_and_odd_values_stay_as_they_are(self):
        assert completed({"domain": "DST2d", "algo": "none", "agent": {"x": 1}})["x"] == 1
        assert settings_of({"domain": "DST2d", "algo": "mosac", "agent": 3, "of_tomorrow": [1.0]})["of_tomorrow"] == (
            1,
        )


@pytest.mark.parametrize("path", RESULTS, ids=lambda path: path.name)
def test_a_committed_result_is_read(path: Path):
    content = json.loads(path.read_text())
    if not isinstance(content, dict) or not isinstance(content.get("config"), dict):
        return
    found = settings_of(content["config"])
    unknown = found.keys() - flat(default_config(content["config"]["domain"], content["config"]["algo"])).keys()
    assert unknown <= settings.RETIRED.keys()
    if not unknown:
        assert settings_of(from_dict(content["config"])) == found


class TestRecipe:
    def test_robust_has_its_version_at_any_length_and_with_any_seeds(self):
        config = replace(default_config("Hopper2d", preset="robust"), steps=20_000, seeds=3, eval_period=5_000)
        assert recipe(config) == recipe(with_schedule(config)) == f"robust {RECIPE}"

    def test_a_changed_setting_or_another_preset_has_none(self):
        robust = default_config("Hopper2d", preset="robust")
        assert recipe(override(robust, {"discount": 0.995})) is None
        assert recipe(default_config("Hopper2d")) is None
        assert recipe(default_config("Hopper2d", "pgmorl")) is None


def test_robust_is_the_default_of_methods_that_have_it():
    assert [default_preset(algo) for algo in ("qpensieve", "mosac", "sac", "pgmorl")] == ["robust"] * 2 + ["paper"] * 2
