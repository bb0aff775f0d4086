"""Backbones in ONNX Runtime: the same features, converted once, and graphs that users bring along."""

import json
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image
from torch import nn

from dsal import DSALClassifier, FileFormatError, InputError
from dsal.backbones import Backbone, load_backbone
from dsal.backbones.pretrained import open_backbone, wrap_module
from dsal.data.images.labelled_files import read_files
from dsal.image_model import ImageModel, graph_features
from dsal.image_model.image_features import BackboneFeatures
from dsal.image_model.image_predictor import ImagePredictor

onnx = pytest.importorskip("onnx")
pytest.importorskip("onnxruntime")
pytest.importorskip("onnxscript")


def small() -> Backbone:
    """Two layers: what takes long to convert is the number of nodes."""
    torch.manual_seed(0)
    module = nn.Sequential(nn.Conv2d(3, 24, 5, 2), nn.BatchNorm2d(24), nn.ReLU(), nn.Conv2d(24, 48, 5, 2))
    return wrap_module(module, size=28)


@pytest.fixture
def backbone() -> Backbone:
    return small()


@pytest.fixture(scope="module")
def converted() -> bytes:
    from dsal.backbones.graphs import to_onnx

    return to_onnx(small())


@pytest.fixture
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("DSAL_DATA", str(tmp_path / "cache"))
    monkeypatch.setattr(graph_features, "WORTH_CONVERTING", 28**2 * 20)
    return tmp_path / "cache" / "onnx"


def test_same_features(converted: bytes, backbone: Backbone) -> None:
    images = torch.randint(0, 256, (20, 3, 28, 28), dtype=torch.uint8)
    expected = backbone.extract(images).numpy()
    found = graph_features.Graph(converted)(images.numpy())
    np.testing.assert_allclose(found, expected, atol=1e-4)
    assert graph_features.Graph(converted).width == expected.shape[1]


