"""Rules, checks, changes and reading of settings: frozen dataclasses, whose fields may be settings again (parts).

The rule of a field is in its annotation: `tau: Annotated[float, above(0)] = 0.005`.
"""

import dataclasses
import difflib
import math
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, replace
from decimal import Decimal, InvalidOperation
from functools import cache, partial
from numbers import Integral, Real
from types import NoneType, UnionType
from typing import (
    TYPE_CHECKING,
    Any,
    ClassVar,
    Literal,
    NamedTuple,
    Protocol,
    TypeVar,
    Union,
    cast,
    get_args,
    get_origin,
    get_type_hints,
    runtime_checkable,
)

import numpy as np

from qpensieve.errors import UserError

if TYPE_CHECKING:
    Scheduled = StepsOrShare = int
else:
    Scheduled = int | None
    StepsOrShare = int | float | None
"""Numbers of steps or updates. None, or a share of the run, gets a number from `config.with_schedule`."""

SYNONYMS = {
    "lr": "learning_rate",
    "gamma": "discount",
    "algorithm": "algo",
    "method": "algo",
    "timesteps": "steps",
    "total_timesteps": "steps",
    "max_steps": "steps",
    "num_seeds": "seeds",
    "buffer_size": "replay_capacity",
    "replay_size": "replay_capacity",
    "learning_starts": "random_steps",
    "warmup_steps": "random_steps",
    "num_envs": "num_lanes",
    "threads": "num_threads",
    "output": "out",
    "folder": "out",
    "eval_freq": "eval_period",
    "lam": "preferences",
}
"""Name of a setting in other libraries -> its name here."""


@runtime_checkable
class Settings(Protocol):
    """Any dataclass."""

    __dataclass_fields__: ClassVar[dict[str, dataclasses.Field[object]]]


@runtime_checkable
class Checked(Protocol):
    """Settings with rules about several fields at once."""

    def conflicts(self) -> list[str]:
        """Return one sentence for each field that does not fit the other fields."""
        ...


Part = TypeVar("Part", bound=Settings)


@dataclass(frozen=True)
class Rule:
    """A rule about the value of a field.

    Attributes:
        text: Completes the sentence "tau must be ...".
        holds: Whether a value follows the rule.
    """

    text: str
    holds: Callable[[Any], bool]


def at_least(low: float | int, note: str = "") -> Rule:
    """Return the rule that a value is `low` or more; `note` says why."""
    return Rule(f"at least {low}{note and f' ({note})'}", lambda value: value >= low)


def above(low: float | int) -> Rule:
    """Return the rule that a value is more than `low` and finite."""
    return Rule(f"above {low} and finite", lambda value: low < value < math.inf)


def from_to(low: float | int, high: float | int) -> Rule:
    """Return the rule that a value is from `low` to `high`, both included."""
    return Rule(f"from {low} to {high}", lambda value: low <= value <= high)


OPEN_SHARE = Rule("above 0 and below 1", lambda value: 0 < value < 1)
STEP_SHARE = Rule("above 0 and at most 1", lambda value: 0 < value <= 1)
FINITE = Rule("finite", lambda values: all(math.isfinite(value) for value in values))
"""Every number of a list is finite."""
STEPS_OR_SHARE = Rule(
    "a whole number of 1 or more, or a share below 1", lambda value: 0 < value < 1 or (value >= 1 and value % 1 == 0)
)
NOT_NEGATIVE = Rule("0 or more", lambda value: value >= 0)


@dataclass(frozen=True)
class Mark:
    """A mark of a field, which other modules read."""

    name: str


WHOLE_BLOCKS = Mark("whole blocks")
"""Steps or updates that must be a multiple of the block."""
NEEDS_REPLAY = Mark("needs replay")
"""Only methods with a replay use the setting."""
LENGTH = Mark("length")
"""The setting says how long a run trains."""
SEEDS = Mark("seeds")
"""The setting says which seeds a run trains."""
EVALUATION = Mark("evaluation")
"""The setting says how much an evaluation plays."""
RECORDS = Mark("records")
"""The setting says when a run is evaluated, logged and saved. It changes learning after a resume without replay."""
MACHINE = Mark("machine")
"""The setting says how a run uses its machine. No number depends on it."""


@dataclass(frozen=True)
class Since:
    """Mark of a field that is newer than some saved configurations, whose runs did not behave as its default.

    Attributes:
        before: The value that describes those runs.
    """

    before: object


