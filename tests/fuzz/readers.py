"""Every reader of files: how to make a good file, and what a user does with one that was read."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from tests.fuzz.mutate import Random, break_json, break_npz, break_tensors

from dsal.backbones import Backbone, Card, load_backbone, save_backbone
from dsal.classifier import DSALClassifier
from dsal.data import load_dataset
from dsal.data.features.feature_set import FeatureSet, read_features, save_features
from dsal.image_model import ImageModel
from dsal.image_model.image_predictor import read_facts
from dsal.methods import METHODS
from dsal.protocol.comparison import read_tuning
from dsal.protocol.experiment import Experiment, option_hints, prepare
from dsal.protocol.phases import run_phases
from dsal.protocol.run_checkpoint import load_run_checkpoint, save_run_checkpoint
from dsal.protocol.runs import read_config, run_experiment
from dsal.report.charts import facets_of
from dsal.report.confusion_chart import confusion_of
from dsal.report.page import payload
from dsal.report.run_pages import read_runs
from dsal.training import BaseTraining, Recipe
from dsal.training import load_checkpoint as load_training
from dsal.training import save_checkpoint as save_training

SAMPLE = Path(__file__).parents[1] / "samples" / "cifar100-sample.safetensors"


@dataclass(frozen=True)
class Reader:
    """One kind of file.

    Attributes:
        file: name of the file that is damaged, in the folder that ``make`` fills.
        make: writes good files to a folder.
        use: reads them and uses what was read; returns the numbers that it answers with.
        lie: changes the contents, with every checksum right.
    """

    file: str
    make: Callable[[Path], None]
    use: Callable[[Path], Any]
    lie: Callable[[Path, Random], str] = break_tensors


def small_features(samples: int = 3) -> FeatureSet:
    """A few rows of eight classes."""
    whole = read_features(SAMPLE, "last")
    parts = {}
    for part in ("train", "test"):
        y = getattr(whole, f"{part}_y")
        rows = np.concatenate([np.flatnonzero(y == label)[:samples] for label in range(8)])
        parts |= {f"{part}_x": np.ascontiguousarray(getattr(whole, f"{part}_x")[rows]), f"{part}_y": y[rows]}
    return FeatureSet(
        name="small", class_names=whole.class_names[:8], fingerprint="", widths=whole.widths,
        backbone={**whole.backbone, "seen_classes": [0, 1, 2, 3]}, dataset=whole.dataset, **parts,
    )  # fmt: skip


def make_run(folder: Path) -> None:
    save_features(folder / "features.safetensors", small_features())
    experiment = Experiment(
        dataset=str(folder / "features.safetensors"), phases=2, seeds=(0, 1), options={"expansion_size": 16}
    )
    for _ in run_experiment(prepare(experiment, _quiet), folder):
        pass


def use_run(folder: Path) -> Any:
    runs = read_runs([folder])
    matrices = [confusion_of(run) for run in runs]
    payload(runs, matrices, facets_of(runs))
    return [phase.accuracy.mean for phase in runs[0].phases]


def use_config(folder: Path) -> None:
    read_config(folder)


def make_tuning(folder: Path) -> None:
    trials = '[{"options": {"gamma": 0.1}, "accuracy": 50.0}]'
    (folder / "tuning.json").write_text(f'{{"ds-al": {{"protocol": {{}}, "trials": {trials}, "chosen": {{}}}}}}')


def use_tuning(folder: Path) -> None:
    for entry in read_tuning(folder).values():
        dict(entry["chosen"])


def make_features(folder: Path) -> None:
    save_features(folder / "features.safetensors", small_features())


def make_coded(folder: Path) -> None:
    save_features(folder / "features.safetensors", small_features(), step=0.1)


def use_features(folder: Path) -> Any:
    features = read_features(folder / "features.safetensors")
    for kind in features.widths:
        features.select(kind)
    return features.train_x, features.test_x


def _backbone() -> Backbone:
    torch.manual_seed(0)
    card = Card(
        architecture="resnet32", dataset="omniglot", seen_classes=(0, 1), class_order="natural", in_channels=1, size=12,
        mean=(0.5,), std=(0.5,),
    )  # fmt: skip
    return Backbone(card, head=torch.nn.Linear(64, 2)).eval()


def make_backbone(folder: Path) -> None:
    save_backbone(folder / "backbone.safetensors", _backbone())


def use_backbone(folder: Path) -> Any:
    backbone = load_backbone(folder / "backbone.safetensors")
    backbone.fingerprint()
    size = min(backbone.card.size, 32)
    return backbone.extract(torch.zeros(1, backbone.card.in_channels, size, size, dtype=torch.uint8)).numpy()


def method_readers() -> dict[str, Reader]:
    """The state of every method, in the checkpoint of a run."""

    def reader(name: str) -> Reader:
        def make(folder: Path) -> None:
            save_features(folder / "features.safetensors", small_features())
            options = {"expansion_size": 8} if "expansion_size" in option_hints(name) else {}
            dataset = str(folder / "features.safetensors")
            setting = prepare(Experiment(dataset=dataset, phases=2, method=name, options=options), _quiet)
            method = setting.experiment.build_method(0)
            phases = run_phases(method, setting.data, setting.scenario)
            save_run_checkpoint(folder / "state.safetensors", [next(phases), next(phases)], method, finished=False)

        def use(folder: Path) -> Any:
            checkpoint = load_run_checkpoint(folder / "state.safetensors")
            if checkpoint is None or checkpoint.state is None:
                return None
            method = METHODS.get(name).restore(checkpoint.state, folder)
            x = read_features(folder / "features.safetensors").test_x
            method.predict(x[:4])
            return method.scores(x[:4]) if method.classes_seen else None

        return Reader("state.safetensors", make, use)

    return {f"checkpoint of {name}": reader(name) for name in METHODS.names() if METHODS.get(name).inputs == "features"}


def _quiet(*progress: object) -> None:
    pass


def _training() -> BaseTraining:
    recipe = Recipe(epochs=2, batch_size=16, average=0.9, sizes=((1.0, 12),))
    return BaseTraining(
        load_dataset("omniglot").train, dataset="omniglot", classes=(0, 1), class_order="natural",
        architecture="resnet32", recipe=recipe, held_out=0.2, device=torch.device("cpu"),
    )  # fmt: skip


def make_training(folder: Path) -> None:
    made = _training()
    next(made.epochs())
    save_training(folder / "training.safetensors", made)


_TRAININGS: list[BaseTraining] = []


def use_training(folder: Path) -> Any:
    if not _TRAININGS:
        _TRAININGS.append(_training())
    load_training(folder / "training.safetensors", _TRAININGS[0])
    return [value.numpy() for value in _TRAININGS[0].model.state_dict().values()]


def make_classifier(folder: Path) -> None:
    data = small_features()
    classifier = DSALClassifier(expansion_size=16)
    for half in (data.train_y < 4, data.train_y >= 4):
        classifier.partial_fit(data.train_x[half], [f"class {label}" for label in data.train_y[half]])
    classifier.save(folder / "classifier.safetensors")


def use_classifier(folder: Path) -> Any:
    classifier = DSALClassifier.load(folder / "classifier.safetensors")
    x = np.zeros((2, classifier.n_features_in_), dtype=np.float32)
    classifier.predict(x)
    return classifier.decision_function(x), classifier.predict_proba(x)


def make_images(folder: Path) -> None:
    backbone = _backbone()
    backbone.head = None
    model = ImageModel(backbone, DSALClassifier(expansion_size=16))
    pixels = np.random.default_rng(0).integers(0, 256, (8, 12, 12), dtype=np.uint8)
    model.learn((pixels[:4], ["a", "a", "b", "b"]))
    model.learn((pixels[4:], ["b", "b", "c", "c"]))
    model.save(folder / "images.safetensors")


def use_images(folder: Path) -> Any:
    read_facts(folder / "images.safetensors")["classifier"]["params"]["expansion_size"]  # what `dsal info` does
    model = ImageModel.load(folder / "images.safetensors")
    answers = model.predict(np.zeros((2, 12, 12), dtype=np.uint8)[..., None].repeat(3, axis=-1))
    return [[score for _, score in answer.top_k] for answer in answers]


READERS: dict[str, Reader] = {
    "results": Reader("results.json", make_run, use_run, break_json),
    "confusion counts": Reader("confusion.npz", make_run, use_run, break_npz),
    "configuration": Reader("config.toml", make_run, use_config, lambda path, random: _break_text(path, random)),
    "tuning": Reader("tuning.json", make_tuning, use_tuning, break_json),
    "features": Reader("features.safetensors", make_features, use_features),
    "coded features": Reader("features.safetensors", make_coded, use_features),
    "backbone": Reader("backbone.safetensors", make_backbone, use_backbone),
    "training": Reader("training.safetensors", make_training, use_training),
    "classifier": Reader("classifier.safetensors", make_classifier, use_classifier),
    "image model": Reader("images.safetensors", make_images, use_images),
    **method_readers(),
}


def _break_text(path: Path, random: Random) -> str:
    lines = path.read_text().splitlines()
    place = int(random.integers(len(lines)))
    name = lines[place].partition("=")[0]
    lines[place] = str(random.choice([f"{name}= nan", f"{name}= [1, [2]]", f"{name}= 'x'", "[method]", name, "= 1"]))
    path.write_text("\n".join(lines))
    return lines[place]


def copy(source: Path, target: Path) -> None:
    """The good files, afresh."""
    shutil.copytree(source, target, dirs_exist_ok=True)
