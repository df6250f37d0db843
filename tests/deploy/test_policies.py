"""Exported policies act as the agents they come from, in a process that has NumPy alone."""

import json
import shutil
import subprocess
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import qpensieve
from qpensieve import Agent, cli, deploy
from qpensieve.deploy.qpensieve_policy import load
from qpensieve.errors import UntrustedError, UserError, UserFileError
from qpensieve.methods import METHODS
from qpensieve.population.members import ArchivePredictor, Policies
from qpensieve.records import calibration as calibrations
from qpensieve.records import evaluations
from qpensieve.records.calibration import Calibration
from qpensieve.records.files import write_npz
from qpensieve.records.scores import summarize
from qpensieve.report import pictures
from qpensieve.train.trainer import AgentPredictor
from tests.train.kill_run import NEVER, POPULATION, TINY, words

BOX = "tests.envs.foreign:PointMass"
"""Actions in [-2, 4], observations of shape (2, 2)."""
ROOMS = "tests.envs.foreign:Corridor"
"""Rooms 1 to 5, actions 1 and 2."""
SMALL: dict[str, Any] = {"block": 20, "random_steps": 20, "batch_size": 8, "replay_capacity": 100}
NETS = {"hidden": 8}
OWN = {"preferences": ("0.9,0.1", "0.5,0.5", "0.2,0.8")}
SETTINGS: dict[str, dict[str, Any]] = {
    "qpensieve": {**SMALL, **NETS, "num_snapshots": 2, "push_period": 20, "updates_per_step": 1},
    "mosac": {**SMALL, **NETS},
    "sac": {**SMALL, **NETS, **OWN},
    "hybrid-sac": {**SMALL, **NETS, **OWN, "switch_after": 20, "num_snapshots": 2, "push_period": 20},
    "cnder": {**SMALL, **NETS},
    "envelope": {**SMALL, "bins": 3, "width_factors": (4, 4)},
    "pgmorl": POPULATION,
    "pfa": POPULATION,
}


def make(algo: str, domain: str = BOX) -> Agent:
    """An agent whose parameters are all different from 0, as if it had learned; archives have several policies."""
    agent = Agent(domain, seeds=2, preset="quick", algo=algo, **SETTINGS[algo])
    rng = np.random.default_rng(0)
    shake = lambda flat: (flat + rng.uniform(0.05, 0.2, flat.shape)).astype(np.float32)
    predictor = agent._policies()
    if isinstance(predictor, AgentPredictor):
        agent._newest = replace(predictor, flat=shake(predictor.flat))
    else:
        assert isinstance(predictor, ArchivePredictor)
        archives = [Policies(rng.normal(size=known.objs.shape), shake(known.flat)) for known in predictor._policies]
        agent._newest = ArchivePredictor(archives, predictor._widths)
    return agent


@pytest.fixture(scope="module")
def agents() -> Callable[[str, str], Agent]:
    made: dict[tuple[str, str], Agent] = {}

    def get(algo: str, domain: str = BOX) -> Agent:
        if (algo, domain) not in made:
            made[algo, domain] = make(algo, domain)
        return made[algo, domain]

    return get


def situations(domain: str) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(1)
    obs = rng.integers(1, 6, 40) if domain == ROOMS else rng.normal(0, 3, (40, 2) if domain == "DST2d" else (40, 2, 2))
    return obs, rng.dirichlet([1, 1], 40)


CASES = [*((algo, BOX) for algo in METHODS), ("envelope", ROOMS), ("qpensieve", "DST2d")]


