"""Take the pictures of docs/serve.md and of the README, in a real Chromium: ``python -m tests.serve.pictures FOLDER``.

Every screen is taken light and dark, on a desktop and on a phone; those in docs/figures/serve are a choice of them. The
photographs are parts of scikit-learn's sample images.
"""

from __future__ import annotations

import sys
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from io import BytesIO
from pathlib import Path
from typing import Any

import numpy as np
from PIL import Image
from selenium import webdriver
from selenium.webdriver.common.by import By
from selenium.webdriver.common.keys import Keys
from sklearn.datasets import load_sample_image

from .live import Server
from .test_browser import CHROMIUM, DRIVER, FLAGS, counted, drop, new_class, new_model, one, press, until

LAN = "192.168.0.7"  # shown as the address of the server, which listens on this machine only
PARTS = {  # class -> image, left, upper, right, lower, sides of its pictures
    "Dahlia": ("flower.jpg", 170, 85, 445, 355, 150, 220),
    "Lake": ("china.jpg", 345, 190, 545, 300, 70, 105),
    "Pagoda": ("china.jpg", 70, 30, 350, 370, 150, 230),
    "Trees": ("china.jpg", 330, 270, 640, 427, 90, 140),
    "Leaves": ("flower.jpg", 0, 60, 150, 330, 90, 140),
}
SCREENS = {"desktop": (1180, 820, 0.75), "phone": (390, 760, 1.0)}  # width, height and scale of a picture


def photographs(folder: Path, count: int) -> None:
    """Write pictures of every class: parts of the sample images at random places."""
    random = np.random.default_rng(0)
    for label, (name, left, upper, right, lower, smallest, largest) in PARTS.items():
        (folder / label).mkdir(parents=True)
        source = Image.fromarray(load_sample_image(name))
        for number in range(count):
            side = int(random.integers(smallest, largest))
            x, y = random.integers(left, right - side + 1), random.integers(upper, lower - side + 1)
            picture = source.crop((x, y, x + side, y + side)).resize((256, 256), Image.Resampling.BICUBIC)
            picture.save(folder / label / f"{label.lower()} {number + 1}.jpg", quality=90)


@contextmanager
def chromium() -> Iterator[Any]:
    options = webdriver.ChromeOptions()
    options.binary_location = CHROMIUM
    for flag in (*FLAGS, f"--host-resolver-rules=MAP {LAN} 127.0.0.1"):
        options.add_argument(flag)
    driver = webdriver.Chrome(options=options, service=webdriver.ChromeService(DRIVER))
    try:
        yield driver
    finally:
        driver.quit()


def take(page: Any, folder: Path, name: str, part: str = "") -> None:
    """Save a screen on both devices, light and dark, with this part of the page at the top."""
    for device, (width, height, scale) in SCREENS.items():
        size = {"width": width, "height": height, "deviceScaleFactor": scale, "mobile": device == "phone"}
        page.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", size)
        if part:
            script = "document.querySelector(arguments[0]).scrollIntoView({block: 'start'}); scrollBy(0, -90)"
            page.execute_script(script, part)
        for scheme in ("light", "dark"):
            colours = [{"name": "prefers-color-scheme", "value": scheme}]
            page.execute_cdp_cmd("Emulation.setEmulatedMedia", {"features": colours})
            settle = "const done = arguments[0]; requestAnimationFrame(() => setTimeout(done, 300))"
            page.execute_async_script(settle)
            image = Image.open(BytesIO(page.get_screenshot_as_png())).convert("RGB")
            image.quantize(256, dither=Image.Dither.NONE).save(folder / f"{name}-{device}-{scheme}.png", optimize=True)
    page.execute_cdp_cmd("Emulation.clearDeviceMetricsOverride", {})


