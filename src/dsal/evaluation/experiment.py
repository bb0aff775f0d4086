"""One experiment: what is asked for, and the data, scenario and method that it means."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from copy import deepcopy
from dataclasses import dataclass, field, fields, replace
from functools import partial
from inspect import signature
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from dsal.backbones import Backbone
from dsal.data import DATASETS, DataSet, Scenario, load_dataset
from dsal.data.features import FeatureSet, feature_set_names, load_features, read_features
from dsal.distributed import ALONE, Team
from dsal.errors import InputError, UnknownNameError
from dsal.evaluation.leak import Origin, check_no_leak
from dsal.features import cached_features, card_record
from dsal.hints import fit, keyword_hints, plain
from dsal.methods import METHODS, Method

OnPreparing = Callable[[str, int, int], None]
"""Called with (what is being done, units done, units in all)."""


@dataclass(frozen=True, kw_only=True)
class Experiment:
    """What to run.

    Attributes:
        dataset: an embedded set of features, a ``.safetensors`` file of features, or a data set of images.
        data_root: folder of the image data sets.
        download: fetch an image data set that is not there.
        backbone: architecture the weights must be of.
        weights: backbone for images: a file of weights, or a name of ``dsal.backbones.hub``.
        features: kind of features, ``last``, ``stages`` or ``blocks`` (``dsal.backbones.pooling``); None for the
            widest that the data set or the weights offer. ``all`` is what ``stages`` were called before.
        method: name of the method.
        options: of the method, by the names of its constructor's arguments, checked against its type hints; the method
            sets what is left out.
        phases: K, the number of phases after phase 0.
        base_classes: classes of phase 0; None for half of them.
        class_order: ``natural``, or the seed of a permutation.
        shots: training samples of each class after phase 0; None for all.
        eval_every: test after every so many phases, and after the last.
        seeds: one run each.
    """

    dataset: str = "cifar100-features"
    data_root: str | None = None
    download: bool = False
    backbone: str | None = None
    weights: str | None = None
    features: str | None = None
    method: str = "ds-al"
    options: Mapping[str, Any] = field(default_factory=dict)
    phases: int = 25
    base_classes: int | None = None
    class_order: str = "natural"
    shots: int | None = None
    eval_every: int = 1
    seeds: tuple[int, ...] = (0,)

    def __post_init__(self) -> None:
        if not self.seeds or len(set(self.seeds)) < len(self.seeds):
            raise InputError(f"seeds must be one or more different numbers, got {self.seeds}")
        if self.features == "all":
            object.__setattr__(self, "features", "stages")
        if self.shots is not None and self.shots < 1:
            raise InputError(f"shots must be 1 or more, got {self.shots}")
        if self.eval_every < 1:
            raise InputError(f"eval-every must be 1 or more, got {self.eval_every}")

        hints = option_hints(self.method)
        for name in self.options:
            if name not in hints:
                raise UnknownNameError(f"{self.method} option", name, hints)
        checked = {name: fit(name, value, hints[name]) for name, value in self.options.items()}
        object.__setattr__(self, "options", checked)

    def build_method(self, seed: int) -> Method:
        """A fresh method with the options given."""
        cls = METHODS.get(self.method)
        return cls(**self.options, **({"seed": seed} if "seed" in signature(cls).parameters else {}))


def option_hints(method: str) -> dict[str, Any]:
    """The options of a method with their type hints: all arguments of its constructor but ``seed``.

    Raises:
        UnknownNameError: there is no such method.
        InputError: an option bears a name that is taken in every configuration.
    """
    hints = keyword_hints(METHODS.get(method))
    taken = {"name", *(field.name for field in fields(Experiment))} & hints.keys()
    if taken:
        raise InputError(
            f"method {method!r} cannot be run: rename its options {', '.join(sorted(taken))}, "
            "names that every configuration uses for something else"
        )
    return {name: hint for name, hint in hints.items() if name != "seed"}


def option_defaults(method: str) -> dict[str, Any]:
    """The options of a method with their defaults, as a configuration file holds them."""
    parameters = signature(METHODS.get(method)).parameters
    return {name: plain(name, parameters[name].default) for name in option_hints(method)}


@dataclass(frozen=True)
class Setting:
    """An experiment with its data loaded and checked.

    Attributes:
        experiment: what was asked for.
        data: features or images, whatever the method takes, with their labels.
        scenario: which classes arrive when.
        origin: what the backbone was trained on, seen from the scenario.
        config: the effective configuration, every default filled in; what does not apply is left out. The options of
            the method are among it, all as JSON and TOML hold them.
        start: the network that a method on images starts from; None to start from scratch.
    """

    experiment: Experiment
    data: FeatureSet | DataSet
    scenario: Scenario
    origin: Origin
    config: dict[str, Any]
    start: Backbone | None = None

    @property
    def features(self) -> FeatureSet:
        """The data, where they are features."""
        if not isinstance(self.data, FeatureSet):
            raise InputError(f"{self.experiment.method} learns from images, and this needs features")
        return self.data

    @property
    def backbone(self) -> dict[str, Any]:
        """The card of the backbone, as JSON holds it; empty where a network is trained from scratch."""
        if isinstance(self.data, FeatureSet):
            return self.data.backbone
        return {} if self.start is None else card_record(self.start)

    @property
    def image_dataset(self) -> str | None:
        """Name of the image data set, where known."""
        return self.data.dataset if isinstance(self.data, FeatureSet) else self.data.name

    def build_method(self, seed: int) -> Method:
        """A fresh method, before phase 0."""
        method = self.experiment.build_method(seed)
        if self.start is not None:
            given = self.start
            if given.card.seen_classes != self.scenario.labels(0):
                given = deepcopy(given)
                given.head = None  # its outputs are not the classes of phase 0, in their order
            method.start(given)
        return method


def prepare(experiment: Experiment, progress: OnPreparing, team: Team = ALONE) -> Setting:
    """Load the data, deal the classes, and refuse what cannot be run.

    Args:
        experiment: what to run.
        progress: told of what takes long: downloading images, extracting features.
        team: the processes that share the work.

    Raises:
        DSALError: of the kind that fits: an unknown name, a missing file, weights that have seen a later class.
    """
    experiment.build_method(experiment.seeds[0])  # a wrong value is told before anything is loaded
    if experiment.dataset not in DATASETS.names():
        return settle(experiment, _read(experiment))
    backbone = _open_weights(experiment)
    if METHODS.get(experiment.method).inputs == "images":
        images = _load_images(experiment, progress, team)
        if backbone is not None:
            images = images.at(backbone.card.size, backbone.card.in_channels)
        return settle(experiment, images, backbone)
    if backbone is None:
        raise InputError(
            f"{experiment.dataset!r} is a data set of images: give the weights of a backbone, "
            f"or use a set of features: {_listed(feature_set_names())}"
        )
    images, told = _load_images(experiment, progress, team), partial(progress, "features")
    return settle(experiment, cached_features(backbone, images, features=experiment.features, progress=told))


def settle(experiment: Experiment, data: FeatureSet | DataSet, start: Backbone | None = None) -> Setting:
    """The setting of an experiment on data that are loaded already; refuses as :func:`prepare` does.

    Args:
        experiment: what to run.
        data: features or images, whatever its method takes.
        start: the network that a method on images starts from.
    """
    wanted, kind = METHODS.get(experiment.method).inputs, data.kind if isinstance(data, FeatureSet) else None
    if (wanted == "features") != (kind is not None):
        held = "images" if kind is None else "features"
        raise InputError(f"{experiment.method} learns from {wanted}, and {experiment.dataset} holds {held}")
    method = experiment.build_method(experiment.seeds[0])
    scenario = Scenario.deal(
        len(data.class_names), phases=experiment.phases, base=experiment.base_classes, order=experiment.class_order
    )
    if experiment.shots is not None:
        data = data.keep(_few_shot(data.train.labels.numpy(), scenario, experiment.shots))
    source = ("dataset", "data_root", "backbone", "weights", "features", "method", "phases")
    given = {**{name: getattr(experiment, name) for name in source}, "features": kind}
    config = {
        **{name: value for name, value in given.items() if value is not None},
        "base_classes": scenario.seen(0),
        "class_order": experiment.class_order,
        **({} if experiment.shots is None else {"shots": experiment.shots}),
        **({} if experiment.eval_every == 1 else {"eval_every": experiment.eval_every}),
        **{name: plain(name, getattr(method, name)) for name in option_hints(experiment.method)},
        "seeds": list(experiment.seeds),
    }
    setting = Setting(experiment, data, scenario, "base classes", config, start)
    if kind is None and start is None:
        return setting  # a network that starts from scratch has seen nothing
    return replace(setting, origin=check_no_leak(setting.backbone, scenario, setting.image_dataset))


def _few_shot(labels: NDArray[np.int64], scenario: Scenario, shots: int) -> Tensor:
    """Rows of phase 0, and of each later class the same few, whatever the seed of the method."""
    random, kept = np.random.RandomState(0), [scenario.phase_rows(labels, 0)]
    for position in range(scenario.seen(0), len(scenario.order)):
        rows = np.flatnonzero(labels == scenario.order[position])
        kept.append(random.permutation(rows)[:shots])
    return torch.from_numpy(np.sort(np.concatenate(kept)))


def _read(experiment: Experiment) -> FeatureSet:
    name = experiment.dataset
    for option in ("weights", "backbone"):
        if getattr(experiment, option) is not None:
            raise InputError(
                f"{name!r} is a set of features: it takes no {option}. Images: {_listed(DATASETS.names())}"
            )
    if name.endswith(".safetensors"):
        return read_features(name, experiment.features)
    if name not in feature_set_names():
        raise UnknownNameError("data set", name, (*feature_set_names(), *DATASETS.names()))
    return load_features(name, experiment.features)


def _open_weights(experiment: Experiment) -> Backbone | None:
    from dsal.backbones.hub import open_backbone
    from dsal.training import choose_device

    if experiment.weights is None:
        return None
    backbone = open_backbone(experiment.weights).to(choose_device())
    if experiment.backbone not in (None, backbone.card.architecture):
        raise InputError(f"{experiment.weights} holds a {backbone.card.architecture}, not a {experiment.backbone}")
    return backbone


def _load_images(experiment: Experiment, progress: OnPreparing, team: Team) -> DataSet:
    root = None if experiment.data_root is None else Path(experiment.data_root)
    with team.leader_first():
        return load_dataset(experiment.dataset, root, experiment.download, partial(progress, "download"))


def _listed(names: tuple[str, ...]) -> str:
    return ", ".join(names) or "(none)"
