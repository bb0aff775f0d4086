"""An image model as one safetensors file: its layout, and changes that need neither PyTorch nor the whole file."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass, field
from itertools import takewhile
from typing import Any

from dsal.base import __version__
from dsal.errors import DSALError, FileFormatError
from dsal.files.atomic import StrPath, keep_backup
from dsal.files.model_schema import IMAGE_MODEL
from dsal.files.schema import Mismatch, check_headers
from dsal.files.tensors import StoredArray, save_tensors, under
from dsal.image_model.version import EXPANSION, AnyArray, Timeline, Version, equal, in_memory

_STATE = ("classifier.", "novelty.", "usual.", "seen.")


@dataclass(eq=False)
class StoredModel:
    """The content of a model file. Arrays may still be in an open file; then only what a change touches is read.

    Attributes:
        card: of the backbone.
        backbone_sha256: its fingerprint.
        fixed: arrays of backbone and expansion, which never change.
        present: the learned state, without the expansion.
        timeline: the states before and after.
        notes: see :class:`~dsal.image_model.ImageModel`.
        dsal: the version of dsal that wrote the file.
    """

    card: dict[str, Any]
    backbone_sha256: str
    fixed: dict[str, AnyArray]
    present: Version
    timeline: Timeline
    notes: dict[str, Any] = field(default_factory=dict)
    dsal: str = __version__

    @classmethod
    def of(cls, arrays: dict[str, AnyArray], facts: dict[str, Any]) -> StoredModel:
        """Return what arrays and metadata of a file say."""
        fixed = {name: array for name, array in arrays.items() if name.startswith(("backbone.", EXPANSION))}
        state = {name: array for name, array in arrays.items() if name.startswith(_STATE) and name not in fixed}
        present = Version(facts["version_id"], "", state, facts["classifier"], facts["left_out"])
        versions = (_versions(arrays, facts[kind], kind) for kind in ("history", "undone"))
        timeline = Timeline(present.id, *versions)
        return cls(facts["card"], facts["backbone_sha256"], fixed, present, timeline, facts["notes"], facts["dsal"])

    @property
    def classes(self) -> tuple[str, ...]:
        """Labels in the order in which they were learned."""
        return self.present.classes

    @property
    def counts(self) -> dict[str, int]:
        """Number of learned images of each class."""
        return self.present.counts

    def rename(self, old: str, new: str) -> None:
        """Rename a class: see :meth:`dsal.image_model.ImageModel.rename`."""
        self._follow(self.present.renamed(old, new))

    def drop(self, label: str) -> None:
        """Remove a class: see :meth:`dsal.image_model.ImageModel.drop`."""
        self._follow(self.present.dropped(label))

    def undo(self) -> str:
        """Undo the last change: see :meth:`dsal.image_model.ImageModel.undo`."""
        self.present, self.timeline = self.timeline.undo(self.present)
        return self.present.change

    def redo(self) -> str:
        """Make the last change again that was undone: see :meth:`dsal.image_model.ImageModel.redo`."""
        self.present, self.timeline = self.timeline.redo(self.present)
        return self.present.change

    def restore(self, damaged: Collection[str]) -> str | None:
        """Return to the newest earlier version that has none of these arrays, and forget what came after it.

        Keys of changes are forgotten, too: some of them are about changes that are lost.

        Returns:
            The change before which it was; None if no earlier version is whole. Then nothing was done.
        """

        def is_whole(version: Version) -> bool:
            arrays = {**self.fixed, **version.arrays}.values()
            return not any(isinstance(array, StoredArray) and array.name in damaged for array in arrays)

        history = list(self.timeline.history)
        while history and not is_whole(history[0]):
            del history[0]
        if not history or not history[0].meta:  # nothing had been learned
            return None
        self.present, older = history[0], takewhile(is_whole, history[1:])
        self.timeline, self.notes = Timeline(self.present.id, tuple(older)), {}
        return self.present.change

    def write(self, path: StrPath) -> None:
        """Write the file, atomically; raise FileFormatError, and write nothing, if it could not be read again.

        A file that another version of dsal wrote is kept beside it, as ``NAME.bak``.
        """
        arrays = {**self.fixed, **self.present.arrays}
        documents: dict[str, list[dict[str, Any]]] = {"history": [], "undone": []}
        for kind, versions in (("history", self.timeline.history), ("undone", self.timeline.undone)):
            newer, names = dict(arrays), {name: name for name in arrays}
            for version in versions:
                own = f"{kind}.{version.id}"  # not its number: an array that gets another name is hashed anew
                same: dict[str, str] = {}
                for name, value in version.arrays.items():
                    if name in newer and equal(newer[name], value):
                        same[name] = names[name]
                    else:
                        arrays[f"{own}.{name}"] = value
                documents[kind].append({**version.document(), "same": same})
                newer = version.arrays
                names = {name: same.get(name, f"{own}.{name}") for name in version.arrays}
        try:
            facts = {
                "kind": IMAGE_MODEL.kind,
                "card": self.card,
                "backbone_sha256": self.backbone_sha256,
                "classifier": self.present.meta,
                "counts": self.present.counts,
                "temperature": _temperature(self.present),
                "compensation": _compensation(self.present.meta),
                "left_out": self.present.left_out,
                "notes": self.notes,
                "version_id": self.timeline.id,
                **documents,
                "dsal": __version__,
            }
            headers = {name: (array.dtype.name, array.shape) for name, array in arrays.items()}
            check_headers(headers, IMAGE_MODEL.expected(facts), IMAGE_MODEL.sizes(facts))
        except (Mismatch, LookupError, TypeError, ValueError) as error:
            if isinstance(error, DSALError):
                raise
            raise FileFormatError(
                f"this is not a model that could be read again, so {path} was not written: {error}"
            ) from error
        if self.dsal != __version__:
            keep_backup(path)
        save_tensors(path, arrays, facts)
        self.dsal = __version__

    def _follow(self, after: Version) -> None:
        self.timeline = self.timeline.followed(self.present, after.change, after.id)
        self.present = after


def _versions(arrays: dict[str, AnyArray], documents: list[dict[str, Any]], kind: str) -> tuple[Version, ...]:
    """Return the versions of one kind; arrays that did not change between two versions are in the file once."""
    found = []
    for number, document in enumerate(documents):
        about = dict(document)
        same = {name: arrays[stored] for name, stored in about.pop("same").items()}
        own = under(arrays, f"{kind}.{document['id']}") or under(arrays, f"{kind}.{number}")  # as earlier files have it
        found.append(Version(arrays={**own, **same}, **about))
    return tuple(found)


def _temperature(version: Version) -> float:
    from dsal.classifier.calibration import Calibration

    return Calibration(in_memory(version.arrays["classifier.calibration"])).temperature


def _compensation(meta: dict[str, Any]) -> float:
    """Return C in use."""
    value = meta["params"]["compensation"]
    if isinstance(value, str):
        from dsal.analytic.tuning import RatioFit

        return RatioFit(*meta["ratio"]).ratio
    return float(value or 0.0)