@pytest.mark.parametrize(("algo", "domain"), CASES)
class TestEveryMethod:
    def test_an_exported_policy_acts_as_predict_does(self, algo: str, domain: str, agents: Any, tmp_path: Path):
        agent, (obs, lam) = agents(algo, domain), situations(domain)
        for seed in (0, 1):
            policy = load(agent.export_policy(tmp_path / "policy.npz", seed))
            expected = agent.predict(obs, lam, seed)
            actions = policy.act(obs, lam)
            assert (actions.shape, actions.dtype) == (expected.shape, expected.dtype)
            np.testing.assert_allclose(actions, expected, rtol=2e-6, atol=2e-6)
            assert len(np.unique(expected.round(3), axis=0)) > 1  # else any constant would pass
            one = policy.act(obs[3], lam[3])
            assert np.shape(one) == expected[3].shape
            np.testing.assert_allclose(one, expected[3], rtol=2e-6, atol=2e-6)
        assert policy.objectives == list(agent.session.spec.objectives)

    def test_an_exported_policy_samples_as_predict_does(self, algo: str, domain: str, agents: Any, tmp_path: Path):
        agent, (obs, lam) = agents(algo, domain), situations(domain)
        policy = load(agent.export_policy(tmp_path / "policy.npz"))
        one, other = np.random.default_rng(5), np.random.default_rng(5)
        drawn = [policy.act(obs[i], lam[i], deterministic=False, rng=one) for i in range(40)]
        expected = [agent.predict(obs[i], lam[i], deterministic=False, generator=other) for i in range(40)]
        np.testing.assert_allclose(drawn, expected, rtol=1e-5, atol=1e-5)
        assert not np.array_equal(np.array(drawn), policy.act(obs, lam))

    def test_an_agent_of_the_file_acts_as_the_agent_it_comes_from(
        self, algo: str, domain: str, agents: Any, tmp_path: Path
    ):
        agent, (obs, lam) = agents(algo, domain), situations(domain)
        loaded = qpensieve.load(agent.export_policy(tmp_path / "policy.npz", seed=1), trust=True)
        assert type(loaded) is Agent or loaded.algo == algo
        np.testing.assert_allclose(loaded.predict(obs, lam), agent.predict(obs, lam, seed=1), rtol=2e-6, atol=2e-6)
        drawn = [
            each.predict(obs[0], lam[0], seed=seed, deterministic=False, generator=np.random.default_rng(5))
            for each, seed in ((loaded, 0), (agent, 1))
        ]
        np.testing.assert_allclose(*drawn, rtol=1e-5, atol=1e-5)


def test_actions_of_a_box_without_axes_are_arrays_too(agents: Any, tmp_path: Path):
    agent, (obs, lam) = agents("mosac", "tests.envs.foreign:OneNumber"), situations(BOX)
    agent.learn(40)  # its environment would warn of others
    policy = load(agent.export_policy(tmp_path / "policy.npz"))
    for action in (agent.predict(obs[0], lam[0]), policy.act(obs[0], lam[0])):
        assert isinstance(action, np.ndarray)
        assert action.shape == ()


WITHOUT = """
import sys
for name in ("jax", "qpensieve", "scipy", "gymnasium", "equinox", "jaxtyping"):
    sys.modules[name] = None
sys.path.insert(0, sys.argv[1])
import json, numpy as np
from qpensieve_policy import load
policy = load(sys.argv[1] + "/policy.npz")
obs, lam = json.loads(sys.argv[2])
print(json.dumps(policy.act(np.array(obs), lam).tolist()))
"""


def test_a_folder_in_place_of_the_file_is_named(agents: Any, tmp_path: Path):
    with pytest.raises(UserFileError, match=r"out must be a file such as policy\.npz"):
        agents("mosac").export_policy(tmp_path)


@pytest.mark.parametrize("algo", ["qpensieve", "pgmorl"])
def test_the_loader_beside_the_file_needs_numpy_alone(algo: str, agents: Any, tmp_path: Path):
    agent, (obs, lam) = agents(algo), situations(BOX)
    agent.export_policy(tmp_path / "policy.npz")
    asked = json.dumps([obs.tolist(), lam.tolist()])
    command = [sys.executable, "-I", "-c", WITHOUT, str(tmp_path), asked]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    np.testing.assert_allclose(json.loads(done.stdout), agent.predict(obs, lam), rtol=2e-6, atol=2e-6)


def test_the_loader_is_short_and_imports_nothing_of_ours():
    lines = deploy.LOADER.read_text().splitlines()
    assert len(lines) < 140
    imports = {line.split()[1] for line in lines if line.startswith(("import ", "from "))}
    assert imports == {"json", "zipfile", "numpy"}


@pytest.fixture(scope="module")
def policy(agents: Any, tmp_path_factory: pytest.TempPathFactory) -> Any:
    return load(agents("mosac").export_policy(tmp_path_factory.mktemp("out") / "policy.npz"))


