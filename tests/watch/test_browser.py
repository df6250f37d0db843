"""The page in a real browser. Where there is no Chromium these tests are skipped, and say so."""

import io
import shutil
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

from qpensieve import config as configs
from qpensieve.records import checkpoint, evaluations, folder
from qpensieve.watch import server as servers
from qpensieve.watch.server import Server
from tests.watch.client import serving
from tests.watch.conftest import STEPS, actor, add_evaluation, make_run

pytest.importorskip("playwright", reason="Playwright is not installed: the page is not tested in a browser")
from playwright.sync_api import Browser, Page, sync_playwright

# Software rendering: the same pictures with and without a graphics card.
FLAGS = [
    "--no-sandbox",
    "--use-gl=angle",
    "--use-angle=swiftshader",
    "--enable-unsafe-swiftshader",
    "--disable-background-networking",
]
PATIENCE = 25.0
"""Seconds after which nothing more is expected, on two busy cores."""
READY = "Boolean(window.watch?.sides.current?.stage.latest && document.getElementById('dial'))"
LATEST = "watch.sides.current.stage.latest"

# Controls that a screen reader could not name.
NAMELESS = """[...document.querySelectorAll("button, input, select, canvas, [tabindex='0']")]
  .filter((each) => !(each.labels?.length || each.getAttribute("aria-label") || each.getAttribute("aria-labelledby")
    || (each.tagName === "BUTTON" && each.textContent.trim())))
  .map((each) => each.outerHTML)"""


def find_chromium() -> str | None:
    """A Chromium that starts: on some systems the name stands for a script that only says how to get it."""
    found = filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome")))
    runs = lambda name: subprocess.run([name, "--version"], capture_output=True, timeout=PATIENCE).returncode == 0
    return next(filter(runs, found), None)


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    program = find_chromium()
    if program is None:
        pytest.skip("Chromium is not installed (apt-get install chromium): the page is not tested in a browser")
    with sync_playwright() as playwright:
        running = playwright.chromium.launch(executable_path=program, args=FLAGS)
        yield running
        running.close()


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    """A run of Hopper2d whose newest evaluation has two points far apart."""
    run = make_run(tmp_path_factory.mktemp("browsed") / "hopper")
    file = run / folder.EVALUATIONS
    returns = np.broadcast_to(np.array([[40.0, -90.0], [5.0, -2.0]])[:, None], (2, 2, 2, 2))
    evaluations.save(file, evaluations.append_short(evaluations.load(file), STEPS[-1], returns, returns[:, :0]))
    with serving(run) as running:
        yield running


