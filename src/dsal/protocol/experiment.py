"""One experiment: its description, and the data, scenario and method to run it with."""

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
from dsal.backbones.extraction import card_record
from dsal.backbones.feature_cache import cached_features
from dsal.base.options import fit, keyword_hints, plain
from dsal.base.registry import check_name
from dsal.data import DATASETS, DataSet, FeatureSet, Scenario, feature_set_names
from dsal.data.open import holds_images, load_dataset, load_features
from dsal.distributed import ALONE, Team
from dsal.errors import InputError
from dsal.methods import METHODS, Method
from dsal.protocol.metrics import KEPT
from dsal.protocol.provenance import Origin, check_no_leak

OnPreparing = Callable[[str, int, int], None]
"""Called with (name of the task, units done, units in total)."""


@dataclass(frozen=True, kw_only=True)
class Experiment:
    """What to run.

    Attributes:
        dataset: an embedded set of features, a ``.safetensors`` file or a folder of shards written by
            ``dsal extract``, features made elsewhere (``dsal.data.features.tables``), or an image data set.
        data_root: folder with the image data sets.
        download: download an image data set that is missing.
        backbone: for images: a name of ``dsal.backbones.pretrained``, or a file of weights.
        features: kind of features, ``last``, ``stages`` or ``blocks`` (``dsal.backbones.pooling``); None for the
            widest that the data set or the backbone offers.
        method: name of the method.
        options: of the method, by the names of its constructor's arguments, checked against its type hints; the method
            has defaults for the others.
        phases: K, the number of phases after phase 0.
        base_classes: number of classes in phase 0; None for half of them.
        class_order: ``natural``, or the seed of a permutation.
        shots: training samples per class after phase 0; None for all.
        eval_every: test after every n-th phase, and after the last.
        confusions: keep confusion counts of at most this many tests, evenly spaced.
        seeds: one run each.
    """

    dataset: str = "cifar100-features"
    data_root: str | None = None
    download: bool = False
    backbone: str | None = None
    features: str | None = None
    method: str = "ds-al"
    options: Mapping[str, Any] = field(default_factory=dict)
    phases: int = 25
    base_classes: int | None = None
    class_order: str = "natural"
    shots: int | None = None
    eval_every: int = 1
    confusions: int = KEPT
    seeds: tuple[int, ...] = (0,)

    def __post_init__(self) -> None:
        if not self.seeds or len(set(self.seeds)) < len(self.seeds):
            raise InputError(f"seeds must be one or more different numbers, got {self.seeds}")
        if self.shots is not None and self.shots < 1:
            raise InputError(f"shots must be 1 or more, got {self.shots}")
        if self.eval_every < 1:
            raise InputError(f"eval-every must be 1 or more, got {self.eval_every}")
        if self.confusions < 0:
            raise InputError(f"confusions must be 0 or more, got {self.confusions}")

        hints = option_hints(self.method)
        for name in self.options:
            check_name(f"{self.method} option", name, hints)
        checked = {name: fit(name, value, hints[name]) for name, value in self.options.items()}
        object.__setattr__(self, "options", checked)

    def build_method(self, seed: int) -> Method:
        """Build a new method with the given options."""
        cls = METHODS.get(self.method)
        return cls(**self.options, **({"seed": seed} if "seed" in signature(cls).parameters else {}))


def option_hints(method: str) -> dict[str, Any]:
    """Return the options of a method with their type hints: all arguments of its constructor but ``seed``.

    Raises:
        UnknownNameError: there is no such method.
        InputError: an option has a name that every configuration already uses.
    """
    hints = keyword_hints(METHODS.get(method))
    taken = {"name", *(field.name for field in fields(Experiment))} & hints.keys()
    if taken:
        raise InputError(
            f"method {method!r} cannot be run: rename its options {', '.join(sorted(taken))}; "
            "every configuration uses these names for something else"
        )
    return {name: hint for name, hint in hints.items() if name != "seed"}


@dataclass(frozen=True)
class Setting:
    """An experiment with its data loaded and checked.

    Attributes:
        experiment: what was asked for.
        data: features or images, whichever the method takes, with their labels.
        scenario: which classes arrive when.
        origin: what the backbone was trained on, relative to the scenario.
        config: the effective configuration, with all defaults filled in and with the options of the method, as values
            that JSON and TOML can represent; what does not apply is left out.
        start: the network that a method on images starts from; None to start from scratch.
        exemplar_free: whether the method, with these options, keeps no samples.
    """

    experiment: Experiment
    data: FeatureSet | DataSet
    scenario: Scenario
    origin: Origin
    config: dict[str, Any]
    start: Backbone | None = None
    exemplar_free: bool = True

    @property
    def features(self) -> FeatureSet:
        """The data, which must be features."""
        if not isinstance(self.data, FeatureSet):
            raise InputError(f"{self.experiment.method} learns from images, but features are needed here")
        return self.data

    @property
    def backbone(self) -> dict[str, Any]:
        """The card of the backbone as a JSON object; empty if a network is trained from scratch."""
        if isinstance(self.data, FeatureSet):
            return self.data.backbone
        return {} if self.start is None else card_record(self.start)

    @property
    def image_dataset(self) -> str | None:
        """Name of the image data set, if known."""
        return self.data.dataset if isinstance(self.data, FeatureSet) else self.data.name

    def build_method(self, seed: int) -> Method:
        """Build a new method, ready for phase 0."""
        method = self.experiment.build_method(seed)
        if self.start is not None:
            given = self.start
            if given.card.seen_classes != self.scenario.labels(0):
                given = deepcopy(given)
                given.head = None  # its outputs are not the classes of phase 0 in this order
            method.start(given)
        return method


