"""`dsal export --web` in Chromium against `dsal predict`: labels, scores and novelty of the same photographs.

    npm install onnxruntime-web                        # anywhere; --runtime is that folder
    python benchmarks/in_the_browser.py --images FOLDER --runtime . --json benchmarks/results/in-the-browser.json

FOLDER has class folders. A model (d_B = 4096) learns 25 JPEGs of each of the six largest, in two lessons. It is asked
about other photographs of all classes: half of them large, which Pillow decodes at a fraction of their size.
``--plain`` hides the browser's ImageDecoder, as browsers other than Chromium do.
"""

from __future__ import annotations

import argparse
import csv
import json
import shutil
import threading
import time
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
import PIL
from PIL import Image

from dsal import __version__
from dsal.data.images.labelled_files import read_files
from dsal.image_model import ImageModel
from dsal.image_model.web_export import export_web

LARGE = 896  # pixels of the shorter side, four times the input of the network


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--images", type=Path, required=True)
    parser.add_argument("--runtime", required=True)
    parser.add_argument("--count", type=int, default=50)
    parser.add_argument("--plain", action="store_true")
    parser.add_argument("--json", type=Path)
    arguments = parser.parse_args()
    by_class: dict[str, list[Path]] = {}
    for path in read_files(arguments.images).paths:
        if isinstance(path, Path) and path.suffix.lower() in (".jpg", ".jpeg"):
            by_class.setdefault(path.parent.name, []).append(path)
    random = np.random.default_rng(0)
    for paths in by_class.values():
        random.shuffle(paths)  # type: ignore[arg-type]
    largest = sorted(by_class, key=lambda name: -len(by_class[name]))[:6]
    model = ImageModel()
    for lesson in (slice(0, 12), slice(12, 25)):
        part = [path for name in largest for path in by_class[name][lesson]]
        model.learn((part, [path.parent.name for path in part]))
    rest = [path for name, paths in by_class.items() for path in paths[25 if name in largest else 0 :]]
    random.shuffle(rest)  # type: ignore[arg-type]
    large = [path for path in rest if shorter(path) >= LARGE][: arguments.count // 2]
    small = [path for path in rest if shorter(path) < LARGE][: arguments.count - len(large)]
    with TemporaryDirectory() as folder:
        export_web(model, Path(folder) / "page", "photographs", arguments.runtime)
        answers, seconds = asked(Path(folder), [*large, *small], arguments.plain)
    result: dict[str, Any] = {"seconds_per_photo": round(seconds, 2), "large": len(large), "small": len(small)}
    result |= {"pillow": PIL.__version__, "version": __version__, "labels_equal": 0, "unknown_equal": 0, "unknown": 0}
    differences = []
    for answer, right in zip(answers, model.predict([*large, *small]), strict=True):
        result["labels_equal"] += answer["label"] == right.label
        result["unknown_equal"] += bool(int(answer["novel"])) == right.novel
        result["unknown"] += right.novel
        differences.append([abs(float(answer["score"]) - right.score), abs(float(answer["novelty"]) - right.novelty)])
    for name, part in (("large", differences[: len(large)]), ("small", differences[len(large) :])):
        result[f"{name}_score"], result[f"{name}_novelty"] = np.max(part, axis=0).tolist()
    text = json.dumps(result, indent=1)
    print(text)
    if arguments.json:
        arguments.json.write_text(text + "\n")


def shorter(path: Path) -> int:
    """Return the shorter side of a photograph in pixels."""
    with Image.open(path) as image:
        return min(image.size)


def asked(folder: Path, photographs: list[Path], plain: bool) -> tuple[list[dict[str, str]], float]:
    """Return the page's answers as it saves them, and the seconds it took for each photograph."""
    from selenium import webdriver

    options = webdriver.ChromeOptions()
    options.binary_location = shutil.which("chromium") or "chromium"
    options.add_experimental_option("prefs", {"download.default_directory": str(folder)})
    for flag in ("--headless=new", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage"):
        options.add_argument(flag)
    server = ThreadingHTTPServer(("127.0.0.1", 0), partial(SimpleHTTPRequestHandler, directory=str(folder)))
    threading.Thread(target=server.serve_forever, daemon=True).start()
    driver = webdriver.Chrome(options=options, service=webdriver.ChromeService(shutil.which("chromedriver")))
    try:
        if plain:
            driver.execute_cdp_cmd("Page.addScriptToEvaluateOnNewDocument", {"source": "delete window.ImageDecoder"})
        driver.get(f"http://127.0.0.1:{server.server_port}/page/")
        wait(lambda: driver.find_element("id", "drop").is_displayed())
        began = time.perf_counter()
        driver.find_element("id", "files").send_keys("\n".join(str(path.resolve()) for path in photographs))
        wait(lambda: len(driver.find_elements("css selector", "#answers .label")) == len(photographs))
        seconds = (time.perf_counter() - began) / len(photographs)
        driver.find_element("id", "save").click()
        wait((folder / "answers.csv").exists)
    finally:
        driver.quit()
        server.shutdown()
    with (folder / "answers.csv").open() as file:
        return list(csv.DictReader(file)), seconds


def wait(done: Any, seconds: float = 600) -> None:
    """Wait until something is true."""
    end = time.monotonic() + seconds
    while not done():
        if time.monotonic() > end:
            raise SystemExit("the page did not answer")
        time.sleep(0.2)


if __name__ == "__main__":
    main()
