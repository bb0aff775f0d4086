"""The page in a real Chromium with its fake camera. Skipped where there is none."""

import base64
import json
import re
import shutil
import subprocess
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any
from urllib.parse import quote, urlsplit

import numpy as np
import pytest
from PIL import Image

from dsal.image_model import ImageModel

from .live import Server
from .test_qr_code import text_of

webdriver = pytest.importorskip("selenium.webdriver")
from selenium.webdriver.common.action_chains import ActionChains  # noqa: E402
from selenium.webdriver.common.by import By  # noqa: E402
from selenium.webdriver.common.keys import Keys  # noqa: E402
from selenium.webdriver.support.ui import WebDriverWait  # noqa: E402

CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
DRIVER = shutil.which("chromedriver")
pytestmark = pytest.mark.skipif(not (CHROMIUM and DRIVER), reason="no chromium with its driver")
FLAGS = (
    "--headless=new", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run", "--disable-dev-shm-usage",
    "--disable-background-networking", "--disable-component-update", "--disable-sync", "--window-size=1200,900",
    "--use-fake-device-for-media-stream", "--use-fake-ui-for-media-stream", "--force-prefers-reduced-motion",
)  # fmt: skip
WAIT = 60


@pytest.fixture(scope="module")
def browser(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Any]:
    options = webdriver.ChromeOptions()
    options.binary_location = CHROMIUM
    downloads = tmp_path_factory.mktemp("downloads")
    options.add_experimental_option("prefs", {"download.default_directory": str(downloads)})
    for flag in (*FLAGS, f"--user-data-dir={tmp_path_factory.mktemp('profile')}"):
        options.add_argument(flag)
    options.add_argument("--host-resolver-rules=MAP phone.example 127.0.0.1")
    options.accept_insecure_certs = True
    options.set_capability("goog:loggingPrefs", {"browser": "ALL", "performance": "ALL"})
    driver = webdriver.Chrome(options=options, service=webdriver.ChromeService(DRIVER))
    driver.downloads = downloads
    yield driver
    driver.quit()


