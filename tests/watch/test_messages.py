import pytest

from qpensieve.watch.messages import Command, RefusedError, preference, read, sequence_of

WRONG = {
    "": "JSON",
    "[" * 4000: "JSON",
    "[]": "object",
    '{"shout": 1}': "unknown field 'shout'",
    '{"w": [NaN, 1]}': "finite",
    '{"w": [-0.1, 1.1]}': "from 0 to 1",
    '{"w": [0.5, 0.4]}': "sum to 1",
    '{"w": [true, false]}': "from 0 to 1",
    '{"seq": -1}': "seq",
    '{"seq": 16777216}': "seq",
    '{"seq": true}': "seq",
    '{"side": 2}': "side",
    '{"speed": 100}': "speed",
    '{"step": 0}': "step",
    '{"paused": 1}': "paused",
    '{"reset": false}': "reset",
    '{"at": "latest"}': "at",
    '{"open": -1}': "open",
}


@pytest.mark.parametrize("text", WRONG)
def test_what_no_page_says_is_refused_with_a_reason(text: str):
    with pytest.raises(RefusedError, match=WRONG[text]):
        read(text)


def test_fields_become_a_command():
    text = '{"w": [0.25, 0.75], "seq": 3, "side": 1, "reset": "same", "at": "newest", "speed": 2}'
    assert read(text) == Command(side=1, seq=3, w=(0.25, 0.75), reset="same", at="newest", speed=2.0)
    assert read('{"reset": true}') == Command(reset="next")


def test_a_preference_is_divided_by_its_sum_only_where_it_is_off():
    exact = (0.7, 0.3)
    assert preference(exact, 2) is exact
    assert sum(preference((0.3335, 0.333, 0.334), 3)) == pytest.approx(1, abs=1e-15)
    with pytest.raises(RefusedError, match="3 numbers"):
        preference(exact, 3)


def test_a_refused_message_is_answered_by_its_number_where_it_has_one():
    assert sequence_of('{"seq": 7, "side": 1, "w": 3}') == (1, 7)
    assert sequence_of('{"seq": "7", "side": 9}') == (0, None)
    assert sequence_of("[" * 4000) == (0, None)
