"""The benchmark of blocks on the host."""

import pytest

from benchmarks import blocks


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
