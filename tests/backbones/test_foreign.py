"""Foreign ONNX graphs: extractors run, and everything that could hang, fill the memory or read files is refused."""

import os
import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

onnx = pytest.importorskip("onnx")
pytest.importorskip("onnxruntime")
from onnx import TensorProto, helper, numpy_helper  # noqa: E402

from dsal.backbones import foreign  # noqa: E402
from dsal.backbones.foreign import check_graph  # noqa: E402
from dsal.backbones.graphs import onnx_backbone  # noqa: E402
from dsal.backbones.pretrained import open_backbone  # noqa: E402
from dsal.errors import FileFormatError  # noqa: E402

SIZE = 16


@pytest.fixture(autouse=True)
def _own_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DSAL_DATA", str(tmp_path / "cache"))
    monkeypatch.setattr(foreign, "_checked", set())


def model(*nodes: Any, constants: dict[str, Any] | None = None, shape: tuple[Any, ...] = ("n", 3, SIZE, SIZE)) -> Any:
    """A graph from ``images`` to ``features``."""
    graph = helper.make_graph(
        list(nodes),
        "extractor",
        [helper.make_tensor_value_info("images", TensorProto.FLOAT, shape)],
        [helper.make_tensor_value_info("features", TensorProto.FLOAT, None)],
        [numpy_helper.from_array(np.asarray(value), name) for name, value in (constants or {}).items()],
    )
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=9)


def extractor() -> Any:
    pool = helper.make_node("GlobalAveragePool", ["images"], ["pooled"])
    return model(pool, helper.make_node("Flatten", ["pooled"], ["features"]))


def endless() -> Any:
    """2**62 steps that do nothing."""
    body = helper.make_graph(
        [helper.make_node("Identity", ["go"], ["on"]), helper.make_node("Identity", ["x"], ["y"])],
        "body",
        [
            helper.make_tensor_value_info("step", TensorProto.INT64, []),
            helper.make_tensor_value_info("go", TensorProto.BOOL, []),
            helper.make_tensor_value_info("x", TensorProto.FLOAT, None),
        ],
        [
            helper.make_tensor_value_info("on", TensorProto.BOOL, []),
            helper.make_tensor_value_info("y", TensorProto.FLOAT, None),
        ],
    )
    loop = helper.make_node("Loop", ["steps", "", "images"], ["features"], body=body)
    return model(loop, constants={"steps": np.array(2**62)})


def elsewhere() -> Any:
    """Weights in a file below the working directory."""
    found = extractor()
    found.graph.node.append(helper.make_node("Add", ["features", "secret"], ["more"]))
    tensor = found.graph.initializer.add(name="secret", data_type=TensorProto.FLOAT, dims=[3])
    tensor.data_location = TensorProto.EXTERNAL
    tensor.external_data.add(key="location", value="secret.bin")
    return found


def declares(count: int) -> Any:
    found = extractor()
    found.graph.initializer.add(name="huge", data_type=TensorProto.FLOAT, dims=[count, 2])
    return found


def sized_by_pixels() -> Any:
    """As many numbers as the brightest pixel says."""
    top = helper.make_node("ReduceMax", ["images"], ["top"], keepdims=0)
    whole = helper.make_node("Cast", ["top"], ["many"], to=TensorProto.INT64)
    line = helper.make_node("Reshape", ["many", "one"], ["shape"])
    return model(
        top, whole, line, helper.make_node("ConstantOfShape", ["shape"], ["features"]), constants={"one": np.array([1])}
    )


def node(kind: str, inputs: list[str], **options: Any) -> Any:
    return model(helper.make_node(kind, inputs, ["features"], **options))


REFUSED = {
    "loop": (endless, "loops or branches"),
    "random": (lambda: node("RandomNormal", [], shape=[30000, 30000]), "'.RandomNormal' is not allowed"),
    "domain": (lambda: node("Relu", ["images"], domain="com.evil"), "'com.evil:Relu' is not allowed"),
    "file": (elsewhere, "in another file"),
    "declared": (lambda: declares(2**40), "declare more than"),
    "pixels": (sized_by_pixels, "depends on the pixels"),
    "wrong": (lambda: node("Gemm", ["images", "images"]), "cannot run it"),
}


@pytest.mark.parametrize("name", REFUSED)
def test_hostile_graphs(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "secret.bin").write_bytes(np.float32([7, 7, 7]).tobytes())
    make, reason = REFUSED[name]
    (tmp_path / "x.onnx").write_bytes(make().SerializeToString())
    start = time.monotonic()
    with pytest.raises(FileFormatError, match=reason):
        open_backbone("x.onnx")
    assert time.monotonic() - start < 60
    assert not list((tmp_path / "cache").rglob("*.checked*"))


def test_time_and_memory_of_the_first_run_are_limited() -> None:
    matrix = np.zeros((1, 1, 4000, 4000), np.float32)
    products = [helper.make_node("MatMul", [f"m{n}" if n else "square", "square"], [f"m{n + 1}"]) for n in range(300)]
    last = helper.make_node("ReduceSum", ["m300"], ["sum"], keepdims=0)
    slow = model(
        *products, last, helper.make_node("Add", ["images", "sum"], ["features"]), constants={"square": matrix}
    )
    with pytest.raises(FileFormatError, match=r"took more than 3 s|ended early"):
        check_graph(slow.SerializeToString(), seconds=3)
    wide = helper.make_node("Expand", ["images", "wide"], ["tall"])
    large = model(
        wide,
        helper.make_node("ReduceMean", ["tall"], ["features"], axes=[2, 3], keepdims=0),
        constants={"wide": np.array([3000, 1, SIZE, 30 * SIZE])},
        shape=(1, 3, SIZE, 1),
    )
    if os.name == "posix":
        with pytest.raises(FileFormatError, match=r"ended early|cannot run it"):
            check_graph(large.SerializeToString(), memory=2**28)


def test_an_extractor_is_checked_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "x.onnx").write_bytes(extractor().SerializeToString())
    backbone = onnx_backbone(tmp_path / "x.onnx")
    images = torch.randint(0, 256, (5, 3, SIZE, SIZE), dtype=torch.uint8)
    assert backbone.extract(images).shape == (5, 3)
    assert len(list((tmp_path / "cache").rglob("*.checked-1"))) == 1
    monkeypatch.setattr(foreign, "_checked", set())
    monkeypatch.setattr(foreign, "_try", None)  # would fail
    assert onnx_backbone(tmp_path / "x.onnx").extract(images).shape == (5, 3)
