"""Benchmarks: the command, rows whose figures hang together, and counted work."""

import json
from dataclasses import replace
from itertools import pairwise
from pathlib import Path

import gymnasium
import numpy as np
import pytest

from benchmarks import __main__ as command
from benchmarks import blocks, collect, methods, train, update
from qpensieve.algos.mosac import SacConfig
from qpensieve.algos.qpensieve import QPensieveConfig
from qpensieve.population.ppo import PpoConfig
from qpensieve.types import EnvSpec


@pytest.mark.lander
def test_prints_a_table_and_writes_json(capsys: pytest.CaptureFixture[str], tmp_path: Path):
    path = tmp_path / "figures" / "lanes.json"
    sizes = ["--lanes", "4", "--steps", "5", "--repeats", "2", "--domains", "DST2d", "Hopper2d", "LunarLander4d"]
    command.main(["lanes", *sizes, "--json", str(path)])
    assert "share" in capsys.readouterr().out
    content = json.loads(path.read_text())
    assert [row["domain"] for row in content["rows"]] == ["DST2d", "Hopper2d", "LunarLander4d"]
    assert content["rows"][0]["bare physics allows"] is None
    assert content["rows"][1]["ratio"] > 0
    assert content["provenance"]["packages"]["mujoco"]
    assert (content["benchmark"], content["settings"]["lanes"]) == ("lanes", 4)


@pytest.mark.parametrize("words", [["lane"], ["lanes", "--lans", "4"], ["collect", "--domains", "Ant2d"]])
def test_refuses_what_there_is_not(words: list[str]):
    with pytest.raises(SystemExit) as end:
        command.main(words)
    assert end.value.code


def test_lanes_names_what_to_install(monkeypatch: pytest.MonkeyPatch):
    def missing(*_: object, **__: object) -> None:
        raise gymnasium.error.DependencyNotInstalled("imageio")

    monkeypatch.setattr(gymnasium, "make", missing)
    with pytest.raises(SystemExit, match=r"Hopper-v4.*imageio.*pip install 'qpensieve\[dev\]'"):
        command.main(["lanes", "--domains", "Hopper2d"])


def test_a_block_is_timed_in_one_process_and_by_workers():
    said: list[str] = []
    settings = blocks.Settings(seeds=2, workers=2, block=10, repeats=2, domains=("DST2d", "Hopper2d"))
    dst, hopper = blocks.run(settings, said.append)
    assert said == ["blocks: DST2d", "blocks: Hopper2d"]
    assert (dst["physics us"], dst["around physics"]) == (None, None)
    for row in (dst, hopper):
        assert row["workers"] == 2
        assert row["seed-steps/s"] == pytest.approx(2e6 / min(row["block us"], row["workers us"]))
    assert hopper["around physics"] == pytest.approx(1 - hopper["physics us"] / hopper["lanes us"])


SMALL = PpoConfig(hidden=8, num_lanes=3, rollout_steps=8, epochs=1, minibatches=2)
COLUMNS = ["domain", "loop steps/s", "lanes steps/s", "ratio", "wanted", "update ms", "ms per member", "collecting"]


def make_flat(members: int, spread: float = 0.3) -> np.ndarray:
    """Parameters of policies for DST2d, standard deviations included."""
    sizes = [(rows + 1) * columns for rows, columns in pairwise((2, SMALL.hidden, SMALL.hidden, 2))]
    return np.random.default_rng(0).normal(0, spread, (members, sum(sizes) + 2)).astype(np.float32)


def test_the_plain_loop_collects_what_the_collector_does_across_episode_ends():
    cfg = replace(SMALL, rollout_steps=120)  # an episode has 50 steps at most
    flat = make_flat(2)
    loop, collector = collect.Loop("DST2d", flat, cfg), collect.make_collector("DST2d", flat, cfg)
    for iteration in range(2):  # the second begins in the middle of episodes
        ours, theirs = loop.collect(iteration), collector(iteration)
        assert len(np.unique(ours["action"][:, 0])) == 2 * 3 * 2  # every environment has noise of its own
        assert theirs.terminated.any() or theirs.truncated.any()
        for name, value in ours.items():
            assert value.shape[:3] == (2, 120, 3), name
            np.testing.assert_allclose(value, getattr(theirs, name), rtol=1e-4, atol=1e-4, err_msg=name)


