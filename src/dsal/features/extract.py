"""Images through a frozen backbone, batch by batch."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import asdict
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from dsal.backbones.backbone import Backbone
from dsal.data.dataset import DataSet, Progress
from dsal.data.features import FeatureSet, features_fingerprint
from dsal.distributed import current
from dsal.errors import InputError


def feature_batches(
    backbone: Backbone, images: Tensor, *, features: str = "all", batch_size: int = 256
) -> Iterator[Tensor]:
    """Yield the features of ``images`` in order, float32 (n, d) on the CPU; the last batch takes what is left.

    Args:
        backbone: runs where its weights are; images follow it there.
        images: uint8, (N, C, H, W).
        features: ``"all"`` stages side by side, or the ``"last"`` stage alone.
        batch_size: images at a time; another one changes features by float32 rounding only.
    """
    if batch_size < 1:
        raise InputError(f"batch size must be at least 1, got {batch_size}")
    for batch in torch.split(images, batch_size):
        yield backbone.extract(batch, features).cpu()


def extract_dataset(
    backbone: Backbone,
    dataset: DataSet,
    *,
    name: str | None = None,
    batch_size: int = 256,
    progress: Progress | None = None,
) -> FeatureSet:
    """Features of all stages of all images of a data set; in a team each rank extracts its share of the batches.

    Args:
        backbone: runs where its weights are.
        dataset: its images, both parts.
        name: what to call the result; the data set's name by default.
        batch_size: images at a time.
        progress: called with (images done, images in all), training and test part together, of this rank's share.
    """
    if batch_size < 1:
        raise InputError(f"batch size must be at least 1, got {batch_size}")
    team = current()
    # Whole batches: a batch of another size would change its features by rounding.
    mine = [part.cut(team.share(len(part), unit=batch_size)) for part in (dataset.train, dataset.test)]
    rows, total = len(mine[0]), len(mine[0]) + len(mine[1])
    out = np.empty((total, sum(backbone.stage_widths)), dtype=np.float32)
    done = 0
    for part in mine:
        for batch in part.batches(batch_size, backbone.card.size, backbone.card.in_channels):
            if len(batch):
                out[done : done + len(batch)] = backbone.extract(batch).cpu().numpy()
                done += len(batch)
                if progress is not None:
                    progress(done, total)
    return feature_set(backbone, dataset, team.rows(out[:rows]), team.rows(out[rows:]), name=name)


def feature_set(
    backbone: Backbone,
    dataset: DataSet,
    train_x: NDArray[np.float32],
    test_x: NDArray[np.float32],
    *,
    name: str | None = None,
) -> FeatureSet:
    """Features (N, d) and (M, d) of a data set, together with its labels and the backbone's card."""
    train_y, test_y = dataset.train.labels.numpy(), dataset.test.labels.numpy()
    return FeatureSet(
        name=name or dataset.name,
        train_x=train_x,
        train_y=train_y,
        test_x=test_x,
        test_y=test_y,
        class_names=dataset.class_names,
        fingerprint=features_fingerprint(train_x, train_y, test_x, test_y),
        stage_widths=backbone.stage_widths,
        backbone=card_record(backbone),
        dataset=dataset.name,
    )


def card_record(backbone: Backbone) -> dict[str, Any]:
    """The card of a backbone as JSON holds it, with the sha256 of its weights."""
    record: dict[str, Any] = json.loads(json.dumps({**asdict(backbone.card), "weights_sha256": backbone.fingerprint()}))
    return record
