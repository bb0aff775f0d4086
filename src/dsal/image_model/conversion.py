"""Conversion of a backbone to ONNX in a process of its own, for programs that run for long.

PyTorch's exporter leaves 180 MB and 300,000 objects behind, which a garbage collection goes through with Python's lock
held; and while it runs, other threads wait for that lock.

    python -m dsal.image_model.conversion WEIGHTS GRAPH
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from pathlib import Path
from threading import Thread
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from dsal.backbones.backbone import Backbone


def converted_elsewhere(backbone: Backbone) -> bytes | None:
    """Return :func:`~dsal.image_model.graph_features.converted` of a backbone that a model file can hold."""
    from dsal.backbones.backbone import save_backbone

    with tempfile.TemporaryDirectory(prefix="dsal-convert-") as folder:
        weights, graph = Path(folder) / "weights", Path(folder) / "graph"
        save_backbone(weights, backbone)
        command = [sys.executable, "-m", __name__, str(weights), str(graph)]
        with subprocess.Popen(
            command,
            stdin=subprocess.PIPE,  # closed by the system when this process ends, however it ends
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            env={**os.environ, "OMP_NUM_THREADS": "1"},
        ) as process:
            process.wait()
        return graph.read_bytes() if process.returncode == 0 else None


def main() -> None:
    """Convert the weights in a file; the exit code is 1 if that is not possible."""
    Thread(target=_end_with_parent, daemon=True).start()
    import torch

    from dsal.backbones.backbone import KIND, read_card
    from dsal.backbones.pretrained import stored_backbone
    from dsal.files.tensors import load_tensors
    from dsal.image_model.graph_features import converted

    weights, graph = (Path(argument) for argument in sys.argv[1:])
    arrays, facts = load_tensors(weights, kind=KIND)
    state = {name: torch.from_numpy(array) for name, array in arrays.items() if not name.startswith("head.")}
    model = converted(stored_backbone(read_card(facts["card"]), state))
    if model is None:
        sys.exit(1)
    graph.write_bytes(model)


def _end_with_parent() -> None:
    os.read(0, 1)
    os._exit(1)


if __name__ == "__main__":
    main()
