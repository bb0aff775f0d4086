"""Foreign ONNX graphs are hostile until checked: what they may contain, and a first run in a process with limits.

A graph is a program. Here it may hold the operators of feature extractors, and no loop, branch, random number or file.
The sizes of all its tensors follow from the size of the images, never from their pixels; so a trial with a few images
shows what every later run will take.
"""

from __future__ import annotations

import hashlib
import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Iterable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

from dsal.base.options import user_folder
from dsal.errors import FileFormatError, InputError

SECONDS = 60  # of the trial
MEMORY = 3 * 2**30  # bytes of the trial, beside six times the size of the graph
MOST_NODES = 20_000
_EXPANDED = 8  # most bytes of a tensor in memory for each of its bytes in the file
_CHECK = 1  # number of this check; a later one does not trust what an earlier one has passed
_OPERATORS = """
Abs Add And ArgMax ArgMin AveragePool BatchNormalization Cast Ceil Celu Clip Concat Constant ConstantOfShape Conv
ConvInteger ConvTranspose CumSum DepthToSpace DequantizeLinear Div Dropout DynamicQuantizeLinear Einsum Elu Equal Erf
Exp Expand Flatten Floor Gather GatherElements GatherND Gelu Gemm GlobalAveragePool GlobalMaxPool Greater
GreaterOrEqual GroupNormalization HardSigmoid HardSwish Identity InstanceNormalization LayerNormalization LeakyRelu
Less LessOrEqual Log LogSoftmax LpNormalization LpPool MatMul MatMulInteger Max MaxPool Mean Min Mish Mod Mul Neg Not
Or PRelu Pad Pow QLinearConv QLinearMatMul QuantizeLinear RMSNormalization Range Reciprocal ReduceL1 ReduceL2
ReduceLogSumExp ReduceMax ReduceMean ReduceMin ReduceProd ReduceSum ReduceSumSquare Relu Reshape Resize Round Selu
Shape Sigmoid Sign Size Slice Softmax Softplus Softsign SpaceToDepth Split Sqrt Squeeze Sub Sum Swish Tanh
ThresholdedRelu Tile Transpose Trilu Unsqueeze Where Xor
"""
_SIZES: dict[str, tuple[int, ...]] = {  # inputs that decide the size of the output
    "ConstantOfShape": (0,), "Expand": (1,), "Pad": (1, 3), "Range": (0, 1, 2), "Reshape": (1,), "Resize": (1, 2, 3),
    "Slice": (1, 2, 3, 4), "Split": (1,), "Squeeze": (1,), "Tile": (1,), "Unsqueeze": (1,),
    **dict.fromkeys(("ReduceL1", "ReduceL2", "ReduceLogSumExp", "ReduceMax", "ReduceMean", "ReduceMin", "ReduceProd",
                     "ReduceSum", "ReduceSumSquare"), (1,)),
}  # fmt: skip
_ALLOWED = frozenset(_OPERATORS.split())
_checked: set[str] = set()


def check_graph(content: bytes, seconds: int = SECONDS, memory: int = MEMORY) -> None:
    """Raise FileFormatError unless an ONNX graph is a feature extractor that runs within limits.

    Args:
        content: the bytes of the ONNX file.
        seconds: most seconds of the first run, which takes place in another process.
        memory: most bytes of that process, beside six times the size of the graph.

    Raises:
        FileFormatError: the graph is damaged, contains what it may not contain, or takes too much time or memory.
        InputError: the packages that this needs are not installed.
    """
    digest = hashlib.sha256(content).hexdigest()
    if digest in _checked:
        return
    mark = _mark(digest)
    if not mark.is_file():
        _check_content(_parsed(content), len(content))
        _try(content, seconds, memory + 6 * len(content))
        with suppress(OSError):  # without a cache it is checked again next time
            mark.parent.mkdir(parents=True, exist_ok=True)
            mark.touch()
    _checked.add(digest)


def _parsed(content: bytes) -> Any:
    try:
        import onnx
    except ImportError as error:
        raise InputError("an ONNX backbone needs the package onnx: pip install 'dsal-learn[lite]'") from error
    try:
        return onnx.load_model_from_string(content)
    except Exception as error:  # protobuf has its own exceptions
        raise _refused(f"it is not a model that ONNX Runtime can run: {error}") from error