GUARDS: dict[str, tuple[object, object]] = {
    "max_critic_gradient": (None, 3.0),
    "temperature_per": ("run", "preference"),
    "temperature_gain": (0.0, 3.0),
    "bounded_targets": ("off", "on"),
    "max_push_loss": (None, 2.0),
    "snapshot_margin": (None, 0.05),
}
"""Retired setting of a guard -> its values off and on. Now `guards` switches all. MO-SAC has the first four."""
ANY_VALUE = object()
"""Value of a retired setting that changed numbers by rounding only."""
RETIRED: dict[str, object] = {
    **{"target_steps": 1, "acting_share": 0.0, "preferences_per": "batch"},
    **{"critic_blocks": 0, "critic_hidden": None, "weight_decay": 0.0, "discount_end": None, "over_critics": "max"},
    **{"noise": "white", "policy_loss": "paper", "noise_correlation": 0.8, "target_entropy": -1.0},
    **{"critic_loss": "l1", "trained_on": "current-and-past", "priority_offset": 0.01, "noise_scale": 0.1},
    **{"gae_lambda": 0.95, "clip": 0.2, "value_coefficient": 0.5, "entropy_coefficient": 0.0},
    **{"max_gradient_norm": 0.5, "adam_epsilon": 1e-5},
    **{"gradient_clip": 1.0, "homotopy": "rising", "homotopy_start": 0.01},
    **{"gap_factor": 0.0, "num_candidates": None, "value_low": [], "value_high": []},
    **{name: off for name, (off, _) in GUARDS.items()},
    "reference": [],  # once a setting of populations, now one of the run
    "form": "all",  # of the trial in results/recipe
    "eval_episodes": 2,
    "kernels": ANY_VALUE,  # hand-written kernels for Hopper GPUs: the same updates to rounding
}
"""Retired setting -> the value that describes every run now. docs/studies.md has the results of other values."""


class _Field(NamedTuple):
    """A field: its type, its rules and marks (`metadata`), its default; for a part also the class of its settings."""

    hint: object
    metadata: tuple[object, ...]
    default: object
    part: Callable[..., Settings] | None


@cache
def _fields(kind: Callable[..., object]) -> dict[str, _Field]:
    hints = get_type_hints(kind, include_extras=True)
    plain = get_type_hints(kind)
    marks = lambda name: getattr(hints[name], "__metadata__", ())
    part = lambda kind: kind if isinstance(kind, type) and dataclasses.is_dataclass(kind) else None
    return {
        one.name: _Field(plain[one.name], marks(one.name), one.default, part(one.default_factory))
        for one in dataclasses.fields(cast(type, kind))
    }


def has_type(hint: object, value: object) -> bool:
    """Return whether a value has the type of a setting. A whole number is also a number; True and False are no numbers.

    Every value passes for other types, such as those of parts.
    """
    origin, inner = get_origin(hint), get_args(hint)
    if origin is Literal:
        return any(value == choice and type(value) is type(choice) for choice in inner)
    if origin in (Union, UnionType):
        return any(has_type(one, value) for one in inner)
    if origin is tuple:
        return isinstance(value, tuple) and all(has_type(inner[0], one) for one in value)
    if hint in (int, float):
        numbers = Integral if hint is int else Real
        return isinstance(value, numbers) and not isinstance(value, bool)
    return isinstance(value, hint) if isinstance(hint, type) and hint in (bool, str, NoneType) else True


LONGEST_WHOLE = 18
"""Largest power of ten in a whole number; 1e999999999 would fill the memory."""


def whole(text: str) -> int:
    """Return the whole number in a text, such as 200000, 200_000 or 2e5.

    Raises:
        ValueError: The text is no whole number, or one that is too large for any setting.
    """
    try:
        number = Decimal(text.strip())
        if not number.is_finite() or number.adjusted() > LONGEST_WHOLE or number % 1:
            raise InvalidOperation
    except InvalidOperation:
        raise UserError(f"must be a whole number, such as 200000, 200_000 or 2e5, got {text}") from None
    return int(number)


def number(text: str) -> float:
    """Return the number in a text, such as 0.0003 or 3e-4.

    Raises:
        ValueError: The text is no number.
    """
    try:
        return float(text)
    except ValueError:
        raise UserError(f"must be a number, such as 0.0003 or 3e-4, got {text}") from None


