"""The exported page: its pixels are those of Pillow, and its answers those of ``dsal predict``, in a real browser."""

import base64
import csv
import json
import shutil
import subprocess
import sys
import threading
import time
import zipfile
from collections.abc import Iterator
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image
from sklearn.datasets import load_sample_image

from dsal import DSALClassifier, InputError
from dsal.backbones import Backbone
from dsal.data.images.decode import decode_image
from dsal.image_model import ImageModel
from dsal.image_model.web_export import export_web, export_zip

pytest.importorskip("onnxscript")
NODE, NPM = shutil.which("node"), shutil.which("npm")
CHROMIUM, DRIVER = shutil.which("chromium"), shutil.which("chromedriver")
SCRIPTS = Path(__file__).parents[2] / "src" / "dsal" / "image_model" / "web"


@pytest.fixture
def model(backbone: Backbone, album: Path) -> ImageModel:
    model = ImageModel(backbone, DSALClassifier(expansion_size=64))
    model.learn(album / "first")
    return model


def test_the_folder(model: ImageModel, tmp_path: Path) -> None:
    folder = tmp_path / "page"
    export_web(model, folder, "Cups & <saucers>")
    assert {path.name for path in folder.iterdir()} == {
        "index.html", "app.js", "pixels.js", "classify.js", "style.css", "model.json", "model.onnx", "package.json",
        "README.md", "examples",
    }  # fmt: skip
    assert {path.name for path in (folder / "examples").iterdir()} == {"predict.py", "predict.js", "predict.sh"}
    about, page = json.loads((folder / "model.json").read_text()), (folder / "index.html").read_text()
    assert about["labels"] == list(model.classes)
    assert (about["size"], about["channels"], about["threshold"]) == (28, 1, 0.95)
    assert "<title>Cups &amp; &lt;saucers&gt;</title>" in page
    assert "4 classes" in page
    assert "{" not in page
    for path in folder.rglob("*.*"):  # nothing is loaded from elsewhere
        assert path.suffix in (".onnx", ".md", ".sh") or "https:" not in path.read_text()
    (folder / "node_modules").mkdir()
    export_web(model, folder, "again")
    assert (folder / "node_modules").is_dir()
    assert "<h1>again</h1>" in (folder / "index.html").read_text()


def test_where_the_runtime_comes_from(model: ImageModel, tmp_path: Path) -> None:
    installed = tmp_path / "node_modules" / "onnxruntime-web" / "dist"
    with pytest.raises(InputError, match="npm install onnxruntime-web"):
        export_web(model, tmp_path / "page", "m", str(tmp_path))
    assert not (tmp_path / "page").exists()
    installed.mkdir(parents=True)
    for name in ("ort.wasm.min.mjs", "ort-wasm-simd-threaded.mjs", "ort-wasm-simd-threaded.wasm", "ort.all.js"):
        (installed / name).write_text(name)
    export_web(model, tmp_path / "page", "m", str(tmp_path))
    assert json.loads((tmp_path / "page" / "model.json").read_text())["runtime"] == "runtime/"
    assert sorted(path.name for path in (tmp_path / "page" / "runtime").iterdir()) == [
        "ort-wasm-simd-threaded.mjs", "ort-wasm-simd-threaded.wasm", "ort.wasm.min.mjs",
    ]  # fmt: skip
    export_web(model, tmp_path / "page", "m", "https://example.org/ort")
    assert not (tmp_path / "page" / "runtime").exists()
    assert json.loads((tmp_path / "page" / "model.json").read_text())["runtime"] == "https://example.org/ort/"
    assert (
        "script-src 'self' 'wasm-unsafe-eval' https://example.org blob:;"
        in (tmp_path / "page" / "index.html").read_text()
    )


def test_other_folders_are_left_alone(model: ImageModel, tmp_path: Path) -> None:
    (tmp_path / "letters").mkdir()
    (tmp_path / "letters" / "to.txt").write_text("you")
    with pytest.raises(InputError, match="is not empty"):
        export_web(model, tmp_path / "letters", "m")
    with pytest.raises(InputError, match="is a file"):
        export_web(model, tmp_path / "letters" / "to.txt", "m")


def test_the_zip_and_its_example_in_python(model: ImageModel, album: Path, tmp_path: Path) -> None:
    export_zip(model, tmp_path / "cups.zip", "cups")
    with zipfile.ZipFile(tmp_path / "cups.zip") as archive:
        archive.extractall(tmp_path)
    photos = sorted((album / "test").rglob("*.png"))[::5]
    script = tmp_path / "cups" / "examples" / "predict.py"
    run = subprocess.run([sys.executable, script, *photos], capture_output=True, text=True, check=True)
    check([json.loads(line) for line in run.stdout.splitlines()], model, photos)


