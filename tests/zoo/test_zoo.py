"""Policies that come with the package: their cards, and what they reach when they are played again."""

import importlib.util
import json
import shutil
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

import qpensieve
from qpensieve import cli, zoo
from qpensieve.deploy.exported import ExportedPolicies, measure
from qpensieve.deploy.qpensieve_policy import load
from qpensieve.envs.registry import DOMAINS
from qpensieve.errors import MissingFileError

ROOT = Path(__file__).parents[2]
MOST_BYTES = 8_000_000
NAMES = zoo.names()
QUICK = {"zoo:DST2d"}
"""Policies that are played again in a second; the others are for `make test-slow`."""
PLAYED = [pytest.param(name, marks=() if name in QUICK else pytest.mark.slow) for name in NAMES]


def tool():
    spec = importlib.util.spec_from_file_location("zoo_tool", ROOT / "tools" / "zoo.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.mark.parametrize("name", NAMES)
def test_a_card_says_how_its_policy_was_made(name: str):
    card, about = zoo.card_of(zoo.find(Path(name))), load(zoo.find(Path(name))).about
    assert card is not None
    assert {key: card[key] for key in ("format", "domain", "algo", "seed", "objectives")} == {
        key: about[key] for key in ("format", "domain", "algo", "seed", "objectives")
    }
    assert card["steps"] == about["step"]
    assert card["command"].startswith(f"qpensieve train {card['domain']}")
    assert card["licence"] == "MIT"
    assert len(card["commit"]) == 40, "made from a commit with changes"
    preferences, returns = (np.array(card["front"][key]) for key in ("preferences", "returns"))
    assert preferences.shape == returns.shape == (len(preferences), len(card["objectives"]))
    assert card["asked"]["ut"] == pytest.approx((preferences * returns).sum(axis=1).mean(), rel=1e-4)


@pytest.mark.parametrize("name", PLAYED)
def test_a_policy_played_again_is_within_the_interval_of_its_card(name: str):
    file = zoo.find(Path(name))
    card, played = zoo.card_of(file), measure(ExportedPolicies(file))
    assert card is not None
    for kind, reached in zip(("asked", "calibrated"), played, strict=True):
        if reached is not None:
            rounding = 1e-5 * abs(card[kind]["ut"])
            assert card[kind]["low"] - rounding <= reached.ut <= card[kind]["high"] + rounding


def test_all_policies_together_are_small():
    assert sum(file.stat().st_size for file in zoo.FOLDER.iterdir() if file.is_file()) < MOST_BYTES


def test_a_policy_acts_without_jax():
    file = zoo.find(Path(NAMES[0]))
    loader = Path(qpensieve.__file__).parent / "deploy" / "qpensieve_policy.py"
    code = (
        "import sys; sys.modules['jax'] = sys.modules['qpensieve'] = None; sys.path.insert(0, sys.argv[1]);"
        "from qpensieve_policy import load; p = load(sys.argv[2]);"
        "print(p.act([0.0] * p.about['obs_size'], [1.0] + [0.0] * (len(p.objectives) - 1)).shape)"
    )
    command = [sys.executable, "-I", "-c", code, str(loader.parent), str(file)]
    assert subprocess.run(command, capture_output=True, text=True, timeout=60, check=True).stdout.startswith("(")


def test_an_agent_of_a_name_predicts_and_chooses():
    agent = qpensieve.load(NAMES[0])
    d = agent.session.spec.num_objectives
    assert agent.num_steps > 0
    assert agent.predict(np.zeros(agent.session.spec.obs_size), np.full(d, 1 / d)).size > 0
    with pytest.raises(MissingFileError, match=r"zoo:Nothing; there are: zoo:"):
        qpensieve.load("zoo:Nothing")


def test_commands_list_and_measure_policies(capsys: pytest.CaptureFixture[str]):
    cli.main(["policies"])
    listed = capsys.readouterr().out
    assert all(name in listed for name in NAMES)
    cli.main(["policies", "zoo:DST2d"])
    card = json.loads(capsys.readouterr().out)
    assert card["domain"] == "DST2d"
    cli.main(["evaluate", "zoo:DST2d"])
    lines = [line.split() for line in capsys.readouterr().out.splitlines() if line.startswith(("asked", "calibrated"))]
    assert [line[:2] for line in lines] == [
        [kind, whose] for kind in ("asked", "calibrated") for whose in ("now", "card")
    ]
    assert lines[0][2] == lines[1][2]


def test_a_policy_is_exported_for_another_program(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.chdir(tmp_path)
    cli.main(["export-policy", "zoo:DST2d", "--header"])
    assert {file.name for file in (tmp_path / "policy").iterdir()} == {"policy.npz", "policy.h", "qpensieve_policy.py"}
    known, written = load(zoo.find(Path("zoo:DST2d"))), load(tmp_path / "policy" / "policy.npz")
    assert written.about["step"] == known.about["step"]
    np.testing.assert_array_equal(written.act([3.0, 1.0], [0.3, 0.7]), known.act([3.0, 1.0], [0.3, 0.7]))
    np.testing.assert_array_equal(written.ask([0.9, 0.1]), known.ask([0.9, 0.1]))


def test_the_tool_takes_the_best_seed_and_halves_the_file(tmp_path: Path):
    tools, source = tool(), zoo.find(Path("zoo:DST2d"))
    with np.load(source) as file:
        arrays = {name: file[name] for name in file.files}
    networks = [name for name in arrays if name.startswith(("weight_", "bias_"))]
    arrays |= {name: arrays[name].astype(np.float32) for name in networks}
    good, bad = tmp_path / "good.npz", tmp_path / "bad.npz"
    np.savez(good, **arrays)
    np.savez(bad, **arrays | {"weight_0": -arrays["weight_0"]})
    card = zoo.card_of(source)
    assert card is not None
    run = {"domain": "DST2d", "algo": card["algo"], "seeds": 1, "first_seed": card["seed"], "agent": {}}
    result = {"config": run, "provenance": {"commit": "0" * 40}, "preferences": [], "reference": None}
    result |= {"short_protocol": [], "full_protocol": []}
    result["full_protocol"] = [{"step": 1, "episodes": 1, "mean_returns": [[[0.0, 0.0]]]}]
    result["preferences"] = [[0.5, 0.5]]
    (tmp_path / "run.json").write_text(json.dumps(result))
    out = tools.make(tmp_path / "run.json", [bad, good], card["command"], None, tmp_path)
    made = json.loads(out.with_suffix(".json").read_text())
    assert (made["precision"], made["asked"], made["calibrated"]) == ("float16", card["asked"], card["calibrated"])
    assert out.stat().st_size < 0.7 * good.stat().st_size
    shutil.copyfile(good, tmp_path / "other.npz")
    result["config"] = run | {"domain": "Hopper2d"}
    (tmp_path / "run.json").write_text(json.dumps(result))
    with pytest.raises(ValueError, match="is of another run"):
        tools.make(tmp_path / "run.json", [good], card["command"], None, tmp_path)


def test_names_are_those_of_domains():
    assert {name.removeprefix(zoo.PREFIX) for name in NAMES} <= {*DOMAINS, "mo-hopper-2d-v4", "mo-halfcheetah-v4"}