@pytest.fixture(scope="module")
def worlds(hopper: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    """Runs with two, three and five objectives, and one in a plane."""
    folder = tmp_path_factory.mktemp("worlds")
    others = [make_run(folder / name, name) for name in ("Ant3d", "Hopper5d", "DST2d")]
    with serving(hopper, *others) as running:
        yield running


@contextmanager
def opened(browser: Browser, server: Server) -> Iterator[Page]:
    """The page, open and moving; what it asked of others and what went wrong in it fails the test."""
    page = browser.new_page(viewport={"width": 400, "height": 400})
    wrong: list[str] = []
    page.on("console", lambda message: wrong.append(message.text) if message.type in ("error", "warning") else None)
    page.on("pageerror", lambda error: wrong.append(str(error)))
    page.on("request", lambda request: None if request.url.startswith(server.address) else wrong.append(request.url))
    page.goto(server.address)
    until(page, READY)
    try:
        yield page
    finally:
        page.close()
    assert wrong == []


@pytest.fixture(scope="module")
def shared(browser: Browser, server: Server) -> Iterator[Page]:
    """A page that several tests use: opening one and drawing its first pictures takes seconds."""
    with opened(browser, server) as page:
        yield page


@pytest.fixture
def page(shared: Page) -> Page:
    """The shared page: paused, at the newest step of the first seed, all objectives equal."""
    shared.select_option("#seed", "0")
    for place, key in (("#at", "End"), ("#dial", "0")):
        shared.focus(place)
        shared.keyboard.press(key)
    pause(shared)
    until(shared, "(({ state }) => state.seed === 0 && state.at === 2000 && state.w[0] === 0.5)(watch.sides.current)")
    return shared


def until(page: Page, expression: str, argument: Any = None) -> Any:
    """Waits until an expression is true, and returns it. Playwright's own way needs `eval`, which the page forbids."""
    end = time.monotonic() + PATIENCE
    while time.monotonic() < end:
        if value := page.evaluate(expression, argument):
            return value
        page.wait_for_timeout(20)
    raise TimeoutError(f"never true: {expression}")


def picture(page: Page) -> np.ndarray:
    """The middle of the scene as it is on the screen: nothing is written over it there."""
    box = page.locator(".canvas-box canvas").first.bounding_box()
    assert box is not None
    x, y, width, height = box["x"], box["y"], box["width"], box["height"]
    clip = {"x": x + width / 4, "y": y + height / 4, "width": width / 2, "height": height / 2}
    return np.asarray(Image.open(io.BytesIO(page.screenshot(clip=clip))))  # pyright: ignore[reportArgumentType]


def one_step(page: Page) -> list[float]:
    """Action of the first step of this start."""
    page.click("#restart")
    until(page, f"{LATEST}.steps === 0")
    page.click("#step")
    return until(page, f"{LATEST}.steps === 1 && {LATEST}.action")


def pause(page: Page, is_wanted: bool = True) -> None:
    """Pauses the robot, or lets it go on."""
    if page.evaluate("watch.sides.current.state.paused") != is_wanted:
        page.evaluate("document.activeElement.blur()")
        page.keyboard.press(" ")
        until(page, f"watch.sides.current.state.paused === {str(is_wanted).lower()}")


def test_the_page_opens_and_the_robot_moves(shared: Page):
    assert shared.title().startswith("Hopper2d")
    assert shared.evaluate("document.documentElement.scrollWidth <= window.innerWidth")
    assert shared.evaluate(NAMELESS) == []
    pause(shared, False)  # another test may have paused it
    first = picture(shared)
    assert len(np.unique(first.reshape(-1, first.shape[-1]), axis=0)) > 20
    end = time.monotonic() + PATIENCE
    while np.array_equal(picture(shared), first):
        assert time.monotonic() < end
    # Paused, it stands still, as soon as the camera has come to rest: what moved was the robot.
    pause(shared)
    while not np.array_equal(picture(shared), picture(shared)):
        assert time.monotonic() < end


def test_the_dial_changes_the_action_of_the_next_step(page: Page):
    before = one_step(page)
    assert one_step(page) == before
    page.focus("#dial")
    page.keyboard.press("End")
    until(page, f"{LATEST}.lam[1] === 1")
    assert one_step(page) != before
    page.keyboard.press("0")
    until(page, f"{LATEST}.lam[1] === 0.5")
    assert one_step(page) == before
    until(page, "watch.delays.length >= 2")


def test_the_mark_on_the_front_moves_and_points_can_be_chosen(page: Page):
    page.focus("#dial")
    page.keyboard.press("Home")
    ring = "document.querySelector('#front .ring').dataset.point"
    until(page, f"{ring} === '0'")
    where = page.locator("#front .ring").get_attribute("cx")
    page.keyboard.press("End")
    until(page, f"{ring} === '1'")
    assert page.locator("#front .ring").get_attribute("cx") != where
    page.locator("#front .point").first.click()
    until(page, f"{LATEST}.lam[0] === 1")
    page.keyboard.press("ArrowRight")
    page.keyboard.press("Enter")
    until(page, f"{LATEST}.lam[1] === 1")


def test_seed_and_saved_step_change_who_acts(page: Page):
    actions = [one_step(page)]
    page.select_option("#seed", "1")
    until(page, "watch.sides.current.state.seed === 1")
    assert page.text_content("#curves-caption") == "Seed 1; grey: the other seeds."
    actions.append(one_step(page))
    page.focus("#at")
    page.keyboard.press("Home")
    until(page, "watch.sides.current.state.at === 1000")
    assert page.locator("#at-text").inner_text().replace("\u202f", "") == "1000"
    actions.append(one_step(page))
    assert len({tuple(action) for action in actions}) == 3
    # A step that was not saved, as that of a checkpoint may be: the slider stands at the one before it.
    page.evaluate("watch.learning.show(watch.sides.current.run, 1, 2500)")
    assert page.locator("#at").input_value() == "1"


def test_two_sides_have_preferences_and_steps_of_their_own(page: Page):
    page.focus("#at")
    page.keyboard.press("Home")
    until(page, "watch.sides.current.state.at === 1000")
    page.click("#compare")
    until(page, "watch.sides.at(1)?.state?.at === 1000")  # the step of the first
    until(page, "watch.sides.open.length === 2 && watch.sides.at(1).stage.latest !== null")
    assert page.locator(".stage canvas").count() == 2
    page.click("#which button:nth-child(2)")
    page.focus("#dial")
    page.keyboard.press("End")
    until(page, "watch.sides.at(1).stage.latest.lam[1] === 1")
    assert page.evaluate("watch.sides.at(0).stage.latest.lam") == [0.5, 0.5]
    # Each side is held against what was evaluated of its own saved step.
    promised = [page.locator(f".bars li:first-child .lane:nth-of-type({i}) .promised") for i in (1, 2)]
    assert promised[1].inner_text().endswith("005")
    page.focus("#at")
    page.keyboard.press("End")
    until(page, "watch.sides.at(1).state.at === 2000")
    until(page, "document.querySelectorAll('.promised')[1].textContent === 'of 5.00'")
    assert not promised[0].inner_text().startswith("of 40")
    assert page.locator("#front-caption").inner_text().startswith("Side B: 2 preferences")
    page.click("#compare")
    until(page, "document.querySelectorAll('.stage').length === 1")
    page.evaluate("watch.sides.ready({ side: 1, run: 0, seed: 0, at: 2000, archive: null })")
    assert page.locator(".stage").count() == 1


def test_what_goes_wrong_is_said_in_words_and_a_lost_connection_comes_back(page: Page):
    page.evaluate("watch.connection.send({ speed: 100 })")
    assert "speed must be a number" in until(page, "document.getElementById('banner-text').textContent")
    page.focus("#dial")
    page.keyboard.press("End")
    until(page, f"{LATEST}.lam[1] === 1")
    page.focus("#at")
    page.keyboard.press("Home")
    until(page, "watch.sides.current.state.at === 1000")
    page.evaluate("watch.connection.socket.close()")
    assert "Trying again" in until(page, "document.getElementById('banner-text').textContent.match('gone.*')?.[0]")
    until(page, "document.getElementById('banner').hidden && watch.connection.socket?.readyState === 1")
    until(page, "watch.sides.current.state.w[1] === 1 && watch.sides.current.state.at === 1000")
    until(page, f"{LATEST}.lam[1] === 1")


def test_a_dial_that_is_turned_fast_sends_what_counts(page: Page):
    page.evaluate(
        """() => {
          const socket = watch.connection.socket, send = socket.send.bind(socket);
          watch.preferred = [];
          socket.send = (text) => {
            const { w } = JSON.parse(text);
            if (w) watch.preferred.push(w);
            send(text);
          };
        }"""
    )
    page.evaluate("for (let i = 0; i <= 500; i++) watch.prefer([1 - i / 500, i / 500])")
    until(page, f"{LATEST}.lam[1] === 1")
    assert page.evaluate("watch.preferred") == [[1, 0], [0, 1]]
    assert page.locator("#dial").input_value() == "1"


def test_three_objectives_have_a_triangle_and_five_have_sliders_that_share_one(browser: Browser, worlds: Server):
    with opened(browser, worlds) as page:
        choose = lambda number: page.locator(".shelf-item").nth(number).click()
        choose(1)
        until(page, "document.querySelector('.dial-triangle') !== null")
        page.focus("#dial")
        page.keyboard.press("ArrowUp")
        lam = until(page, f"{LATEST}?.lam?.[0] > 0.34 && {LATEST}.lam")
        assert sum(lam) == pytest.approx(1, abs=1e-6)
        box = page.locator(".dial-triangle svg").bounding_box()
        assert box is not None
        # The lower left corner is the second objective; the pointer may leave the triangle while it is held.
        page.mouse.move(box["x"] + box["width"] / 2, box["y"] + box["height"] / 2)
        page.mouse.down()
        page.mouse.move(box["x"] - 40, box["y"] + box["height"] + 40, steps=3)
        page.mouse.up()
        until(page, f"{LATEST}.lam[1] === 1")
        choose(2)
        until(page, "document.querySelectorAll('.linked input').length === 5")
        page.focus("#dial-2")
        page.keyboard.press("PageUp")
        lam = until(page, f"{LATEST}?.lam?.[2] > 0.29 && {LATEST}.lam")
        assert lam == pytest.approx([0.175, 0.175, 0.3, 0.175, 0.175], abs=2e-3)
        choose(3)
        until(page, "watch.sides.current.run.domain === 'DST2d' && watch.sides.current.stage.scene.shapes.length > 10")


def test_a_policy_is_picked_from_the_list_and_asked_as_calibrated(browser: Browser, hopper: Path):
    with serving(hopper, Path("zoo:DST2d")) as server, opened(browser, server) as page:
        shown = "[...document.querySelectorAll('.shelf-item')].map((item) => item.getAttribute('aria-pressed')).join()"
        until(page, f"{shown} === 'true,false'")
        assert page.evaluate("document.getElementById('asking').hidden")
        page.focus(".shelf-item")
        page.keyboard.press("ArrowRight")
        page.keyboard.press("Enter")
        until(page, f"{shown} === 'false,true' && document.getElementById('title').textContent === 'DST2d'")
        until(page, "document.querySelectorAll('#front .point').length === 100")
        assert "qpensieve train DST2d --preset quick" in page.inner_text("#card")
        assert page.evaluate(NAMELESS) == []
        differing = """(() => {
          const { preferences, asks } = watch.sides.current.run.calibration;
          return preferences[asks[0].findIndex((ask, row) => ask !== row)];
        })()"""
        page.evaluate(f"watch.prefer({differing})")
        worth = "[...document.querySelectorAll('.asking-worth')].map((each) => each.textContent)"
        asked, calibrated = page.evaluate(worth)
        assert asked != calibrated
        # The ring on the front is where the policy lands: for the preference of the dial, then for the calibrated one.
        ring = "document.querySelector('.ring').dataset.point"
        before = until(page, ring)
        page.keyboard.press("c")
        until(page, "watch.sides.current.state.calibrated && document.querySelectorAll('.asking-row input')[1].checked")
        until(page, f"{ring} !== '{before}'")
        page.locator(".asking-row").first.click()
        until(page, "!watch.sides.current.state.calibrated")


def test_a_run_that_trains_is_followed(browser: Browser, tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(servers, "FOLLOW_SECONDS", 0.1)
    run = make_run(tmp_path / "young", steps=(1000,))
    config = configs.load(run / folder.CONFIG)
    with serving(run) as server, opened(browser, server) as page:
        until(page, "!document.getElementById('training').hidden && document.getElementById('newest').disabled")
        checkpoint.save_parameters(run, 2000, actor(config, 2000))
        add_evaluation(run, config, 2000)
        until(page, "!document.getElementById('newest').disabled")
        until(page, "document.querySelector('#curves svg').getAttribute('aria-label').includes('2 evaluations')")
        assert page.evaluate("watch.sides.current.state.at") == 1000
        page.click("#newest")
        until(page, "watch.sides.current.state.at === 2000")
        page.check("#follow")
        # Until the answer is there the old step is shown, however often: it is asked for once.
        asked = """() => {
          const { current: side } = watch.sides, before = watch.connection.seq;
          side.state = { ...side.state, at: 1000 };
          for (let i = 0; i < 5; i++) watch.refresh();
          return watch.connection.seq - before;
        }"""
        assert page.evaluate(asked) == 1
        checkpoint.save_parameters(run, 3000, actor(config, 3000))
        until(page, "watch.sides.current.state.at === 3000")


def test_a_folder_that_is_gone_is_said_where_the_robot_would_be_and_can_be_tried_again(
    browser: Browser, tmp_path: Path
):
    run = make_run(tmp_path / "run", "DST2d")
    with serving(run) as server:
        run.rename(tmp_path / "away")
        page = browser.new_page(viewport={"width": 400, "height": 400})
        page.goto(server.address)
        shown = (
            "document.querySelector('.stage-message')?.checkVisibility() && document.querySelector('.stage-message')"
        )
        assert f"{run} is gone. “Restart” begins it again." in until(page, f"({shown})?.textContent")
        assert page.text_content("#title") == "DST2d"
        (tmp_path / "away").rename(run)
        page.click("#restart")
        until(page, READY)
        assert page.evaluate("document.querySelector('.stage-message').hidden")
        page.close()
