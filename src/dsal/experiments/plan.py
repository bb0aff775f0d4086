"""What a reproduction is asked for: data, sizes, seeds; and what each table or figure needs to be trained."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from dsal.activations import activations
from dsal.evaluation.experiment import Experiment
from dsal.experiments.training import Stream

DS_AL = Stream()
"""The paper's compensation stream: tanh, cleansed."""


@dataclass(frozen=True, order=True)
class Need:
    """A compensation stream (and the main stream under it), trained on a data set in K phases with a seed."""

    dataset: str
    phases: int
    seed: int
    stream: Stream = DS_AL


@dataclass(frozen=True, kw_only=True)
class Plan:
    """How to reproduce the paper.

    Attributes:
        dataset: features of CIFAR-100, by name or file.
        characters: features of Omniglot for Fig. 6, by name or file; None leaves them out.
        data_root: folder with the images of CIFAR-100, which Fig. 3 shows.
        expansion_size: d_B.
        characters_size: d_B for Omniglot, whose 500 phases with 1,623 classes are expensive.
        gamma: ridge of both streams.
        compensation: C.
        seeds: of the projection, for Tables 1 and 2; figures take the first.
        phases: K of Table 1; the first is also that of Table 2 and Figs. 3 to 5.
        growing: K of Fig. 6 on CIFAR-100.
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
            activations.get(name)  # an unknown one is told now, not after an hour

    def experiment(self, need: Need, method: str = "ds-al", seeds: tuple[int, ...] | None = None) -> Experiment:
        """The run that a need stands for, as ``dsal run`` would be asked for it."""
        dual = {"compensation": self.compensation, "activation": need.stream.activation}
        options = {
            "expansion": "random",
            "expansion_size": self.characters_size if need.dataset == self.characters else self.expansion_size,
            "gamma": self.gamma,
            **(dual if method == "ds-al" else {}),
        }
        return Experiment(
            dataset=need.dataset, method=method, options=options, phases=need.phases, seeds=seeds or (need.seed,)
        )

    def as_json(self) -> dict[str, Any]:
        """All of it, as JSON holds it."""
        return {name: list(value) if isinstance(value, tuple) else value for name, value in asdict(self).items()}


def quick(**options: Any) -> Plan:
    """A plan of the same shape that ends within a minute or two; options given go before."""
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
    """A data set as part of a file name.

    >>> named_file("some/where/cifar100-sample.safetensors"), named_file("cifar100-features")
    ('cifar100-sample', 'cifar100-features')
    """
    return Path(dataset).name.removesuffix(".safetensors")
