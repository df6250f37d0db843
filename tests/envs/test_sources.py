"""Names of environments: what they stand for, where they are looked for, what to install where they are unknown."""

import os
import pickle
import shutil
import subprocess
import sys
from collections.abc import Iterator
from functools import partial
from pathlib import Path

import gymnasium
import pytest

import qpensieve
from qpensieve.envs import make_lanes, registry
from qpensieve.envs.gym_lanes import make_simulator
from qpensieve.envs.sources import EnvSource, needs_package, resolve
from qpensieve.errors import EnvError
from qpensieve.importing import working_folder
from tests.envs import foreign


def test_a_factory_is_itself():
    assert resolve(foreign.make_point_mass) is foreign.make_point_mass


@pytest.mark.parametrize(
    "source",
    [
        "tests.envs.foreign:make_point_mass",
        "tests.envs.foreign:PointMass",
        "tests.envs.foreign:QpensieveForeign-v1",
        "QpensieveForeign-v1",
    ],
)
def test_a_name_resolves_to_a_factory_that_survives_pickling(source: str):
    factory = pickle.loads(pickle.dumps(resolve(source)))
    assert isinstance(factory().unwrapped, foreign.PointMass)
    assert factory() is not factory()


def test_an_id_without_its_version_means_the_latest():
    with pytest.warns(UserWarning, match="latest versioned environment"):
        env = resolve("QpensieveForeign")()
    assert isinstance(env.unwrapped, foreign.PointMass)


def test_an_unknown_id_names_its_neighbours():
    with pytest.raises(ValueError, match=r"unknown environment 'QpensieveForein-v1'.*did you mean QpensieveForeign-v1"):
        resolve("QpensieveForein-v1")


