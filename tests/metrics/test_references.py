"""Tests of the table of reference points."""

import pytest

from qpensieve.metrics import REFERENCE_VERSION, REFERENCES, reference_point

VERSION_1 = {
    "DST2d": [0, -50],
    "LunarLander4d": [0, -100, -100, -200],
    "LunarLander5d": [0, -100, -100, -200, -2000],
    "HalfCheetah2d": [0, -4000],
    "Hopper2d": [0, -1000],
    "Hopper3d": [0, 0, -1000],
    "Hopper5d": [0, -500, -500, -500, 0],
    "Ant2d": [0, -3000],
    "Ant3d": [0, 0, -1000],
    "Walker2d": [0, -1000],
    "DeepSeaTreasure": [0, -50],
}


def test_table_of_version_1_is_unchanged():
    assert REFERENCE_VERSION == 1
    assert {domain: list(row.point) for domain, row in REFERENCES.items()} == VERSION_1
    assert {domain: reference_point(domain).tolist() for domain in REFERENCES} == VERSION_1
    assert all(row.source for row in REFERENCES.values())
    guessed = {domain for domain, row in REFERENCES.items() if not row.comparable}
    assert guessed == {"DST2d", "Hopper3d", "Hopper5d", "Ant3d", "DeepSeaTreasure"}


def test_table_cannot_be_changed():
    reference_point("DST2d")[0] = 7
    assert reference_point("DST2d").tolist() == [0, -50]
    with pytest.raises(TypeError):
        REFERENCES["DST2d"] = REFERENCES["Ant2d"]  # pyright: ignore[reportIndexIssue]
