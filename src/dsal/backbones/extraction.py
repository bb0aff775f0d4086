"""Extraction of features: images through a frozen backbone, batch by batch."""

from __future__ import annotations

import json
from copy import deepcopy
from dataclasses import asdict
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from dsal.backbones.backbone import Backbone
from dsal.base.progress import OnProgress
from dsal.data.dataset import DataSet
from dsal.data.features.feature_set import FeatureSet, features_fingerprint
from dsal.distributed import ALONE, Team
from dsal.errors import InputError, UnknownNameError

_STATISTICS_ROWS = 50_000


def extract_dataset(
    backbone: Backbone,
    dataset: DataSet,
    *,
    features: str | None = None,
    name: str | None = None,
    batch_size: int = 256,
    progress: OnProgress | None = None,
    team: Team = ALONE,
) -> FeatureSet:
    """Extract the features of all images of a data set; each rank extracts its share of the batches.

    Args:
        backbone: runs on the device of its weights.
        dataset: the images, both parts.
        features: kind of features; by default the widest that the weights have statistics for.
        name: what to call the result; the data set's name by default.
        batch_size: images at a time.
        progress: called with (images done, images in all) of this rank's share, both parts together.
        team: the processes that share the work.
    """
    if batch_size < 1:
        raise InputError(f"batch size must be at least 1, got {batch_size}")
    backbone, features = with_statistics(backbone, dataset, features)
    # Whole batches: a batch of another size would change its features by rounding.
    data = dataset.at(backbone.card.size, backbone.card.in_channels)
    mine = [part.take(team.share(len(part), unit=batch_size)) for part in (data.train, data.test)]
    rows, total = len(mine[0]), len(mine[0]) + len(mine[1])
    out = np.empty((total, backbone.widths[features]), dtype=np.float32)
    done = 0
    for part in mine:
        for batch, _ in part.batches(batch_size):
            if len(batch):
                out[done : done + len(batch)] = backbone.extract(batch, features).cpu().numpy()
                done += len(batch)
                if progress is not None:
                    progress(done, total)
    return feature_set(backbone, dataset, features, team.rows(out[:rows]), team.rows(out[rows:]), name=name)


def with_statistics(backbone: Backbone, dataset: DataSet, features: str | None) -> tuple[Backbone, str]:
    """Return a backbone that can standardise a kind of features, and that kind.

    Weights may lack the statistics of the widest kind, as those of Omniglot do. These are computed, at every call, if
    the data set is the one that the backbone was trained on. For None the kind is the widest of ``backbone.kinds``.
    """
    if features is None:
        return backbone, backbone.kinds[-1]
    if features not in backbone.widths:
        raise UnknownNameError("kind of features", features, tuple(backbone.widths))
    lacking = features not in backbone.kinds
    if lacking and backbone.card.seen_classes is not None and backbone.card.dataset == dataset.name:
        backbone = add_statistics(backbone, dataset)
    return backbone, features


def add_statistics(backbone: Backbone, dataset: DataSet) -> Backbone:
    """Return a copy that standardises all kinds of features, using training images of the classes it has seen.

    Args:
        backbone: not changed; ``save_backbone`` the result to keep it.
        dataset: the one it was trained on. At most 50,000 images are used, spread evenly.
    """
    card = backbone.card
    part = dataset.train.at(card.size, card.in_channels)
    rows = torch.isin(part.labels, torch.tensor(card.seen_classes or ())).nonzero().squeeze(1)
    if card.dataset != dataset.name or not len(rows):
        raise InputError(f"the backbone was trained on {card.dataset!r}, not {dataset.name!r}: give its training data")
    rows = rows[:: -(-len(rows) // _STATISTICS_ROWS)]
    kind = list(backbone.widths)[-1]
    images = (some for some, _ in part.batches(256, rows))
    copied = deepcopy(backbone)
    copied.set_statistics(torch.cat([backbone.pooled(some, kind).cpu() for some in images]))
    return copied


def feature_set(
    backbone: Backbone,
    dataset: DataSet,
    kind: str,
    train_x: NDArray[np.float32],
    test_x: NDArray[np.float32],
    *,
    name: str | None = None,
) -> FeatureSet:
    """Combine features (N, d) and (M, d) of a kind with the data set's labels and the backbone's card."""
    train_y, test_y = dataset.train.labels.numpy(), dataset.test.labels.numpy()
    return FeatureSet(
        name=name or dataset.name,
        train_x=train_x,
        train_y=train_y,
        test_x=test_x,
        test_y=test_y,
        class_names=dataset.class_names,
        fingerprint=features_fingerprint(train_x, train_y, test_x, test_y),
        widths=kinds_up_to(backbone, kind),
        backbone=card_record(backbone),
        dataset=dataset.name,
    )


def kinds_up_to(backbone: Backbone, kind: str) -> dict[str, int]:
    """Return the widths of a kind of features and of all narrower ones, narrowest first."""
    return dict(list(backbone.widths.items())[: list(backbone.widths).index(kind) + 1])


def card_record(backbone: Backbone) -> dict[str, Any]:
    """Return the card of a backbone as JSON values, with the sha256 of its weights."""
    record: dict[str, Any] = json.loads(
        json.dumps({**asdict(backbone.card), "weights_sha256": backbone.fingerprint(backbone.kinds[-1])})
    )
    return record
