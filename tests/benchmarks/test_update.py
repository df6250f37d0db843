"""The benchmark of gradient steps: counted work, measured rates, and the rows it gives."""

from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from benchmarks import update
from qpensieve.algos.mosac import SacConfig
from qpensieve.algos.qpensieve import QPensieveConfig
from qpensieve.methods import make_algorithm
from qpensieve.types import EnvSpec

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


def test_the_next_block_is_handed_over_before_the_last_is_fetched(monkeypatch: pytest.MonkeyPatch):
    """As training does while it waits for the device; what is timed is the mean over all updates of all blocks."""
    happened: list[tuple[str, Any]] = []
    learn = lambda state, block: happened.append(("learn", block.rows.shape)) or (state + 1, state, {})
    learner = SimpleNamespace(learn=learn, place=lambda state: state)
    monkeypatch.setattr(update, "make_learner", lambda *_: learner)
    monkeypatch.setattr(update, "spread", lambda learner, _: learner)
    monkeypatch.setattr(update, "_filled", lambda *_: 0)
    monkeypatch.setattr(update, "_with_snapshots", lambda state: state)
    monkeypatch.setattr(update.jax, "device_get", lambda made: happened.append(("fetch", made and made[0])))
    monkeypatch.setattr(update, "seconds", lambda work: work() or 12.0)
    settings = update.Settings(block=2, blocks=3)
    timer = update.make_timer(make_algorithm("mosac", SacConfig(), SPEC), SPEC, 4, settings)
    assert timer() == 12.0 / (2 * 3)
    blocks = [happening for happening in happened if happening[0] == "learn"]
    assert blocks == [("learn", (4, 2, 10))] * 3
    order = [happening[1] for happening in happened if happening[0] == "fetch"]
    assert order == [None, 0, 1, 2]
    assert [happening[0] for happening in happened] == ["learn", "fetch"] * 3 + ["fetch"]


def test_presets_are_timed_in_turns():
    settings = update.Settings(presets=("paper", "robust"), plain=False)  # nothing to compare with
    assert update.timed(settings) == ["mosac", "qpensieve", "mosac robust", "qpensieve robust"]
