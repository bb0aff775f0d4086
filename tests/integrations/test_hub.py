"""The hub and image encoders with the real packages: `pip install 'dsal-learn[hub,transformers,open_clip]'`."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import torch
from sklearn.datasets import load_digits
from tests.docs.pages import ROOT, shown_command

from dsal import DSALClassifier, ImageModel
from dsal.backbones import Backbone
from dsal.backbones.pretrained import open_backbone
from dsal.errors import InputError
from dsal.integrations.hub import from_pretrained, save_pretrained

X, Y = load_digits(return_X_y=True)
PAGE = ROOT / "docs" / "integrations" / "hub.md"
INSTALL = "pip install 'dsal-learn[hub,transformers,open_clip]' in an environment of its own"


def test_a_folder_is_enough_without_the_hub(tmp_path: Path, backbone: Backbone, album: Path) -> None:
    rows = DSALClassifier(expansion_size=32).fit(X, Y)
    loaded = from_pretrained(save_pretrained(rows, tmp_path / "rows", name="you/rows"))
    assert isinstance(loaded, DSALClassifier)
    assert np.array_equal(loaded.logits(X), rows.logits(X))
    card = (tmp_path / "rows" / "README.md").read_text(encoding="utf-8")
    assert "from_pretrained('you/rows')" in card
    assert "| 3 | 183 |" in card

    images = ImageModel(backbone, DSALClassifier(expansion_size=32))
    images.learn(album / "first")
    seen = from_pretrained(save_pretrained(images, tmp_path / "images", licence="mit", learning=False))
    assert isinstance(seen, ImageModel)
    assert not seen.learns_on
    card = (tmp_path / "images" / "README.md").read_text(encoding="utf-8")
    assert "license: mit" in card
    assert "leave-one-out accuracy" in card
    assert "| char 37 | 15 |" in card
    with pytest.raises(InputError, match="holds no model"):
        from_pretrained(tmp_path)
    with pytest.raises(InputError, match="can be saved"):
        save_pretrained(object(), tmp_path / "x")  # type: ignore[arg-type]


@pytest.mark.slow
def test_the_hubs_own_card_and_cache(tmp_path: Path) -> None:
    """The card is what the hub's library reads; a model in its cache is found offline, in a process of its own."""
    hub = pytest.importorskip("huggingface_hub", reason=INSTALL)
    model = DSALClassifier(expansion_size=32).fit(X, Y)
    commit = "0123456789abcdef0123456789abcdef01234567"
    folder = tmp_path / "cache" / "models--you--digits"
    save_pretrained(model, folder / "snapshots" / commit, name="you/digits")
    (folder / "refs").mkdir()
    (folder / "refs" / "main").write_text(commit)
    card = hub.ModelCard.load(folder / "snapshots" / commit / "README.md")
    assert card.data.library_name == "dsal"
    assert card.data.license == "apache-2.0"
    assert card.data.tags[0] == "dsal"
    code = """
import sys, json
from sklearn.datasets import load_digits
from dsal.integrations.hub import from_pretrained
model = from_pretrained("you/digits", cache_dir=sys.argv[1])
print(json.dumps(model.predict(load_digits().data[:9]).tolist()))
try:
    from_pretrained("you/others", cache_dir=sys.argv[1])
except Exception as error:
    print(type(error).__name__)
from dsal.integrations.hub import push_to_hub
try:
    push_to_hub(model, "you/digits", token="none")
except Exception as error:
    print(type(error).__name__)
"""
    import os

    environment = {**os.environ, "HF_HUB_OFFLINE": "1"}
    done = subprocess.run(
        [sys.executable, "-c", code, str(tmp_path / "cache")], capture_output=True, text=True, env=environment
    )
    assert done.returncode == 0, done.stderr
    found, missing, pushed = done.stdout.splitlines()
    assert json.loads(found) == model.predict(X[:9]).tolist()
    assert (missing, pushed) == ("LocalEntryNotFoundError", "OfflineModeIsEnabled")


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["vit", "clip", "resnet"])
def test_encoders_of_transformers(tmp_path: Path, album: Path, kind: str) -> None:
    """Small random models, saved as the hub stores them; the model file restores them."""
    transformers = pytest.importorskip("transformers", reason=INSTALL)
    torch.manual_seed(0)
    small = {"hidden_size": 16, "num_hidden_layers": 1, "num_attention_heads": 2, "intermediate_size": 16}
    sizes = {"image_size": 32, "patch_size": 8}
    size = {"height": 32, "width": 32}
    if kind == "vit":
        model = transformers.ViTModel(transformers.ViTConfig(**small, **sizes))
        processor = transformers.ViTImageProcessor(size=size)
    elif kind == "clip":
        text = {**small, "vocab_size": 50, "max_position_embeddings": 8}
        config = transformers.CLIPConfig(vision_config={**small, **sizes}, text_config=text, projection_dim=8)
        model = transformers.CLIPModel(config)
        processor = transformers.CLIPImageProcessor(size={"shortest_edge": 32}, crop_size=size)
    else:
        config = transformers.ResNetConfig(embedding_size=8, hidden_sizes=[8, 16], depths=[1, 1], layer_type="basic")
        model = transformers.ResNetModel(config)
        processor = transformers.ConvNextImageProcessor(size={"shortest_edge": 32})
    folder = tmp_path / kind
    model.save_pretrained(folder)
    processor.save_pretrained(folder)
    backbone = open_backbone(f"transformers:{folder}")
    assert (backbone.card.size, backbone.widths["stages"]) == (32, 16)
    images = torch.randint(0, 256, (2, 3, 32, 32), dtype=torch.uint8)
    vision = getattr(model, "vision_model", model).eval()
    with torch.no_grad():
        expected = vision(pixel_values=backbone.normalise(images)).pooler_output.flatten(1)
    torch.testing.assert_close(backbone.extract(images), expected)
    _learns_and_loads(backbone, tmp_path, album)
    words = shown_command(
        ROOT / "docs/integrations/hub.md", "dsal learn animals/ --model m.dsal --backbone transformers"
    )
    words[words.index("animals/")] = str(album / "first")
    words[-1] = f"transformers:{folder}"
    subprocess.run([sys.executable, "-m", *words], cwd=tmp_path / kind, check=True)
    shutil.rmtree(folder)
    with pytest.raises(InputError, match="no image model"):
        open_backbone(f"transformers:{folder}")


