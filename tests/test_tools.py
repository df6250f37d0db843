"""Tools that pages rest on: what they count, of logs whose answer is known."""

import json
import sys
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