class TestLoader:
    @pytest.mark.parametrize(
        ("obs", "preference", "message"),
        [
            *((obs, [0.5, 0.5], r"obs must have shape \(2, 2\)") for obs in (np.zeros(3), np.zeros((5, 3)), 1.0)),
            ([[0, 1], [np.nan, 0]], [0.5, 0.5], "obs must be finite; got"),
            *((np.zeros(4), lam, "must be 0 or more and sum to 1") for lam in ([0.5, 0.4], [1.5, -0.5], [np.nan, 1.0])),
            *((np.zeros(4), lam, r"2 numbers \(x, y\)") for lam in (1.0, [0.2, 0.3, 0.5], [[0.5, 0.5]] * 2)),
        ],
    )
    def test_the_loader_refuses_wrong_observations_and_preferences(
        self, obs: Any, preference: Any, message: str, policy: Any
    ):
        with pytest.raises(ValueError, match=message):
            policy.act(obs, preference)

    @pytest.mark.parametrize("room", [0, 6, 2.5, np.inf])
    def test_the_loader_refuses_an_index_out_of_range(self, room: float, agents: Any, tmp_path: Path):
        policy = load(agents("envelope", ROOMS).export_policy(tmp_path / "policy.npz"))
        with pytest.raises(ValueError, match=r"obs must be finite and of these values: \[\[1, 2, 3, 4, 5\]\]; got"):
            policy.act(room, [0.5, 0.5])

    def test_the_loader_refuses_other_files(self, tmp_path: Path):
        path = tmp_path / "x.npz"
        np.savez(path, a=np.zeros(3))
        with pytest.raises(ValueError, match=r"x\.npz must be a file of 'qpensieve export-policy'"):
            load(path)
        np.save(tmp_path / "x.npy", np.zeros(3))
        with pytest.raises(ValueError, match=r"x\.npy must be a file of"):
            load(tmp_path / "x.npy")
        np.savez(path, about=np.array(json.dumps({"format": "qpensieve policy 3"})))
        with pytest.raises(ValueError, match="must be of format 'qpensieve policy 2', got 'qpensieve policy 3'"):
            load(path)
        np.savez(path, about=np.array([{"format": 1}], object))
        with pytest.raises(ValueError, match="allow_pickle"):
            load(path)
        about = json.dumps({"format": "qpensieve policy 2", "arrays": ["weight_0"]})
        np.savez_compressed(path, about=np.array(about), weight_0=np.zeros(100_000))
        with pytest.raises(ValueError, match="must not be compressed"):
            load(path)


class TestAsk:
    ROWS = np.array([[1.0, 0.0], [0.75, 0.25], [0.5, 0.5], [0.0, 1.0]])

    def calibrated(self, agent: Agent, asks: list[list[int]]) -> Agent:
        changed, zeros = np.array(asks), np.zeros((2, 4))
        agent.calibration = Calibration(agent.num_steps, [0, 1], self.ROWS, changed, zeros, 24, np.zeros(2, np.int64))
        return agent

    @pytest.mark.parametrize("seed", [0, 1])
    def test_an_exported_policy_asks_as_the_calibrated_agent(self, seed: int, agents: Any, tmp_path: Path):
        agent, (obs, lam) = self.calibrated(agents("qpensieve"), [[0, 0, 3, 3], [1, 1, 2, 0]]), situations(BOX)
        policy = load(agent.export_policy(tmp_path / "policy.npz", seed))
        for one in lam:
            expected = agent.predict(obs, one, seed, calibrated=True)
            np.testing.assert_allclose(policy.act(obs, policy.ask(one)), expected, rtol=2e-6, atol=2e-6)
        asked = np.array([policy.ask(one) for one in lam])
        assert not np.allclose(asked, lam)  # else ignoring the map would pass

    def test_ask_keeps_a_preference_whose_row_asks_for_itself(self, agents: Any, tmp_path: Path):
        policy = load(self.calibrated(agents("qpensieve"), [[0, 0, 2, 3]] * 2).export_policy(tmp_path / "policy.npz"))
        np.testing.assert_allclose(policy.ask([0.45, 0.55]), [0.45, 0.55])
        np.testing.assert_allclose(policy.ask([0.7, 0.3]), [1.0, 0.0])


