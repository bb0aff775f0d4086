"""What the ranks of a test do: ``jobs.py NAME ARGUMENT...``; the tests do the same in one process."""

import os
import signal
import sys
from collections.abc import Callable
from contextlib import suppress
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.nn.parallel import DistributedDataParallel

from dsal import DSALClassifier
from dsal.analytic.parallel import reduce_triangle_
from dsal.backbones.extraction import extract_dataset
from dsal.data import FileData, Scenario, load_dataset
from dsal.data.features.feature_set import FeatureSet, read_features
from dsal.data.sets.class_folders import list_classes
from dsal.distributed import ALONE, Team, join_processes
from dsal.files.tensors import save_tensors
from dsal.image_model import ImageModel
from dsal.methods import METHODS
from dsal.training import BaseTraining, Batch, Forward, Recipe, load_checkpoint, save_checkpoint

SAMPLE = Path(__file__).parents[1] / "samples" / "cifar100-sample.safetensors"
CLASSES = (7, 3, 11, 2, 5, 19, 23, 29, 31, 37)
RECIPE = Recipe(
    epochs=2,
    batch_size=31,  # an odd number: shares are uneven
    optimiser="sgd",
    lr=0.02,
    trivial=0.5,
    mixup=0.2,
    rotation_share=0.25,
    average=0.9,
    sizes=((1.0, 16),),
)


def phases(data: FeatureSet, size: int = 256, team: Team = ALONE) -> dict[str, NDArray[Any]]:
    """Logits of the main stream alone and of both, after six phases of DS-AL."""
    scenario = Scenario.deal(100, phases=5)
    scores = {}
    for name, compensation in (("main", 0.0), ("both", 0.6)):
        method = METHODS.get("ds-al")(expansion_size=size, compensation=compensation)
        method.team = team
        for k in range(6):
            rows = scenario.phase_rows(data.train_y, k)
            method.learn_rows(data.train_x[rows], scenario.positions(data.train_y)[rows], scenario.phases[k])
        scores[name] = method.scores(data.test_x)
    return scores


def classifier(data: FeatureSet, team: Team = ALONE) -> dict[str, NDArray[Any]]:
    """Phases of one row, of three rows with weights, of batches; everything chosen by the model itself."""
    model = DSALClassifier(expansion_size=64, compensation="auto", gamma="auto")
    model.team = team
    x, y = data.train_x, data.train_y
    model.partial_fit(x[:700], y[:700])
    model.partial_fit(x[700:701], y[700:701])
    model.partial_fit(x[701:704], y[701:704], sample_weight=np.array([1.0, 2.0, 0.5]))
    model.partial_fit([(x[i : i + 7], y[i : i + 7]) for i in range(704, 900, 7)])
    rows = slice(704, 900)
    chosen = np.array([model.gamma_, model.compensation_])
    answers = {"classifier": model.logits(data.test_x), "probabilities": model.predict_proba(data.test_x)}
    return {**answers, "loo": model.loo_logits(x[rows], y[rows]), "chosen": chosen}


def pictures(weights: Path, folder: Path, team: Team = ALONE) -> dict[str, NDArray[Any]]:
    """Features of a data set, and what a model of images answers after learning a folder."""
    model = ImageModel(str(weights), DSALClassifier(expansion_size=64), team=team)
    data = load_dataset("omniglot")
    some = replace(data, train=data.train.take(slice(70)), test=data.test.take(slice(3)))
    features = extract_dataset(model.backbone, some, batch_size=16, team=team)
    lesson = model.learn(folder)
    found = {"train": features.train_x, "test": features.test_x, "usual": model.reference.counts}
    return {**found, "coefficients": model.classifier.coef_main_, "accuracy": np.array(lesson.loo_accuracy)}


def training(sync: bool = False, double: bool = False, team: Team = ALONE) -> BaseTraining:
    """A base training that has not begun; with ``double`` the network computes in float64, losses stay float32."""
    made = BaseTraining(
        load_dataset("omniglot").train,
        dataset="omniglot",
        classes=CLASSES,
        class_order="natural",
        architecture="resnet32",
        recipe=RECIPE,
        held_out=0.2,
        device=torch.device("cpu"),
        sync_batchnorm=sync,
        team=team,
    )
    if double:
        for model in (made.model, made.fit.average):
            model.double().normalise = _in_double(model.normalise)  # type: ignore[union-attr]
        if made.team.size > 1:  # buffers for gradients were float32
            made.fit.forward = DistributedDataParallel(made.fit.forward.module)
    return made


