"""Tools that pages rest on: what they count, of logs whose answer is known."""

import json
import sys
import tarfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from qpensieve.algos import mosac
from qpensieve.learning.nets import Critic, GaussianActor

TOOLS = Path(__file__).parents[1] / "tools"


@pytest.fixture
def tool(monkeypatch: pytest.MonkeyPatch) -> Callable[[str], Any]:
    def load(name: str) -> Any:
        monkeypatch.syspath_prepend(str(TOOLS))
        monkeypatch.delitem(sys.modules, name, raising=False)
        return __import__(name)

    return load


def test_the_keywords_of_agents_are_all_settings(tool: Callable[[str], Any]):
    keywords = tool("keywords")
    assert keywords.FILE.read_text() == keywords.render(), "run python tools/keywords.py"


def test_the_portability_table_names_tests_that_exist(tool: Callable[[str], Any]):
    portability = tool("portability")
    assert [path for path in (*portability.NUMPY, *portability.COMPUTING) if not (TOOLS.parent / path).exists()] == []


def _write_log(folder: Path, collapsed: range) -> None:
    """A run of 200 rows on Walker2d, two seeds; bin 5 of the second collapses in some rows, and its UT after them."""
    sac = {"target_entropy": -1.0, "target_entropy_end": None}
    config = {"domain": "Walker2d", "algo": "qpensieve", "seeds": 2, "first_seed": 3, "agent": {"sac": sac}}
    (folder / "config.json").write_text(json.dumps(config))
    rows = []
    for i in range(1, 201):
        is_on = i in collapsed
        row: dict[str, Any] = {"event": "train", "step": 1000 * i, "critic_loss": [10.0, 50.0 if is_on else 10.0]}
        row |= {"entropy": [-6.0, -6.5 if is_on else -6.0], "q": [100.0, 100.0], "temperature": [0.1, 0.1]}
        row |= {f"entropy_bin_{number}": [-6.0, -6.0] for number in range(1, 5)}
        rows.append(row | {"entropy_bin_5": [-6.0, -13.0 if is_on else -6.0]})
        if i % 50 == 0:
            ut = 40.0 if collapsed and i > collapsed.start else 100.0
            rows.append({"event": "evaluation", "step": 1000 * i, "ut_short": [100.0, ut]})
    (folder / "metrics.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))


@pytest.mark.parametrize(
    ("options", "counts"),
    [((), (1, 1, 4)), (("--until", "119000"), (0, 0, 2)), (("--after", "150000"), (0, 0, 1))],
)
def test_bursts_are_counted_in_their_window(
    tmp_path: Path, tool: Any, monkeypatch: pytest.MonkeyPatch, options: Any, counts: tuple[int, int, int]
):
    """Counts: onsets, losses of UT, evaluations."""
    onsets, losses, evaluations = counts
    _write_log(tmp_path, range(120, 125))
    out = tmp_path / "out.json"
    monkeypatch.setattr(sys, "argv", ["bursts.py", str(tmp_path), "--json", str(out), *options])
    tool("bursts").main()
    (found,) = json.loads(out.read_text())
    assert found["onsets"]["events"] == onsets
    assert found["bin events"]["events"] == onsets
    assert found["alarms"]["events"] == 0  # the mean of the entropy hides it
    assert found["losses of UT"]["events"] == losses
    assert found["evaluations"] == evaluations
    if onsets:
        assert found["bin events"]["events of bins"] == [
            {"seed": 4, "bin": 5, "onset": 120_000, "last": 124_000, "entropy": -13.0}
        ]
        assert found["losses of UT"]["steps"] == {"4": [150_000]}
        assert found["time in alarm"] == pytest.approx(5 / 360, abs=1e-5)


def test_onsets_are_counted_from_the_end_of_what_came_before(tool: Any):
    event = lambda seed, onset, last: {"seed": seed, "onset": onset, "last": last}
    long, within, near, far = (event(3, *ends) for ends in ((100, 190), (150, 160), (205, 210), (240, 240)))
    assert tool("bursts").joined([far, near, within, long, event(4, 150, 150)], 20) == [(3, 100), (3, 240), (4, 150)]


def test_bursts_count_agents_of_single_preferences_and_the_ut_of_their_seeds(tmp_path: Path, tool: Any):
    """Two agents for each seed: columns of the log are agents, those of UT are seeds."""
    bursts = tool("bursts")
    _write_log(tmp_path, range(120, 125))
    lines = [json.loads(line) for line in (tmp_path / "metrics.jsonl").read_text().splitlines()]
    twice = lambda row: {name: value * 2 if isinstance(value, list) else value for name, value in row.items()}
    agents = [twice(row) if row["event"] == "train" else row for row in lines]
    for row in agents:
        if row["event"] == "train":  # seed by seed: 0, 0, 1, 1; the last has the collapse
            row["entropy"][1], row["entropy"][3] = -6.0, -9.0 if row["step"] in range(120_000, 125_000) else -6.0
    (tmp_path / "metrics.jsonl").write_text("".join(json.dumps(row) + "\n" for row in agents))
    given = bursts.argparse.Namespace(after=20_000, until=float("inf"), depth=0.15, merge=20_000)
    found = bursts.study(tmp_path, given)
    (alarm,) = found["events"]
    assert (alarm["seed"], alarm["UT before"], alarm["UT after"]) == (4, 100.0, 40.0)
    assert found["losses of UT"]["steps"] == {4: [150_000]}
    assert found["million seed-steps"] == pytest.approx(4 * 0.18)


def test_bursts_say_where_there_is_nothing_to_count(tmp_path: Path, tool: Any, monkeypatch: pytest.MonkeyPatch):
    _write_log(tmp_path, range(0))
    monkeypatch.setattr(sys, "argv", ["bursts.py", str(tmp_path), "--until", "10"])
    with pytest.raises(SystemExit, match="has no row of training up to step 10"):
        tool("bursts").main()


def test_a_plan_of_a_hold_is_runs_with_words_and_environment_of_their_own(tmp_path: Path, tool: Any):
    hold, plan = tool("hold"), tmp_path / "plan.txt"
    plan.write_text("# two arms\na X=1 until=500 DST2d --name-of 'a b'\n\nb DST2d --discount 0.995  # longer\n")
    first, second = hold.read_plan(plan, ["--kernels", "off"])
    assert (first.name, first.until, second.name, second.until) == ("a", 500, "b", 0)
    assert first.environment == {"X": "1"}
    assert first.words[:6] == ["train", "DST2d", "--name-of", "a b", "--kernels", "off"]
    assert second.words[-2:] == ["--name", "b"]
    plan.write_text("a DST2d\na Hopper2d\n")
    with pytest.raises(SystemExit, match="must differ, got a"):
        hold.read_plan(plan, [])


def test_promises_read_networks_as_the_package_does(tmp_path: Path, tool: Any):
    rng, keys = np.random.default_rng(0), jax.random.split(jax.random.key(0), 2)
    actor = GaussianActor(3, 2, 2, 8, key=keys[0])
    critic = jax.vmap(lambda key: Critic(3, 2, 2, 8, key=key))(jax.random.split(keys[1]))
    named = {".sac.actor.net": actor.net, ".sac.critic.net": critic.net}
    arrays: dict[str, Any] = {
        f"{name}.{layer}.{part}": np.asarray(getattr(getattr(net, layer), part))[None]
        for name, net in named.items()
        for layer in ("first", "second", "last")
        for part in ("weight", "bias")
    }
    np.savez(tmp_path / "run-step_000000400.npz", **arrays)
    step, (networks,) = tool("promises").load(tmp_path / "run-step_000000400.npz")
    assert step == 400
    s, noise, a = (rng.normal(size=(5, size)).astype(np.float32) for size in (3, 2, 2))
    lam, asked = rng.dirichlet((1, 1), (2, 5)).astype(np.float32)
    sampled = mosac.sample_actions(actor, *map(jnp.asarray, (s, lam, noise)))
    for found, expected in zip(networks.act(s, lam, noise), sampled, strict=True):
        np.testing.assert_allclose(found, expected, rtol=1e-4, atol=1e-5)
    expected = (np.asarray(mosac.twin_values(critic, *map(jnp.asarray, (s, a, asked)))) * lam).sum(axis=2).min(axis=0)
    np.testing.assert_allclose(networks.promise(s, a, asked, lam), expected, rtol=1e-4, atol=1e-5)


PROGRAM = """
import json, pathlib, signal, sys, time
signal.signal(signal.SIGINT, signal.default_int_handler)  # a shell in the background lets children ignore it
folder = pathlib.Path(sys.argv[sys.argv.index("--out") + 1]) / sys.argv[sys.argv.index("--name") + 1]
folder.mkdir(parents=True)
(folder / "config.json").write_text(json.dumps({"seeds": 1}))
(folder / "curves.png").touch()
rows = [{"step": 500}, {"step": 500, "ut_short": [1.0]}]
for row in rows[:1] if "--half" in sys.argv else rows:
    with (folder / "metrics.jsonl").open("a") as file:
        file.write(json.dumps(row) + "\\n")
if "--bad" in sys.argv:
    sys.exit("a sentence")
try:
    time.sleep(60)
except KeyboardInterrupt:
    sys.exit(130)
"""


def test_a_hold_ends_runs_once_their_evaluation_is_complete(tmp_path: Path, tool: Any, monkeypatch: Any, capsys: Any):
    monkeypatch.setenv("Q", str(tmp_path))
    monkeypatch.setenv("OUT", str(tmp_path / "out"))
    hold = tool("hold")
    monkeypatch.setattr(hold, "COMMAND", [sys.executable, "-c", PROGRAM])
    for folder in ("runs", "out"):
        (tmp_path / folder).mkdir()
    words = {"done": ["until=500", "DST2d"], "half": ["until=500", "DST2d", "--half"], "bad": ["DST2d", "--bad"]}
    runs = [hold.Run(name, given, []) for name, given in words.items()]
    done, half, bad = runs
    hold.tend([done, bad], 1, time.monotonic() + 60)
    hold.tend([half], 1, time.monotonic() + 2)
    try:
        assert (done.state, half.state, bad.state) == ("done", "runs", "failed (1)")
        assert "failed (1)" in capsys.readouterr().out
        later = [hold.Run(name, given, []) for name, given in words.items()]
        assert [run.state for run in later] == [run.state for run in runs]
        hold.bring()
        with tarfile.open(tmp_path / "out" / "runs.tgz") as tar:
            assert "runs/done/metrics.jsonl" in tar.getnames()
            assert not any(name.endswith(".png") for name in tar.getnames())
    finally:
        half.stop()
        for run in runs:
            run.process.wait(60)


def test_a_hold_brings_stored_critics_of_five_seeds(tmp_path: Path, tool: Any, monkeypatch: Any):
    monkeypatch.setenv("Q", str(tmp_path))
    monkeypatch.setenv("OUT", str(tmp_path))
    arrays: dict[str, Any] = {
        name: np.zeros((10, 2)) for name in (".sac.actor.w", ".sac.target.w", ".snapshots.critics.w")
    }
    for name in ("a", "b"):
        (tmp_path / "runs" / name / "parameters").mkdir(parents=True)
        np.savez(tmp_path / "runs" / name / "parameters" / "step_000000400.npz", **arrays)
    tool("hold").bring_networks(("b",))
    with tarfile.open(tmp_path / "networks-0.tar") as tar:
        assert tar.getnames() == ["b-step_000000400.npz", "a-step_000000400.npz"]
    shapes = lambda name: {key: len(value) for key, value in np.load(tmp_path / f"{name}-step_000000400.npz").items()}
    assert shapes("b") == {".sac.actor.w": 5, ".snapshots.critics.w": 5}
    assert shapes("a") == {".sac.actor.w": 10}
