"""Image files to batches: the parts that are taken, by any number of readers and ranks, from any step on."""

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image

from dsal.data.images.crop_readers import AREA, RATIO, random_box
from dsal.data.images.decode import decode_crop
from dsal.data.images.image_files import FileData
from dsal.data.sets.class_folders import list_classes, load_class_folders
from dsal.errors import FileFormatError, InputError
from dsal.files.tensors import load_tensors
from dsal.training import BaseTraining, Recipe, load_checkpoint, save_checkpoint
from dsal.training.augment import BatchPart
from dsal.training.fit import augmented
from dsal.training.sample import seed_of
from dsal.training.stream import Crops, Wanted, open_readers

# 4 steps an epoch, and all that is random; images grow within the second epoch.
RECIPE = Recipe(
    epochs=3, batch_size=13, lr=0.02, crop="resized", jitter=0.4, trivial=0.5, cutout=4, average=0.9, sizes=((0.5, 12),)
)


@pytest.fixture(scope="module")
def files(photo_folder: Path) -> FileData:
    listed = list_classes(photo_folder)
    return FileData(listed.paths, torch.from_numpy(listed.numbers), size=16)


def training(files: FileData, recipe: Recipe = RECIPE, **options: object) -> BaseTraining:
    asked = {"held_out": 0.25, "device": torch.device("cpu"), "classes": (2, 0, 1), "seed": 3, **options}
    return BaseTraining(files, dataset="photos", class_order="natural", architecture="resnet32", recipe=recipe, **asked)  # type: ignore[arg-type]


def same(one: BaseTraining, other: BaseTraining) -> bool:
    pairs = ((one.model, other.model), (one.result, other.result))
    return all(
        torch.equal(value, theirs.state_dict()[name])
        for mine, theirs in pairs
        for name, value in mine.state_dict().items()
    )


@pytest.fixture(scope="module")
def finished(files: FileData) -> BaseTraining:
    made = training(files)
    list(made.epochs())
    return made


def test_boxes_are_inside_and_of_the_fields_sizes_and_shapes() -> None:
    draw, areas, ratios = random.Random(0), [], []
    for _ in range(3000):
        left, upper, right, lower = random_box(500, 375, draw)
        assert 0 <= left < right <= 500
        assert 0 <= upper < lower <= 375
        areas.append((right - left) * (lower - upper) / (500 * 375))
        ratios.append((right - left) / (lower - upper))
    assert AREA[0] * 0.98 < min(areas) < 0.1
    assert 0.9 < max(areas) <= 1
    # the area is drawn evenly; what does not fit into the image is drawn again, which happens to large parts
    assert 0.4 < np.mean(areas) < 0.54
    assert RATIO[0] * 0.97 < min(ratios) < 0.8
    assert 1.27 < max(ratios) < RATIO[1] * 1.03
    assert random_box(1000, 10, draw) == (493, 0, 506, 10)  # nothing fits: the middle
    assert random_box(10, 1000, draw) == (0, 493, 10, 506)


def test_a_part_is_what_pillow_crops_and_resizes(files: FileData) -> None:
    path, box = files.paths[3], (7, 11, 57, 51)
    with Image.open(path) as image:
        expected = np.asarray(image.crop(box).resize((32, 32), Image.Resampling.BILINEAR)).astype(int)
    found = decode_crop(path, 32, 3, lambda width, height: box).astype(int)
    assert np.abs(found - expected)[2:-2, 2:-2].max() <= 1  # at the borders of a crop Pillow repeats pixels


def test_a_large_jpeg_is_decoded_at_a_fraction(tmp_path: Path, files: FileData) -> None:
    with Image.open(files.paths[0]) as image:
        large = image.resize((960, 640), Image.Resampling.BICUBIC)
    large.save(tmp_path / "large.jpg", quality=95)
    asked = []

    def whole(width: int, height: int) -> tuple[int, int, int, int]:
        asked.append((width, height))
        return 160, 0, 800, 640

    expected = np.asarray(large.resize((32, 32), Image.Resampling.BILINEAR, box=(160, 0, 800, 640))).astype(int)
    found = decode_crop(tmp_path / "large.jpg", 32, 3, whole).astype(int)
    assert asked == [(960, 640)]
    assert np.abs(found - expected).mean() < 3


