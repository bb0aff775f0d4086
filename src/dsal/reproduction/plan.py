"""The plan of a reproduction: data, sizes, seeds; and the trainings that tables and figures need."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from dsal.analytic.activations import activations
from dsal.protocol.experiment import Experiment
from dsal.reproduction.stream_training import Stream

DS_AL = Stream()
"""The paper's compensation stream: tanh, cleansed."""


@dataclass(frozen=True, order=True)
class TrainingSpec:
    """A compensation stream (and the main stream under it), trained on a data set in K phases with a seed."""

    dataset: str
    phases: int
    seed: int
    stream: Stream = DS_AL


@dataclass(frozen=True, kw_only=True)
class Plan:
    """How to reproduce the paper.

    Attributes:
        dataset: features, by name, file or folder of shards.
        characters: features of Omniglot for Fig. 6, by name or file; None leaves them out.
        data_root: folder with the images, which Fig. 3 shows.
        expansion_size: d_B.
        characters_size: d_B for Omniglot, whose 500 phases with 1,623 classes are expensive.
        gamma: ridge of both streams.
        compensation: C.
        seeds: of the projection, for Tables 1 and 2; figures use the first.
        phases: K of Table 1; the first is also the K of Table 2 and Figs. 3 to 5.
        growing: K of Fig. 6 on ``dataset``.
        growing_characters: K of Fig. 6 on Omniglot.
        activations: of Fig. 5.
    """

    dataset: str = "cifar100-features"
    characters: str | None = "omniglot-features"
    data_root: str | None = None
    expansion_size: int = 8192
    characters_size: int = 2048
    gamma: float = 0.1
    compensation: float = 0.6
    seeds: tuple[int, ...] = (0, 1, 2)
    phases: tuple[int, ...] = (5, 25, 50)
    growing: tuple[int, ...] = (5, 25, 50)
    growing_characters: tuple[int, ...] = (5, 25, 100, 500)
    activations: tuple[str, ...] = ("gelu", "hardswish", "mish", "sigmoid", "tanh")

    def __post_init__(self) -> None:
        for name in self.activations:
            activations.get(name)  # an unknown one is reported now, not after an hour

    def size(self, dataset: str) -> int:
        """Return d_B for a data set."""
        return self.characters_size if dataset == self.characters else self.expansion_size

    def experiment(self, need: TrainingSpec, method: str = "ds-al", seeds: tuple[int, ...] | None = None) -> Experiment:
        """Return the experiment of a need, as ``dsal run`` would run it."""
        dual = {"compensation": self.compensation, "activation": need.stream.activation}
        options = {
            "expansion": "random",
            "expansion_size": self.size(need.dataset),
            "gamma": self.gamma,
            **(dual if method == "ds-al" else {}),
        }
        return Experiment(
            dataset=need.dataset, method=method, options=options, phases=need.phases, seeds=seeds or (need.seed,)
        )


@dataclass(frozen=True)
class PaperSetting:
    """The paper's settings for one of its image data sets.

    Attributes:
        title: its name in the paper.
        compensation: C.
        growing: K of Fig. 6.
        expansion_size: d_B.
    """

    title: str
    compensation: float
    growing: tuple[int, ...] = (5, 25, 50)
    expansion_size: int = 16384


PAPER_SETTINGS = {
    "cifar100": PaperSetting("CIFAR-100", 0.6, expansion_size=8192),
    "imagenet100": PaperSetting("ImageNet-100", 0.8),
    "imagenet": PaperSetting("ImageNet-Full", 1.4, (5, 25, 50, 100, 250, 500)),
}


def paper_options(image_dataset: str, classes: int) -> dict[str, Any]:
    """Return the paper's options for an image data set; for other data sets, those of ImageNet-100.

    Values of K above the number of classes after the base phase are reduced to that number.
    """
    setting = PAPER_SETTINGS.get(image_dataset, PAPER_SETTINGS["imagenet100"])
    most = classes // 2

    def possible(ks: tuple[int, ...]) -> tuple[int, ...]:
        return tuple(sorted({min(k, most) for k in ks}))

    return {
        "expansion_size": setting.expansion_size,
        "compensation": setting.compensation,
        "phases": possible((5, 25, 50)),
        "growing": possible(setting.growing),
    }


def title_of(image_dataset: str | None) -> str:
    """Return the paper's name of an image data set."""
    known = PAPER_SETTINGS.get(image_dataset or "")
    return known.title if known else image_dataset or "features of unknown images"


def quick(**options: Any) -> Plan:
    """Return a plan of the same shape that finishes within a minute or two; given options take precedence."""
    small: dict[str, Any] = {
        "expansion_size": 256,
        "characters_size": 128,
        "seeds": (0, 1),
        "phases": (5, 25),
        "growing": (5, 25),
        "growing_characters": (5, 50),
        "activations": ("relu", "sigmoid", "tanh"),
    }
    return Plan(**{**small, **options})


def named_file(dataset: str) -> str:
    """Return the name of a data set as part of a file name.

    >>> named_file("some/where/cifar100-sample.safetensors"), named_file("cifar100-features")
    ('cifar100-sample', 'cifar100-features')
    """
    return Path(dataset).name.removesuffix(".safetensors")