def prepare(experiment: Experiment, progress: OnPreparing, team: Team = ALONE) -> Setting:
    """Load the data and assign the classes to phases; raise an error if the experiment cannot be run.

    Args:
        experiment: what to run.
        progress: called during long steps, such as downloading images or extracting features.
        team: the processes that share the work.

    Raises:
        DSALError: the subclass that fits: an unknown name, a missing file, weights that have seen a later class.
    """
    method = experiment.build_method(experiment.seeds[0])  # report a wrong value before anything is loaded
    if not holds_images(experiment.dataset):
        return settle(experiment, _load_features(experiment), method=method)
    backbone = _open_backbone(experiment)
    if METHODS.get(experiment.method).inputs == "images":
        images = _load_images(experiment, progress, team)
        if backbone is not None:
            images = images.at(backbone.card.size, backbone.card.in_channels)
        return settle(experiment, images, backbone, method)
    if backbone is None:
        raise InputError(
            f"{experiment.dataset!r} is an image data set: give a backbone, "
            f"or use a set of features: {_listed(feature_set_names())}"
        )
    images, report = _load_images(experiment, progress, team), partial(progress, "features")
    found = cached_features(backbone, images, features=experiment.features, progress=report, team=team)
    return settle(experiment, found, method=method)


def settle(
    experiment: Experiment, data: FeatureSet | DataSet, start: Backbone | None = None, method: Method | None = None
) -> Setting:
    """Return the setting of an experiment whose data are already loaded; raise the same errors as :func:`prepare`.

    Args:
        experiment: what to run.
        data: features or images, whichever its method takes.
        start: the network that a method on images starts from.
        method: built with the options of the experiment, to read their effective values from; built if not given.
    """
    wanted, kind = METHODS.get(experiment.method).inputs, data.kind if isinstance(data, FeatureSet) else None
    if (wanted == "features") != (kind is not None):
        held = "images" if kind is None else "features"
        raise InputError(f"{experiment.method} learns from {wanted}, but {experiment.dataset} contains {held}")
    method = experiment.build_method(experiment.seeds[0]) if method is None else method
    scenario = Scenario.deal(
        len(data.class_names), phases=experiment.phases, base=experiment.base_classes, order=experiment.class_order
    )
    if experiment.shots is not None:
        data = data.keep(_few_shot(data.train.labels.numpy(), scenario, experiment.shots))
    source = ("dataset", "data_root", "backbone", "features", "method", "phases")
    given = {**{name: getattr(experiment, name) for name in source}, "features": kind}
    config = {
        **{name: value for name, value in given.items() if value is not None},
        "base_classes": scenario.seen(0),
        "class_order": experiment.class_order,
        **({} if experiment.shots is None else {"shots": experiment.shots}),
        **({} if experiment.eval_every == 1 else {"eval_every": experiment.eval_every}),
        **({} if experiment.confusions == KEPT else {"confusions": experiment.confusions}),
        **{name: plain(name, getattr(method, name)) for name in option_hints(experiment.method)},
        "seeds": list(experiment.seeds),
    }
    setting = Setting(experiment, data, scenario, "base classes", config, start, method.exemplar_free)
    if kind is None and start is None:
        return setting  # a network trained from scratch has seen nothing
    return replace(setting, origin=check_no_leak(setting.backbone, scenario, setting.image_dataset))


def _few_shot(labels: NDArray[np.int64], scenario: Scenario, shots: int) -> Tensor:
    """Return the rows of phase 0 and a few of each later class, the same for every seed of the method."""
    random, kept = np.random.RandomState(0), [scenario.phase_rows(labels, 0)]
    for position in range(scenario.seen(0), len(scenario.order)):
        rows = np.flatnonzero(labels == scenario.order[position])
        kept.append(random.permutation(rows)[:shots])
    return torch.from_numpy(np.sort(np.concatenate(kept)))


def _load_features(experiment: Experiment) -> FeatureSet:
    if experiment.backbone is not None:
        raise InputError(
            f"{experiment.dataset!r} is a set of features and takes no backbone. "
            f"Image data sets: {_listed(DATASETS.names())}"
        )
    return load_features(experiment.dataset, experiment.features)


def _open_backbone(experiment: Experiment) -> Backbone | None:
    from dsal.backbones.pretrained import open_backbone
    from dsal.training import choose_device

    if experiment.backbone is None:
        return None
    return open_backbone(experiment.backbone).to(choose_device())


def _load_images(experiment: Experiment, progress: OnPreparing, team: Team) -> DataSet:
    root = None if experiment.data_root is None else Path(experiment.data_root)
    with team.leader_first():
        return load_dataset(experiment.dataset, root, experiment.download, partial(progress, "download"))


def _listed(names: tuple[str, ...]) -> str:
    return ", ".join(names) or "(none)"