def test_an_unknown_id_hints_at_mo_gymnasium_where_it_is_missing(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setitem(sys.modules, "mo_gymnasium", None)
    with pytest.raises(ValueError, match=r"looks like an id of MO-Gymnasium.*pip install \"qpensieve\[mo\]\""):
        resolve("mo-no-such-thing-v9")


def test_a_module_that_does_not_import_is_named():
    with pytest.raises(ValueError, match="cannot import module 'no_such_module' of environment 'no_such_module:make'"):
        resolve("no_such_module:make")


@pytest.mark.parametrize("name", [":make", "tests.envs.foreign:", ":"])
def test_half_a_name_says_how_a_whole_one_looks(name: str):
    with pytest.raises(ValueError, match=f"must be written module:factory or .*, got '{name}'"):
        resolve(name)


def test_a_relative_module_is_named():
    with pytest.raises(ValueError, match=r"cannot import module '\.mine' of environment '\.mine:make'"):
        resolve(".mine:make")


def test_an_environment_instead_of_a_factory_is_refused():
    with pytest.raises(ValueError, match=r"PointMass.* is one environment, .* pass a function that makes one"):
        resolve(foreign.PointMass())
    with pytest.raises(ValueError, match="must be a name or a function that makes one, got 3"):
        resolve(3)


@pytest.mark.parametrize("name", ["no_such_factory", "NOT_CALLABLE"])
def test_a_factory_that_is_not_in_its_module_is_named(name: str):
    with pytest.raises(
        ValueError, match=f"'{name}' is not a registered .* nor a factory in module 'tests.envs.foreign'"
    ):
        resolve(f"tests.envs.foreign:{name}")


@pytest.mark.parametrize(
    ("source", "name"),
    [
        ("QpensieveForeign-v1", "QpensieveForeign-v1"),
        (foreign.PointMass, "PointMass"),
        (partial(foreign.PointMass, render_mode="rgb_array"), "PointMass"),
    ],
)
def test_sources_have_readable_names(source: EnvSource, name: str):
    assert make_simulator(source, 1).spec.id == name


# What is not installed


@pytest.mark.parametrize("name", ["mo-hopper-v4", "deep-sea-treasure-v0", "minecart-v0", "four-room-v0"])
def test_an_id_of_mo_gymnasium_says_which_extra_installs_it(name: str, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setitem(sys.modules, "mo_gymnasium", None)
    known = {key: spec for key, spec in gymnasium.registry.items() if key != name}
    monkeypatch.setattr(gymnasium, "registry", known)
    with pytest.raises(ValueError, match=r"unknown domain .*MO-Gymnasium.* not installed.*\"qpensieve\[mo\]\"$"):
        registry.make_simulator(name, 1)


def test_another_unknown_id_names_its_neighbours_and_explains_the_other_names(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setitem(sys.modules, "mo_gymnasium", None)
    with pytest.raises(
        ValueError, match=r"QpensieveForein-v1.*did you mean QpensieveForeign-v1.*module:id.*factory"
    ) as caught:
        registry.make_simulator("QpensieveForein-v1", 1)
    assert "qpensieve[mo]" not in str(caught.value)


@pytest.mark.parametrize(
    ("name", "written"),
    [
        ("house", "house:NAME"),
        ("house.py", "house:NAME"),
        ("my/house.py", "my.house:NAME"),
        ("house.py:Rooms", "house:Rooms"),
    ],
)
def test_a_file_in_place_of_a_name_is_told_how_to_write_it(
    name: str, written: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    (tmp_path / "house.py").touch()
    monkeypatch.chdir(tmp_path)
    with pytest.raises(ValueError, match=rf"'{name}': .*write .*{written}"):
        registry.make_simulator(name, 1)


def test_a_module_that_fails_names_the_line(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    (tmp_path / "unsound_house.py").write_text("walls = 4\nroof = wals\n")
    monkeypatch.chdir(tmp_path)
    with pytest.raises(ValueError, match=r"'wals' is not defined.* \(.*unsound_house.py, line 2, in <module>\)$"):
        registry.make_simulator("unsound_house:Rooms", 1)


def fail_without(module: str) -> gymnasium.Env:
    raise ModuleNotFoundError(f"No module named {module!r}", name=module)


@pytest.mark.parametrize(
    ("module", "package"), [("imageio", "imageio"), ("Box2D.b2", "box2d"), ("highway_env", "highway-env")]
)
def test_a_package_that_an_environment_needs_is_named(module: str, package: str):
    with pytest.raises(
        EnvError, match=f"fail_without: .* failed when it was made: it needs .*: pip install {package}$"
    ):
        make_lanes(partial(fail_without, module), 1, 0)


def test_gymnasiums_own_words_for_a_missing_package_are_kept_where_no_module_is_named():
    missing = gymnasium.error.DependencyNotInstalled("pip install gymnasium[box2d]")
    assert needs_package(missing) == "it needs a package that is not installed: pip install gymnasium[box2d]"
    missing.__cause__ = ModuleNotFoundError("No module named 'pygame'", name="pygame")
    assert str(needs_package(missing)).endswith("pip install pygame")
    assert needs_package(ValueError("map 7")) is None


# The working folder

ENVIRONMENT = """
import {beside}
from tests.envs.foreign import PointMass

def make():
    import {later}
    return PointMass()
"""


@pytest.fixture
def workplace(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A working folder that Python does not look in, with an environment that needs two modules beside it."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", [path for path in sys.path if path not in ("", str(tmp_path))])
    (tmp_path / "qp_mine.py").write_text(ENVIRONMENT.format(beside="qp_beside", later="qp_later"))
    (tmp_path / "qp_beside.py").touch()
    (tmp_path / "qp_later.py").touch()
    yield tmp_path
    for name in ("qp_mine", "qp_beside", "qp_later"):
        sys.modules.pop(name, None)


def test_a_module_of_the_working_folder_is_found_and_the_folder_is_not_left_on_the_path(workplace: Path):
    before = list(sys.path)
    assert isinstance(resolve("qp_mine:make")(), foreign.PointMass)
    assert sys.path == before
    with pytest.raises(ModuleNotFoundError):
        __import__("qp_other")


def test_an_installed_module_comes_before_one_of_the_working_folder(workplace: Path):
    (workplace / "colorsys.py").write_text("raise SystemExit('imported')")
    sys.modules.pop("colorsys", None)
    with pytest.raises(
        ValueError, match=r"'make' is not a registered .* nor a factory in module 'colorsys' \(.*\.py\)"
    ):
        resolve("colorsys:make")


def test_the_working_folder_is_off_the_path_after_an_error_too(workplace: Path):
    (workplace / "qp_broken.py").write_text("1 / 0")
    before = list(sys.path)
    with pytest.raises(ValueError, match="ZeroDivisionError"):
        resolve("qp_broken:make")
    assert sys.path == before
    with working_folder():
        assert sys.path == [*before, str(workplace)]


def test_a_module_that_is_nowhere_says_where_it_may_be(workplace: Path):
    with pytest.raises(ValueError, match=r"No module named 'qp_none'; it must be .* a file of the working folder"):
        resolve("qp_none:make")


def test_the_installed_command_trains_on_a_module_of_the_working_folder(tmp_path: Path):
    """The command that pip writes does not look in the working folder by itself."""
    shutil.copy(Path(foreign.__file__), tmp_path / "mine.py")
    script = tmp_path / "bin" / "qpensieve"
    script.parent.mkdir()
    script.write_text("from qpensieve.cli import main\n\nmain()\n")  # so Python looks in bin, not where it starts
    start = [sys.executable, str(script)]
    sizes = "--preset quick --seeds 1 --steps 100 --random-steps 100 --block 50 --eval-period 100 --log-period 100"
    words = ["train", "mine:make_point_mass", *sizes.split(), "--quiet", "--no-final-evaluation", "--name", "run"]
    source = os.environ | {"PYTHONPATH": str(Path(qpensieve.__file__).parents[1])}
    done = subprocess.run([*start, *words], cwd=tmp_path, env=source, capture_output=True, text=True, timeout=200)
    assert done.returncode == 0, done.stderr
    assert (tmp_path / "runs" / "run" / "config.json").exists()
    received = [*start, "evaluate", "runs/run"]
    done = subprocess.run(received, cwd=tmp_path, env=source, capture_output=True, text=True, timeout=200)
    assert done.returncode == 1
    assert "would import the Python module 'mine'" in done.stderr
