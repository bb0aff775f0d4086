"""Feature rows, images in memory and image files are read in the same way."""

from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image

from dsal.data import FeatureRows, FileData, ImageData, Samples
from dsal.errors import InputError

N = 11


@pytest.fixture(params=["features", "mapped features", "images", "files"])
def samples(request: pytest.FixtureRequest, tmp_path: Path) -> Samples:
    """Eleven samples, each constant and unlike the others, labelled 0, 1, 2, 0, 1, 2 ..."""
    labels = torch.arange(N) % 3
    values = np.arange(N, dtype=np.float32)
    if request.param == "features":
        return FeatureRows(np.repeat(values[:, None], 4, axis=1), labels)
    if request.param == "mapped features":
        np.save(tmp_path / "x.npy", np.repeat(values[:, None], 4, axis=1))
        return FeatureRows(np.load(tmp_path / "x.npy", mmap_mode="r"), labels)
    images = torch.arange(N, dtype=torch.uint8).view(N, 1, 1, 1).repeat(1, 1, 6, 6)
    if request.param == "images":
        return ImageData(images, labels)
    for number, image in enumerate(images):
        Image.fromarray(image[0].numpy()).save(tmp_path / f"{number}.png")
    return FileData(tuple(tmp_path / f"{number}.png" for number in range(N)), labels).at(6, 1)


def read(samples: Samples, size: int = 4, order: torch.Tensor | None = None) -> tuple[list[int], list[int], list[int]]:
    """Values, labels and sizes of the batches."""
    batches = list(samples.batches(size, order))
    values = [int(x.flatten()[0]) for batch, _ in batches for x in batch]
    return values, [int(y) for _, labels in batches for y in labels], [len(batch) for batch, _ in batches]


def test_batches_are_all_there_is_in_the_order_asked_for(samples: Samples) -> None:
    assert len(samples) == N
    assert read(samples) == (list(range(N)), [i % 3 for i in range(N)], [4, 4, 3])
    assert read(samples) == read(samples)  # as often as wanted
    order = torch.tensor([7, 0, 7, 10, 3])
    assert read(samples, 2, order) == ([7, 0, 7, 10, 3], [1, 0, 1, 1, 0], [2, 2, 1])
    assert read(samples, 2, order[:0]) == ([], [], [])
    with pytest.raises(InputError, match="batch size"):
        list(samples.batches(0))


def test_some_of_them_and_other_labels(samples: Samples) -> None:
    assert read(samples.take(torch.tensor([5, 2])))[:2] == ([5, 2], [2, 2])
    assert read(samples.take(slice(8, None)))[:2] == ([8, 9, 10], [2, 0, 1])
    assert len(samples.take(torch.tensor([], dtype=torch.int64))) == 0
    other = samples.relabel(10 + torch.arange(N)).take(torch.tensor([5, 2]))
    assert read(other)[1] == other.labels.tolist() == [15, 12]
    assert samples.labels.tolist() == [i % 3 for i in range(N)]
    with pytest.raises(InputError, match="labels"):
        samples.relabel(torch.arange(3))


def test_larger_images_are_shrunk_and_smaller_ones_stay() -> None:
    images = torch.zeros(3, 1, 4, 4, dtype=torch.uint8)
    images[:, :, :, 2:] = 200
    data = ImageData(images, torch.arange(3))
    small = data.at(2, 1)
    assert small.images.shape == (3, 1, 2, 2)
    assert small.images.dtype == torch.uint8
    left, right = small.images[0, 0, 0].tolist()
    assert 0 <= left < 50 < 150 < right <= 200
    assert small.labels is data.labels
    assert data.at(4, 1) is data
    assert data.at(224, 3) is data
