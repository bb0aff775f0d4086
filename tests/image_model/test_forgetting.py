"""Whole files of models that forgot, against files of models that never saw the images."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from dsal import InputError
from dsal.backbones import Backbone
from dsal.data.images.labelled_files import read_files
from dsal.files.tensors import load_tensors
from dsal.image_model import ImageModel


@pytest.fixture
def taught(backbone: Backbone, album: Path) -> ImageModel:
    model = ImageModel(backbone, expansion_size=256)
    model.learn(album / "first")
    return model


def arrays_of(model: ImageModel, path: Path) -> tuple[dict[str, NDArray[Any]], dict[str, Any]]:
    model.save(path)
    return load_tensors(path)


def close(found: dict[str, NDArray[Any]], expected: dict[str, NDArray[Any]]) -> None:
    """Equal up to the rounding of a subtraction; integers and hashes exactly."""
    assert set(found) == set(expected)
    for name, array in expected.items():
        if array.dtype.kind == "f":
            scale = max(float(np.abs(array).max(initial=0.0)), 1.0)
            np.testing.assert_allclose(found[name], array, rtol=1e-6, atol=1e-7 * scale, err_msg=name)
        else:
            assert np.array_equal(found[name], array), name


def test_a_file_that_forgot_does_not_depend_on_what(backbone: Backbone, album: Path, tmp_path: Path) -> None:
    """Two models learn and forget different images: their whole files are alike, with metadata and history."""
    first, found = read_files(album / "first"), []
    for folder in ("second", "unseen"):
        model, forgotten = ImageModel(backbone, expansion_size=256), read_files(album / folder)
        some = forgotten.paths[:20] + first.paths[:2], (*forgotten.labels[:20], *first.labels[:2])
        model.learn((first.paths[2:], first.labels[2:]))
        model.notes["lesson"] = folder
        model.learn(some)
        assert model.forget(some) == 22
        assert (model.history, model.notes, model.left_out) == ((), {}, {})
        found.append(arrays_of(model, tmp_path / f"{folder}.dsal"))
        with pytest.raises(InputError, match="nothing to undo"):
            model.undo()
    (one, facts), (other, other_facts) = found
    close(one, other)
    assert facts.pop("temperature") == pytest.approx(other_facts.pop("temperature"), rel=1e-6)
    assert facts == other_facts


def test_a_file_that_forgot_is_that_of_a_model_that_never_saw(taught: ImageModel, album: Path, tmp_path: Path) -> None:
    """All arrays; what cannot be corrected is missing, or estimated from sums that are equal."""
    expected, facts = arrays_of(taught, tmp_path / "never.dsal")
    taught.learn(album / "second")
    taught.forget(album / "second")
    found, found_facts = arrays_of(taught, tmp_path / "forgot.dsal")
    removed = {name for name in expected if name.startswith("classifier.comp")}
    estimated = {"classifier.calibration", *(name for name in expected if name.startswith("usual."))}
    assert not found["usual.shape"].size  # what was measured with the images
    assert set(found) == set(expected) - removed
    close(
        {n: a for n, a in found.items() if n not in estimated},
        {n: a for n, a in expected.items() if n not in estimated | removed},
    )
    assert found_facts["counts"] == facts["counts"]
