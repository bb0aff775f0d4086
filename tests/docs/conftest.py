"""What tests of the pages share."""

from __future__ import annotations

from pathlib import Path

import pytest
from PIL import Image


@pytest.fixture
def photos(tmp_path: Path, album: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What pages take for granted in the current folder: ``animals``, ``new-this-week``, ``inbox``, ``photo.jpg``."""
    monkeypatch.chdir(tmp_path)
    for folder, group in (("animals", "first"), ("new-this-week", "second"), ("inbox", "unseen")):
        for path in sorted((album / group).glob("*/[0-2].png")):
            target = Path(folder) / path.parent.name / path.name
            target.parent.mkdir(parents=True, exist_ok=True)
            Image.open(path).convert("RGB").resize((96, 96)).save(target)
    Image.open(album / "first" / "char 0" / "3.png").convert("RGB").resize((96, 96)).save("photo.jpg")
