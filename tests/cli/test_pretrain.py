"""From images to results: ``dsal pretrain``, ``dsal extract``, ``dsal run``, on real images in CIFAR-10's layout."""

import json
import pickle
from pathlib import Path

import pytest
import torch

from dsal.backbones import load_backbone
from dsal.data import ImageData, load_dataset

from .conftest import Call


@pytest.fixture(scope="module")
def root(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Fifty characters of Omniglot, five to a class, in the files of CIFAR-10."""
    omniglot = load_dataset("omniglot")
    folder = tmp_path_factory.mktemp("data") / "cifar-10-batches-py"
    folder.mkdir()

    def write(member: str, part: ImageData) -> None:
        images = torch.nn.functional.pad(part.images, (2, 2, 2, 2)).expand(-1, 3, -1, -1)
        content = {"data": images.reshape(len(images), -1).numpy(), "labels": (part.labels // 5).tolist()}
        (folder / member).write_bytes(pickle.dumps(content, protocol=4))

    for name, part in (("train", omniglot.train), ("test", omniglot.test)):
        rows = (part.labels < 50).nonzero().squeeze(1)
        if name == "test":
            write("test_batch", ImageData(part.images[rows], part.labels[rows]))
        else:
            for number in range(5):
                few = rows[number::5]
                write(f"data_batch_{number + 1}", ImageData(part.images[few], part.labels[few]))
    names = {"label_names": [f"five characters, {number}" for number in range(10)]}
    (folder / "batches.meta").write_bytes(pickle.dumps(names, protocol=4))
    return folder.parent


def test_from_images_to_results(call: Call, root: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DSAL_CACHE", str(tmp_path / "cache"))
    source = ("--dataset", "cifar10", "--data-root", root)
    trained = call("pretrain", *source, "--recipe", "paper", "--epochs", "1", "--out", "w.safetensors")
    assert trained.code == 0, trained.err
    assert "base classes" in trained.out
    assert "epoch   1/1" in trained.err
    card = load_backbone(tmp_path / "w.safetensors").card
    assert card.seen_classes == (0, 1, 2, 3, 4)
    assert card.training["command"].startswith("dsal pretrain --dataset cifar10")
    assert f"{card.training['base_test_accuracy']:.2f}%" in trained.out

    extracted = call("extract", *source, "--backbone", "w.safetensors", "--out", "f.safetensors")
    assert extracted.code == 0, extracted.err
    small = ("--phases", "5", "--expansion-size", "64", "--no-report", "--json")
    from_file = call("run", "--dataset", "f.safetensors", *small)
    assert from_file.code == 0, from_file.err
    from_images = call("run", *source, "--backbone", "w.safetensors", *small)
    assert from_images.code == 0, from_images.err
    accuracies = [json.loads(run.out)["last_accuracy"]["mean"] for run in (from_file, from_images)]
    assert accuracies[0] == pytest.approx(accuracies[1], abs=1.0)  # the file holds float16

    leaking = call("run", "--dataset", "f.safetensors", *small, "--class-order", "1993")
    assert leaking.code == 1
    assert "trained on 2 classes that later phases treat as new" in leaking.err


def test_wrong_options_are_named(call: Call, root: Path) -> None:
    source = ("--dataset", "cifar10", "--data-root", root, "--out", "w.safetensors")
    for wrong, message in (
        (("--recipe", "stong"), "did you mean 'strong'"),
        (("--architecture", "resnet23"), "did you mean 'resnet32'"),
        (("--precision", "float8"), "unknown precision"),
        (("--base-classes", "11"), "base classes must be from 1 to 10"),
    ):
        refused = call("pretrain", *source, *wrong)
        assert refused.code == 2
        assert message in refused.err


def test_auxiliary_heads_are_saved_for_students(call: Call, root: Path, tmp_path: Path) -> None:
    source = ("pretrain", "--dataset", "cifar10", "--data-root", root, "--epochs", "1")
    for name, options in (("teacher", ()), ("alone", ("--no-heads",))):
        done = call(*source, "--recipe", "heads", "--out", tmp_path / name, *options)
        assert done.code == 0, done.err
    assert load_backbone(tmp_path / "teacher", auxiliary=True).auxiliary is not None
    assert load_backbone(tmp_path / "alone", auxiliary=True).auxiliary is None
    taught = ("--recipe", "distilled-heads", "--start", tmp_path / "teacher", "--teacher", tmp_path / "teacher")
    done = call(*source, *taught, "--out", tmp_path / "student")
    assert done.code == 0, done.err
