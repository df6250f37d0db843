"""Saved settings of guards, which were single settings once."""

import json
from pathlib import Path
from typing import Any

import pytest

from qpensieve import settings
from qpensieve.config import from_dict
from qpensieve.settings import GUARDS, translated

RESULTS = Path(__file__).parents[1] / "results"
ON = {name: on for name, (_, on) in GUARDS.items()}
OFF = {name: off for name, (off, _) in GUARDS.items()}


def nested(guards: dict[str, Any]) -> dict[str, Any]:
    """Settings of Q-Pensieve as older versions saved them."""
    of_sac = {name: guards[name] for name in list(GUARDS)[:4]}
    own = {name: guards[name] for name in list(GUARDS)[4:]}
    return {"sac": {"hidden": 8, **of_sac}, "num_snapshots": 4, **own}


def test_all_guards_on_are_one_switch():
    assert translated(nested(ON)) == {"sac": {"hidden": 8, "guards": True}, "num_snapshots": 4}


@pytest.mark.parametrize("guards", [OFF, *({**ON, name: OFF[name]} for name in GUARDS)])
def test_guards_that_are_off_stay_as_they_are(guards: dict[str, Any]):
    assert translated(nested(guards)) == nested(guards)


def test_mosac_has_four_guards():
    four = {name: ON[name] for name in list(GUARDS)[:4]}
    assert translated({"hidden": 8, **four}) == {"hidden": 8, "guards": True}


@pytest.mark.parametrize(
    ("name", "is_on"),
    [
        ("HalfCheetah2d-robust-1.5M", True),
        ("HalfCheetah2d-mosac-robust-1.5M", True),
        ("Ant3d-robust-600k", True),
        ("HalfCheetah2d-qpensieve", False),
        ("DST2d-mosac", False),
    ],
)
def test_committed_results_are_read(name: str, is_on: bool):
    config = from_dict(json.loads((RESULTS / "h200" / f"{name}.json").read_text())["config"])
    assert settings.flat(config.agent)["guards"] is is_on


def test_a_committed_result_with_other_guards_is_not_a_run_of_this_version():
    content = json.loads((RESULTS / "h200" / "HalfCheetah2d-robust-1.5M.json").read_text())["config"]
    content["agent"]["sac"] |= {"temperature_gain": 1.0}
    with pytest.raises(ValueError, match="unknown field"):
        from_dict(content)
