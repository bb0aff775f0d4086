"""Extraction: batches, order and progress must not show in the features."""

import json
from dataclasses import replace

import numpy as np
import pytest

from dsal.backbones import Backbone
from dsal.backbones.extraction import add_statistics, card_record, extract_dataset
from dsal.data import DataSet
from dsal.errors import InputError, UnknownNameError


@pytest.mark.parametrize("batch_size", [1, 7, 17, 18, 1000])
def test_any_batch_size_gives_the_same_features(backbone: Backbone, dataset: DataSet, batch_size: int) -> None:
    found = extract_dataset(backbone, dataset, batch_size=batch_size).train_x  # of 18 images
    assert found.dtype == np.float32
    assert np.allclose(found, backbone.extract(dataset.train.images).numpy(), atol=1e-5)


def test_the_features_of_a_data_set(backbone: Backbone, dataset: DataSet) -> None:
    calls: list[tuple[int, int]] = []
    features = extract_dataset(backbone, dataset, batch_size=8, progress=lambda *c: calls.append(c))
    assert calls == [(8, 24), (16, 24), (18, 24), (24, 24)]
    assert np.allclose(features.train_x, backbone.extract(dataset.train.images).numpy(), atol=1e-5)
    assert np.allclose(features.test_x, backbone.extract(dataset.test.images).numpy(), atol=1e-5)
    assert features.train_y.tolist() == dataset.train.labels.tolist()
    assert features.widths == {"last": 64, "stages": 112}
    assert (features.name, features.dataset, features.class_names) == ("omniglot", "omniglot", dataset.class_names)
    assert extract_dataset(backbone, dataset, name="mine", batch_size=8).name == "mine"
    last = backbone.extract(dataset.test.images, "last").numpy()
    assert np.allclose(features.select("last").test_x, last, atol=1e-5)


def test_statistics_that_weights_lack_come_from_the_classes_they_have_seen(
    backbone: Backbone, dataset: DataSet
) -> None:
    made = extract_dataset(backbone, dataset, features="blocks")
    assert made.widths == {"last": 64, "stages": 112, "blocks": 1152}
    seen = made.train_x[np.isin(made.train_y, backbone.card.seen_classes)]
    np.testing.assert_allclose(seen.mean(0), 0, atol=1e-3)
    spread = seen.std(0, ddof=1)
    np.testing.assert_allclose(spread[spread > 0], 1, atol=1e-3)
    assert (spread > 0).mean() > 0.9  # the others are dead channels of a network that was never trained
    assert backbone.kinds == ("last", "stages")  # the one handed over is left as it is
    assert made.backbone["weights_sha256"] == add_statistics(backbone, dataset).fingerprint("blocks")
    with pytest.raises(InputError, match="trained on 'omniglot', not 'cifar100'"):
        add_statistics(backbone, replace(dataset, name="cifar100"))
    with pytest.raises(InputError, match="not 'blocks'"):
        extract_dataset(backbone, replace(dataset, name="cifar100"), features="blocks")


def test_the_card_record_is_plain_json(backbone: Backbone) -> None:
    record = card_record(backbone)
    assert json.loads(json.dumps(record)) == record
    assert record["seen_classes"] == [0, 1, 2]
    assert record["weights_sha256"] == backbone.fingerprint()


def test_training_mode_does_not_reach_the_features(backbone: Backbone, dataset: DataSet) -> None:
    expected = extract_dataset(backbone.eval(), dataset)
    assert extract_dataset(backbone.train(), dataset).fingerprint == expected.fingerprint


def test_mistakes_are_named(backbone: Backbone, dataset: DataSet) -> None:
    with pytest.raises(InputError, match="batch size"):
        extract_dataset(backbone, dataset, batch_size=0)
    with pytest.raises(UnknownNameError):
        extract_dataset(backbone, dataset, features="first")
    with pytest.raises(InputError, match="uint8"):
        backbone.extract(dataset.test.images.float())
