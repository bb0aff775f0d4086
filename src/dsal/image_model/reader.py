"""Read a model file for prediction only, or just its metadata, without PyTorch or scikit-learn."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dsal.analytic.combine import combined
from dsal.data.images.decode import ImageSource
from dsal.errors import FileFormatError
from dsal.files.model_schema import IMAGE_MODEL
from dsal.files.store import StrPath, load_tensors
from dsal.image_model.answering import Answerer
from dsal.image_model.answers import Prediction
from dsal.image_model.batches import graph_batches
from dsal.image_model.graph import Graph, cached_graph
from dsal.image_model.novelty import ClassStatistics, NoveltyReference

KIND = "image model"
_ACTIVATIONS: dict[str, Callable[[NDArray[np.float64]], NDArray[np.float64]]] = {
    "relu": lambda z: np.maximum(z, 0.0),
    "tanh": np.tanh,
    "identity": lambda z: z,
}
_WANTED = ("classifier.main.weights", "classifier.comp.weights", "classifier.expansion.", "novelty.", "usual.")


def read_facts(path: StrPath) -> dict[str, Any]:
    """Return the metadata of a model file without reading arrays."""
    return load_tensors(path, IMAGE_MODEL, wanted=lambda name: False)[1]


@dataclass(frozen=True, eq=False)
class ImageReader:
    """A model that can only predict: features by ONNX Runtime, the rest by NumPy."""

    graph: Graph
    size: int
    channels: int
    answerer: Answerer

    @classmethod
    def load(cls, path: StrPath) -> ImageReader | None:
        """Read what prediction needs; return None if it needs PyTorch.

        That is the case if the backbone was not converted yet, or for an expansion other than ``"random"``.

        Raises:
            FileFormatError: the file is truncated, tampered with, or not an image model.
        """
        facts = read_facts(path)
        try:
            card, params = facts["card"], facts["classifier"]["params"]
            known = params["expansion"] == "random" and {params["activation"], params["main_activation"]} <= {
                *_ACTIVATIONS
            }
            graph = cached_graph(facts["backbone_sha256"]) if known else None
            if graph is None:
                return None
            arrays, _ = load_tensors(path, IMAGE_MODEL, wanted=lambda name: name.startswith(_WANTED))
            projection, strength = arrays["classifier.expansion.projection"], float(facts["compensation"])
            main, comp = arrays["classifier.main.weights"].T, arrays.get("classifier.comp.weights")
            main_activation, activation = (_ACTIVATIONS[params[name]] for name in ("main_activation", "activation"))

            def logits(x: NDArray[np.float32]) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
                z = x.astype(np.float64) @ projection
                own = main_activation(z) @ main
                return own, own if comp is None or not strength else combined(own, activation(z) @ comp.T, strength)

            answerer = Answerer(
                tuple(facts["classifier"]["classes"]),
                logits,
                float(facts["temperature"]),
                ClassStatistics(**_part(arrays, "novelty.")),
                NoveltyReference(**_part(arrays, "usual.")),
            )
            return cls(graph, card["size"], card["in_channels"], answerer)
        except (KeyError, TypeError, ValueError) as error:
            raise FileFormatError(f"{path} is not a model that this version of dsal can read: {error!r}") from error

    def predictions(
        self, images: Sequence[ImageSource], *, top_k: int, threshold: float, broken: str
    ) -> Iterator[Prediction | str]:
        """Yield predictions; see :meth:`dsal.image_model.ImageModel.predictions`."""
        batches = graph_batches(self.graph, images, self.size, self.channels, broken=broken)
        return self.answerer.stream(batches, images, top_k=top_k, threshold=threshold)


def _part(arrays: dict[str, NDArray[Any]], prefix: str) -> dict[str, NDArray[Any]]:
    return {name.removeprefix(prefix): array for name, array in arrays.items() if name.startswith(prefix)}
