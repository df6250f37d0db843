"""Rules beside fields: what they refuse, and that every part of every method's settings is reached."""

from dataclasses import dataclass, field
from typing import Annotated, Any, Literal

import numpy as np
import pytest

from qpensieve import settings
from qpensieve.algos.mosac import SacConfig
from qpensieve.algos.qpensieve import QPensieveConfig
from qpensieve.methods import METHODS
from qpensieve.settings import (
    GUARDS,
    NOT_NEGATIVE,
    OPEN_SHARE,
    STEP_SHARE,
    WHOLE_BLOCKS,
    Rule,
    above,
    at_least,
    build,
    change,
    fit,
    from_to,
)


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


def test_every_broken_rule_is_a_sentence_inner_parts_included():
    assert settings.problems(Outer()) == []
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


def test_marks_and_fields_are_found_in_inner_parts_too():
    assert settings.marked(Outer(period=7), WHOLE_BLOCKS) == {"period": 7}
    assert settings.marked(METHODS["hybrid-sac"].config(), WHOLE_BLOCKS) == {"push_period": 1000}
    assert settings.flat(Outer()) == {"num": 2, "period": None, "rate": 1.0, "low": 0, "high": 1}
    assert change(Outer(), "rate", 2.0) == Outer(inner=Inner(rate=2.0))
    with pytest.raises(ValueError, match="unknown setting 'ratte'; did you mean rate"):
        change(Outer(), "ratte", 2.0)


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
    changed = change(change(change(Outer(), "num", 1e6), "period", 50.0), "low", -3.0)
    assert changed == Outer(num=1_000_000, period=50, inner=Inner(low=-3))
    assert [type(value) for value in (changed.num, changed.period, changed.inner.low)] == [int, int, int]
    built = build(Outer, {"num": 4.0, "inner": {"rate": 3.0, "low": 1.0}})
    assert [type(value) for value in (built.num, built.inner.low, built.inner.rate)] == [int, int, float]
    assert [fit(Outer(), *pair) for pair in (("num", 1.5), ("rate", 2.0), ("other", 2.0))] == [1.5, 2.0, 2.0]


@dataclass(frozen=True)
class Named:
    name: str | None = None


def test_the_word_none_is_none_where_that_may_be():
    """TOML cannot say it otherwise, and tables of the report print it so."""
    assert change(Outer(period=3), "period", "None") == build(Outer, {"period": "none"}) == Outer(period=None)
    assert (fit(Outer(), "num", "none"), fit(Outer(), "period", "nothing")) == ("none", "nothing")
    assert fit(Named(), "name", "none") == "none"


class TestSaved:
    """Settings that older versions saved."""

    def test_a_retired_setting_is_left_out_where_it_changed_nothing(self):
        assert build(Outer, {"num": 4, "critic_blocks": 0}) == Outer(num=4)
        with pytest.raises(ValueError, match="unknown field critic_blocks"):
            build(Outer, {"critic_blocks": 2})

    def of_pensieve(self, *off: str) -> dict[str, Any]:
        """All guards on but these."""
        guards = {name: values[0] if name in off else values[1] for name, values in GUARDS.items()}
        own = {name: guards.pop(name) for name in ("max_push_loss", "snapshot_margin")}
        return {"sac": {"hidden": 8, **guards}, "num_snapshots": 4, **own}

    def test_all_guards_on_are_one_switch(self):
        guarded = SacConfig(hidden=8, guards=True)
        assert build(QPensieveConfig, self.of_pensieve()) == QPensieveConfig(guarded, num_snapshots=4)
        assert build(SacConfig, self.of_pensieve()["sac"]) == guarded  # MO-SAC has four
        assert not build(QPensieveConfig, self.of_pensieve(*GUARDS)).sac.guards

    @pytest.mark.parametrize("off", GUARDS)
    def test_a_run_with_some_guards_is_none_of_this_version(self, off: str):
        with pytest.raises(ValueError, match="unknown field"):
            build(QPensieveConfig, self.of_pensieve(off))


@pytest.mark.parametrize(
    ("hint", "right", "wrong", "words"),
    [
        (int, [3, np.int64(3)], [3.0, True, "3", None], "a whole number"),
        (float, [3, 0.5, np.float32(0.5)], [True, "0.5", None], "a number"),
        (bool, [True], [1, "yes"], "true or false"),
        (int | None, [3, None], ["3", 3.5], "a whole number or none"),
        (int | float | None, [3, 0.5, None], ["3"], "a number or none"),
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