def check(answers: list[dict[str, Any]], model: ImageModel, photos: list[Path]) -> None:
    """Labels are those of the model, unknown ones too; scores are within 0.001, novelty within 0.01."""
    expected = model.predict(photos)
    assert len(answers) == len(expected)
    for answer, right in zip(answers, expected, strict=True):
        assert abs(answer["score"] - right.score) < 1e-3
        assert abs(answer["novelty"] - right.novelty) < 0.01
        if abs(right.novelty - 0.95) > 0.01:
            assert answer["label"] == ("unknown" if right.novel else right.label)


SQUARE = """
import { readFileSync } from "node:fs";
import { square } from "%s";
for (const [path, width, height, channels, size, jpeg] of %s) {
  const data = readFileSync(path);
  process.stdout.write(square({ width, height, data, jpeg }, { size, channels, crop: 0.875 }));
}
"""


@pytest.mark.skipif(NODE is None, reason="no Node")
def test_pixels_are_those_of_pillow(tmp_path: Path) -> None:
    """Bit for bit, for any size; a large JPEG, which Pillow decodes at a fraction of its size, nearly."""
    photo, cases, expected = Image.fromarray(load_sample_image("flower.jpg")), [], []
    for number, (width, height, channels, size, jpeg) in enumerate(
        [(640, 427, 3, 224, False), (100, 130, 3, 224, False), (641, 250, 1, 28, False), (1701, 1400, 3, 96, False),
         (96, 96, 3, 84, False), (300, 450, 3, 224, False), (421, 750, 3, 224, False), (1500, 1000, 3, 224, True)]
    ):  # fmt: skip
        image = photo.resize((width, height), Image.Resampling.BICUBIC)
        path, raw = tmp_path / f"{number}.{'jpg' if jpeg else 'png'}", tmp_path / f"{number}.raw"
        image.save(path, quality=95)
        raw.write_bytes(Image.open(path).convert("RGBA").tobytes())
        cases.append([str(raw), width, height, channels, size, jpeg])
        expected.append(decode_image(path, size, channels))
    shutil.copy(SCRIPTS / "classify.js", tmp_path / "classify.mjs")
    (tmp_path / "run.mjs").write_text(SQUARE % ("./classify.mjs", json.dumps(cases)))
    out = subprocess.run([str(NODE), tmp_path / "run.mjs"], capture_output=True, check=True).stdout
    found = np.split(np.frombuffer(out, np.uint8), np.cumsum([each.size for each in expected])[:-1])
    for mine, theirs, case in zip(found, expected, cases, strict=True):
        difference = np.abs(mine.reshape(theirs.shape).astype(int) - theirs)
        assert difference.max() == 0 or case[-1], case
        assert difference.mean() < 1