def test_photographs_are_upright_and_broken_ones_named(tmp_path: Path, files: FileData) -> None:
    turned = Image.Exif()
    turned[0x0112] = 6
    with Image.open(files.paths[5]) as image:
        image.transpose(Image.Transpose.ROTATE_90).save(tmp_path / "turned.jpg", exif=turned, quality=95)
        expected = np.asarray(image.resize((16, 16), Image.Resampling.BILINEAR, box=(0, 10, 50, 60))).astype(int)
    found = decode_crop(tmp_path / "turned.jpg", 16, 3, lambda width, height: (0, 10, 50, 60)).astype(int)
    assert np.abs(found - expected).mean() < 6
    grey = decode_crop(files.paths[5], 16, 1, lambda width, height: (0, 0, width, height))
    assert grey.shape == (16, 16, 1)
    (tmp_path / "broken.jpg").write_bytes(b"no image")
    broken = FileData((files.paths[0], tmp_path / "broken.jpg"), torch.tensor([0, 1]))
    wanted, whole = Wanted(torch.arange(2), torch.arange(2), 8), Wanted(torch.zeros(1).long(), torch.arange(1), 8)
    with open_readers(2, 2, 8, 3) as readers:
        for _ in range(2):
            with pytest.raises(
                FileFormatError, match=r"^cannot read the image .*broken\.jpg: it is not an image[^\n]*$"
            ):
                list(Crops(broken, 0).batches([wanted], readers))
        assert len(list(Crops(broken, 0).batches([whole], readers))) == 1  # the readers are still alive


def test_a_batch_must_fit_into_the_memory(files: FileData) -> None:
    with open_readers(1, 2, 8, 3) as readers, pytest.raises(InputError, match=r"batch of 768 bytes.* 384 bytes"):
        next(Crops(files, 0).batches([Wanted(torch.arange(4), torch.arange(4), 8)], readers))


def read(files: FileData, workers: int, ranks: int = 1, seed: int = 9) -> list[torch.Tensor]:
    """Batches of 10, read by so many ranks one after the other, and put together."""
    order = torch.randperm(len(files), generator=torch.Generator().manual_seed(1))
    shares = []
    for rank in range(ranks):
        part, generator = BatchPart(10, slice(rank, None, ranks)), torch.Generator().manual_seed(0)
        wanted = [Wanted(order[at][part.rows], at[part.rows], 24) for at in torch.arange(40).split(10)]
        with open_readers(workers, 10, 24, 3) as readers:
            batches = Crops(files, seed).batches(wanted, readers)
            shares.append([(augmented(x.clone(), RECIPE, generator, part), y) for x, y in batches])
    whole = []
    for step in range(4):
        batch, labels = torch.empty(10, 3, 24, 24, dtype=torch.uint8), torch.empty(10, dtype=torch.int64)
        for rank in range(ranks):
            batch[rank::ranks], labels[rank::ranks] = shares[rank][step]
        assert torch.equal(labels, files.labels[order[10 * step : 10 * step + 10]])
        whole.append(batch)
    return whole


def test_batches_depend_neither_on_readers_nor_on_ranks(files: FileData) -> None:
    expected = torch.stack(read(files, 1))
    for workers, ranks in ((3, 1), (2, 2), (1, 4)):
        assert torch.equal(torch.stack(read(files, workers, ranks)), expected)
    assert not torch.equal(torch.stack(read(files, 1, seed=8)), expected)


def test_an_image_is_cut_otherwise_in_every_epoch_and_half_are_mirrored(files: FileData) -> None:
    wanted = [Wanted(torch.zeros(200, dtype=torch.int64), torch.arange(200), 16)]
    with open_readers(2, 200, 16, 3) as readers:
        many, again, straight = (
            next(Crops(files, seed, mirror=mirror).batches(wanted, readers))[0].clone()
            for seed, mirror in ((seed_of(0, 0), True), (seed_of(0, 1), True), (seed_of(0, 0), False))
        )
    assert len({image.numpy().tobytes() for image in many}) > 195
    assert (many == again).flatten(1).all(1).sum() < 5
    mirrored = (many == straight.flip(3)).flatten(1).all(1)
    assert torch.equal(mirrored, ~(many == straight).flatten(1).all(1))
    assert 70 < int(mirrored.sum()) < 130


