"""``dsal reproduce`` as it is called."""

import shutil
from pathlib import Path
from typing import Any

import pytest

from dsal.backbones import load_backbone
from dsal.cli.reproduce import reproduce
from dsal.reproduction import forecast
from dsal.training import RECIPES, Recipe


def test_it_says_where_the_pages_are_and_goes_on_where_it_was(
    sample_file: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for what, trainings in ((["fig4"], "1/1"), (["fig4", "table2"], "2/2")):
        reproduce(what, out=tmp_path, dataset=str(sample_file), expansion_size=32, seeds="0,1", quick=True)
        printed = capsys.readouterr()
        pages = [Path(line) for line in printed.out.split()]
        assert [page.name for page in pages] == ["reproduction.md", "reproduction.html"]
        assert trainings in printed.err
    text = pages[0].read_text(encoding="utf-8")
    assert "## Table 2" in text
    assert "## Fig. 4" in text


def test_from_images_it_trains_extracts_and_compares_in_one_command(
    album: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Ten classes of characters in folders; a plan first, then all of it, then again with nothing left to do."""
    small = Recipe(epochs=1, batch_size=16, crop="resized", mirror=False)
    monkeypatch.setitem(RECIPES._entries, "small", small)
    monkeypatch.setattr(forecast, "_SECONDS", 0.2)
    images = tmp_path / "characters"
    for folder in sorted((album / "test").iterdir()):
        shutil.copytree(folder, images / folder.name)
    asked: dict[str, Any] = {"dataset": str(images), "recipe": "small", "size": 16, "quick": True, "seeds": "0"}
    reproduce(["table1"], out=tmp_path / "out", **asked, plan=True)
    told = capsys.readouterr().out
    for step in ("base training, 1 epochs of 20 images", "features of 50 images", "K = 5, 1 compensation stream"):
        assert step in told
    assert not (tmp_path / "out").exists()
    for _ in range(2):
        reproduce(["table1"], out=tmp_path / "out", **asked)
        said = capsys.readouterr()
    assert "epoch" not in said.err  # the second time
    text = (tmp_path / "out" / "reproduction.md").read_text(encoding="utf-8")
    assert "| DS-AL, K = 5 |" in text
    assert "CIFAR-100" not in text
    card = load_backbone(tmp_path / "out" / "backbone.safetensors").card
    assert (card.architecture, card.dataset, card.flip, card.size) == ("resnet18", "characters", False, 16)