def fit(part: Settings, name: str, value: object) -> Any:
    """Return a value converted to the type of a setting, or the value itself if it cannot be converted.

    Args:
        part: The settings.
        name: Name of a field of the settings or of their parts. Without such a field the value is returned.
        value: The value.
    """
    owner = next((one for one in _parts(part) if name in names(one)), None)
    return value if owner is None else _fitted(_fields(type(owner))[name].hint, value)


def _fitted(hint: object, value: object) -> object:
    """Convert a value of the API, JSON or TOML to the type `hint`. A value that fits no rule stays.

    - Lists become tuples, and whole floats such as 1e6 become integers where `hint` is whole.
    - A list of numbers becomes a text such as 0.9,0.1 where `hint` is text: a preference.
    - Numbers and arrays of NumPy and JAX become Python's own, because a run is saved as JSON.
    - The word `none` becomes None where `hint` has None and no text: TOML and the command line have no None.
    """
    if hasattr(value, "__array__"):
        value = np.asarray(value).tolist()
    if hint is str and isinstance(value, list | tuple) and all(isinstance(one, Real) for one in value):
        return ",".join(repr(float(one)) for one in value)  # a preference
    if isinstance(value, list | tuple):
        inner = get_args(hint)[0] if get_origin(hint) is tuple else hint
        return tuple(_fitted(inner, one) for one in value)
    if isinstance(value, float) and value.is_integer() and not has_type(hint, value) and has_type(hint, int(value)):
        return int(value)
    if isinstance(value, str) and value.lower() == NONE and has_type(hint, None) and not has_type(hint, value):
        return None
    return value


NONE = "none"
"""The word for no value, in small or large letters."""
_WORDS: dict[object, str] = {
    int: "a whole number",
    float: "a number",
    bool: "true or false",
    str: "text",
    NoneType: NONE,
}


def describe_type(hint: object) -> str:
    """Return the type of a setting in words, such as "a whole number"."""
    origin, inner = get_origin(hint), get_args(hint)
    if origin is Literal:
        return " or ".join(map(str, inner))
    if origin in (Union, UnionType):  # whole numbers are numbers
        return " or ".join(describe_type(one) for one in inner if not (one is int and float in inner))
    if origin is tuple:
        return f"a list of {describe_type(inner[0]).removeprefix('a ')}s"
    return _WORDS.get(hint) or getattr(hint, "__name__", str(hint))


def problems(part: Settings) -> list[str]:
    """Return one sentence for every field of the settings and their parts that has a wrong type or breaks a rule.

    Rules and conflicts are checked only if all types are right.
    """
    fields = [(name, getattr(one, name), field) for one in _parts(part) for name, field in _fields(type(one)).items()]
    wrong_types = [
        f"{name} must be {describe_type(field.hint)}, got {value!r}"
        for name, value, field in fields
        if not has_type(field.hint, value)
    ]
    broken_rules = lambda: [
        f"{name} must be {rule.text}, got {value}"
        for name, value, field in fields
        for rule in field.metadata
        if isinstance(rule, Rule) and value is not None and not rule.holds(value)
    ]
    conflicts = lambda: [found for one in _parts(part) if isinstance(one, Checked) for found in one.conflicts()]
    return wrong_types or broken_rules() + conflicts()


def marked(part: Settings, mark: Mark) -> dict[str, object]:
    """Return name -> value of the fields that carry a mark, of the settings and of their parts."""
    fields = ((one, name, field) for one in _parts(part) for name, field in _fields(type(one)).items())
    return {name: getattr(one, name) for one, name, field in fields if mark in field.metadata}


def flat(settings: Settings) -> dict[str, Any]:
    """Return name -> value of the settings and of their parts; no two parts share a name."""
    found: dict[str, Any] = {}
    for name in names(settings):
        value = getattr(settings, name)
        found |= flat(value) if isinstance(value, Settings) else {name: value}
    return found


