"""MLflow: log runs, and log and load models as the ``pyfunc`` flavour; nothing is pickled.

The logged folder holds the model's own file. ``mlflow.pyfunc.load_model`` finds :func:`_load_pyfunc` by the name of
this module, so that dsal-learn must be installed where the model is used.
"""

from __future__ import annotations

import base64
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from dsal.base import __version__
from dsal.classifier import DSALClassifier
from dsal.errors import InputError
from dsal.image_model import ImageModel
from dsal.integrations.folders import read_model, write_model
from dsal.integrations.needs import needs
from dsal.protocol.results import CURVES

_OVERALL = ("average_accuracy", "last_accuracy", "base_accuracy", "new_accuracy", "forgetting", "backward_transfer")


def save_model(model: DSALClassifier | ImageModel, path: str | Path, example: Any = None, **options: Any) -> None:
    """Write an MLflow model to a local folder.

    Args:
        model: fitted.
        path: the folder.
        example: rows (n x d_in) of a classifier, which become input example and signature.
        options: of ``mlflow.pyfunc.save_model``.
    """
    with tempfile.TemporaryDirectory() as folder:
        needs("mlflow.pyfunc", "mlflow").save_model(path=str(path), **_flavour(model, Path(folder), example), **options)


def log_model(model: DSALClassifier | ImageModel, name: str = "model", example: Any = None, **options: Any) -> Any:
    """Log a model to the active run; arguments as in :func:`save_model`. Returns MLflow's ``ModelInfo``."""
    with tempfile.TemporaryDirectory() as folder:
        flavour = _flavour(model, Path(folder), example)
        return needs("mlflow.pyfunc", "mlflow").log_model(name=name, **flavour, **options)


def log_run(document: Mapping[str, Any], folder: Path) -> str:
    """Log a finished run of ``dsal run`` and return the identifier of the MLflow run.

    Options become parameters; accuracies and times become metrics, means over seeds, with the phase as step; versions,
    hardware and hashes become tags; the files of ``folder`` become artifacts.
    """
    mlflow, provenance = needs("mlflow", "mlflow"), document["provenance"]
    try:
        with mlflow.start_run(run_name=folder.name) as run:
            mlflow.log_params({"method": document["method"], **document["config"]})
            mlflow.set_tags({name: value for name, value in provenance.items() if isinstance(value, str | int)})
            for name in _OVERALL:
                if document[name] is not None:
                    mlflow.log_metrics({name: document[name]["mean"], f"{name}_std": document[name]["std"]})
            for phase in document["phases"]:
                curves = {f"phase/{name}": phase[name]["mean"] for name in CURVES if phase[name] is not None}
                mlflow.log_metrics(curves, step=phase["phase"])
            mlflow.log_artifacts(str(folder))
    except mlflow.exceptions.MlflowException as error:
        raise InputError(f"the run is finished, in {folder}, but MLflow did not take it: {error}") from error
    return str(run.info.run_id)


def load_model(uri: str) -> DSALClassifier | ImageModel:
    """Load the model itself, which can learn on, from anywhere that MLflow can read."""
    local = needs("mlflow.artifacts", "mlflow").download_artifacts(artifact_uri=uri)
    return read_model(Path(local) / "data", Path(local) / "data" / "model")


def _flavour(model: DSALClassifier | ImageModel, folder: Path, example: Any) -> dict[str, Any]:
    """Write the model to ``folder`` and return the arguments of ``mlflow.pyfunc`` that describe it."""
    data = folder / "model"
    data.mkdir()
    write_model(model, data)
    found: dict[str, Any] = {
        "loader_module": __name__,
        "data_path": str(data),
        "pip_requirements": [f"dsal-learn=={__version__}"],
    }
    if example is not None and isinstance(model, DSALClassifier):
        rows = np.asarray(example, dtype=np.float64)
        infer = needs("mlflow.models", "mlflow").infer_signature
        found |= {"signature": infer(rows, np.asarray(model.predict(rows))), "input_example": rows}
    return found


def _load_pyfunc(path: str) -> Any:
    """Return an object with ``predict``, for MLflow."""
    model = read_model(Path(path), Path(path) / "model")
    return _Images(model) if isinstance(model, ImageModel) else _Rows(model)


class _Rows:
    """Labels of rows of features."""

    def __init__(self, model: DSALClassifier) -> None:
        self.model = model

    def predict(self, rows: Any, params: Any = None) -> Any:
        return self.model.predict(np.asarray(rows, dtype=np.float64))


class _Images:
    """Label and score of images: bytes or base64 text in the first column. (A path would let callers read files.)"""

    def __init__(self, model: ImageModel) -> None:
        self.model = model

    def predict(self, rows: Any, params: Any = None) -> Any:
        column = rows.iloc[:, 0].tolist() if hasattr(rows, "iloc") else list(np.asarray(rows, dtype=object).ravel())
        found = self.model.predict([_image(each) for each in column])
        return needs("pandas", "mlflow").DataFrame([{"label": one.label, "score": one.score} for one in found])


def _image(value: Any) -> bytes:
    if isinstance(value, bytes):
        return value
    try:
        return base64.b64decode(value, validate=True)
    except (TypeError, ValueError) as error:
        raise InputError(f"an image must be bytes or base64 text: {error}") from error