def _in_double(function: Callable[[Tensor], Tensor]) -> Callable[[Tensor], Tensor]:
    return lambda images: function(images).double()


def curve(made: BaseTraining) -> NDArray[np.float64]:
    """Loss, training and held-out accuracy (epochs x 3), of a training that is done here."""
    return np.array([(result.loss, result.accuracy, result.held_out_accuracy) for result in made.epochs()])


def weights_of(made: BaseTraining) -> dict[str, NDArray[Any]]:
    """The weights of a training that is finished."""
    return {f"weights.{name}": value.numpy() for name, value in made.backbone({}).state_dict().items()}


def streamed(team: Team, out: str, folder: str) -> None:
    """Train on image files for one epoch; every rank leaves the batches it has read, and the loss of all."""
    listed, seen = list_classes(Path(folder)), []
    made = BaseTraining(
        FileData(listed.paths, torch.from_numpy(listed.numbers), size=16),
        dataset="photos",
        classes=(0, 1, 2, 3),
        class_order="natural",
        architecture="resnet32",
        recipe=replace(RECIPE, epochs=1, crop="resized", jitter=0.3, mixup=0.0, rotation_share=0.0, sizes=((0.5, 12),)),
        device=torch.device("cpu"),
        sync_batchnorm=True,
        team=team,
        workers=2,
    )
    loss = made.fit.loss

    def spied(forward: Forward, batch: Batch) -> tuple[Tensor, int]:
        seen.append(batch.images.numpy().copy())
        return loss(forward, batch)

    made.fit.loss = spied
    losses = np.array([result.loss for result in made.epochs()])
    answers = {"losses": losses, **{f"batch{step}": images for step, images in enumerate(seen)}}
    save_tensors(Path(out) / f"{team.size}-{team.rank}.safetensors", answers, {})


def everything(team: Team, out: str, weights: str, folder: str) -> None:
    """All of the above; every rank leaves its own answers."""
    data = read_features(SAMPLE)
    answers = {**phases(data, team=team), "bytes": np.array(list(asdict(team.traffic).values()))}
    answers |= classifier(data, team) | pictures(Path(weights), Path(folder), team)
    for name, square in (("rows", torch.arange(49.0).view(7, 7)), ("columns", torch.arange(49.0).view(7, 7).T)):
        mine = square * (team.rank + 1)  # in the same order of memory
        reduce_triangle_(mine, team, chunk_bytes=3 * 7 * 8)  # columns 0-2, 3-5 and 6
        answers[name] = mine.contiguous().numpy()
    made = training(team=team)
    answers["curve"] = curve(made)
    answers |= weights_of(made)
    answers["exact"] = curve(training(sync=True, double=True, team=team))
    save_tensors(Path(out) / f"{team.size}-{team.rank}.safetensors", answers, {})


def interrupted(team: Team, out: str) -> None:
    """Train on from a checkpoint, or through the first epoch, whose end rank 1 does not survive."""
    made, checkpoint = training(team=team), Path(out) / "checkpoint"
    resumed = team.broadcast_result(checkpoint.exists)
    if resumed:
        load_checkpoint(checkpoint, made)
    for result in made.epochs():
        if team.leads:
            save_checkpoint(checkpoint, made)
        team.wait()
        if result.epoch == 1 and not resumed and team.rank == 1:
            os.kill(os.getpid(), signal.SIGKILL)
    answers = weights_of(made)
    if team.leads:
        save_tensors(Path(out) / "resumed.safetensors", answers, {})


def communicating() -> int:
    """Return the number of Gloo's threads in this process (0 where the system does not list threads)."""
    found = 0
    for name in Path("/proc/self/task").glob("*/comm"):
        with suppress(OSError):  # it has just ended
            found += "gloo" in name.read_text()
    return found


if __name__ == "__main__":
    with join_processes() as joined_team:
        globals()[sys.argv[1]](joined_team, *sys.argv[2:])
    if communicating():
        sys.exit("Gloo's threads are left; now and then they abort the process at its exit")
