"""The table of methods, and what a row that forgets something is told."""

from dataclasses import dataclass, replace
from pathlib import Path

import pytest

from qpensieve import config as configs
from qpensieve import methods
from qpensieve.config import default_config
from qpensieve.envs import get_domain
from qpensieve.methods import METHODS, Method, check_row, get_method, make_algorithm, register_method


@pytest.mark.parametrize("preset", ["paper", "quick"])
@pytest.mark.parametrize("name", METHODS)
def test_every_method_has_a_line_for_people_and_presets_that_can_run_and_be_saved(
    name: str, preset: str, tmp_path: Path
):
    assert METHODS[name].summary
    config = configs.with_schedule(default_config("DST2d", name, preset))
    configs.check(config)
    configs.save(config, tmp_path / "config.json")
    assert configs.load(tmp_path / "config.json") == config


def test_a_population_has_no_algorithm_for_the_loop():
    with pytest.raises(ValueError, match="pgmorl trains a population"):
        make_algorithm("pgmorl", METHODS["pgmorl"].config(), get_domain("DST2d").spec)


def test_discrete_actions_are_refused_by_all_but_envelope():
    grid = get_domain("DeepSeaTreasure").spec
    make_algorithm("envelope", METHODS["envelope"].config(), grid)
    with pytest.raises(
        ValueError, match=r"needs continuous actions, but DeepSeaTreasure has 4 discrete ones: use --algo envelope"
    ):
        make_algorithm("mosac", METHODS["mosac"].config(), grid)


def test_a_new_row_is_all_that_config_and_presets_need(monkeypatch: pytest.MonkeyPatch):
    ninth = replace(METHODS["mosac"], name="ninth", quick={"hidden": 7})
    monkeypatch.setitem(METHODS, "ninth", ninth)
    config = default_config("DST2d", "ninth", "quick")
    assert config.agent == replace(METHODS["mosac"].config(), hidden=7)
    assert configs.from_dict(configs.to_dict(config)) == config
    configs.check(config)


@dataclass(frozen=True)
class Incomplete:
    speed: float


@pytest.mark.parametrize(
    ("row", "complaint"),
    [
        (
            Method("ninth", "forgets its settings", dict),
            "method ninth: config must be the dataclass of its settings, got",
        ),
        (Method("ninth", "forgets a default", Incomplete), "method ninth: every setting must have a default .*speed"),
        (replace(METHODS["mosac"], name="ninth", make=None), "method ninth: make must be a function"),
    ],
)
def test_what_a_row_forgets_is_a_sentence(row: Method, complaint: str):
    with pytest.raises(ValueError, match=complaint):
        check_row(row)


def test_a_name_is_registered_once(monkeypatch: pytest.MonkeyPatch):
    ninth = replace(METHODS["mosac"], name="ninth")
    monkeypatch.setattr(methods, "METHODS", {**METHODS})
    register_method(ninth)
    assert get_method("ninth") is ninth
    with pytest.raises(ValueError, match="there is a method ninth already"):
        register_method(ninth)