class TestRun:
    @pytest.fixture(autouse=True)
    def _small(self, monkeypatch: pytest.MonkeyPatch):
        monkeypatch.setattr(collect, "PAPER", SMALL)

    @pytest.mark.slow
    def test_gives_a_row_per_domain_whose_figures_hang_together(self):
        said: list[str] = []
        rows = collect.run(collect.Settings(members=2, steps=5, repeats=1), said.append)
        assert [row["domain"] for row in rows] == ["Hopper2d", "DST2d"]
        assert [row["wanted"] for row in rows] == [1.5, 5.0]
        for row in rows:
            assert list(row) == COLUMNS
            assert all(np.isfinite(row[name]) and row[name] > 0 for name in COLUMNS[1:])
            assert row["ratio"] == pytest.approx(row["lanes steps/s"] / row["loop steps/s"])
            assert row["ms per member"] == pytest.approx(row["update ms"] / 2)
            seconds = 8 * 3 * 2 / row["lanes steps/s"]
            assert row["collecting"] == pytest.approx(seconds / (seconds + row["update ms"] / 1e3))
        assert said == ["collect: Hopper2d", "collect: Hopper2d, update", "collect: DST2d", "collect: DST2d, update"]


@pytest.mark.slow
def test_every_method_has_a_row_beside_mosacs(monkeypatch: pytest.MonkeyPatch):
    plain = methods._config
    small = {"hidden": 8, "batch_size": 8}
    monkeypatch.setattr(methods, "_config", lambda domain, algo: methods.override(plain(domain, algo), small))
    monkeypatch.setattr(methods, "CAPACITY", 200)
    said: list[str] = []
    rows = methods.run(methods.Settings(algos=("sac", "cnder"), seeds=(2,), block=2, repeats=1), said.append)
    assert [row["method"] for row in rows] == ["mosac", "sac", "cnder"]
    assert rows[0]["times MO-SAC's"] == 1.0
    assert all(row["agent-updates/s"] == pytest.approx(2e3 / row["ms/update"]) for row in rows)
    assert any("compiling cnder for 2 agent(s)" in line for line in said)


@pytest.mark.slow
def test_the_rate_is_seeds_times_steps_over_the_seconds():
    said: list[str] = []
    (row,) = train.run(train.Settings("DST2d", "mosac", seeds=2, steps=100), said.append)
    assert row["seed-steps/s"] == pytest.approx(2 * 100 / row["seconds"])
    assert 0 < row["collecting"] < 1
    assert (row["domain"], row["algo"], row["seeds"]) == ("DST2d", "mosac", 2)
    assert "train: measuring" in said


SPEC = EnvSpec("tiny", 3, 1, ("a", "b"), None, None)


def product(rows: int, inner: int, columns: int) -> int:
    return 2 * rows * inner * columns


def test_the_work_of_an_update_is_that_of_its_matrix_products():
    cfg = QPensieveConfig(sac=SacConfig(hidden=8, batch_size=4), num_preferences=2, num_snapshots=1)
    actor = product(4, 3 + 2, 8) + product(4, 8, 8) + product(4, 8, 2)
    critic = product(4, 3 + 1 + 2, 8) + product(4, 8, 8) + product(4, 8, 2)
    target = actor + 2 * critic
    critics = 2 * 3 * critic  # twins; backwards costs twice as much as forwards
    # Scoring: (1 snapshot + current) x twins; the first layer of (s, a) is shared by the two preferences.
    score = 4 * (product(4, 3 + 1, 8) + 2 * (product(4, 8, 8) + product(4, 8, 1)))
    # The winner's gradient by the action: back through one second layer each, then to the action.
    winner = 4 * product(4, 8, 8) + product(4, 8, 1)
    assert update.count_flop(cfg, SPEC) == target + critics + 3 * actor + score + winner


@pytest.mark.slow
def test_rows_hold_ratios_of_one_run():
    said: list[str] = []
    settings = update.Settings(domain="DST2d", seeds=(1,), block=2, repeats=3)
    rows = update.run(settings, said.append)
    assert [row["method"] for row in rows] == ["mosac", "qpensieve", "qpensieve plain"]
    mosac, fast, plain = rows
    assert all(row["ms/update"] > 0 and row["seeds"] == 1 for row in rows)
    assert mosac["GFLOP"] < fast["GFLOP"]
    assert mosac["times faster than plain"] is None
    assert plain["times faster than plain"] == pytest.approx(1.0)
    assert plain["times floor"] is None
    np.testing.assert_allclose(fast["times floor"], fast["ms/update"] / fast["floor ms"])
    np.testing.assert_allclose(fast["seed-updates/s"], 1e3 / fast["ms/update"])
    assert said