def flat_saved(saved: Mapping[str, object], kind: Callable[..., Settings] | None = None) -> dict[str, object]:
    """Return name -> value of saved settings and of their parts.

    Args:
        saved: The settings.
        kind: Class of the settings: a mapping where it has no part stays. None: every mapping is a part.

    Raises:
        ValueError: A name appears twice.
    """
    found: dict[str, object] = {}
    for name, value in saved.items():
        part = _fields(kind)[name].part if kind is not None and name in _fields(kind) else None
        own: dict[str, object] = {name: value}
        if isinstance(value, Mapping) and value and (kind is None or part is not None):  # {} is a wrong value
            own = flat_saved(value, part)
        if twice := sorted(found.keys() & own.keys()):
            raise UserError(f"{twice[0]} appears twice in the configuration")
        found |= own
    return found


def names(part: Settings) -> list[str]:
    """List the names of the part's own fields."""
    return [field.name for field in dataclasses.fields(part)]


def change(part: Part, name: str, value: object) -> Part:
    """Return the settings with one field changed; the field may belong to one of their parts.

    Raises:
        ValueError: There is no such field; the message names the nearest ones.
    """
    if name in names(part):
        return replace(part, **{name: fit(part, name, value)})
    for inner in names(part):
        own = getattr(part, inner)
        if isinstance(own, Settings) and any(name in names(one) for one in _parts(own)):
            return replace(part, **{inner: change(own, name, value)})
    known = {*names(part), *flat(part)}
    near = " or ".join(suggestions(name, known))
    hint = f"did you mean {near}?" if near else f"use one of: {', '.join(sorted(known))}"
    raise UserError(f"unknown setting {name!r}; {hint}")


def suggestions(name: str, known: Collection[str]) -> list[str]:
    """Return the settings that an unknown name may mean: its synonym, else settings with a similar name."""
    if (meant := SYNONYMS.get(name)) is not None and meant in known:
        return [meant]
    like = partial(difflib.get_close_matches, name, sorted(known))
    return like(n=1, cutoff=0.85) or like(n=3, cutoff=0.5)  # one letter is wrong: one suggestion


def _parts(part: Settings) -> list[Settings]:
    """List the settings, their parts, and the parts of these."""
    inner = (getattr(part, name) for name in names(part))
    return [part, *(one for value in inner if isinstance(value, Settings) for one in _parts(value))]


def filled(kind: Callable[..., Settings], saved: Mapping[str, object]) -> dict[str, object]:
    """Return name -> value of saved settings and their parts, as this version names them.

    Missing settings are filled in. Retired settings are left out if they have the value of `RETIRED`. If all retired
    guards were on, `guards` is True. Unknown names and values of wrong types stay.
    """
    values = flat_saved(saved, kind)
    guards = list(GUARDS.items()) if "num_snapshots" in values else list(GUARDS.items())[:4]
    if all(values.get(name, off) == on for name, (off, on) in guards):
        values = {name: value for name, value in values.items() if name not in GUARDS} | {"guards": True}
    found = _with_defaults(kind, values)
    is_gone = lambda name: name not in found and name in RETIRED and RETIRED[name] in (values[name], ANY_VALUE)
    return found | {name: value for name, value in values.items() if not is_gone(name)}


def _with_defaults(kind: Callable[..., Settings], values: Mapping[str, object]) -> dict[str, object]:
    found: dict[str, object] = {}
    for name, field in _fields(kind).items():
        since = [mark.before for mark in field.metadata if isinstance(mark, Since)]
        if name in values:
            found[name] = values[name]
        elif field.part is not None:
            found |= _with_defaults(field.part, values)
        elif since or field.default is not dataclasses.MISSING:
            found[name] = since[0] if since else field.default
    return found


def build(kind: Callable[..., Part], saved: Mapping[str, object]) -> Part:
    """Return the settings of this version that describe the same as the saved ones.

    Raises:
        ValueError: A field is unknown, or a part holds no settings; the message names it.
    """
    values = filled(kind, saved)
    built = _take(kind, values)
    if values:
        raise UserError(f"unknown field {min(values)} in the configuration; known: {', '.join(sorted(flat(built)))}")
    return built


def _take(kind: Callable[..., Part], values: dict[str, object]) -> Part:
    """Make settings from `values`, and remove the used values."""
    taken: dict[str, object] = {}
    for name, field in _fields(kind).items():
        if field.part is not None and name not in values:
            taken[name] = _take(field.part, values)
        elif name in values:
            taken[name] = _fitted(field.hint, values.pop(name))
        if field.part is not None and not isinstance(taken[name], Settings):
            raise UserError(f"{name} must hold settings, got {taken[name]!r}")
    return kind(**taken)