def test_converted_once_and_used(
    converted: bytes, backbone: Backbone, album: Path, cache: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """From 20 images on it is converted; later, few images find it in the cache. Order and broken files are kept."""
    calls = []
    monkeypatch.setattr("dsal.backbones.graphs.to_onnx", lambda _: calls.append(1) or converted)
    paths = list(read_files(album / "first").paths)
    expected = BackboneFeatures(backbone).collect(paths[:10]).x
    assert not cache.exists()
    paths[10:10] = [tmp_path / "torn.png"]
    paths[10].write_bytes(b"no image")
    found = BackboneFeatures(backbone).collect(paths, broken="skip")
    assert found.rows.tolist() == [row for row in range(61) if row != 10]
    np.testing.assert_allclose(found.x[:10], expected, atol=1e-4)
    assert len(found.broken) == 1
    assert [path.name for path in cache.iterdir()] == [f"{backbone.fingerprint()}.onnx"]
    monkeypatch.setattr(backbone, "extract", None)  # only the graph can answer now
    np.testing.assert_allclose(BackboneFeatures(backbone).collect(paths[:3]).x, expected[:3], atol=1e-4)
    assert calls == [1]
    with pytest.raises(FileFormatError, match=r"torn\.png"):
        BackboneFeatures(backbone).collect(paths)


def test_a_conversion_that_fails_or_lies_leaves_pytorch(
    converted: bytes, backbone: Backbone, album: Path, cache: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    paths = read_files(album / "first").paths[:30]
    monkeypatch.setattr("dsal.backbones.graphs.to_onnx", lambda _: b"no graph")
    expected = BackboneFeatures(backbone).collect(paths).x
    with torch.no_grad():
        backbone.feature_mean += 1.0  # not the backbone that was converted
    monkeypatch.setattr("dsal.backbones.graphs.to_onnx", lambda _: converted)
    np.testing.assert_allclose(BackboneFeatures(backbone).collect(paths).x, expected - 1, atol=1e-4)
    assert not cache.exists()


def extractor(path: Path, metadata: dict[str, object], size: int | str = 32) -> Path:
    """A graph that averages 4x4 pixels of each channel, as an ONNX file."""
    from onnx import TensorProto, helper

    shape = ["n", 3, size, size]
    node = helper.make_node("AveragePool", ["pixels"], ["maps"], kernel_shape=[4, 4], strides=[4, 4])
    flat = helper.make_node("Flatten", ["maps"], ["features"])
    made = helper.make_graph(
        [node, flat],
        "means",
        [helper.make_tensor_value_info("pixels", TensorProto.FLOAT, shape)],
        [helper.make_tensor_value_info("features", TensorProto.FLOAT, ["n", None])],
    )
    model = helper.make_model(made, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    onnx.helper.set_model_props(model, {name: json.dumps(value) for name, value in metadata.items()})
    onnx.save(model, path)
    return path


def test_any_onnx_file_is_a_backbone(album: Path, tmp_path: Path) -> None:
    path = extractor(tmp_path / "net.onnx", {"mean": [0.5], "std": [0.25]})
    backbone = open_backbone(str(path))
    assert (backbone.card.size, backbone.card.mean, backbone.card.std) == (32, (0.5,) * 3, (0.25,) * 3)
    pixels = np.random.default_rng(0).integers(0, 256, (2, 3, 32, 32), dtype=np.uint8)
    means = ((pixels / 255 - 0.5) / 0.25).reshape(2, 3, 8, 4, 8, 4).mean((3, 5)).reshape(2, -1)
    np.testing.assert_allclose(backbone.extract(torch.from_numpy(pixels)), means, atol=1e-5)
    model = ImageModel(backbone, DSALClassifier(expansion_size=256))
    model.learn(album / "first")
    model.save(tmp_path / "m.dsal")
    path.unlink()  # the graph is part of the model
    again = ImageModel.load(tmp_path / "m.dsal")
    assert again.predict(album / "test") == model.predict(album / "test")
    for wrong in ("nowhere.onnx", str(next((album / "first").rglob("*.png")).with_suffix(".png"))):
        with pytest.raises((InputError, FileFormatError)):
            open_backbone(wrong)
    (tmp_path / "torn.onnx").write_bytes(b"torn")
    with pytest.raises(FileFormatError, match="ONNX Runtime can run"):
        open_backbone(str(tmp_path / "torn.onnx"))


def identity(path: Path, height: int, width: int) -> Path:
    """A graph whose features are its pixels, bytes in and floats out, as an ONNX file."""
    from onnx import TensorProto, helper

    nodes = [
        helper.make_node("Cast", ["pixels"], ["floats"], to=TensorProto.FLOAT),
        helper.make_node("Flatten", ["floats"], ["features"]),
    ]
    given = helper.make_tensor_value_info("pixels", TensorProto.UINT8, ["n", 3, height, width])
    made = helper.make_tensor_value_info("features", TensorProto.FLOAT, ["n", None])
    graph = helper.make_graph(nodes, "pixels", [given], [made])
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8), path)
    return path


def test_a_graph_of_bytes_gets_every_pixel_unchanged(tmp_path: Path) -> None:
    backbone = open_backbone(str(identity(tmp_path / "bytes.onnx", 16, 16)))
    pixels = torch.arange(256, dtype=torch.uint8).repeat(3).reshape(1, 3, 16, 16)
    assert torch.equal(backbone.extract(pixels), pixels.reshape(1, -1).float())


def test_a_graph_of_images_that_are_not_square_is_refused(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="square images, not 16 x 32 pixels"):
        open_backbone(str(identity(tmp_path / "wide.onnx", 16, 32)))


def test_heic(tmp_path: Path) -> None:
    heif = pytest.importorskip("pillow_heif")
    from dsal.data.images.decode import decode_image
    from dsal.data.images.labelled_files import images_below

    picture = Image.new("RGB", (64, 48), (200, 30, 30))
    heif.from_pillow(picture).save(tmp_path / "a.heic")
    assert images_below(tmp_path) == [tmp_path / "a.heic"]
    pixels = decode_image(tmp_path / "a.heic", 16)
    assert np.abs(pixels.reshape(3, -1).mean(1) - (200, 30, 30)).max() < 8


def test_a_file_predicts_as_its_model_does(
    converted: bytes, backbone: Backbone, album: Path, cache: Path, tmp_path: Path
) -> None:
    """Both streams, novelty and probabilities, without PyTorch; another expansion or no graph is left to PyTorch."""
    cache.mkdir(parents=True)
    model = ImageModel(backbone, DSALClassifier(expansion_size=256))
    (cache / f"{backbone.fingerprint()}.onnx").write_bytes(converted)
    model.learn(album / "first")
    model.learn(album / "second")
    model.save(tmp_path / "m.dsal")
    light = ImagePredictor.load(tmp_path / "m.dsal")
    assert light is not None
    assert light.predict(album / "test") == model.predict(album / "test")  # bit for bit
    assert light.suggest(album / "unseen", 5) == model.suggest(album / "unseen", 5)
    found, expected = light.evaluate(album / "test"), model.evaluate(album / "test")
    assert np.array_equal(found.confusion, expected.confusion)
    assert (found.known_flagged, found.unknown_flagged) == (expected.known_flagged, expected.unknown_flagged)
    other = ImageModel(backbone, DSALClassifier(expansion_size=64, activation="mish"))
    other.learn(album / "first")
    assert other.evaluate(album / "first").accuracy > 0.5
    other.save(tmp_path / "other.dsal")
    assert ImagePredictor.load(tmp_path / "other.dsal") is None


LIGHT = """
import sys
import time
from dsal.cli.main import main
sys.argv = ["dsal", *sys.argv[1:]]
try:
    main()
finally:
    heavy = sorted({"torch", "sklearn"} & set(sys.modules))
    print("HEAVY", *heavy)
"""


def test_light_commands_do_not_import_torch(
    converted: bytes, backbone: Backbone, album: Path, cache: Path, tmp_path: Path
) -> None:
    model = ImageModel(backbone, DSALClassifier(expansion_size=64))
    model.learn((read_files(album / "first").paths[:20], read_files(album / "first").labels[:20]))  # of two classes
    model.learn((read_files(album / "first").paths[20:22], read_files(album / "first").labels[20:22]))
    model.save(tmp_path / "m.dsal")
    cache.mkdir(parents=True, exist_ok=True)
    (cache / f"{backbone.fingerprint()}.onnx").write_bytes(converted)
    picture = next((album / "test").rglob("*.png"))

    def run(*arguments: object) -> str:
        return subprocess.run(
            [sys.executable, "-c", LIGHT, *map(str, arguments)], capture_output=True, text=True, check=False
        ).stdout

    for arguments in (
        ("predict", tmp_path / "m.dsal", picture),
        ("info", tmp_path / "m.dsal"),
        ("learn", tmp_path / "nowhere", "--model", tmp_path / "m.dsal"),
        ("learn", album / "first", "--model", tmp_path / "nowhere" / "m.dsal"),
        ("predict", tmp_path / "m.dsal", tmp_path / "nowhere.jpg"),
        ("suggest", tmp_path / "m.dsal", tmp_path / "nowhere"),
        ("evaluate", tmp_path / "m.dsal", album / "test"),
        ("rename", tmp_path / "m.dsal", "char 0", "alpha"),
        ("drop", tmp_path / "m.dsal", "alpha"),
        ("undo", tmp_path / "m.dsal"),
        ("redo", tmp_path / "m.dsal"),
    ):
        assert run(*arguments).splitlines()[-1] == "HEAVY", arguments
    assert run("suggest", tmp_path / "m.dsal", album / "unseen").splitlines()[-1] == "HEAVY sklearn"  # k-means
    assert run("info", tmp_path / "m.dsal").count("\n  char ") == 1


CONVERTS = """if True:  # a server that converts a backbone, as far as its memory is concerned
    import gc, sys
    from pathlib import Path
    from dsal.backbones import load_backbone
    from dsal.serve.engine.extractor import Extractor
    backbone = load_backbone(Path(sys.argv[1]))
    gc.collect()
    gc.freeze()
    extractor = Extractor(backbone)
    print("begun", flush=True)
    extractor.prepare()
    gc.collect()
    print(extractor._graph is not None, "onnxscript" in sys.modules, len(gc.get_objects()) < 20_000)
"""


def children(process: int) -> list[str]:
    return [child for each in Path(f"/proc/{process}/task").glob("*/children") for child in each.read_text().split()]


@pytest.mark.skipif(not Path("/proc/self").exists(), reason="processes are looked at in /proc")
def test_a_server_converts_in_another_process(weights: Path, cache: Path) -> None:
    """The exporter would leave 300,000 objects, for which every collection of garbage blocks the event loop."""
    pytest.importorskip("fastapi")
    command, until = [sys.executable, "-c", CONVERTS, str(weights)], time.monotonic() + 60
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as server:
        assert server.stdout is not None
        assert server.stdout.readline() == "begun\n"
        while not (found := children(server.pid)) and time.monotonic() < until:
            time.sleep(0.01)
        server.kill()
    while Path(f"/proc/{found[0]}").exists() and time.monotonic() < until:
        time.sleep(0.05)
    assert not Path(f"/proc/{found[0]}").exists(), "it ends with the server"
    assert subprocess.run(command, capture_output=True, text=True).stdout == "begun\nTrue False True\n"
    (path,) = cache.iterdir()
    images = np.random.default_rng(0).integers(0, 256, (3, 1, 28, 28), dtype=np.uint8)
    expected = load_backbone(weights).extract(torch.from_numpy(images)).numpy()
    np.testing.assert_allclose(graph_features.Graph(str(path))(images), expected, atol=1e-4)
