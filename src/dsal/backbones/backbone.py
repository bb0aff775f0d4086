"""A trained, frozen backbone: images to features, with everything that must travel with its weights.

A file of weights (safetensors) carries, besides the network's parameters, its :class:`Card`: the architecture, the
preprocessing, and the classes it has seen, so that no run can mistake one of them for a new class.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any, cast

import torch
from torch import Tensor, nn

from dsal.backbones.pooling import KINDS, MappedNetwork, offered_kinds, pool, width
from dsal.backbones.stage_heads import BRANCHES, StageHeads
from dsal.base.registry import Registry, check_name
from dsal.errors import FileFormatError, InputError
from dsal.files.model_schema import CARD_KEYS
from dsal.files.schema import ANY_TABLE, Array, Choice, Each, Flag, Maybe, Number, Record, Ruled, Schema, Text, like
from dsal.files.tensors import load_tensors, save_tensors

KIND = "backbone"
SHIPPED = Path(__file__).parent / "weights"
"""The folder of weights that ship with the package."""

ARCHITECTURES: Registry[Callable[[int], nn.Module]] = Registry("architecture", group="dsal.backbones")
"""Constructors by name: number of input channels -> a :class:`~dsal.backbones.pooling.MappedNetwork`."""


@dataclass(frozen=True, kw_only=True)
class Card:
    """What must be known about a backbone's weights to use them correctly; by default they are generic.

    Attributes:
        architecture: name in :data:`ARCHITECTURES`.
        dataset: data set it was trained on; ``None`` for a generic one.
        seen_classes: that data set's labels seen in training, in the order of the head's outputs; ``None`` for a
            generic backbone, which may have seen anything.
        class_order: class order of which ``seen_classes`` are the first.
        in_channels: 3 for colour images, 1 for grey ones.
        size: side of the images in pixels.
        mean: per channel, of pixels scaled to 0..1.
        std: per channel, likewise.
        flip: features are the mean of those of the image and of its mirror image.
        shift: if above 0, features are half those of the image, and a quarter each those of the image shifted by so
            many pixels, up and left, and down and right; the border is reflected.
        auxiliary: kind of auxiliary heads that come with the weights (:data:`dsal.backbones.stage_heads.BRANCHES`);
            empty for none.
        transforms: names of the image transforms that these heads tell apart, besides upright.
        training: how the weights were made: recipe, seed, accuracy per epoch, versions.
    """

    architecture: str
    dataset: str | None = None
    seen_classes: tuple[int, ...] | None = None
    class_order: str = "natural"
    in_channels: int
    size: int
    mean: tuple[float, ...]
    std: tuple[float, ...]
    flip: bool = False
    shift: int = 0
    auxiliary: str = ""
    transforms: tuple[str, ...] = ()
    training: dict[str, Any] = field(default_factory=dict)


class Backbone(nn.Module):
    """A network with its card; turns uint8 images into float32 features.

    The buffers ``feature_mean`` and ``feature_std`` standardise the features. They are as wide as the widest kind of
    features that has statistics; until :meth:`set_statistics` is called, they are 0 and 1 for ``stages``.

    Args:
        card: see :class:`Card`.
        network: a network of the card's architecture; created if not given.
        head: outputs for ``card.seen_classes``, used in base training; ``None`` when it was dropped.

    Attributes:
        auxiliary: heads on the maps of all stages, used in base training; ``None`` unless they were asked for.
    """

    pixel_mean: Tensor
    pixel_std: Tensor
    feature_mean: Tensor
    feature_std: Tensor

    def __init__(self, card: Card, network: nn.Module | None = None, head: nn.Linear | None = None) -> None:
        super().__init__()
        self.card = card
        self.network = ARCHITECTURES.get(card.architecture)(card.in_channels) if network is None else network
        self.head = head
        self.auxiliary: StageHeads | None = None
        self.register_buffer("pixel_mean", torch.tensor(card.mean).view(1, -1, 1, 1), persistent=False)
        self.register_buffer("pixel_std", torch.tensor(card.std).view(1, -1, 1, 1), persistent=False)
        self.register_buffer("feature_mean", torch.zeros(self.widths["stages"]))
        self.register_buffer("feature_std", torch.ones(self.widths["stages"]))

    @property
    def mapped(self) -> MappedNetwork:
        """The network, typed as one that offers maps."""
        return cast(MappedNetwork, self.network)

    @property
    def widths(self) -> dict[str, int]:
        """Number of features of each kind that the network offers, narrowest first."""
        return {kind: width(self.mapped, kind) for kind in offered_kinds(self.mapped)}

    @property
    def kinds(self) -> tuple[str, ...]:
        """Kinds of features that can be extracted: the weights include the statistics to standardise them."""
        return tuple(kind for kind, size in self.widths.items() if size <= len(self.feature_mean))

    def normalise(self, images: Tensor) -> Tensor:
        """Turn uint8 images (n, c, h, w) into the float32 input of the network."""
        x = (images.float() / 255 - self.pixel_mean) / self.pixel_std
        return x.contiguous(memory_format=torch.channels_last)

    @torch.no_grad()
    def extract(self, images: Tensor, features: str = "stages") -> Tensor:
        """Return features of a batch of images, standardised with the mean and deviation of the base training data.

        Args:
            images: (n, c, h, w) uint8, on any device.
            features: one of :data:`dsal.backbones.KINDS`, see there.

        Returns:
            (n, d) float32, on the backbone's device.
        """
        if features in KINDS and features not in self.kinds:
            lacking = "dsal.backbones.extraction.add_statistics computes them from the data they were trained on"
            reason = lacking if features in self.widths else "the network offers no maps inside its stages"
            raise InputError(
                f"these weights of {self.card.architecture} offer the features {', '.join(self.kinds)}, "
                f"not {features!r}: {reason}"
            )
        pooled = self.pooled(images, features)
        tail = slice(len(self.feature_mean) - pooled.shape[1], None)
        rows = (pooled - self.feature_mean[tail]) / self.feature_std[tail]
        if not torch.compiler.is_compiling() and not torch.isfinite(rows).all():  # an exported graph has no branches
            raise InputError("the backbone returned NaN or infinities: its weights are damaged or far too large")
        return rows

    @torch.no_grad()
    def pooled(self, images: Tensor, features: str) -> Tensor:
        """Return the features (n, d) of a batch of images before standardisation."""
        check_name("kind of features", features, self.widths)
        x = self._checked(images)
        with _evaluating(self):
            return sum(weight * pool(self.mapped, view, features) for view, weight in self._views(x))  # type: ignore[return-value]

    def _views(self, x: Tensor) -> Iterator[tuple[Tensor, float]]:
        """Yield the views of images (n, c, h, w) whose features are averaged, and the weight of each."""
        shift, shares = self.card.shift, [1.0]
        views = [x]
        if shift:
            padded = nn.functional.pad(x, (shift,) * 4, mode="reflect")
            views += [padded[:, :, : -2 * shift, : -2 * shift], padded[:, :, 2 * shift :, 2 * shift :]]
            shares = [0.5, 0.25, 0.25]
        for view, share in zip(views, shares, strict=True):
            if self.card.flip:
                yield view.flip(3), share / 2
            yield view, share / 2 if self.card.flip else share

    def set_statistics(self, pooled: Tensor) -> None:
        """Standardise from now on with the mean and deviation of these rows of :meth:`pooled`, for kinds up to theirs.

        Args:
            pooled: (n, d) of the base training data, as wide as one of :attr:`widths`.
        """
        if pooled.ndim != 2 or pooled.shape[1] not in self.widths.values():
            raise InputError(
                f"expected rows as wide as one of the kinds of features {self.widths}, got shape {tuple(pooled.shape)}"
            )
        rows, device = pooled.double(), self.feature_mean.device
        std = rows.std(dim=0)
        self.feature_mean = rows.mean(dim=0).float().to(device)
        self.feature_std = std.where(std > 1e-6, 1.0).float().to(device)  # a constant column is only shifted

    @torch.no_grad()
    def classify(self, images: Tensor) -> Tensor:
        """Return scores (n, classes) of the seen classes from the head of base training."""
        if self.head is None:
            raise InputError("this backbone has no head: it was saved without one, or never trained")
        x = self._checked(images)
        with _evaluating(self):
            scores: Tensor = self.head(pool(self.mapped, x, "last"))
        return scores

    def _checked(self, images: Tensor) -> Tensor:
        card = self.card
        if images.dtype != torch.uint8 or images.ndim != 4 or images.shape[1] != card.in_channels:
            raise InputError(
                f"expected uint8 images of shape (n, {card.in_channels}, {card.size}, {card.size}), "
                f"got {images.dtype} of shape {tuple(images.shape)}"
            )
        return self.normalise(images.to(self.feature_mean.device))

    def _load_from_state_dict(self, state_dict: dict[str, Any], prefix: str, *arguments: Any) -> None:
        """Accept statistics of any kind of features, narrower or wider than the current ones."""
        found = state_dict.get(f"{prefix}feature_mean")
        if found is not None and found.ndim == 1 and len(found) in self.widths.values():
            self.feature_mean = self.feature_mean.new_zeros(len(found))
            self.feature_std = self.feature_std.new_ones(len(found))
        super()._load_from_state_dict(state_dict, prefix, *arguments)

    def fingerprint(self, features: str = "stages") -> str:
        """Return the sha256 of all that determines features of a kind: weights, statistics and preprocessing."""
        card = self.card
        shift = (card.shift,) if card.shift else ()  # as it was before there were shifts
        digest = hashlib.sha256(repr((card.architecture, card.size, card.mean, card.std, card.flip, *shift)).encode())
        for name, value in sorted(self.state_dict().items()):
            if not name.startswith(("head.", "auxiliary.")):
                if name in ("feature_mean", "feature_std"):
                    value = value[max(len(value) - self.widths[features], 0) :]
                digest.update(name.encode())
                digest.update(value.cpu().contiguous().numpy().tobytes())
        return digest.hexdigest()


@contextmanager
def _evaluating(module: nn.Module) -> Iterator[None]:
    """Switch to evaluation mode inside the block; afterwards restore the mode of every submodule."""
    training = [part for part in module.modules() if part.training]
    try:
        for part in training:
            part.training = False
        yield
    finally:
        for part in training:
            part.training = True


def save_backbone(path: Path, backbone: Backbone) -> None:
    """Write weights and card to one safetensors file, whole or not at all."""
    save_tensors(path, backbone.state_dict(), {"kind": KIND, "card": asdict(backbone.card)})


def shipped_weights() -> tuple[str, ...]:
    """Return the names of the weights that ship with the package."""
    return tuple(sorted(path.stem for path in SHIPPED.glob("*.safetensors")))


def auxiliary_heads(card: Card, network: MappedNetwork) -> StageHeads | None:
    """Build the auxiliary heads that a card names, with random weights; ``None`` if it names none."""
    if not card.auxiliary:
        return None
    return StageHeads(network, card.auxiliary, len(card.seen_classes or ()) * (1 + len(card.transforms)))


def without_auxiliary(backbone: Backbone) -> Backbone:
    """Drop the auxiliary heads, in place; return the backbone."""
    backbone.auxiliary = None
    backbone.card = replace(backbone.card, auxiliary="", transforms=())
    return backbone


def load_backbone(source: Path | str, *, auxiliary: bool = False) -> Backbone:
    """Read weights from a file that :func:`save_backbone` wrote, or by a name from :func:`shipped_weights`.

    Args:
        source: file or name.
        auxiliary: with the auxiliary heads, if the file has them: only a teacher needs them.

    Returns:
        The backbone in evaluation mode, on the CPU.
    """
    path = SHIPPED / f"{source}.safetensors" if str(source) in shipped_weights() else Path(source)
    tensors, meta = load_tensors(path, SCHEMA)
    card, head = read_card(meta["card"]), tensors.get("head.weight")
    backbone = Backbone(card, head=None if head is None else nn.Linear(head.shape[1], head.shape[0]))
    backbone.auxiliary = auxiliary_heads(card, backbone.mapped)
    try:
        backbone.load_state_dict({name: torch.from_numpy(value) for name, value in tensors.items()})
    except RuntimeError as error:
        raise FileFormatError(f"{path} is not a usable file of backbone weights: {error}") from error
    return channels_last(backbone if auxiliary else without_auxiliary(backbone)).eval()


def read_card(fields: dict[str, Any]) -> Card:
    """Build a card from JSON fields that satisfy :data:`CARD`."""
    lists = [name for name in ("seen_classes", "mean", "std", "transforms") if fields.get(name) is not None]
    return Card(**{**fields, **{name: tuple(fields[name]) for name in lists}})


def _card_disagreement(card: dict[str, Any]) -> str | None:
    if {len(card["mean"]), len(card["std"])} - {1, card["in_channels"]}:
        return f"mean and std must have one number for each of {card['in_channels']} channels"
    if card.get("shift", 0) >= card["size"]:
        return "shift must be smaller than size"
    if card.get("auxiliary") and card["seen_classes"] is None:
        return "auxiliary heads need the classes seen"
    return None


CARD = Ruled(
    Record(
        {
            **CARD_KEYS,
            "dataset": Maybe(Text(200)),
            "seen_classes": Maybe(Each(Number(0, 2**31, whole=True), most=100_000)),
            "class_order": Text(200),
        },
        optional={
            "flip": Flag(),
            "shift": Number(0, 64, whole=True),
            "auxiliary": Choice(("", *BRANCHES)),
            "transforms": Each(Text(200), most=100),
            "training": ANY_TABLE,
        },
    ),
    _card_disagreement,
)
"""Schema of a card in a file."""


def _weight_arrays(facts: dict[str, Any]) -> dict[str, Array]:
    """Return the arrays expected in a file of weights with this card."""
    card = facts["card"]
    with torch.device("meta"):  # shapes without memory
        backbone = Backbone(read_card(card))
        backbone.auxiliary = auxiliary_heads(backbone.card, backbone.mapped)
        expected = like(backbone.state_dict())
    seen = "head outputs" if card["seen_classes"] is None else len(card["seen_classes"])
    return {
        **expected,
        "feature_mean": Array("float32", ("features",)),  # of any kind of features
        "feature_std": Array("float32", ("features",), low=1e-9),
        r"head\.weight": Array("float32", (seen, "pooled"), optional=True),
        r"head\.bias": Array("float32", (seen,), optional=True),
    }


SCHEMA = Schema(KIND, Record({"card": CARD}), _weight_arrays)


def channels_last(backbone: Backbone) -> Backbone:
    """Lay out the convolution weights as the fast kernels expect them, in place."""
    return backbone.to(memory_format=torch.channels_last)  # type: ignore[call-overload, no-any-return]
