"""Tests of the table of reference points."""

import dataclasses

import numpy as np
import pytest

from qpensieve.metrics import REFERENCE_VERSION, REFERENCES, check_reference, reference_point

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


@pytest.mark.parametrize("domain", sorted(VERSION_1))
def test_reference_has_one_entry_per_objective_of_the_name_and_a_source(domain):
    point = reference_point(domain)
    assert point.dtype == np.float64
    assert point.tolist() == VERSION_1[domain]
    assert domain.endswith(f"{len(point)}d") or domain == "DeepSeaTreasure"
    assert REFERENCES[domain].source


def test_references_without_a_source_in_the_paper_are_not_comparable_with_the_paper():
    guessed = {domain for domain, row in REFERENCES.items() if not row.comparable}
    assert guessed == {"DST2d", "Hopper3d", "Hopper5d", "Ant3d", "DeepSeaTreasure"}


def test_table_cannot_be_changed():
    reference_point("DST2d")[0] = 7
    assert reference_point("DST2d").tolist() == [0, -50]
    with pytest.raises(TypeError):
        REFERENCES["DST2d"] = REFERENCES["Ant2d"]  # pyright: ignore[reportIndexIssue]
    with pytest.raises(dataclasses.FrozenInstanceError):
        REFERENCES["DST2d"].comparable = True  # pyright: ignore[reportAttributeAccessIssue]


@pytest.mark.parametrize(
    ("domain", "hint"), [("hopper2d", "Hopper2d or "), ("Halfcheeta2d", r"HalfCheetah2d\?"), ("DST2", r"DST2d\?")]
)
def test_an_unknown_domain_is_answered_with_the_nearest_names(domain, hint):
    with pytest.raises(ValueError, match=f"no reference point for domain '{domain}'; did you mean {hint}"):
        reference_point(domain)


def test_a_domain_near_to_none_is_answered_with_all_names():
    with pytest.raises(ValueError, match=r"known: DST2d, LunarLander4d, .*Walker2d, DeepSeaTreasure"):
        reference_point("zzzzzz")


def test_a_right_reference_comes_back_as_float64():
    point = check_reference([0, -50], 2)
    assert point.dtype == np.float64
    assert point.tolist() == [0, -50]


@pytest.mark.parametrize(
    ("reference", "message"),
    [
        ([0, 0, 0], r"reference must have shape \(2,\), one entry per objective; got \(3,\)"),
        ([[0, 0]], r"reference must have shape \(2,\), one entry per objective; got \(1, 2\)"),
        ([0, float("-inf")], "reference must be finite, entry 1 is -inf"),
    ],
)
def test_a_wrong_reference_is_refused_with_what_is_wrong(reference, message):
    with pytest.raises(ValueError, match=message):
        check_reference(reference, 2)