@pytest.mark.slow
def test_encoders_of_open_clip(tmp_path: Path, album: Path) -> None:
    open_clip = pytest.importorskip("open_clip", reason=INSTALL)
    config = {
        "embed_dim": 8,
        "vision_cfg": {"image_size": 32, "layers": 1, "width": 64, "patch_size": 8},
        "text_cfg": {"context_length": 8, "vocab_size": 50, "width": 64, "heads": 1, "layers": 1},
    }
    (tmp_path / "configs").mkdir()
    (tmp_path / "configs" / "small.json").write_text(json.dumps(config))
    open_clip.add_model_config(tmp_path / "configs")
    backbone = open_backbone("open_clip:small")
    assert (backbone.card.size, backbone.widths["stages"]) == (32, 8)
    _learns_and_loads(backbone, tmp_path, album)
    with pytest.raises(InputError, match="no model 'large'"):
        open_backbone("open_clip:large")


def _learns_and_loads(backbone: Backbone, tmp_path: Path, album: Path) -> None:
    model = ImageModel(backbone, DSALClassifier(expansion_size=32))
    model.learn(album / "first")
    model.save(tmp_path / "m.dsal")
    paths = sorted((album / "test" / "char 0").iterdir())
    again = ImageModel.load(tmp_path / "m.dsal")
    assert [one.label for one in again.predict(paths)] == [one.label for one in model.predict(paths)]