@pytest.fixture(scope="module")
def models(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("served")


@pytest.fixture(scope="module")
def server(models: Path, weights: Path) -> Iterator[Server]:
    with Server(models, weights) as server:
        yield server
        assert server.stop() == 0
        assert server.said[1:] == ["stopped\n"]  # no traceback, no warning


@pytest.fixture
def page(browser: Any, server: Server) -> Iterator[Any]:
    """The page; at the end no error is in the console and no request has left the machine."""
    browser.execute_cdp_cmd("Emulation.clearDeviceMetricsOverride", {})
    browser.get("about:blank")  # the page of an earlier test asks its server, which has stopped, until it is left
    browser.get_log("browser")
    browser.get_log("performance")
    browser.get(server.url)
    yield browser
    assert browser.get_log("browser") == []
    events = [json.loads(entry["message"])["message"] for entry in browser.get_log("performance")]
    sent = [event["params"]["request"]["url"] for event in events if event["method"] == "Network.requestWillBeSent"]
    hosts = {urlsplit(url).hostname for url in sent}
    assert hosts - {None} == {"127.0.0.1"}  # None: blob: and data:
    browser.get("about:blank")


def until(page: Any, condition: Callable[[Any], Any]) -> Any:
    return WebDriverWait(page, WAIT, 0.1).until(condition)


def one(page: Any, selector: str) -> Any:
    return until(page, lambda _: page.find_element(By.CSS_SELECTOR, selector)) if selector else None


def press(page: Any, selector: str) -> None:
    """Click, wherever on the page it is, whatever floats above it."""
    page.execute_script("arguments[0].scrollIntoView({block: 'center'}); arguments[0].click()", one(page, selector))


def new_model(page: Any, name: str) -> None:
    until(page, lambda _: page.find_elements(By.ID, "create"))
    one(page, "#create").click()
    page.switch_to.active_element.send_keys(name, Keys.ENTER)
    until(page, lambda _: page.find_elements(By.ID, "new-class"))


def new_class(page: Any, label: str) -> Any:
    one(page, "#new-class").send_keys(label, Keys.ENTER)
    return card(page, label)


def card(page: Any, label: str) -> Any:
    return until(page, lambda _: page.find_element(By.CSS_SELECTOR, f'[data-label="{label}"]'))


def counted(page: Any, label: str) -> str:
    return str(page.execute_script(
        "return document.querySelector(`[data-label=\"${arguments[0]}\"] .count`)?.textContent ?? ''", label
    ))  # fmt: skip


def record(page: Any, label: str, frames: int, keyboard: bool = False) -> None:
    """Hold the button of a class until some pictures were taken."""
    button = card(page, label).find_element(By.CSS_SELECTOR, ".hold")
    page.execute_script("arguments[0].scrollIntoView({block: 'center'})", button)
    script = f"return document.querySelector('[data-label=\"{label}\"] .counter')?.textContent"
    if keyboard:
        button.send_keys("")
        page.execute_script("arguments[0].focus()", button)
        ActionChains(page).key_down(Keys.SPACE).perform()
    else:
        ActionChains(page).click_and_hold(button).perform()
    until(page, lambda _: int(page.execute_script(script).strip("…") or 0) >= frames)
    if keyboard:
        ActionChains(page).key_up(Keys.SPACE).perform()
    else:
        ActionChains(page).release().perform()
    until(page, lambda _: "image" in counted(page, label) and "no" not in counted(page, label))


def drop(page: Any, selector: str, *paths: Path) -> None:
    """Drop files or folders, as a file manager does."""
    script = """
      const box = document.querySelector(arguments[0]);
      box.scrollIntoView({block: "center"});
      const at = box.getBoundingClientRect();
      return [at.x + at.width / 2, at.y + 12];
    """
    x, y = page.execute_script(script, selector)
    data = {"items": [], "files": [str(path) for path in paths], "dragOperationsMask": 1}
    for kind in ("dragEnter", "dragOver", "drop"):
        page.execute_cdp_cmd("Input.dispatchDragEvent", {"type": kind, "x": x, "y": y, "data": data})


def action(page: Any, label: str, text: str) -> None:
    """Choose from the menu of a class."""
    menu = card(page, label).find_element(By.CSS_SELECTOR, "details")
    page.execute_script("arguments[0].scrollIntoView({block: 'center'})", menu)
    page.execute_script("arguments[0].firstChild.click()", menu)
    page.execute_script(
        "arguments[0].click()", next(b for b in menu.find_elements(By.TAG_NAME, "button") if text in b.text)
    )


def labels(page: Any) -> list[str]:
    return list(page.execute_script("return [...document.querySelectorAll('[data-label]')].map(c => c.dataset.label)"))


def bars(page: Any) -> dict[str, str]:
    script = "return [...document.querySelectorAll('[data-bar]')].map(b => [b.dataset.bar, b.lastChild.textContent])"
    return dict(page.execute_script(script))


def test_teach_try_correct(page: Any, models: Path, album: Path, tmp_path: Path) -> None:
    evil = "<img src=x onerror=alert(1)>"
    new_model(page, "My things")
    new_class(page, "left")
    record(page, "left", 4)
    new_class(page, "right")
    record(page, "right", 12, keyboard=True)  # the fake camera begins anew: four frames are known
    drop(page, ".cards .class:nth-child(2)", album / "nothing")  # not there: no image in it, and nothing breaks
    new_class(page, evil)
    drop(page, ".cards .class:nth-child(3)", *sorted((album / "first" / "char 0").iterdir()))
    until(page, lambda _: counted(page, evil) == "15 images")
    assert len(page.find_elements(By.CSS_SELECTOR, ".class:nth-child(3) .thumbs img")) == 15

    press(page, "#live")
    until(page, lambda _: all("%" in text for name, text in bars(page).items() if name != "none of these"))
    assert set(bars(page)) == {"left", "right", evil, "none of these"}
    until(page, lambda _: one(page, ".verdict").text in ("left", "right", "None of these"))
    press(page, "#live")
    until(page, lambda _: one(page, "#live").text == "Start camera")

    drop(page, ".live", album / "first" / "char 0" / "0.png")
    until(page, lambda _: one(page, ".verdict").text == evil)
    for number, pixels in enumerate((np.random.default_rng(0).integers(0, 256, (40, 40)), np.zeros((40, 40)))):
        Image.fromarray(pixels.astype(np.uint8)).save(tmp_path / f"{number}.png")
    drop(page, ".live", tmp_path / "0.png", tmp_path / "1.png", album / "first" / "char 0" / "0.png")
    until(page, lambda _: page.find_elements(By.CSS_SELECTOR, ".small-picture.novel"))
    press(page, ".small-picture.novel")
    assert one(page, ".verdict").text == "None of these"
    assert bars(page)["none of these"] == "yes"
    full = "return document.querySelector('.bar.strange .fill').style.width"
    assert page.execute_script(full) == "100%"
    press(page, ".small-picture:not(.novel)")
    assert (bars(page)["none of these"], page.execute_script(full)) == ("no", "0%")

    action(page, "left", "Rename")
    page.switch_to.active_element.send_keys(Keys.CONTROL, "a")
    page.switch_to.active_element.send_keys("west", Keys.ENTER)
    until(page, lambda _: labels(page) == ["west", "right", evil])
    action(page, "right", "Drop")
    one(page, "dialog .danger").click()
    until(page, lambda _: labels(page) == ["west", evil])
    assert ImageModel.load(models / "My things.dsal").classes == ("west", evil)
    ActionChains(page).key_down(Keys.CONTROL).send_keys("z").key_up(Keys.CONTROL).perform()
    until(page, lambda _: labels(page) == ["west", "right", evil])
    assert page.find_elements(By.CSS_SELECTOR, '[data-label="right"] .thumbs img')  # they are back, too
    ActionChains(page).key_down(Keys.CONTROL).key_down(Keys.SHIFT).send_keys("z").perform()
    ActionChains(page).key_up(Keys.SHIFT).key_up(Keys.CONTROL).perform()
    until(page, lambda _: labels(page) == ["west", evil])
    press(page, "#undo")
    until(page, lambda _: labels(page) == ["west", "right", evil])

    page.refresh()
    until(page, lambda _: labels(page) == ["west", "right", evil])
    assert counted(page, evil) == "15 images"
    assert " of 15" in one(page, "#insight").text
    page.switch_to.active_element.send_keys(Keys.TAB)
    assert page.execute_script("return document.activeElement.className") == "skip"


def test_folders_on_a_phone(page: Any, models: Path, album: Path, tmp_path: Path) -> None:
    page.execute_cdp_cmd(
        "Emulation.setDeviceMetricsOverride", {"width": 360, "height": 740, "deviceScaleFactor": 2, "mobile": True}
    )
    new_model(page, "phone")
    drop(page, ".teach > .row", album / "first")
    until(page, lambda _: counted(page, "char 74") == "15 images")
    shutil.make_archive(str(tmp_path / "more"), "zip", album / "second")
    drop(page, ".teach > .row", tmp_path / "more.zip")
    until(page, lambda _: len(ImageModel.load(models / "phone.dsal").classes) == 7)
    until(page, lambda _: len(labels(page)) == 7)
    assert page.execute_script("return document.documentElement.scrollWidth") == 360
    drop(page, ".zone", album / "test")
    model = ImageModel.load(models / "phone.dsal")
    found = model.evaluate(album / "test")
    files = [file for file in sorted((album / "test").rglob("*.png")) if file.parent.name in model.classes]
    said = list(model.predict(files))
    right = [one.label == file.parent.name and not one.novel for one, file in zip(said, files, strict=True)]
    text = until(page, lambda _: page.find_elements(By.ID, "held-out-accuracy"))[0].text
    assert f"{100 * sum(right) / len(right):.1f}%" in text  # what is flagged as none of these counts as wrong
    assert "of 35 images" in text
    assert f"{found.unknown_flagged} of 15 images of classes never taught" in one(page, "#insight").text
    one(page, ".top summary").click()
    assert page.execute_script("return document.documentElement.scrollWidth") == 360
    title = new_class(page, "Potato leaf, early blight").find_element(By.CSS_SELECTOR, "h3")  # early or late?
    sides = "const h = arguments[0]; return [h.scrollWidth - h.clientWidth, h.scrollHeight - h.clientHeight]"
    assert max(page.execute_script(sides, title)) <= 1  # nothing is cut off


def test_lessons_do_not_disturb_what_people_are_doing(page: Any, album: Path) -> None:
    """While a lesson is learned one may record the next class, type a name, or move about by keyboard."""
    new_model(page, "busy")
    for label in ("a", "b"):
        new_class(page, label)
    hold = {label: card(page, label).find_element(By.CSS_SELECTOR, ".hold") for label in ("a", "b")}
    counter = "return Number(document.querySelector('[data-label=b] .counter')?.textContent) || 0"
    ActionChains(page).click_and_hold(hold["a"]).pause(0.6).release().perform()
    until(page, lambda _: page.find_elements(By.CSS_SELECTOR, ".lesson.busy"))
    assert not one(page, "#undo").is_enabled()
    ActionChains(page).click_and_hold(hold["b"]).perform()
    said = until(page, lambda _: re.search(r"Learned (\d+)", one(page, "#lessons").text))
    enough = max(page.execute_script(counter), int(said[1])) + 2  # the fake camera begins anew: a's frames are known
    until(page, lambda _: page.execute_script(counter) >= enough)
    ActionChains(page).release().perform()
    until(page, lambda _: "no" not in counted(page, "a") + counted(page, "b"))

    thumbs = "[data-label=b] .thumbs img"
    shown, before = len(page.find_elements(By.CSS_SELECTOR, thumbs)), counted(page, "b")
    one(page, "#new-class").send_keys("half a na")
    drop(page, ".cards .class:nth-child(2)", *sorted((album / "first" / "char 0").iterdir()))
    until(page, lambda _: counted(page, "b") != before)
    page.switch_to.active_element.send_keys("me")
    assert one(page, "#new-class").get_property("value") == "half a name"

    assert len(page.find_elements(By.CSS_SELECTOR, thumbs)) == min(shown + 15, 18)
    press(page, "#undo")
    until(page, lambda _: counted(page, "b") == before)
    assert len(page.find_elements(By.CSS_SELECTOR, thumbs)) == shown

    menu = card(page, "a").find_element(By.CSS_SELECTOR, "summary")
    menu.send_keys(Keys.ARROW_DOWN)
    page.switch_to.active_element.send_keys(Keys.ARROW_DOWN)
    assert page.switch_to.active_element.text == "Drop this class"
    page.switch_to.active_element.send_keys(Keys.ESCAPE)
    assert page.switch_to.active_element == menu

    drop(page, ".live", album / "first")
    cancel = until(page, lambda _: page.find_elements(By.CSS_SELECTOR, ".lesson.busy button"))[0]
    page.execute_script("arguments[0].click()", cancel)
    until(page, lambda _: not page.find_elements(By.CSS_SELECTOR, ".lesson.busy"))
    assert len(page.find_elements(By.CSS_SELECTOR, ".small-picture")) < 60


def test_a_lesson_can_be_cancelled(page: Any, models: Path, album: Path) -> None:
    new_model(page, "never")
    many = [*sorted((album / "first").glob("*/*.png")), *sorted((album / "second").glob("*/*.png"))]
    new_class(page, "all")
    drop(page, ".cards .class", *many)
    until(page, lambda _: page.find_elements(By.CSS_SELECTOR, ".lesson.busy button"))
    page.execute_script("document.querySelector('.lesson.busy button').click()")
    until(page, lambda _: "Cancelled" in one(page, "#lessons").text)
    assert not (models / "never.dsal").exists()
    assert counted(page, "all") == "no images yet"


@pytest.mark.slow
def test_export_and_download(page: Any, album: Path, server: Server) -> None:
    pytest.importorskip("onnxscript")
    new_model(page, "m")
    drop(page, ".teach > .row", album / "first")
    until(page, lambda _: counted(page, "char 74") == "15 images")
    for text, name in (("Download", "m.dsal"), ("Export", "m.onnx")):
        one(page, ".top summary").click()
        next(b for b in page.find_elements(By.CSS_SELECTOR, ".top [role=menuitem]") if text in b.text).click()
        until_there = time.monotonic() + 180
        while not (page.downloads / name).exists() and time.monotonic() < until_there:
            time.sleep(0.2)
        assert (page.downloads / name).stat().st_size > 10_000


def test_a_token_is_asked_for_and_a_server_that_has_gone_is_noticed(
    browser: Any, tmp_path: Path, weights: Path
) -> None:
    with Server(tmp_path / "models", weights, "--token", "open-sesame") as server:
        browser.get(server.url.split("#")[0])
        field = until(browser, lambda _: browser.find_element(By.CSS_SELECTOR, "dialog input"))
        field.send_keys("open-sesame", Keys.ENTER)
        until(browser, lambda _: browser.find_elements(By.ID, "create"))
        browser.execute_script("sessionStorage.clear()")
        browser.get("about:blank")
        assert "sesame" not in server.url  # a token that the user has chosen is not printed
        browser.get(f"{server.url}#token=open-sesame")
        until(browser, lambda _: browser.find_elements(By.ID, "create"))
        assert "sesame" not in browser.current_url
    browser.execute_script("location.hash = '#/p/other'")
    until(browser, lambda _: "The server is not responding" in browser.find_element(By.ID, "main").text)
    browser.get_log("browser")  # the 401 and the lost connection are in it


def test_two_tabs(page: Any, models: Path, album: Path) -> None:
    """A stale tab cannot undo what it has not seen; both tabs show the same within two seconds."""
    first, second, third = sorted((album / "first").iterdir())[:3]
    new_model(page, "shared")
    for folder, label in ((first, "cup"), (second, "chair")):
        new_class(page, label)
        drop(page, f'[data-label="{label}"]', *sorted(folder.iterdir())[:6])
        until(page, lambda _, label=label: counted(page, label) == "6 images")
    tab, address = page.current_window_handle, page.current_url
    page.switch_to.new_window("tab")
    page.get(address)
    new_class(page, "elephant")
    drop(page, '[data-label="elephant"]', *sorted(third.iterdir())[:6])
    until(page, lambda _: counted(page, "elephant") == "6 images")
    other = page.current_window_handle
    page.switch_to.window(tab)
    page.execute_script("document.getElementById('undo').click()")  # at once: it still offers to undo the chair
    until(page, lambda _: "elephant" in one(page, "#lessons .failed").text)
    assert "Nothing was done" in one(page, "#lessons .failed").text
    assert ImageModel.load(models / "shared.dsal").classes == ("cup", "chair", "elephant")
    until(page, lambda _: labels(page) == ["cup", "chair", "elephant"])
    page.switch_to.window(other)
    action(page, "cup", "Rename")
    page.switch_to.active_element.send_keys(Keys.CONTROL, "a")
    page.switch_to.active_element.send_keys("mug", Keys.ENTER)
    until(page, lambda _: labels(page) == ["mug", "chair", "elephant"])
    page.switch_to.window(tab)
    WebDriverWait(page, 2.5, 0.05).until(lambda _: labels(page) == ["mug", "chair", "elephant"])
    page.get_log("browser")  # Chromium logs the refusal, status 412, as an error
    page.switch_to.window(other)
    page.close()
    page.switch_to.window(tab)


def test_many_classes(page: Any, server: Server, album: Path) -> None:
    """From twenty classes on, cards are folded and can be searched; five bars are shown, the best first."""
    new_model(page, "many")
    file = sorted((album / "first" / "char 0").iterdir())[0]
    form = """
      const bytes = Uint8Array.from(atob(arguments[0]), (c) => c.charCodeAt(0));
      const done = arguments[arguments.length - 1];
      const form = new FormData();
      for (let i = 0; i < 24; i++) {
        const own = new Uint8Array([...bytes, i]);
        form.append("images", new Blob([own]), "x.png");
        form.append("labels", `class ${i}`);
      }
      fetch("/api/models/many/learn", {method: "POST", body: form}).then((answer) => done(answer.status));
    """
    page.set_script_timeout(60)
    assert page.execute_async_script(form, base64.b64encode(file.read_bytes()).decode()) == 200
    until(page, lambda _: len(labels(page)) == 24)
    assert len(page.find_elements(By.CSS_SELECTOR, ".class.folded")) == 24
    one(page, "#search").send_keys("class 2")
    until(page, lambda _: labels(page) == ["class 2", "class 20", "class 21", "class 22", "class 23"])
    press(page, '[data-label="class 2"] header button')
    until(page, lambda _: len(page.find_elements(By.CSS_SELECTOR, ".class.folded")) == 4)
    drop(page, ".live", file)
    until(page, lambda _: one(page, ".verdict").text)
    shown = [float(text.strip("%")) for name, text in bars(page).items() if name != "none of these"]
    assert len(shown) == 5
    assert shown == sorted(shown, reverse=True)
    others = one(page, ".bar.others")
    assert others.find_element(By.CSS_SELECTOR, ".name").text == "19 other classes"
    shown.append(float(others.find_element(By.CSS_SELECTOR, ".value").text.strip("%")))
    assert sum(shown) == pytest.approx(100, abs=0.4)  # each is rounded
    press(page, "#all-bars")
    until(page, lambda _: len(bars(page)) == 25)
    assert page.find_elements(By.CSS_SELECTOR, ".bar.others") == []


def test_a_wrong_answer_is_corrected(page: Any, models: Path, album: Path) -> None:
    new_model(page, "corrected")
    drop(page, ".teach > .row", album / "first")
    until(page, lambda _: counted(page, "char 74") == "15 images")
    drop(page, ".live", sorted((album / "second").glob("*/*.png"))[0])
    until(page, lambda _: one(page, ".verdict").text)
    choose = "const menu = document.getElementById('correct'); menu.value = 'char 74';"
    page.execute_script(choose + "menu.dispatchEvent(new Event('change'))")
    until(page, lambda _: counted(page, "char 74") == "16 images")
    assert ImageModel.load(models / "corrected.dsal").counts["char 74"] == 16


def test_what_is_not_there(page: Any) -> None:
    """A mistyped address is no new model; a new one and its classes survive a reload; reserved names are refused."""
    page.execute_script("location.hash = '#/p/mistyped'")
    until(page, lambda _: "There is no model “mistyped”" in one(page, "#main").text)
    page.execute_script("location.hash = '#/'")
    new_model(page, "fresh")
    new_class(page, "draft")
    one(page, "#new-class").send_keys("Unknown", Keys.ENTER)
    until(page, lambda _: "Choose another name" in one(page, "#lessons").text)
    page.refresh()
    until(page, lambda _: labels(page) == ["draft"])


def test_the_record_button_stays_where_it_is(page: Any) -> None:
    new_model(page, "camera")
    new_class(page, "still")
    press(page, '[data-label="still"] [aria-label^="Show the camera"]')
    until(page, lambda _: page.execute_script("return document.querySelector('.stage video')?.videoWidth") or False)
    press(page, '[data-label="still"] [aria-label^="Show the camera"]')
    place = "return Math.round(document.querySelector('[data-label=still] .hold').getBoundingClientRect().top)"
    page.execute_script("scrollTo(0, 0)")
    before = page.execute_script(place)
    button = card(page, "still").find_element(By.CSS_SELECTOR, ".hold")
    ActionChains(page).click_and_hold(button).perform()
    until(page, lambda _: page.execute_script("return Number(document.querySelector('.counter')?.textContent) > 1"))
    until(page, lambda _: re.fullmatch(r"\d+\.\d a second", one(page, ".stage .rate").text))
    assert page.execute_script(place) == before
    ActionChains(page).release().perform()
    until(page, lambda _: "image" in counted(page, "still") and "no" not in counted(page, "still"))


def test_a_tested_folder_as_csv(page: Any, album: Path) -> None:
    new_model(page, "tested")
    drop(page, ".teach > .row", album / "first")
    until(page, lambda _: counted(page, "char 74") == "15 images")
    drop(page, ".zone", album / "test")
    until(page, lambda _: page.find_elements(By.ID, "held-out-accuracy"))
    cells = page.execute_script("return [...document.querySelectorAll('.matrix td')].map(c => Number(c.textContent))")
    assert sum(cells) == len(list((album / "test").glob("*/*.png")))
    page.execute_script(
        "const s = document.getElementById('threshold'); s.value = 1; s.dispatchEvent(new Event('input'))"
    )
    assert "0 of" in one(page, "#insight .result .quiet:nth-of-type(2)").text
    press(page, "#csv")
    file = page.downloads / "tested.csv"
    until(page, lambda _: file.exists() and not list(page.downloads.glob("*.crdownload")))
    lines = file.read_text(encoding="utf-8").splitlines()
    assert lines[0] == "file,folder,answer,score,novelty,error"
    assert len(lines) == 1 + sum(cells)


def test_large_photos_are_recognised_as_the_same_files(page: Any, models: Path, tmp_path: Path) -> None:
    """Photos of twelve megapixels, taught on the page: known to the command line, counted once, forgotten exactly."""
    random, folder = np.random.default_rng(0), tmp_path / "photos"
    for label, tone in (("red", (200, 40, 40)), ("blue", (40, 40, 200)), ("green", (40, 200, 40))):
        (folder / label).mkdir(parents=True)
        for number in range(3):
            rough = np.clip(random.normal(tone, 40, (75, 100, 3)), 0, 255).astype(np.uint8)
            photo = Image.fromarray(rough).resize((4000, 3000), Image.Resampling.BICUBIC)
            photo.save(folder / label / f"{number}.jpg", quality=85)
    new_model(page, "photos")
    drop(page, ".teach > .row", folder)
    until(page, lambda _: labels(page) == ["blue", "green", "red"])
    model = ImageModel.load(models / "photos.dsal")
    assert model.counts == {"blue": 3, "green": 3, "red": 3}
    again = model.learn(folder)
    assert (again.images, again.repeated) == (0, 9)
    green = sorted((folder / "green").iterdir())
    assert model.forget((green, ["green"] * 3)) == 3
    never = ImageModel(model.backbone, expansion_size=model.classifier.expansion_size)
    kept = [*sorted((folder / "blue").iterdir()), *sorted((folder / "red").iterdir())]
    never.learn((kept, [file.parent.name for file in kept]))
    assert model.classes == never.classes == ("blue", "red")
    for one in (model, never):
        one.classifier.drop_compensation()  # forgetting drops it; the main stream is exact
    probe = random.normal(size=(20, model.classifier.n_features_in_))
    said, expected = (one.classifier.decision_function(probe) for one in (model, never))
    np.testing.assert_allclose(said, expected, rtol=0, atol=1e-8)


def said(page: Any, text: str) -> Any:
    """Wait for a message, and return its line."""
    script = "return [...document.querySelectorAll('#lessons .lesson')].find(x => x.textContent.includes(arguments[0]))"
    return until(page, lambda _: page.execute_script(script, text))


def choose(page: Any, menu: str, label: str) -> None:
    script = (
        "const m = document.querySelector(arguments[0]); m.value = arguments[1]; m.dispatchEvent(new Event('change'))"
    )
    one(page, menu)
    page.execute_script(script, menu, label)


def test_single_pictures_are_moved_and_forgotten(page: Any, models: Path, album: Path) -> None:
    """A picture of this sitting goes to another class, back and forth, and is forgotten for good."""
    new_model(page, "single")
    drop(page, ".teach > .row", album / "first")
    until(page, lambda _: counted(page, "char 74") == "15 images")
    files = sorted((album / "first" / "char 0").iterdir())
    press(page, f'[data-label="char 0"] [aria-label="{files[1].name}, char 0"]')
    assert until(page, lambda _: page.execute_script("return document.querySelector('dialog img')?.naturalWidth")) > 0
    choose(page, "#move", "char 37")
    until(page, lambda _: (counted(page, "char 0"), counted(page, "char 37")) == ("14 images", "16 images"))
    model = ImageModel.load(models / "single.dsal")
    assert model.relabel(files[:2], "char 37") == 1  # only the other one is new there
    moved = f'[data-label="char 37"] [aria-label="{files[1].name}, char 37"]'
    assert page.find_elements(By.CSS_SELECTOR, moved)
    assert "14 images" in counted(page, "char 0")
    for step, images, shown in (("undo", "15 images", 0), ("redo", "14 images", 1)):
        press(page, f"#{step}")
        until(page, lambda _, images=images: counted(page, "char 0") == images)
        pictures = page.find_elements(By.CSS_SELECTOR, '[data-label="char 37"] .thumb')
        assert sum(picture.get_attribute("title") == files[1].name for picture in pictures) == 1 + shown

    press(page, f'[data-label="char 0"] [aria-label="{files[0].name}, char 0"]')
    press(page, "#forget")
    press(page, "dialog .danger")
    until(page, lambda _: counted(page, "char 0") == "13 images")
    assert not page.find_elements(By.CSS_SELECTOR, f'[data-label="char 0"] [aria-label="{files[0].name}, char 0"]')
    assert not one(page, "#undo").is_enabled()
    model = ImageModel.load(models / "single.dsal")
    assert model.counts == {"char 0": 13, "char 111": 15, "char 37": 16, "char 74": 15}
    assert model.learn((files, ["char 0"] * 15)).images == 1  # it is new again; the moved one is known elsewhere


def test_pictures_that_leave_one_out_mistakes(page: Any, album: Path, server: Server) -> None:
    """Each confused pair shows its pictures of this sitting, which open; also after a reload, and under a new name."""
    new_model(page, "mistaken")
    drop(page, ".teach > .row", album / "first")
    until(page, lambda _: counted(page, "char 74") == "15 images")

    def shown() -> list[int]:
        """The number of pictures that each pair shows."""
        found = []
        for row in range(len(page.find_elements(By.CSS_SELECTOR, "#insight .pairs li"))):
            page.execute_script(f"document.querySelector('#insight .pairs li:nth-child({row + 1}) button').click()")
            found.append(len(page.find_elements(By.CSS_SELECTOR, "#insight .thumbs .thumb")))
        return found

    info = "const done = arguments[0]; fetch('/api/models/mistaken/info').then((r) => r.json()).then(done)"
    confused = page.execute_async_script(info)["confused"][:5]
    assert confused
    assert shown() == [pair["images"] for pair in confused]
    until(page, lambda _: page.execute_script("return sessionStorage.getItem('dsal-pictures-mistaken')"))
    page.refresh()
    until(page, lambda _: counted(page, "char 74") == "15 images")
    assert shown() == [pair["images"] for pair in confused]
    action(page, confused[0]["taken_for"], "Rename")
    page.switch_to.active_element.send_keys(Keys.CONTROL, "a")
    page.switch_to.active_element.send_keys("another", Keys.ENTER)
    text = "return document.querySelector('#insight .pairs').textContent"
    until(page, lambda _: "mistaken for another" in page.execute_script(text))
    assert shown() == [pair["images"] for pair in confused]
    press(page, "#insight .thumbs .thumb")
    until(page, lambda _: page.find_elements(By.ID, "move"))


def test_pictures_survive_a_reload(page: Any, models: Path, album: Path) -> None:
    """Those of files and of the camera can still be moved and forgotten; undo brings back those of its class, too."""
    shown = 'return [...document.querySelectorAll(`[data-label="${arguments[0]}"] .thumb img`)].map((i) => i.src)'

    def pictures(label: str) -> list[str]:
        return list(page.execute_script(shown, label))

    def kept() -> list[list[int]]:
        """How many pictures of each class are kept: now, and before each change."""
        text = page.execute_script("return sessionStorage.getItem('dsal-pictures-reloaded')") or "{}"
        states = json.loads(text)
        return [[len(ids) for _, ids in each] for what in ("present", "past") for each in states.get(what, [])]

    new_model(page, "reloaded")
    drop(page, ".teach > .row", album / "first")
    until(page, lambda _: counted(page, "char 74") == "15 images")
    new_class(page, "camera")
    record(page, "camera", 3)
    frames = pictures("camera")
    before = {label: pictures(label) for label in labels(page)}
    until(page, lambda _: kept()[:1] == [[15, 15, 15, 15, len(frames)]])
    action(page, "char 111", "Drop")
    one(page, "dialog .danger").click()
    until(page, lambda _: "char 111" not in labels(page))
    until(page, lambda _: [len(classes) for classes in kept()[:1]] == [4])
    page.refresh()
    until(page, lambda _: labels(page) == ["char 0", "char 37", "char 74", "camera"])
    assert {label: pictures(label) for label in labels(page)} == {label: before[label] for label in labels(page)}
    press(page, "#undo")
    until(page, lambda _: labels(page) == list(before))
    assert {label: pictures(label) for label in before} == before

    name = sorted((album / "first" / "char 0").iterdir())[1].name
    press(page, f'[data-label="char 0"] [aria-label="{name}, char 0"]')
    assert until(page, lambda _: page.execute_script("return document.querySelector('dialog img')?.naturalWidth")) > 0
    choose(page, "#move", "char 37")
    until(page, lambda _: (counted(page, "char 0"), counted(page, "char 37")) == ("14 images", "16 images"))
    press(page, '[data-label="camera"] .thumb')
    press(page, "#forget")
    press(page, "dialog .danger")
    until(page, lambda _: len(pictures("camera")) == len(frames) - 1)
    assert ImageModel.load(models / "reloaded.dsal").counts["camera"] == len(frames) - 1
    until(page, lambda _: kept() == [[14, 16, 15, 15, len(frames) - 1]])  # no earlier version has the forgotten one

    count = """
      const done = arguments[0];
      const request = indexedDB.open("dsal", 1);
      request.onsuccess = () => {
        const all = request.result.transaction("pictures").objectStore("pictures").getAll();
        all.onsuccess = () => done(all.result.map(({ id, data }) => [id, new TextDecoder("latin1").decode(data)]));
      };
    """
    records = dict(page.execute_async_script(count))
    listed = json.loads(page.execute_script("return sessionStorage.getItem('dsal-pictures-reloaded')"))
    mine = {id for maps in listed.values() for each in maps for _, ids in each for id in ids}
    assert mine <= set(records)
    assert not any("png" in records[id].lower() for id in mine)  # neither the name of a file nor its first bytes
    tab, address = page.current_window_handle, page.current_url
    page.switch_to.new_window("tab")  # it has no key
    page.get(address)
    until(page, lambda _: labels(page) == list(before))
    assert page.find_elements(By.CSS_SELECTOR, ".thumb") == []
    page.close()
    page.switch_to.window(tab)


def test_a_photo_of_another_class_is_named_and_moved(page: Any, album: Path) -> None:
    new_model(page, "known")
    drop(page, ".teach > .row", album / "first")
    until(page, lambda _: counted(page, "char 74") == "15 images")
    file = sorted((album / "first" / "char 0").iterdir())[0]
    drop(page, '[data-label="char 37"]', file)
    line = said(page, "already learned as")
    assert f"{file.name} was already learned as char 0" in line.text
    page.execute_script("arguments[0].click()", line.find_element(By.CSS_SELECTOR, ".offer"))
    until(page, lambda _: (counted(page, "char 0"), counted(page, "char 37")) == ("14 images", "16 images"))
    shown = [len(page.find_elements(By.CSS_SELECTOR, f'[data-label="char {n}"] .thumb')) for n in (0, 37)]
    assert shown == [14, 16]


def test_every_file_that_cannot_be_read_is_named(page: Any, album: Path, tmp_path: Path) -> None:
    new_model(page, "torn")
    (tmp_path / "text.png").write_text("no image")
    (tmp_path / "empty.jpg").touch()
    new_class(page, "a")
    drop(page, '[data-label="a"]', tmp_path / "text.png", tmp_path / "empty.jpg")
    text = said(page, "None of the images can be read").text
    assert "text.png: it is not an image" in text
    assert "empty.jpg: the file is empty" in text
    drop(page, '[data-label="a"]', tmp_path / "text.png", sorted((album / "first" / "char 0").iterdir())[0])
    assert "text.png: it is not an image" in said(page, "1 image could not be read").text
    until(page, lambda _: counted(page, "a") == "1 image")
    assert len(page.find_elements(By.CSS_SELECTOR, "[data-label=a] .thumb")) == 1
    page.get_log("browser")  # Chromium logs the refusal, status 422, as an error


def test_inbox(page: Any, models: Path, album: Path) -> None:
    """What the model proposes is labelled and learned; what it knows already is left out."""
    new_model(page, "inbox")
    drop(page, ".teach > .row", album / "first")
    until(page, lambda _: counted(page, "char 74") == "15 images")
    new, known = sorted((album / "second").glob("*/*.png")), sorted((album / "first").glob("*/*.png"))[:5]
    drop(page, "#inbox .tray", *new, *known)
    said(page, "5 pictures of the inbox were already learned")
    tiles = until(page, lambda _: page.find_elements(By.CSS_SELECTOR, "#inbox .tile"))
    assert len(tiles) == 12
    assert f"{len(new) - 12} more wait" in one(page, "#inbox").text
    assert not one(page, "#teach-inbox").is_enabled()

    press(page, "#inbox .tile:nth-child(1) .yes")
    choose(page, "#inbox .tile:nth-child(2) select", "char 37")
    choose(page, "#inbox .tile:nth-child(3) select", "\n")
    page.switch_to.active_element.send_keys("fresh", Keys.ENTER)
    until(page, lambda _: len(page.find_elements(By.CSS_SELECTOR, "#inbox .tile.chosen")) == 3)
    press(page, "#inbox .tile:nth-child(1) .yes")  # taken back
    until(page, lambda _: one(page, "#teach-inbox").text == "Teach 2 pictures")
    press(page, "#teach-inbox")
    until(page, lambda _: counted(page, "fresh") == "1 image")
    until(page, lambda _: f"{len(new) - 14} more wait" in one(page, "#inbox").text)
    assert ImageModel.load(models / "inbox.dsal").counts["char 37"] == 16
    press(page, "#other-pictures")
    until(page, lambda _: f"{len(new) - 26} more wait" in one(page, "#inbox").text)


def test_a_model_named_in_arabic(page: Any, models: Path, album: Path) -> None:
    new_model(page, "قطط")
    drop(page, ".teach > .row", album / "first")
    until(page, lambda _: counted(page, "char 74") == "15 images")
    assert page.current_url.endswith("#/p/" + quote("قطط"))
    assert (models / "قطط.dsal").is_file()
    page.refresh()
    until(page, lambda _: counted(page, "char 74") == "15 images")
    assert one(page, "h1").text == "قطط"
    page.execute_script("location.hash = '#/'")
    until(page, lambda _: "قطط" in [name.text for name in page.find_elements(By.CSS_SELECTOR, ".model strong")])
    one(page, "#create").click()
    page.switch_to.active_element.send_keys("x" * 65, Keys.ENTER)
    until(page, lambda _: "at most 64 characters" in one(page, "dialog .wrong").text)
    page.switch_to.active_element.send_keys(Keys.ESCAPE)


@pytest.fixture(scope="module")
def certificate(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A self-signed certificate with its key, in one file."""
    if shutil.which("openssl") is None:
        pytest.skip("no openssl")
    path = tmp_path_factory.mktemp("certificate") / "both.pem"
    options = "req -x509 -nodes -newkey ec -pkeyopt ec_paramgen_curve:prime256v1 -days 1 -subj /CN=phone.example"
    subprocess.run(["openssl", *options.split(), "-keyout", path, "-out", path], check=True, capture_output=True)
    return path


def test_on_a_phone_over_https(browser: Any, weights: Path, tmp_path: Path, certificate: Path) -> None:
    """Another machine has the camera over https; the QR code on the page is its address."""
    options = ("--allow-host", "phone.example", "--ssl-certfile", str(certificate))
    with Server(tmp_path, weights, *options) as server:
        assert server.url.startswith("https://127.0.0.1:")
        url = server.url.replace("127.0.0.1", "phone.example")
        browser.get(url)
        new_model(browser, "seen")
        assert browser.execute_script("return isSecureContext")
        new_class(browser, "things")
        record(browser, "things", 3)
        press(browser, "#phone")
        canvas = one(browser, "dialog .qr")
        assert one(browser, "dialog a").get_attribute("href") == url
        assert "https" not in browser.find_element(By.CSS_SELECTOR, "dialog").text.replace(url, "")
        pixels = browser.execute_script(
            "const c = arguments[0]; return [...c.getContext('2d').getImageData(0, 0, c.width, c.height).data]", canvas
        )
        side = int(canvas.get_property("width"))
        dark = np.array(pixels).reshape(side, side, 4)[4:-4, 4:-4, 0] == 0
        assert text_of(["".join("01"[bit] for bit in row.astype(int)) for row in dark]) == url
        assert server.stop() == 0


def test_over_http_from_another_machine_there_is_no_camera(browser: Any, weights: Path, tmp_path: Path) -> None:
    with Server(tmp_path, weights, "--allow-host", "phone.example") as server:
        browser.get(server.url.replace("127.0.0.1", "phone.example"))
        new_model(browser, "unseen")
        new_class(browser, "things")
        press(browser, '[data-label="things"] [aria-label^="Show the camera"]')
        assert "--ssl-certfile" in said(browser, "camera works only").text
        press(browser, "#phone")
        assert "--ssl-certfile" in until(browser, lambda _: browser.find_element(By.CSS_SELECTOR, "dialog").text)
        assert server.stop() == 0


def test_a_server_of_this_machine_alone_says_how_phones_get_there(page: Any) -> None:
    one(page, "#phone").click()
    until(page, lambda _: "--host 0.0.0.0" in page.find_element(By.CSS_SELECTOR, "dialog").text)
    assert not page.find_elements(By.CSS_SELECTOR, "dialog canvas")
