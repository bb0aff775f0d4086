"""Extraction of features larger than memory, shard by shard; an interrupted one continues with what is missing."""

from __future__ import annotations

import hashlib
import json
import socket
from collections.abc import Iterator
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from dsal.backbones.backbone import Backbone
from dsal.backbones.extraction import card_record, kinds_up_to, with_statistics
from dsal.base.progress import OnProgress
from dsal.data.dataset import DataSet
from dsal.data.features.feature_set import FeatureSet
from dsal.data.features.shards import PARTS, is_sharded, read_shards, shard_digest, shard_path, write_index, write_shard
from dsal.data.images.image_files import FileData
from dsal.data.samples import ImageData
from dsal.distributed import ALONE, Team
from dsal.errors import InputError

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
            for at, batch in _extracted(backbone, parts[part].take(slice(start, start + rows)), kind, batch_size):
                x[at : at + len(batch)] = batch
                if progress is not None:
                    progress(done + at + len(batch), total)
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


def _extracted(
    backbone: Backbone, images: ImageData | FileData, kind: str, size: int
) -> Iterator[tuple[int, NDArray[np.float32]]]:
    """Yield batches of features, each after the index of its first row."""
    at = 0
    for batch, _ in images.batches(size):
        yield at, backbone.extract(batch, kind).cpu().numpy()
        at += len(batch)
