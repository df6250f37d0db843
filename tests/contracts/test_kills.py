"""A run killed anywhere and resumed ends with the evaluations and the log of one that nobody disturbed.

So does a run that a second worker tries to take up.
"""

import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pytest

from tests.contracts import support
from tests.contracts.support import SMALL, SMALL_POPULATION, TOY, Strike, assert_same_results

SETTINGS: dict[str, dict[str, Any]] = {"qpensieve": SMALL, "pgmorl": SMALL_POPULATION}


class Whole(NamedTuple):
    """A run that nobody disturbed, and how many steps of environments and file events it took."""

    folder: Path
    num_steps: int
    num_events: int


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Callable[..., Whole]:
    """Method and domain -> its whole run, made once."""
    out, known = tmp_path_factory.mktemp("whole"), dict[str, Whole]()

    def make(algo: str, domain: str = TOY) -> Whole:
        name = algo if domain == TOY else f"{algo}-{domain}"
        if name not in known:
            folder, steps, events = out / name, out / f"{name}-steps", out / f"{name}-events"
            counting = Strike("count", path=f"/{name}/", file=str(events))
            words = support.train(folder, domain, algo, SETTINGS[algo])
            ended = support.run(*words, strike=counting, CONTRACT_COUNT=steps)
            assert ended.returncode == 0, ended.stderr
            num_steps = int(steps.read_text()) if domain == TOY else 0
            known[name] = Whole(folder, num_steps, int(events.read_text()))
        return known[name]

    return make


def go_on(folder: Path, algo: str, domain: str = TOY, **struck: Any) -> bool:
    """Begin or resume a run, to its end or until it is killed; returns whether it was killed."""
    is_begun = (folder / "config.json").exists()
    begin = support.train(folder, domain, algo, SETTINGS[algo])
    words = ["resume", folder, "--trust", "--quiet"] if is_begun else begin
    if not is_begun and folder.exists():
        shutil.rmtree(folder)
    ended = support.run(*words, **struck)
    assert support.was_killed(ended) or ended.returncode == 0, ended.stderr
    return support.was_killed(ended)


def check(whole: Whole, folder: Path, algo: str, draws: np.random.Generator, num: int) -> None:
    """Kill a run `num` times, by turns at a file event and at a step of an environment, then let it end."""
    struck = 0
    for turn in range(num):
        # Each time a small part of the whole: so most blows come before its end, and it gets further in between.
        if turn % 2:
            struck += go_on(folder, algo, CONTRACT_KILL_STEP=draws.integers(1, 2 * whole.num_steps // num))
        else:
            at = int(draws.integers(1, 2 * whole.num_events // num))
            struck += go_on(folder, algo, strike=Strike("kill", at, path=f"/{folder.name}/"))
    assert not go_on(folder, algo)
    assert struck >= num // 2
    assert_same_results(folder, whole.folder)


@pytest.mark.parametrize("algo", SETTINGS)
def test_killed_while_saving_and_in_the_final_evaluation(algo: str, whole: Callable[[str], Whole], tmp_path: Path):
    """While the first worker saves, a second one refuses. Once the first is dead, its newest checkpoint is damaged."""
    folder, undisturbed, pipe = tmp_path / algo, whole(algo), support.make_pipe(tmp_path)
    middle = int(np.random.default_rng(20261119).integers(undisturbed.num_events // 3, undisturbed.num_events // 2))
    strike = Strike("hold", middle, f"/{algo}/", str(pipe))
    first = support.start(*support.train(folder, TOY, algo, SETTINGS[algo]), strike=strike)
    try:
        support.wait_until_held(pipe, first)
        if algo == "qpensieve":
            refuse_a_second_worker(folder)
        assert first.poll() is None
    finally:
        support.kill(first)
    newest = max((folder / "checkpoints").glob("step_*"))
    damaged = max((path for path in newest.iterdir() if path.is_file()), key=lambda path: path.stat().st_size)
    damaged.write_bytes(damaged.read_bytes()[:-20])
    assert go_on(folder, algo, CONTRACT_KILL_STEP=undisturbed.num_steps // 2)
    assert not go_on(folder, algo)
    assert_same_results(folder, undisturbed.folder)


def refuse_a_second_worker(folder: Path) -> None:
    """Check that a second worker says one sentence and changes nothing."""
    before = support.files(folder)
    second = support.run("resume", folder, "--trust", "--quiet")
    assert second.returncode not in (0, None)
    assert len(second.stderr.strip().splitlines()) == 1, second.stderr
    assert str(folder) in second.stderr
    assert second.stdout == ""
    assert support.files(folder) == before


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(5))
@pytest.mark.parametrize("algo", SETTINGS)
def test_killed_many_times(algo: str, seed: int, whole: Callable[[str], Whole], tmp_path: Path):
    check(whole(algo), tmp_path / algo, algo, np.random.default_rng(seed), num=12)


@pytest.mark.slow
@pytest.mark.parametrize("domain", ["DST2d", "Hopper2d", pytest.param("LunarLander4d", marks=pytest.mark.lander)])
def test_lanes_of_a_built_in_domain_survive_kills(domain: str, whole: Callable[..., Whole], tmp_path: Path):
    """Each domain restores its lanes in another way: from MuJoCo's state, from its own, from the episode's actions."""
    undisturbed, folder = whole("qpensieve", domain), tmp_path / f"qpensieve-{domain}"
    draws = np.random.default_rng(20261120)
    blows = [Strike("kill", int(draws.integers(1, undisturbed.num_events // 3)), f"/{folder.name}/") for _ in range(5)]
    assert sum(go_on(folder, "qpensieve", domain, strike=blow) for blow in blows) >= 3
    assert not go_on(folder, "qpensieve", domain)
    assert_same_results(folder, undisturbed.folder)
