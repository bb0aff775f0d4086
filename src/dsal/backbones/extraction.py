"""Extraction of features: images through a frozen backbone, batch by batch; to memory, or to disk shard by shard.

An interrupted extraction of shards continues with what is missing.
"""

from __future__ import annotations

import hashlib
import json
import socket
from collections.abc import Iterator
from copy import deepcopy
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from dsal.backbones.backbone import Backbone
from dsal.base.progress import OnProgress
from dsal.base.registry import check_name
from dsal.data.dataset import DataSet
from dsal.data.features.feature_set import FeatureSet, features_fingerprint
from dsal.data.features.shards import PARTS, is_sharded, read_shards, shard_digest, shard_path, write_index, write_shard
from dsal.data.images.image_files import FileData
from dsal.data.samples import ImageData
from dsal.distributed import ALONE, Team
from dsal.errors import InputError

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
    for start, part in zip((0, rows), mine, strict=True):
        for done in _extract_into(out[start:], backbone, part, features, batch_size):
            if progress is not None:
                progress(start + done, total)
    return feature_set(backbone, dataset, features, team.rows(out[:rows]), team.rows(out[rows:]), name=name)


def _extract_into(
    out: NDArray[np.float32], backbone: Backbone, images: ImageData | FileData, kind: str, batch_size: int
) -> Iterator[int]:
    """Write features of a kind to the first rows of ``out`` (n, d); yield the number of rows after every batch."""
    done = 0
    for batch, _ in images.batches(batch_size):
        if len(batch):
            out[done : done + len(batch)] = backbone.extract(batch, kind).cpu().numpy()
            done += len(batch)
            yield done


def with_statistics(backbone: Backbone, dataset: DataSet, features: str | None) -> tuple[Backbone, str]:
    """Return a backbone that can standardise a kind of features, and that kind.

    Weights may lack the statistics of the widest kind, as those of Omniglot do. These are computed, at every call, if
    the data set is the one that the backbone was trained on. For None the kind is the widest of ``backbone.kinds``.
    """
    if features is None:
        return backbone, backbone.kinds[-1]
    check_name("kind of features", features, backbone.widths)
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


SHARD_ROWS = 2**15
"""Rows of a shard: 32 MB at 512 features, and the work lost by a kill."""


def extract_shards(
    backbone: Backbone,
    dataset: DataSet,
    folder: Path,
    *,
    features: str | None = None,
    name: str | None = None,
    batch_size: int = 256,
    shard_rows: int = SHARD_ROWS,
    exact: bool = False,
    progress: OnProgress | None = None,
    team: Team = ALONE,
) -> FeatureSet:
    """Write the features of all images of a data set to a folder of shards; existing ones are not computed again.

    Memory does not grow with the number of images: one shard is held at a time. Each rank writes whole shards,
    so all ranks must see the folder. The files are identical to the last byte however often the extraction was
    interrupted, and for any number of ranks.

    Args:
        backbone: runs on the device of its weights.
        dataset: the images, both parts.
        folder: to write to; created if missing.
        features: kind of features; by default the widest that the weights have statistics for.
        name: what to call the set; the folder's name by default.
        batch_size: images at a time.
        shard_rows: rows of a shard, a multiple of ``batch_size``.
        exact: keep float32; else float16.
        progress: called with (images done, images in all) of this rank's share, including those of earlier calls.
        team: the processes that share the work.

    Raises:
        InputError: the folder holds features of other images, other weights or another kind.
        OSError: the ranks do not share the folder.
    """
    if batch_size < 1 or shard_rows < 1 or shard_rows % batch_size:
        raise InputError(f"the rows of a shard must be a multiple of the batch size, got {shard_rows} and {batch_size}")
    backbone, kind = with_statistics(backbone, dataset, features)
    key = [backbone.fingerprint(kind), dataset.fingerprint, kind, batch_size, shard_rows, exact]
    made = hashlib.sha256(json.dumps(key).encode()).hexdigest()
    folder.mkdir(parents=True, exist_ok=True)
    if is_sharded(folder):
        return read_shards(folder, made=made)
    width, data = backbone.widths[kind], dataset.at(backbone.card.size, backbone.card.in_channels)
    parts = dict(zip(PARTS, (data.train, data.test), strict=True))
    todo = [
        (part, number, start, min(shard_rows, len(samples) - start))
        for part, samples in parts.items()
        for number, start in enumerate(range(0, len(samples), shard_rows))
    ]
    mine, done = todo[team.rank :: team.size], 0
    total = sum(rows for *_, rows in mine)
    for part, number, start, rows in mine:
        if shard_digest(folder, part, number, made=made, start=start, rows=rows, width=width) is None:
            x = np.empty((rows, width), dtype=np.float32)
            for new in _extract_into(x, backbone, parts[part].take(slice(start, start + rows)), kind, batch_size):
                if progress is not None:
                    progress(done + new, total)
            write_shard(folder, part, number, x, made=made, start=start, exact=exact)
        done += rows
        if progress is not None:
            progress(done, total)
    team.wait()
    with team.leader_first():
        if team.leads:
            digests: dict[str, list[str]] = {part: [] for part in PARTS}
            for part, number, start, rows in todo:
                digest = shard_digest(folder, part, number, made=made, start=start, rows=rows, width=width)
                if digest is None:
                    raise OSError(
                        f"{shard_path(folder, part, number)} was written by another process but is not visible on "
                        f"{socket.gethostname()}: use a folder that all machines share"
                    )
                digests[part].append(digest)
            facts = {
                "name": name or folder.name,
                "class_names": list(dataset.class_names),
                "widths": list(kinds_up_to(backbone, kind).items()),
                "backbone": card_record(backbone),
                "dataset": dataset.name,
            }
            labels = {"train": dataset.train.labels.numpy(), "test": dataset.test.labels.numpy()}
            write_index(folder, labels, digests, facts, made=made, shard_rows=shard_rows)
    return read_shards(folder, made=made)
