"""Predictions about images, by a model in memory or, without PyTorch and scikit-learn, straight from its file.

Suggestions are the unlabelled images worth labelling: typical of what the model is unsure of, and diverse. The rule was
chosen among twenty by the accuracy of a model after it learned the images: see docs/photo-results.md.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from dsal.base.progress import OnProgress
from dsal.data.images.decode import ImageSource
from dsal.errors import FileFormatError, InputError
from dsal.files.atomic import StrPath
from dsal.files.model_schema import IMAGE_MODEL
from dsal.files.tensors import load_tensors, under
from dsal.image_model.graph_features import FeatureSource, GraphFeatures, cached_graph
from dsal.image_model.novelty import ClassStatistics
from dsal.image_model.novelty_reference import NoveltyReference
from dsal.image_model.outcomes import THRESHOLD, Evaluation, Prediction, PredictionList
from dsal.image_model.predictor import ACTIVATIONS, LightHead, Predictor, check_question
from dsal.image_model.seen import Seen
from dsal.image_model.sources import Images, Labelled, labelled_images, unlabelled_images

if TYPE_CHECKING:
    from dsal.image_model.model import ImageModel

_MIN_WEIGHT = 1e-6  # of an image the model is sure of: k-means needs positive weights
_CLUSTERS, _ROWS_EACH = 20, 12  # clusters of the first suggestions: 20, or fewer if they would have fewer rows
_WANTED = ("classifier.main.weights", "classifier.comp.weights", "classifier.expansion.", "novelty.", "usual.", "seen.")


def read_facts(path: StrPath) -> dict[str, Any]:
    """Return the metadata of a model file without reading arrays."""
    return load_tensors(path, IMAGE_MODEL, wanted=lambda name: False)[1]


def check_predicts(model: ImageModel) -> None:
    """Raise FileFormatError unless a model answers an image: only then is it known what its numbers do."""
    try:
        model.predict(np.zeros((64, 64, 3), np.uint8))
    except Exception as error:
        raise FileFormatError(f"this model cannot predict: {error}") from error


@dataclass(frozen=True, eq=False)
class ImagePredictor:
    """Predicts images, evaluates predictions and suggests images to label; it changes nothing.

    Attributes:
        features: turns images into features.
        predictor: turns features into predictions.
        seen: hashes of the learned images, with their labels.
    """

    features: FeatureSource
    predictor: Predictor
    seen: Seen

    @classmethod
    def load(cls, path: StrPath) -> ImagePredictor | None:
        """Read what predictions need from a model file; return None if they need PyTorch.

        That is the case if the backbone was not converted yet, or for an expansion other than ``"random"``.

        Raises:
            FileFormatError: the file is truncated, tampered with, or not an image model.
        """
        facts = read_facts(path)
        try:
            card, head = facts["card"], facts["classifier"]
            params = head["params"]
            names = params["main_activation"], params["activation"]
            known = params["expansion"] == "random" and {*names} <= {*ACTIVATIONS}
            graph = cached_graph(facts["backbone_sha256"]) if known else None
            if graph is None:
                return None
            arrays, _ = load_tensors(path, IMAGE_MODEL, wanted=lambda name: name.startswith(_WANTED))
            comp = arrays.get("classifier.comp.weights")
            predictor = Predictor(
                classes=tuple(head["classes"]),
                head=LightHead(
                    arrays["classifier.expansion.projection"],
                    names[0],
                    arrays["classifier.main.weights"].T,
                    names[1],
                    None if comp is None else comp.T,
                    float(facts["compensation"]),
                ),
                temperature=float(facts["temperature"]),
                distance=ClassStatistics(**under(arrays, "novelty")).light_distance,
                reference=NoveltyReference.from_arrays(**under(arrays, "usual")),
            )
            seen = Seen.from_arrays(under(arrays, "seen"), predictor.classes)
            return cls(GraphFeatures(graph, card["size"], card["in_channels"]), predictor, seen)
        except (KeyError, TypeError, ValueError) as error:
            raise FileFormatError(f"{path} is not a model that this version of dsal can read: {error!r}") from error

    def predict(
        self,
        images: Images,
        *,
        top_k: int = 5,
        threshold: float = THRESHOLD,
        broken: str = "stop",
        progress: OnProgress | None = None,
    ) -> PredictionList:
        """Predict the labels of images: see :meth:`dsal.image_model.ImageModel.predict`."""
        sources = unlabelled_images(images)
        found, reasons = PredictionList(), list[str]()
        for answer in self.predictions(sources, top_k=top_k, threshold=threshold, broken=broken):
            if isinstance(answer, str):
                reasons.append(answer)
            else:
                found.append(answer)
            if progress is not None:
                progress(len(found) + len(reasons), len(sources))
        found.broken = tuple(reasons)
        return found

    def predictions(
        self, images: Sequence[ImageSource], *, top_k: int = 5, threshold: float = THRESHOLD, broken: str = "stop"
    ) -> Iterator[Prediction | str]:
        """Yield predictions in order, as soon as they are ready; for a skipped image, yield the reason.

        Raises:
            FileFormatError: none of the images could be read.
        """
        check_question(top_k, threshold)
        return self._predictions(images, top_k, threshold, broken)

    def evaluate(self, source: Labelled, *, broken: str = "stop", progress: OnProgress | None = None) -> Evaluation:
        """Compare predictions with labels: see :meth:`dsal.image_model.ImageModel.evaluate`."""
        given = labelled_images(source)
        found = self.features.collect(given.images, broken=broken, progress=progress)
        classes = self.predictor.classes
        table = {label: column for column, label in enumerate(classes)}
        columns = np.array([table.get(given.labels[row], -1) for row in found.rows], dtype=np.int64)
        scores = self.predictor.scores(found.x)
        flagged, known = scores.novelty > THRESHOLD, columns >= 0
        confusion = np.zeros((len(classes),) * 2, dtype=np.int64)
        answers = scores.logits.argmax(1)
        np.add.at(confusion, (columns[known], answers[known]), 1)
        return Evaluation(
            classes=classes,
            confusion=confusion,
            unknown=int((~known).sum()),
            unknown_flagged=int(flagged[~known].sum()),
            known_flagged=int(flagged[known].sum()),
            right_flagged=int((flagged & (answers == columns)).sum()),
            broken=found.broken,
        )

    def suggest(
        self, images: Images, count: int = 20, *, broken: str = "stop", progress: OnProgress | None = None
    ) -> PredictionList:
        """Suggest unlabelled images worth labelling: see :meth:`dsal.image_model.ImageModel.suggest`."""
        if count < 1:
            raise InputError(f"count must be at least 1, got {count}")
        given = unlabelled_images(images)
        found = self.features.collect(given, broken=broken, known=self.seen.__contains__, progress=progress)
        first: dict[bytes, int] = {}
        for i, row in enumerate(found.rows.tolist()):
            first.setdefault(found.keys[row], i)
        if not first:
            raise InputError(f"all {len(given)} images were learned before: there is nothing to suggest")
        distinct = list(first.values())
        scores = self.predictor.scores(found.x[distinct])
        chosen = most_useful(found.x[distinct], scores.probabilities, count)
        paths = [_path(given[found.rows[distinct[i]]]) for i in chosen]
        best = self.predictor.predictions(scores.take(chosen), paths, top_k=5, threshold=THRESHOLD)
        answers = PredictionList(best)
        answers.broken = found.broken
        return answers

    def _predictions(
        self, images: Sequence[ImageSource], top_k: int, threshold: float, broken: str
    ) -> Iterator[Prediction | str]:
        answered, reasons = 0, list[str]()
        for batch in self.features.stream(images, broken=broken):
            reasons += batch.broken
            yield from batch.broken
            if batch.rows:
                answered += len(batch.rows)
                paths = [_path(images[row]) for row in batch.rows]
                scores = self.predictor.scores(batch.x)
                yield from self.predictor.predictions(scores, paths, top_k=top_k, threshold=threshold)
        if not answered:
            raise FileFormatError(f"none of {len(images)} images can be read; first error: {reasons[0]}")


def _path(image: ImageSource) -> Path | None:
    return image if isinstance(image, Path) else None


def most_useful(x: NDArray[np.float32], likely: NDArray[np.float64], count: int) -> list[int]:
    """Return the rows most worth labelling, the most useful first; fewer rows are the first of more.

    k-means divides the features, scaled to length 1, into 20 clusters. Rows are weighted by the model's doubt, so there
    are many small clusters where it is unsure. From each cluster the row nearest to the centre is chosen. The cluster
    with the largest sum of doubts comes first. Then there are twice as many clusters, of which those without a chosen
    row give one, and so on. Where there are not that many directions, the most doubtful rows follow.

    Args:
        x: features (n, d).
        likely: probabilities (n, c).
        count: number of rows to return; all rows if there are not more.
    """
    from sklearn.cluster import KMeans

    doubt = doubts(likely) + _MIN_WEIGHT
    lengths = np.linalg.norm(x, axis=1, keepdims=True)
    directions = x / np.where(lengths > 0, lengths, 1.0)
    chosen, distinct = list[int](), len(np.unique(directions, axis=0))
    clusters = min(_CLUSTERS, max(len(x) // _ROWS_EACH, 1))
    while len(chosen) < count and clusters < distinct:  # k-means needs as many distinct rows as clusters
        found = KMeans(clusters, n_init=1, random_state=0).fit(directions, sample_weight=doubt)
        middles = found.transform(directions).argmin(0).tolist()  # the nearest row to each centre
        weights = np.bincount(found.labels_, doubt, minlength=clusters)
        taken = set(found.labels_[chosen].tolist())
        more = [middles[cluster] for cluster in np.argsort(-weights, kind="stable").tolist() if cluster not in taken]
        chosen += [row for row in dict.fromkeys(more) if row not in chosen]
        clusters *= 2
    most_doubtful = np.argsort(-doubt, kind="stable").tolist()
    return [*dict.fromkeys([*chosen, *most_doubtful])][:count]


def doubts(likely: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return 1 minus the margin between the two most likely classes (n,); 1 if there is only one class.

    >>> doubts(np.array([[0.5, 0.5, 0.0], [0.75, 0.25, 0.0]])).tolist()
    [1.0, 0.5]
    """
    if likely.shape[1] < 2:
        return np.ones(len(likely))
    two = np.partition(likely, -2, axis=1)[:, -2:]
    return 1.0 - (two[:, 1] - two[:, 0])