@pytest.mark.parametrize("stop", [1, 4, 6])
def test_a_checkpoint_inside_of_an_epoch_continues_to_the_same_weights(
    files: FileData, finished: BaseTraining, stop: int, tmp_path: Path
) -> None:
    first, path = training(files, workers=1), tmp_path / "checkpoint"
    for result in first.epochs(lambda now: save_checkpoint(path, first) if now.done == stop and stop % 4 else None):
        if 4 * result.epoch == stop:
            save_checkpoint(path, first)
        if 4 * result.epoch >= stop:
            break
    second = training(files, workers=3)
    load_checkpoint(path, second)
    assert second.fit.done == stop
    assert [result.epoch for result in second.epochs()] == list(range(stop // 4 + 1, 4))
    assert same(second, finished)
    strip = [replace(result, seconds=0) for result in second.history]
    assert strip == [replace(result, seconds=0) for result in finished.history]


def test_files_learn_and_give_features(files: FileData) -> None:
    made = training(files, Recipe(epochs=8, batch_size=16, lr=0.05, crop="resized", warmup=0.2))
    losses = [result.loss for result in made.epochs()]
    assert sum(losses[-2:]) < 0.9 * sum(losses[:2])
    backbone = made.backbone({})
    assert (backbone.card.size, backbone.card.seen_classes) == (16, (2, 0, 1))
    assert all(0.2 < mean < 0.8 for mean in backbone.card.mean)
    images = torch.cat([some for some, _ in made.train.batches(64)])
    torch.testing.assert_close(backbone.extract(images, "last").mean(0), torch.zeros(64), atol=1e-3, rtol=0)


def test_own_folders_are_data_sets(photo_folder: Path, tmp_path: Path) -> None:
    data = load_class_folders(photo_folder)
    assert data.class_names == ("china-0", "china-1", "flower-0", "flower-1")
    assert torch.bincount(data.train.labels).tolist() == [19] * 4
    assert torch.bincount(data.test.labels).tolist() == [5] * 4
    both = {*data.train.paths, *data.test.paths}
    assert both == set(photo_folder.rglob("*.JPEG"))
    for part, classes in (("train", "ab"), ("val", "ab")):
        for name in classes:
            (tmp_path / part / name).mkdir(parents=True)
            (tmp_path / part / name / "1.jpg").touch()
    parts = load_class_folders(tmp_path)
    assert [path.relative_to(tmp_path).as_posix() for path in parts.test.paths] == ["val/a/1.jpg", "val/b/1.jpg"]
    (tmp_path / "val" / "c").mkdir()
    with pytest.raises(InputError, match="without any image: c"):
        load_class_folders(tmp_path)
    (tmp_path / "val" / "c" / "1.jpg").touch()
    with pytest.raises(InputError, match="same classes; c is in only one"):
        load_class_folders(tmp_path)


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="needs named pipes")
def test_what_is_not_a_file_is_named_and_does_not_block(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe.jpg")
    (tmp_path / "folder.jpg").mkdir()
    (tmp_path / "empty.jpg").touch()
    for name, reason in (
        ("pipe.jpg", "FIFO, not a file"),
        ("folder.jpg", "folder, not a file"),
        ("empty.jpg", "the file is empty"),
        ("none.jpg", "there is no such file"),
    ):
        with pytest.raises(FileFormatError, match=f"{name}.*{reason}"):
            decode_crop(tmp_path / name, 8, 3, lambda width, height: (0, 0, width, height))


RECIPE_OF_THE_COMMAND = """
from dsal.cli.main import main
from dsal.training.recipe import RECIPES, Recipe

RECIPES.register("streamed")(Recipe(epochs=60, batch_size=12, lr=0.01, crop="resized", trivial=0.5))
main()
"""  # a batch that small data can fill: 4 steps an epoch


@pytest.mark.slow
def test_killed_at_ten_random_moments_it_ends_with_the_same_weights(photo_folder: Path, tmp_path: Path) -> None:
    """SIGKILL until ten kills have hit the inside of an epoch; a checkpoint after every step."""
    script = tmp_path / "streamed.py"
    script.write_text(RECIPE_OF_THE_COMMAND)
    data = ["--dataset", str(photo_folder), "--base-classes", "3", "--size", "16", "--workers", "1"]
    asked = [*data, "--architecture", "resnet32", "--recipe", "streamed", "--checkpoint-seconds", "0"]

    def run(out: Path, *more: str) -> subprocess.Popen[str]:
        command = [sys.executable, str(script), "pretrain", *asked, "--out", str(out), *more]
        environment = {**os.environ, "OMP_NUM_THREADS": "1"}
        return subprocess.Popen(command, env=environment, stderr=subprocess.PIPE, text=True)

    def finish(process: subprocess.Popen[str]) -> None:
        _, said = process.communicate()
        assert process.returncode == 0, said

    whole, cut = tmp_path / "whole.safetensors", tmp_path / "cut.safetensors"
    finish(run(whole))
    checkpoint, moments, inside = tmp_path / "cut.safetensors.checkpoint", random.Random(4), 0
    while inside < 10:
        before = checkpoint.stat().st_mtime_ns if checkpoint.exists() else 0
        process = run(cut, *(["--resume"] if checkpoint.exists() else []))
        while process.poll() is None and (not checkpoint.exists() or checkpoint.stat().st_mtime_ns == before):
            time.sleep(0.005)
        time.sleep(moments.uniform(0, 0.2))
        process.send_signal(signal.SIGKILL)
        process.communicate()
        assert process.returncode == -signal.SIGKILL, "the training is too short for ten kills"
        inside += load_tensors(checkpoint)[1]["done"] % 4 != 0
    finish(run(cut, "--resume"))
    tensors, other = load_tensors(whole)[0], load_tensors(cut)[0]
    assert all((tensors[name] == other[name]).all() for name in tensors)