class TestCritics:
    @pytest.mark.parametrize("algo", ["qpensieve", "mosac", "cnder"])
    @pytest.mark.parametrize("seed", [0, 1])
    def test_value_is_that_of_the_critic_with_the_smaller_sum(self, algo: str, seed: int, agents: Any, tmp_path: Path):
        agent, (obs, lam) = agents(algo), situations(BOX)
        policy = load(agent.export_policy(tmp_path / "policy.npz", seed, critics=True))
        actions = np.random.default_rng(2).uniform(-2, 4, (40, *policy.about["action_shape"]))
        values = policy.value(obs, actions, lam)
        scaled = (actions.reshape(40, -1) - 1) / 3  # the box is [-2, 4]
        x = np.concatenate([obs.reshape(40, -1), scaled, lam], axis=1)
        named = {name.split("critic.net.")[1]: value[seed] for name, value in agent.session.parameters().items()
                 if "critic.net." in name and "target" not in name and "snapshots" not in name}  # fmt: skip
        for name in ("first", "second", "last"):
            x = x @ named[f"{name}.weight"] + np.expand_dims(named[f"{name}.bias"], -2)
            x = x if name == "last" else np.maximum(x, 0)
        twins = x if x.ndim == 3 else x[None]
        smaller = np.argmin((twins * lam).sum(axis=2), axis=0)
        np.testing.assert_allclose(values, twins[smaller, np.arange(40)], rtol=1e-4, atol=1e-5)
        if len(twins) == 2:
            assert len(np.unique(smaller)) == 2  # else one fixed twin would pass
        np.testing.assert_allclose(policy.value(obs[3], actions[3], lam[3]), values[3], rtol=1e-5, atol=1e-6)

    def test_value_needs_critics(self, policy: Any):
        with pytest.raises(ValueError, match="--critics"):
            policy.value(np.zeros(4), [0.0, 0.0], [0.5, 0.5])

    @pytest.mark.parametrize("algo", ["sac", "hybrid-sac", "envelope", "pgmorl"])
    def test_methods_without_vector_critics_are_refused(self, algo: str, agents: Any, tmp_path: Path):
        with pytest.raises(UserError, match=algo):
            agents(algo).export_policy(tmp_path / "policy.npz", critics=True)
        assert not any(tmp_path.iterdir())


RUN = {**TINY, "checkpoint_seconds": NEVER, "steps": 200, "eval_period": 200, "parameters_period": 100, "first_seed": 3}


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("runs")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(pictures, "draw_pictures", lambda folder: [])
        cli.main(["train", "DST2d", *words(RUN), "--out", str(out), "--name", "ours", "--quiet"])
    return out


