"""Rules beside fields: what they refuse, and that every part of every method's settings is reached."""

from dataclasses import dataclass, field
from typing import Annotated, Any, Literal

import numpy as np
import pytest

from qpensieve import settings
from qpensieve.methods import METHODS
from qpensieve.settings import NOT_NEGATIVE, OPEN_SHARE, STEP_SHARE, WHOLE_BLOCKS, Rule, above, at_least, from_to


@dataclass(frozen=True)
class Inner:
    rate: Annotated[float, above(0)] = 1.0
    low: int = 0
    high: int = 1

    def conflicts(self) -> list[str]:
        return [] if self.low <= self.high else [f"low must not exceed high ({self.high}), got {self.low}"]


@dataclass(frozen=True)
class Outer:
    num: Annotated[int, at_least(2)] = 2
    period: Annotated[int | None, at_least(1), WHOLE_BLOCKS] = None
    inner: Inner = field(default_factory=Inner)


def test_what_is_right_is_not_mentioned():
    assert settings.problems(Outer()) == []


def test_every_broken_rule_is_a_sentence_inner_parts_included():
    broken = Outer(num=1, period=0, inner=Inner(rate=0.0, low=3))
    assert settings.problems(broken) == [
        "num must be at least 2, got 1",
        "period must be at least 1, got 0",
        "rate must be above 0 and finite, got 0.0",
        "low must not exceed high (1), got 3",
    ]


@pytest.mark.parametrize(
    ("rule", "right", "wrong"),
    [
        (at_least(1), [1, 5], [0, -1, float("nan")]),
        (above(0), [1e-9], [0.0, -1.0, float("nan")]),
        (from_to(0, 1), [0.0, 0.5, 1.0], [-0.1, 1.1, float("nan")]),
        (OPEN_SHARE, [0.5], [0.0, 1.0, float("nan")]),
        (STEP_SHARE, [0.5, 1.0], [0.0, 1.1, float("nan")]),
        (NOT_NEGATIVE, [0, 3], [-1, float("nan")]),
    ],
)
def test_the_ends_of_a_range(rule: Rule, right: list[Any], wrong: list[Any]):
    assert all(rule.holds(value) for value in right)
    assert not any(rule.holds(value) for value in wrong)


def test_marks_are_found_in_inner_parts_too():
    assert settings.marked(Outer(period=7), WHOLE_BLOCKS) == {"period": 7}
    pensieve = METHODS["hybrid-sac"].config()
    assert settings.marked(pensieve, WHOLE_BLOCKS) == {"push_period": 1000}


def test_a_field_is_changed_wherever_it_lives():
    assert settings.change(Outer(), "rate", 2.0) == Outer(inner=Inner(rate=2.0))
    with pytest.raises(ValueError, match="unknown setting 'ratte'; did you mean rate"):
        settings.change(Outer(), "ratte", 2.0)


@pytest.mark.parametrize(
    ("text", "number"), [("200000", 200_000), ("200_000", 200_000), ("2e5", 200_000), ("-1.5E1", -15), ("10.0", 10)]
)
def test_whole_numbers_may_be_written_as_people_do(text: str, number: int):
    found = settings.whole(text)
    assert (found, type(found)) == (number, int)


@pytest.mark.parametrize("text", ["1.5e0", "1e-1", "many", "", "inf", "nan", "1e999999999"])
def test_what_is_no_whole_number_is_refused_in_a_sentence(text: str):
    with pytest.raises(ValueError, match=f"must be a whole number, such as 200000, 200_000 or 2e5, got {text}$"):
        settings.whole(text)


def test_whole_floats_become_what_their_setting_is():
    """1e6 is a float in Python, TOML and JSON."""
    changed = settings.change(settings.change(settings.change(Outer(), "num", 1e6), "period", 50.0), "low", -3.0)
    assert changed == Outer(num=1_000_000, period=50, inner=Inner(low=-3))
    assert [type(value) for value in (changed.num, changed.period, changed.inner.low)] == [int, int, int]
    built = settings.build(Outer, {"num": 4.0, "inner": {"rate": 3.0, "low": 1.0}})
    assert [type(value) for value in (built.num, built.inner.low, built.inner.rate)] == [int, int, float]
    assert [settings.fit(Outer(), *pair) for pair in (("num", 1.5), ("rate", 2.0), ("other", 2.0))] == [1.5, 2.0, 2.0]
    assert type(settings.fit(Outer(), "rate", 2.0)) is float


def test_the_word_none_is_none_where_that_may_be():
    """TOML cannot say it otherwise, and tables of ours print it so."""
    assert settings.change(Outer(period=3), "period", "None") == Outer(period=None)
    assert settings.build(Outer, {"period": "none"}) == Outer(period=None)
    assert settings.fit(Outer(), "num", "none") == "none"  # a number it must be
    assert settings.fit(Outer(), "period", "nothing") == "nothing"


def test_a_retired_setting_is_left_out_where_it_changed_nothing():
    assert settings.build(Outer, {"num": 4, "critic_blocks": 0}) == Outer(num=4)
    with pytest.raises(ValueError, match="critic_blocks"):
        settings.build(Outer, {"critic_blocks": 2})

    @dataclass(frozen=True)
    class Named:
        name: str | None = None

    assert settings.fit(Named(), "name", "none") == "none"


@pytest.mark.parametrize("name", METHODS)
def test_the_defaults_of_every_method_are_right(name: str):
    assert settings.problems(METHODS[name].config()) == []


@pytest.mark.parametrize(
    ("hint", "right", "wrong", "words"),
    [
        (int, [3, np.int64(3)], [3.0, True, "3", None], "a whole number"),
        (float, [3, 0.5, np.float32(0.5)], [True, "0.5", None], "a number"),
        (bool, [True], [1, "yes"], "true or false"),
        (int | None, [3, None], ["3", 3.5], "a whole number or none"),
        (Literal["batch", "sample"], ["batch"], ["smaple", None, 1], "batch or sample"),
        (tuple[int, ...], [(), (1, 2)], [[1], (1, "2"), 1], "a list of whole numbers"),
    ],
)
def test_types_are_checked_and_put_into_words(hint: Any, right: list[Any], wrong: list[Any], words: str):
    assert all(settings.has_type(hint, value) for value in right)
    assert not any(settings.has_type(hint, value) for value in wrong)
    assert settings.describe_type(hint) == words


def test_rules_are_not_asked_about_values_of_the_wrong_type():
    """Also of another field: checks that compare fields would fail in ways nobody understands."""
    broken: Any = Outer(inner=Inner(low=3))
    object.__setattr__(broken, "num", "two")
    assert settings.problems(broken) == ["num must be a whole number, got 'two'"]


def test_numbers_of_numpy_become_those_that_json_knows():
    changed = settings.change(Outer(), "num", np.int64(4))
    changed = settings.change(settings.change(changed, "rate", np.float32(0.5)), "period", np.array(50.0))
    assert changed == Outer(4, 50, Inner(0.5))
    flat = settings.flat(changed)
    assert {name: type(flat[name]) for name in ("num", "period", "rate")} == {"num": int, "period": int, "rate": float}
    several = settings.change(METHODS["sac"].config(), "preferences", np.array(["0.5,0.5"]))
    assert several.preferences == ("0.5,0.5",)
    assert type(several.preferences[0]) is str
    for given in ([[0.5, 0.5], (0, 1)], np.array([[0.5, 0.5], [0.0, 1.0]])):
        rows = settings.change(METHODS["sac"].config(), "preferences", given)
        assert rows.preferences == ("0.5,0.5", "0.0,1.0")
