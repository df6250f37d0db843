"""Names of environments: what they stand for, where they are looked for, what to install where they are unknown."""

import pickle
import re
import sys
from collections.abc import Iterator
from functools import partial
from pathlib import Path

import gymnasium
import pytest

from qpensieve.envs import make_lanes, registry
from qpensieve.envs.sources import resolve
from qpensieve.errors import EnvError
from qpensieve.importing import working_folder
from tests.envs import foreign

HERE = "tests.envs.foreign"


@pytest.mark.parametrize("name", [f"{HERE}:make_point_mass", f"{HERE}:QpensieveForeign-v1", "QpensieveForeign-v1"])
def test_a_name_resolves_to_a_factory_that_survives_pickling(name: str):
    factory = pickle.loads(pickle.dumps(resolve(name)))
    assert isinstance(factory().unwrapped, foreign.PointMass)
    assert factory() is not factory()


def test_a_factory_is_itself_and_an_id_without_its_version_means_the_latest():
    assert resolve(foreign.make_point_mass) is foreign.make_point_mass
    with pytest.warns(UserWarning, match="latest versioned environment"):
        assert isinstance(resolve("QpensieveForeign")().unwrapped, foreign.PointMass)


@pytest.mark.parametrize(
    ("source", "message"),
    [
        ("QpensieveForein-v1", "unknown domain 'QpensieveForein-v1'.*did you mean QpensieveForeign-v1"),
        ("no_such_module:make", "cannot import module 'no_such_module' of environment 'no_such_module:make'"),
        (".mine:make", r"cannot import module '\.mine' of environment '\.mine:make'"),
        (":make", "must be written module:factory or .*, got ':make'"),
        (f"{HERE}:", "must be written module:factory"),
        (foreign.PointMass(), "PointMass.* is one environment, .* pass a function that makes one"),
        (3, "must be a name or a function that makes one, got 3"),
        (f"{HERE}:no_such_factory", f"'no_such_factory' is not a registered .* nor a factory in module '{HERE}'"),
        (f"{HERE}:NOT_CALLABLE", "'NOT_CALLABLE' is not a registered"),
    ],
)
def test_what_is_no_source_is_refused(source: object, message: str):
    with pytest.raises(ValueError, match=message):
        resolve(source)


# What is not installed


@pytest.mark.parametrize("name", ["mo-hopper-v4", "deep-sea-treasure-v0", "four-room-v0"])
def test_an_id_of_mo_gymnasium_says_which_extra_installs_it(name: str, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setitem(sys.modules, "mo_gymnasium", None)
    monkeypatch.setattr(gymnasium, "registry", {k: spec for k, spec in gymnasium.registry.items() if k != name})
    for look_up in (resolve, lambda name: registry.make_simulator(name, 1)):
        with pytest.raises(ValueError, match=r"MO-Gymnasium.* not installed.*\"qpensieve\[mo\]\"$"):
            look_up(name)


def fail_without(module: str) -> gymnasium.Env:
    raise ModuleNotFoundError(f"No module named {module!r}", name=module)


@pytest.mark.parametrize(("module", "package"), [("imageio", "imageio"), ("Box2D.b2", "box2d")])
def test_a_package_that_an_environment_needs_is_named(module: str, package: str):
    with pytest.raises(EnvError, match=f"fail_without: .* when it was made: it needs .*: pip install {package}$"):
        make_lanes(partial(fail_without, module), 1, 0)


# The working folder

ENVIRONMENT = """
import qp_beside
from tests.envs.foreign import PointMass

def make():
    import qp_later
    return PointMass()
"""


@pytest.fixture
def workplace(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A working folder that Python does not look in, with an environment that needs two modules beside it."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", [path for path in sys.path if path not in ("", str(tmp_path))])
    files = {"qp_mine": ENVIRONMENT, "qp_beside": "", "qp_later": "", "qp_broken": "walls = 4\n1 / 0", "house": ""}
    for name, text in files.items():
        (tmp_path / f"{name}.py").write_text(text)
    yield tmp_path
    for name in files:
        sys.modules.pop(name, None)


def test_a_module_of_the_working_folder_is_found_and_the_folder_is_not_left_on_the_path(workplace: Path):
    before = list(sys.path)
    assert isinstance(resolve("qp_mine:make")(), foreign.PointMass)
    assert sys.path == before
    file = re.escape(str(workplace / "qp_broken.py"))
    with pytest.raises(ValueError, match=rf"ZeroDivisionError.* \({file}, line 2, in <module>\)$"):
        resolve("qp_broken:make")
    assert sys.path == before
    with working_folder():
        assert sys.path == [*before, str(workplace)]
    with pytest.raises(ValueError, match=r"No module named 'qp_none'; it must be .* a file of the working folder"):
        resolve("qp_none:make")


def test_an_installed_module_comes_before_one_of_the_working_folder(workplace: Path):
    (workplace / "colorsys.py").write_text("raise SystemExit('imported')")
    sys.modules.pop("colorsys", None)
    with pytest.raises(ValueError, match=r"'make' is not a registered .* in module 'colorsys' \(.*\.py\)"):
        resolve("colorsys:make")


@pytest.mark.parametrize(
    ("name", "written"),
    [("house", "house:NAME"), ("my/house.py", "my.house:NAME"), ("house.py:Rooms", "house:Rooms")],
)
def test_a_file_in_place_of_a_name_is_told_how_to_write_it(name: str, written: str, workplace: Path):
    with pytest.raises(ValueError, match=rf"'{name}': .*write .*{written}"):
        registry.make_simulator(name, 1)