class TestCommand:
    OBS, LAM = np.array([[0.0, 0.0], [3.0, 2.5]]), np.array([[0.9, 0.1], [0.3, 0.7]])

    def test_export_policy_takes_the_best_seed_and_says_so(self, trained: Path, tmp_path: Path, capsys):
        out = tmp_path / "deep" / "policy.npz"
        cli.main(["export-policy", str(trained / "ours"), "--out", str(out)])
        said = capsys.readouterr()
        assert said.out.splitlines()[:2] == [str(out), str(out.with_name("qpensieve_policy.py"))]
        table = evaluations.load(trained / "ours" / "evaluations.npz")
        best = int(np.argmax(summarize(table.full_returns[-1], table.full_preferences).ut))
        assert f"DST2d, qpensieve: seed {3 + best} (the best of 2 by UT; --seed takes another), step 200" in said.err
        expected = qpensieve.load(trained / "ours").predict(self.OBS, self.LAM, seed=best)
        policy = load(out)
        np.testing.assert_allclose(policy.act(self.OBS, self.LAM), expected, atol=2e-6)
        assert (policy.about["seed"], policy.about["step"]) == (3 + best, 200)

    def test_the_policy_file_lies_in_the_run_folder_and_the_printed_hint_runs(
        self, trained: Path, tmp_path: Path, capsys
    ):
        run = shutil.copytree(trained / "ours", tmp_path / "run")
        cli.main(["export-policy", str(run)])
        shown = capsys.readouterr().out.splitlines()
        assert shown[:2] == [str(run / "policy" / name) for name in ("policy.npz", "qpensieve_policy.py")]
        program = ["obs = [0.0, 0.0]", *(line.strip() for line in shown[3:]), "print(action.tolist())"]
        command = [sys.executable, "-c", "\n".join(program)]
        done = subprocess.run(command, capture_output=True, text=True, timeout=60, cwd=run / "policy", check=True)
        best = load(run / "policy" / "policy.npz").act([0.0, 0.0], [0.5, 0.5])
        np.testing.assert_array_equal(json.loads(done.stdout), best)

    def test_export_policy_takes_the_calibration_of_the_same_policies(self, trained: Path, tmp_path: Path):
        run, out = shutil.copytree(trained / "ours", tmp_path / "run"), tmp_path / "policy.npz"
        cli.main(["calibrate", str(run), "--episodes", "24", "--quiet"])
        known = calibrations.load(run / "calibration.json")
        assert known is not None
        for seed, asks in zip((3, 4), known.asks, strict=True):
            cli.main(["export-policy", str(run), "--seed", str(seed), "--out", str(out), "--critics"])
            policy = load(out)
            np.testing.assert_array_equal(policy.arrays["calibration_asks"], asks)
            np.testing.assert_array_equal(policy.arrays["calibration_preferences"], known.preferences)
            assert np.isfinite(policy.value(self.OBS, policy.act(self.OBS, self.LAM), self.LAM)).all()
        cli.main(["export-policy", str(run), "--step", "100", "--out", str(out), "--critics"])
        assert "calibration_asks" not in load(out).arrays  # it is of step 200

    def test_export_policy_takes_the_seed_and_step_that_are_named(self, trained: Path, tmp_path: Path):
        acts = {}
        for seed in (3, 4):
            for step in (100, 200):
                out = tmp_path / f"{seed}-{step}.npz"
                words = ["--seed", str(seed), "--step", str(step), "--no-loader"]
                cli.main(["export-policy", str(trained / "ours"), "--out", str(out), *words])
                acts[seed, step] = load(out).act(self.OBS, self.LAM)
        assert not (tmp_path / "qpensieve_policy.py").exists()
        agent = qpensieve.load(trained / "ours")
        for row, seed in enumerate((3, 4)):
            np.testing.assert_allclose(acts[seed, 200], agent.predict(self.OBS, self.LAM, seed=row), atol=2e-6)
        parameters = dict(np.load(trained / "ours" / "parameters" / "step_000000100.npz"))
        weight = next(value for name, value in parameters.items() if "actor" in name and "last.bias" in name)
        then = load(tmp_path / "4-100.npz").arrays["bias_2"]
        np.testing.assert_array_equal(then[0], weight[1])
        assert not np.allclose(acts[4, 100], acts[4, 200], atol=1e-4)

    @pytest.mark.parametrize(("lost", "words"), [("replay", []), ("replay", ["--step", "200"]), ("checkpoints", [])])
    def test_export_policy_needs_only_policies(self, lost: str, words: list[str], trained: Path, tmp_path: Path):
        run = shutil.copytree(trained / "ours", tmp_path / "run", ignore=shutil.ignore_patterns(lost))
        if lost == "replay":
            shutil.rmtree(run / "parameters")
        for source, out in ((run, "without.npz"), (trained / "ours", "with.npz")):
            cli.main(["export-policy", str(source), "--seed", "4", *words, "--out", str(tmp_path / out)])
        acts = [load(tmp_path / out).act(self.OBS, self.LAM) for out in ("without.npz", "with.npz")]
        np.testing.assert_array_equal(*acts)

    def test_export_policy_takes_a_saved_agent_which_can_be_saved_again(self, trained: Path, tmp_path: Path, capsys):
        with qpensieve.load(trained / "ours") as agent:
            agent.save(tmp_path / "agent")
            cli.main(["export-policy", str(tmp_path / "agent")])
            agent.save(tmp_path / "agent")
            expected = agent.predict(self.OBS, self.LAM)
        assert "seed 3 (the first of 2; --seed takes another), step 200" in capsys.readouterr().err
        policy = load(tmp_path / "agent" / "policy" / "policy.npz")
        np.testing.assert_allclose(policy.act(self.OBS, self.LAM), expected, atol=2e-6)

    def test_export_policy_names_the_choices_where_one_is_wrong(self, trained: Path, tmp_path: Path, fail: Any):
        ours, out = trained / "ours", ["--out", tmp_path / "policy.npz"]
        before = (ours / "config.json").read_text()
        for asked, said in (
            ([trained, *out], f"it holds one (ours): name {ours}"),
            ([tmp_path, *out], "it has no config.json"),
            ([ours, *out, "--seed", "0"], "seed must be one of 3, 4, got 0"),
            ([ours, *out, "--step", "150"], f"step must be one that {ours} kept: 100, 200; got 150"),
            ([ours, "--out", tmp_path], "is a folder"),
            ([ours, "--out", ours / "config.json"], "is part of a run"),
        ):
            assert said in fail("export-policy", *asked)
        assert (ours / "config.json").read_text() == before
        assert not any(tmp_path.iterdir())

    def test_export_policy_leaves_another_file_of_the_loaders_name_alone(self, trained: Path, tmp_path: Path, capsys):
        (tmp_path / "qpensieve_policy.py").write_text("mine")
        cli.main(["export-policy", str(trained / "ours"), "--out", str(tmp_path / "policy.npz")])
        assert "was left as it is" in capsys.readouterr().err
        assert (tmp_path / "qpensieve_policy.py").read_text() == "mine"


