"""The stand-in is read as ImageNet is, every image under its own class."""

from pathlib import Path

import pytest
import torch
from PIL import Image

from dsal.data import load_dataset

COLOURS = {"blue": (0, 0, 255), "green": (0, 255, 0), "red": (255, 0, 0)}


def test_read_as_imagenet(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from benchmarks.imagenet_standin import main

    for number, (name, colour) in enumerate(COLOURS.items()):
        folder = tmp_path / "photos" / name
        folder.mkdir(parents=True)
        for image in range(5 + number):
            Image.new("RGB", (40, 30), colour).save(folder / f"{image}.jpg")
        Image.new("RGB", (40, 30)).save(folder / "black.png")  # not a JPEG
        Image.new("RGB", (60, 30)).save(folder / "large.jpg")
    options = ["--classes", "3", "--per-class", "6", "--pixels", "40", "50", "--val-share", "0.4"]
    monkeypatch.setattr("sys.argv", ["", "--photos", str(tmp_path / "photos"), "--out", str(tmp_path), *options])
    main()
    for name in ("imagenet", "imagenet100"):
        data = load_dataset(name, tmp_path)
        assert data.class_names == ("n00000001", "n00000002", "n00000003")
        assert data.train.labels.bincount().tolist() == [3, 4, 4]
        assert data.test.labels.bincount().tolist() == [2, 2, 2]
        for part in (data.train, data.test):
            pixels = part.at(4, 3).in_memory().images.float().mean((2, 3))
            expected = torch.tensor(list(COLOURS.values())).float()[part.labels]
            assert (pixels - expected).abs().max() < 3