def _check_content(model: Any, size: int) -> None:
    graph = model.graph
    if len(model.functions):
        raise _refused("it contains functions: export it with all functions inlined")
    if len(graph.node) > MOST_NODES:
        raise _refused(f"it has {len(graph.node)} operators; at most {MOST_NODES} are allowed")
    attributes = [attribute for node in graph.node for attribute in node.attribute]
    if any(attribute.HasField("g") or len(attribute.graphs) for attribute in attributes):
        raise _refused("it contains loops or branches")
    for node in graph.node:
        if node.domain not in ("", "ai.onnx") or node.op_type not in _ALLOWED:
            raise _refused(f"the operator {f'{node.domain}:{node.op_type}'[:80]!a} is not allowed in a backbone")
    _check_tensors([*graph.initializer, *_constants(attributes)], size)
    if len(graph.sparse_initializer) or any(attribute.HasField("sparse_tensor") for attribute in attributes):
        raise _refused("it contains sparse tensors")
    _check_sizes(graph)


def _constants(attributes: Iterable[Any]) -> Iterator[Any]:
    for attribute in attributes:
        if attribute.HasField("t"):
            yield attribute.t
        yield from attribute.tensors


def _check_tensors(tensors: Iterable[Any], size: int) -> None:
    """Refuse tensors that are stored elsewhere, or declare more than the file can hold."""
    total = 0
    for tensor in tensors:
        if tensor.data_location or len(tensor.external_data):
            raise _refused("its weights are in another file: save them inside")
        count = 1
        for side in tensor.dims:
            if side < 0:
                raise _refused("a tensor has a negative size")
            count *= side
        total += count
        if total > _EXPANDED * size + 2**20:
            raise _refused(f"its tensors declare more than its {size} bytes can hold")


def _check_sizes(graph: Any) -> None:
    """Refuse a graph in which the size of a tensor depends on the pixels: no trial could tell what it will take."""
    from_pixels = {each.name for each in graph.input} - {each.name for each in graph.initializer}
    for node in graph.node:  # in topological order, which ONNX prescribes and ONNX Runtime checks
        inputs = [name in from_pixels for name in node.input]
        if any(inputs[place] for place in _SIZES.get(node.op_type, ()) if place < len(inputs)):
            raise _refused(f"the size of what {node.op_type} returns depends on the pixels of the images")
        if any(inputs) and node.op_type not in ("Shape", "Size"):
            from_pixels.update(node.output)


def _try(content: bytes, seconds: int, memory: int) -> None:
    script = Path(__file__).with_name("trial.py").read_text()
    threads = dict.fromkeys(("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"), "1")
    with tempfile.TemporaryDirectory(prefix="dsal-trial-") as folder:
        try:
            run = subprocess.run(
                [sys.executable, "-c", script, str(seconds), str(memory)],
                input=content, capture_output=True, timeout=seconds, cwd=folder, env={**os.environ, **threads},
            )  # fmt: skip
        except subprocess.TimeoutExpired:
            raise _refused(f"a trial with a few images took more than {seconds} s") from None
    try:
        answer = json.loads(run.stdout)
    except ValueError:
        needs = f"{memory / 1e9:.1f} GB or {seconds} s"
        raise _refused(f"a trial with a few images ended early: it may need more than {needs}") from None
    if "error" in answer:
        raise _refused(f"ONNX Runtime cannot run it: {answer['error']}")
    if not all(len(shape) in (2, 3, 4) for shape in answer["shapes"]):
        raise _refused("it must return features (n, d), maps (n, d, h, w) or tokens (n, t, d)")


def _mark(digest: str) -> Path:
    """Return the path of the empty file that says that a graph has passed."""
    return user_folder("DSAL_DATA") / "onnx" / f"{digest}.checked-{_CHECK}"


def _refused(reason: str) -> FileFormatError:
    return FileFormatError(f"this ONNX graph is not accepted as a backbone: {reason}")