# Policy files in place of run folders


def test_an_agent_of_a_file_plays_and_chooses_but_does_not_learn(agents: Any, tmp_path: Path):
    loaded = qpensieve.load(agents("qpensieve", "DST2d").export_policy(tmp_path / "policy.npz"))
    assert loaded.returns([[1.0, 0.0]], episodes=1).shape == (1, 1, 1, 2)
    assert set(loaded.choose("treasure", episodes=1).returns) == {"treasure", "time"}
    for act in (lambda: loaded.learn(100), lambda: loaded.save(tmp_path / "agent"), loaded.critic_error):
        with pytest.raises(UserError, match=r"policy\.npz holds a policy to act with, not what learning needs"):
            act()
    assert not (tmp_path / "agent").exists()


def test_a_file_that_names_code_is_not_opened_without_trust(agents: Any, tmp_path: Path):
    file = agents("mosac").export_policy(tmp_path / "policy.npz")
    with pytest.raises(UntrustedError, match=r"would import the Python module 'tests\.envs\.foreign'"):
        qpensieve.load(file)


def test_a_file_of_something_else_is_named(tmp_path: Path):
    np.savez(tmp_path / "other.npz", about=np.array(json.dumps({"format": "mine"})))
    with pytest.raises(ValueError, match=r"other\.npz as a policy file: its format must be"):
        qpensieve.load(tmp_path / "other.npz")


NOT_A_POLICY: list[tuple[str, Any, str]] = [
    ("format", "qpensieve policy 9", "format must be 'qpensieve policy 2', got 'qpensieve policy 9'"),
    ("domain", None, "'domain' is missing"),
    ("obs_size", None, "obs_size must be 2 in DST2d, got None"),
    ("algo", [], "algo must have type str"),
    ("seed", -1, "seed must be from 0"),
    ("step", "now", "step must have type int"),
    ("head", "linear", "head must be one of squashed gaussian"),
    ("activation", "tanh", "activation must be 'relu'"),
    ("low", [-2.0, -2.0], r"low must be \[-1\.0, -1\.0\] in DST2d"),
    ("num_layers", 2, "weight_1 must have shape"),
    ("num_layers", 10**9, "num_layers must be from 1"),
    ("weight_1", lambda x: x[:, :, 1:], r"weight_1 must have shape \(1, 8, 8\), got \(1, 8, 7\)"),
    ("bias_0", None, "arrays are missing: bias_0"),
    ("bias_0", lambda x: x + 1j, "bias_0 must be floats, got complex"),
    ("bias_0", lambda x: x * np.nan, "bias_0 must be finite"),
    ("preferences", lambda x: x[:0], "preferences must have shape"),
    ("calibration_asks", lambda x: x + 1, "calibration_asks must be from 0 to 1"),
]
"""Entry or array of a policy file, its wrong value (None: it is left out), and a pattern of the message."""


@pytest.mark.parametrize(("name", "value", "message"), NOT_A_POLICY)
def test_a_file_that_does_not_fit_is_refused_before_it_acts(
    agents: Any, tmp_path: Path, name: str, value: Any, message: str
):
    with np.load(agents("qpensieve", "DST2d").export_policy(tmp_path / "policy.npz")) as file:
        arrays = {each: file[each] for each in file.files}
    about = json.loads(str(arrays["about"]))
    arrays |= {"calibration_preferences": np.eye(2), "calibration_asks": np.array([0, 1])}
    about["arrays"] = [each for each in arrays if each != "about"]
    if value is None:
        del (about if name in about else arrays)[name]
    elif name in about:
        about[name] = value
    else:
        arrays[name] = value(arrays[name])
    write_npz(tmp_path / "changed.npz", arrays | {"about": np.array(json.dumps(about))})
    with pytest.raises(UserError, match=rf"changed\.npz.*{message}"):
        qpensieve.load(tmp_path / "changed.npz")