@pytest.fixture
def browser(tmp_path: Path) -> Iterator[Any]:
    webdriver = pytest.importorskip("selenium.webdriver")
    options = webdriver.ChromeOptions()
    options.binary_location = CHROMIUM
    options.add_experimental_option("prefs", {"download.default_directory": str(tmp_path)})
    for flag in ("--headless=new", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage"):
        options.add_argument(flag)
    options.set_capability("goog:loggingPrefs", {"browser": "ALL", "performance": "ALL"})
    driver = webdriver.Chrome(options=options, service=webdriver.ChromeService(DRIVER))
    yield driver
    driver.quit()


def large_photos(folder: Path) -> list[Path]:
    """JPEGs that Pillow decodes at 1/2, 1/4 and 1/8: three kinds of subsampling, progressive, rotated, grey."""
    folder.mkdir()
    picture, paths = Image.fromarray(load_sample_image("flower.jpg")), []
    for number, (width, height, subsampling, orientation, mode) in enumerate(
        [(1349, 901, 0, 1, "RGB"), (1345, 900, 1, 6, "RGB"), (2701, 1803, 2, 1, "RGB"), (2702, 1806, 2, 8, "RGB"),
         (4032, 3599, 2, 3, "RGB"), (1501, 1000, 0, 1, "L")]
    ):  # fmt: skip
        exif = Image.Exif()
        exif[0x0112] = orientation
        path = folder / f"large-{number}.jpg"
        image = picture.resize((width, height), Image.Resampling.BICUBIC).convert(mode)
        image.save(path, quality=88, subsampling=subsampling, progressive=number % 2 == 1, exif=exif)
        paths.append(path)
    return paths


DECODE = """
import { square } from "./classify.js";
import { pixelsOf } from "./pixels.js";
window.decoded = async (path) => {
  const image = await pixelsOf(await (await fetch(path)).blob(), 224);
  const bytes = square(image, { size: 224, channels: 3, crop: 0.875 });
  return btoa(Array.from(bytes, (byte) => String.fromCharCode(byte)).join(""));
};
"""


@pytest.mark.skipif(not (CHROMIUM and DRIVER), reason="no chromium with its driver")
def test_large_photos_in_a_browser_have_the_pixels_of_pillow(browser: Any, address: str, tmp_path: Path) -> None:
    photos = large_photos(tmp_path / "photos")
    for name in ("classify.js", "pixels.js"):
        shutil.copy(SCRIPTS / name, tmp_path)
    (tmp_path / "index.html").write_text(f'<!doctype html><script type="module">{DECODE}</script>')
    browser.get(address)
    wait(lambda: browser.execute_script("return Boolean(window.decoded)"))
    for photo in photos:
        found = browser.execute_async_script("decoded(arguments[0]).then(arguments[1])", f"photos/{photo.name}")
        pixels = np.frombuffer(base64.b64decode(found), np.uint8).reshape(3, 224, 224)
        np.testing.assert_array_equal(pixels, decode_image(photo, 224), photo.name)


@pytest.fixture(scope="module")
def runtime(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("npm")
    subprocess.run([str(NPM), "install", "onnxruntime-web@1", "sharp"], cwd=folder, check=True, capture_output=True)
    return folder


@pytest.fixture
def address(tmp_path: Path) -> Iterator[str]:
    """A plain server of files."""
    server = ThreadingHTTPServer(("127.0.0.1", 0), partial(SimpleHTTPRequestHandler, directory=str(tmp_path)))
    threading.Thread(target=server.serve_forever, daemon=True).start()
    yield f"http://127.0.0.1:{server.server_port}"
    server.shutdown()
    server.server_close()


@pytest.mark.slow
@pytest.mark.skipif(not (NPM and CHROMIUM and DRIVER), reason="no npm, or no chromium with its driver")
def test_fifty_photographs_in_a_browser(
    browser: Any, runtime: Path, address: str, photo_folder: Path, tmp_path: Path
) -> None:
    pytest.importorskip("efficientnet_lite_pytorch")
    model, photos = ImageModel(expansion_size=512), sorted(photo_folder.rglob("*.JPEG"))
    known = [path for path in photos if "china" in path.parent.name]
    model.learn((known[::2], [path.parent.name for path in known[::2]]))
    export_web(model, tmp_path / "page", "photos", str(runtime))
    large = large_photos(tmp_path / "photos")
    asked = [*large, *photos[:: len(photos) // 44][: 50 - len(large)]]
    browser.get(f"{address}/page/")
    wait(lambda: browser.find_element("id", "drop").is_displayed())
    browser.find_element("id", "files").send_keys("\n".join(map(str, asked)))
    wait(lambda: len(browser.find_elements("css selector", "#answers .label")) == 50)
    browser.find_element("id", "save").click()
    wait(lambda: (tmp_path / "answers.csv").exists())
    shown = [element.text for element in browser.find_elements("css selector", "#answers .label")]
    assert browser.get_log("browser") == []
    events = [json.loads(entry["message"])["message"] for entry in browser.get_log("performance")]
    sent = {e["params"]["request"]["url"] for e in events if e["method"] == "Network.requestWillBeSent"}
    assert all(url.startswith((address, "blob:", "data:")) for url in sent)
    with (tmp_path / "answers.csv").open() as file:
        rows = list(csv.DictReader(file))
    assert [row["path"] for row in rows] == [path.name for path in asked]
    answers = [
        {"label": label, "score": float(row["score"]), "novelty": float(row["novelty"])}
        for label, row in zip(shown, rows, strict=True)
    ]
    check(answers, model, asked)
    assert "unknown" in shown
    assert len(set(shown)) > 1
    (tmp_path / "page" / "node_modules").symlink_to(runtime / "node_modules")
    script = tmp_path / "page" / "examples" / "predict.js"
    run = subprocess.run([str(NODE), script, *asked[-10:]], capture_output=True, text=True, check=True)
    check([json.loads(line) for line in run.stdout.splitlines()], model, asked[-10:])


def wait(done: Any, seconds: float = 300) -> None:
    """Wait until something is true."""
    end = time.monotonic() + seconds
    while not done():
        assert time.monotonic() < end
        time.sleep(0.2)
