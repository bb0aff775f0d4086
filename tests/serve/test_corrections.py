"""Corrections over HTTP: single images, redo, and what to label next."""

from hashlib import sha256
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from starlette.testclient import TestClient

from dsal.image_model import ImageModel

from .conftest import files, teach


def model_of(settings: dict[str, Any]) -> ImageModel:
    return ImageModel.load(settings["folder"] / "m.dsal")


def same_main_stream(one: ImageModel, other: ImageModel) -> None:
    probe = np.random.default_rng(0).normal(size=(20, one.classifier.n_features_in_))
    for model in (one, other):
        model.classifier.drop_compensation()
    said, expected = (model.classifier.decision_function(probe) for model in (one, other))
    np.testing.assert_allclose(said, expected, rtol=0, atol=1e-8)


def test_single_images_are_relabelled_and_forgotten(client: TestClient, album: Path, settings: dict[str, Any]) -> None:
    teach(client, album, "char 0", "char 37", "char 74")
    some = files(album / "first" / "char 0")[:2]
    answer: Any = client.post("/api/models/m/relabel", data={"labels": "char 37"}, files=some)
    assert answer.json() == {"changed": "relabelled 2 images as char 37", "images": 2, "repeated": False}
    assert client.get("/api/models/m/info").json()["undo"][0] == "relabelled 2 images as char 37"
    assert model_of(settings).counts == {"char 0": 13, "char 37": 17, "char 74": 15}
    again = client.post("/api/models/m/relabel", data={"labels": "char 37"}, files=some)
    assert again.json()["images"] == 0
    assert len(model_of(settings).history) == 4  # nothing was added
    answer = client.post("/api/models/m/forget", files=some)
    assert answer.json()["images"] == 2
    never = ImageModel(model_of(settings).backbone, expansion_size=settings["expansion_size"])
    for label, first in (("char 0", 2), ("char 37", 0), ("char 74", 0)):
        rest = sorted((album / "first" / label).iterdir())[first:]
        never.learn((rest, [label] * len(rest)))
    taught = model_of(settings)
    assert taught.counts == never.counts
    assert taught.history == ()
    same_main_stream(taught, never)


def test_what_was_never_learned_is_not_corrected(client: TestClient, album: Path, settings: dict[str, Any]) -> None:
    teach(client, album, "char 0", "char 37")
    before = (settings["folder"] / "m.dsal").read_bytes()
    mixed = [*files(album / "first" / "char 0")[:1], *files(album / "first" / "char 74")[:1]]
    for end, labels in (("relabel", {"labels": "char 37"}), ("forget", {})):
        answer: Any = client.post(f"/api/models/m/{end}", data=labels, files=mixed)
        assert (answer.status_code, answer.json()) == (422, {"error": "image 2 was never learned"})
        stale = client.post(f"/api/models/m/{end}", data=labels, files=mixed[:1], headers={"If-Match": '"old"'})
        assert stale.status_code == 412
        assert client.post(f"/api/models/none/{end}", data=labels, files=mixed).status_code == 404
    everything = [*files(album / "first" / "char 0"), *files(album / "first" / "char 37")]
    answer = client.post("/api/models/m/forget", files=everything)
    assert answer.status_code == 409
    assert "delete it instead" in answer.json()["error"]
    assert (settings["folder"] / "m.dsal").read_bytes() == before


def test_redo_returns_to_what_was_undone(client: TestClient, album: Path, settings: dict[str, Any]) -> None:
    teach(client, album, "char 0", key="lesson")
    teach(client, album, "char 37")
    for label in ("char 0", "char 37"):
        assert client.post("/api/models/m/rename", json={"old": label, "new": f"{label} b"}).status_code == 200
    identity = model_of(settings).version_id
    assert [client.post("/api/models/m/undo").status_code for _ in range(2)] == [200, 200]
    assert client.get("/api/models/m/info").json()["redo"] == [
        "renamed char 0 to char 0 b",
        "renamed char 37 to char 37 b",
    ]
    changed = [client.post("/api/models/m/redo").json()["changed"] for _ in range(2)]
    assert changed == ["redone: renamed char 0 to char 0 b", "redone: renamed char 37 to char 37 b"]
    assert model_of(settings).version_id == identity
    assert client.post("/api/models/m/redo").status_code == 422
    assert client.get("/api/models/m/lessons/lesson").json()["state"] == "learned"  # its key is known as before


def test_an_image_of_another_class_is_named(client: TestClient, album: Path) -> None:
    teach(client, album, "char 0", "char 37")
    mixed = [*files(album / "first" / "char 74")[:1], *files(album / "first" / "char 0")[:2]]
    answer = client.post("/api/models/m/learn", data={"labels": "char 37"}, files=mixed).json()
    assert (answer["images"], answer["seen_before"]) == (1, 2)
    assert answer["learned_as"] == [{"image": 2, "label": "char 0"}, {"image": 3, "label": "char 0"}]


def test_images_that_cannot_be_read_are_all_named(client: TestClient) -> None:
    broken = [("images", ("x.png", b"no image")), ("images", ("y.png", b""))]
    answer = client.post("/api/models/m/learn?skip_broken=true", data={"labels": "a"}, files=broken)
    assert answer.status_code == 422
    assert "image 1: it is not an image" in answer.json()["error"]
    assert "image 2: the file is empty" in answer.json()["error"]


@pytest.mark.parametrize("smaller_copies", [False, True])
def test_suggestions_are_those_of_the_model(
    client: TestClient, album: Path, settings: dict[str, Any], smaller_copies: bool
) -> None:
    """As `dsal suggest`: what was learned is left out, copies count once, and broken images are named."""
    teach(client, album, "char 0", "char 37")
    paths = [*sorted((album / "test").rglob("*.png")), *sorted((album / "first" / "char 0").iterdir())[:3]]
    sent = [path.read_bytes() for path in paths]
    data = {"hashes": [sha256(content).hexdigest() for content in sent]} if smaller_copies else {}
    if smaller_copies:
        sent = [content + b" " for content in sent]  # other bytes, as a copy has
    form = [("images", ("x", content)) for content in sent]
    answer: Any = client.post("/api/models/m/suggest?count=5", data=data, files=form)
    found = answer.json()
    expected = model_of(settings).suggest(paths, 5)
    assert [paths[one["image"] - 1] for one in found["suggestions"]] == [one.path for one in expected]
    assert [one["label"] for one in found["suggestions"]] == [one.label for one in expected]
    learned = [{"image": len(paths) - 2 + i, "label": "char 0"} for i in range(3)]
    assert found["learned_as"] == learned
    assert found["broken"] == []
    twice = client.post("/api/models/m/suggest?skip_broken=true", files=[form[0], form[0], ("images", ("x", b"x"))])
    assert [one["image"] for one in twice.json()["suggestions"]] == [1]
    assert twice.json()["broken"] == ["image 3: it is not an image, or its format is not supported"]


def test_hashes_are_checked(client: TestClient, album: Path) -> None:
    teach(client, album, "char 0", "char 37")
    one = files(album / "first" / "char 74")[:1]
    for wrong in ("", "zz", "0" * 63, ["0" * 64] * 2):
        answer = client.post("/api/models/m/suggest", data={"hashes": wrong}, files=one)
        assert (wrong, answer.status_code) == (wrong, 422)