def main(folder: Path) -> None:
    """Walk through the page as docs/serve.md does."""
    folder.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory() as temporary, chromium() as page:
        photos, models = Path(temporary, "photos"), Path(temporary, "models")
        photographs(photos, 30)
        taught, held_out = Path(temporary, "taught"), Path(temporary, "held out")
        for label in PARTS:
            pictures = sorted((photos / label).iterdir())
            for into, some in ((taught, pictures[:16]), (held_out, pictures[16:])):
                if into == held_out or label != "Leaves":
                    (into / label).mkdir(parents=True)
                    for picture in some:
                        picture.rename(into / label / picture.name)
        options = ("--expansion-size", "2048", "--allow-host", LAN)
        with Server(models, Path("efficientnet-lite0"), *options) as server:
            walk(page, server, taught, held_out, lambda *given: take(page, folder, *given))
            assert server.stop() == 0


def walk(page: Any, server: Server, taught: Path, held_out: Path, shot: Callable[..., None]) -> None:
    page.get(server.url)
    until(page, lambda _: page.find_elements(By.ID, "create"))
    shot("welcome")
    new_model(page, "Garden walk")
    drop(page, ".teach > .row", taught)
    until(page, lambda _: counted(page, "Trees") == "16 images")
    until(page, lambda _: not page.find_elements(By.CSS_SELECTOR, "#lessons .lesson"))
    tried = [next(iter(sorted((held_out / label).iterdir()))) for label in PARTS]
    drop(page, ".live", *tried)
    until(page, lambda _: len(page.find_elements(By.CSS_SELECTOR, ".small-picture")) == 5)
    shot("project")
    press(page, ".small-picture.novel")
    shot("none", ".live")
    page.execute_script("scrollTo(0, 0)")
    press(page, '[data-label="Pagoda"] .thumb')
    until(page, lambda _: page.execute_script("return document.querySelector('dialog img')?.naturalWidth"))
    shot("picture")
    page.execute_script("document.querySelector('dialog').close()")
    drop(page, "#inbox .tray", *sorted(held_out.glob("*/*.jpg"))[::2])
    until(page, lambda _: page.find_elements(By.CSS_SELECTOR, "#inbox .tile"))
    script = """
      const said = (tile) => tile.querySelector(".yes").title.toLowerCase();
      const shown = (tile) => tile.querySelector("img").title.split(" ")[0];
      const tiles = [...document.querySelectorAll("#inbox .tile:not(.chosen)")];
      const right = tiles.find((tile) => said(tile).endsWith(shown(tile)));
      right.querySelector(".yes").click();
    """
    for _ in range(3):
        page.execute_script(script)
    shot("inbox", "#inbox")
    drop(page, "#insight .zone", held_out)
    until(page, lambda _: page.find_elements(By.ID, "held-out-accuracy"))
    shot("insight", "#insight")
    if page.find_elements(By.CSS_SELECTOR, "#insight .pairs button"):
        press(page, "#insight .pairs button")
        shot("confused", "#insight")
    press(page, ".matrix td button")
    shot("matrix", ".matrix")
    page.execute_script("scrollTo(0, 0)")
    new_class(page, "Kite")
    press(page, '[data-label="Kite"] [aria-label^="Show the camera"]')
    until(page, lambda _: page.execute_script("return document.querySelector('.stage video')?.videoWidth"))
    shot("camera", '[data-label="Kite"]')
    page.execute_script("location.hash = '#/'")
    until(page, lambda _: page.find_elements(By.CSS_SELECTOR, ".model"))
    shot("models")
    one(page, "#create").click()
    page.switch_to.active_element.send_keys("x" * 65, Keys.ENTER)
    shot("name")
    page.execute_script("document.querySelector('dialog').close()")
    page.execute_script("location.hash = '#/p/mistyped'")
    until(page, lambda _: "There is no model" in one(page, "#main").text)
    shot("mistyped")
    page.get(server.url.replace("127.0.0.1", LAN))
    until(page, lambda _: page.find_elements(By.CSS_SELECTOR, ".model"))
    press(page, "#phone")
    until(page, lambda _: page.find_elements(By.CSS_SELECTOR, "dialog canvas"))
    shot("qr")
    page.get(f"{server.url}docs")
    until(page, lambda _: page.find_elements(By.CSS_SELECTOR, ".docs details"))
    shot("api")


if __name__ == "__main__":
    main(Path(sys.argv[1]))
