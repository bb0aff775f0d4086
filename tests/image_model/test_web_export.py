"""The exported page: its pixels are those of Pillow, and its answers those of ``dsal predict``, in a real browser."""

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


@pytest.fixture
def model(backbone: Backbone, album: Path) -> ImageModel:
    model = ImageModel(backbone, DSALClassifier(expansion_size=64))
    model.learn(album / "first")
    return model


def test_the_folder(model: ImageModel, tmp_path: Path) -> None:
    folder = tmp_path / "page"
    export_web(model, folder, "Cups & <saucers>")
    assert {path.name for path in folder.iterdir()} == {
        "index.html", "app.js", "classify.js", "style.css", "model.json", "model.onnx", "package.json", "README.md",
        "examples",
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
         (96, 96, 3, 84, False), (1500, 1000, 3, 224, True)]
    ):  # fmt: skip
        image = photo.resize((width, height), Image.Resampling.BICUBIC)
        path, raw = tmp_path / f"{number}.{'jpg' if jpeg else 'png'}", tmp_path / f"{number}.raw"
        image.save(path, quality=95)
        raw.write_bytes(Image.open(path).convert("RGBA").tobytes())
        cases.append([str(raw), width, height, channels, size, jpeg])
        expected.append(decode_image(path, size, channels))
    source = Path(__file__).parents[2] / "src" / "dsal" / "image_model" / "web" / "classify.js"
    shutil.copy(source, tmp_path / "classify.mjs")
    (tmp_path / "run.mjs").write_text(SQUARE % ("./classify.mjs", json.dumps(cases)))
    out = subprocess.run([str(NODE), tmp_path / "run.mjs"], capture_output=True, check=True).stdout
    found = np.split(np.frombuffer(out, np.uint8), np.cumsum([each.size for each in expected])[:-1])
    for mine, theirs, case in zip(found, expected, cases, strict=True):
        difference = np.abs(mine.reshape(theirs.shape).astype(int) - theirs)
        assert difference.max() == 0 or case[-1], case
        assert difference.mean() < 1


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
def test_fifty_photographs_in_a_browser(runtime: Path, address: str, photo_folder: Path, tmp_path: Path) -> None:
    webdriver = pytest.importorskip("selenium.webdriver")
    pytest.importorskip("efficientnet_lite_pytorch")
    model, photos = ImageModel(expansion_size=512), sorted(photo_folder.rglob("*.JPEG"))
    known = [path for path in photos if "china" in path.parent.name]
    model.learn((known[::2], [path.parent.name for path in known[::2]]))
    export_web(model, tmp_path / "page", "photos", str(runtime))
    options = webdriver.ChromeOptions()
    options.binary_location = CHROMIUM
    options.add_experimental_option("prefs", {"download.default_directory": str(tmp_path)})
    for flag in ("--headless=new", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage"):
        options.add_argument(flag)
    options.set_capability("goog:loggingPrefs", {"browser": "ALL", "performance": "ALL"})
    driver = webdriver.Chrome(options=options, service=webdriver.ChromeService(DRIVER))
    asked = photos[:: len(photos) // 50][:50]
    try:
        driver.get(f"{address}/page/")
        wait(lambda: driver.find_element("id", "drop").is_displayed())
        driver.find_element("id", "files").send_keys("\n".join(map(str, asked)))
        wait(lambda: len(driver.find_elements("css selector", "#answers .label")) == 50)
        driver.find_element("id", "save").click()
        wait(lambda: (tmp_path / "answers.csv").exists())
        shown = [element.text for element in driver.find_elements("css selector", "#answers .label")]
        assert driver.get_log("browser") == []
        events = [json.loads(entry["message"])["message"] for entry in driver.get_log("performance")]
        sent = {e["params"]["request"]["url"] for e in events if e["method"] == "Network.requestWillBeSent"}
        assert all(url.startswith((address, "blob:", "data:")) for url in sent)
    finally:
        driver.quit()
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
    run = subprocess.run([str(NODE), script, *asked[:10]], capture_output=True, text=True, check=True)
    check([json.loads(line) for line in run.stdout.splitlines()], model, asked[:10])


def wait(done: Any, seconds: float = 300) -> None:
    """Wait until something is true."""
    end = time.monotonic() + seconds
    while not done():
        assert time.monotonic() < end
        time.sleep(0.2)
