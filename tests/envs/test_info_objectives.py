"""Numbers in `info` as objectives of an environment with a single reward."""

import pickle
from pathlib import Path
from typing import Any

import gymnasium
import numpy as np
import pytest
from gymnasium.spaces import Box

import qpensieve
from qpensieve.envs import LaneOptions, make_lanes
from qpensieve.envs.registry import code_of, spec_of, with_objectives
from qpensieve.envs.sources import resolve

HERE = "tests.envs.test_info_objectives"
EPISODE = 5


class Scalar(gymnasium.Env):
    """A point pushed along a line: the reward is one number, its two terms are in `info`."""

    observation_space, action_space = Box(-np.inf, np.inf, (1,)), Box(-1.0, 1.0, (1,))

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[np.ndarray, dict]:
        super().reset(seed=seed)
        self.place, self.time = self.np_random.normal(size=1), 0
        return self.place.astype(np.float32), {}

    def step(self, action: np.ndarray) -> tuple[np.ndarray, Any, bool, bool, dict]:
        self.place, self.time = self.place + action, self.time + 1
        terms = {"far": float(self.place[0]), "effort": -float(action[0] ** 2), "name": "line", "both": np.zeros(2)}
        reward = terms["far"] + terms["effort"]
        return self.place.astype(np.float32), reward, False, self.time >= EPISODE, terms


class Vector(Scalar):
    """The same with a reward vector."""

    def step(self, action: np.ndarray) -> tuple[np.ndarray, Any, bool, bool, dict]:
        obs, _, terminated, truncated, terms = super().step(action)
        return obs, np.array([terms["far"], terms["effort"]]), terminated, truncated, {}


@pytest.mark.parametrize("kind", ["Scalar", "Vector"])
@pytest.mark.parametrize("num_workers", [0, 2])
def test_rewards_are_the_numbers_of_info_in_the_order_they_are_named(kind: str, num_workers: int):
    names = ("effort", "far") if kind == "Scalar" else ("far", "effort")
    domain = with_objectives(f"{HERE}:{kind}", names)
    lanes = make_lanes(domain, 2, 0, LaneOptions(num_workers=num_workers))
    try:
        start = lanes.reset()
        step = lanes.step(np.array([[0.5], [-1.0]]))
    finally:
        lanes.close()
    assert (lanes.spec.id, lanes.spec.objectives) == (domain, names)
    expected = {"effort": [-0.25, -1.0], "far": (start[:, 0] + [0.5, -1.0]).tolist()}
    np.testing.assert_allclose(step.reward, np.stack([expected[name] for name in names], axis=1), rtol=1e-6)


def test_a_name_that_info_lacks_gives_the_names_of_its_numbers():
    with pytest.raises(ValueError, match=rf"^{HERE}:Scalar\+far\+speed: .* got speed: choose from far, effort$"):
        spec_of(f"{HERE}:Scalar+far+speed")
    with pytest.raises(ValueError, match=r"got a scalar; name numbers of its info as --objectives \(far, effort\)"):
        spec_of(f"{HERE}:Scalar")


def test_a_vector_reward_gets_one_name_each():
    with pytest.raises(ValueError, match="objectives must be 2 different names"):
        spec_of(f"{HERE}:Vector+a+b+c")


@pytest.mark.parametrize(
    ("name", "message"),
    [("Hopper2d+a+b", "Hopper2d has objectives of its own"), (f"{HERE}:Scalar+far", "at least two"), ("A-v0+", "two")],
)
def test_a_name_with_wrong_objectives_is_refused_too(name: str, message: str):
    with pytest.raises(ValueError, match=message):
        spec_of(name)


@pytest.mark.parametrize(
    ("domain", "objectives", "message"),
    [
        ("Hopper2d", ("a", "b"), "Hopper2d has objectives of its own .forward, control"),
        ("Mine-v0", ("a",), "at least two different names"),
        ("Mine-v0", ("a", "a"), "at least two different names"),
        ("Mine-v0", ("a", "b+c"), "names without '\\+'"),
        ("Mine-v0", "speed", "got speed"),
    ],
)
def test_objectives_that_cannot_be_named_are_refused(domain: str, objectives: tuple[str, ...], message: str):
    with pytest.raises(ValueError, match=message):
        with_objectives(domain, objectives)


def test_the_name_of_the_code_and_the_factory_survive_the_objectives():
    domain = f"{HERE}:Scalar+far+effort"
    assert f"{HERE!r}" in str(code_of(domain))
    assert isinstance(pickle.loads(pickle.dumps(resolve(domain)))().unwrapped, Scalar)


def test_an_agent_of_a_function_has_the_named_objectives():
    with pytest.warns(UserWarning, match="not saved"):
        agent = qpensieve.QPensieve(lambda: Scalar(), seeds=1, preset="quick", objectives=("far", "effort"))
    with agent:
        assert agent.session.spec.objectives == ("far", "effort")
        assert agent.returns([[1.0, 0.0]], episodes=1).shape[-1] == 2


def test_mujocos_notices_neither_reach_the_terminal_nor_a_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
):
    monkeypatch.chdir(tmp_path)
    spec = spec_of("HalfCheetah-v5+reward_forward+reward_ctrl")
    assert spec.objectives == ("reward_forward", "reward_ctrl")
    assert "WARNING" not in "".join(capfd.readouterr())
    assert [*tmp_path.iterdir()] == []
