"""Accuracy against computation: methods that train the network in every phase, at growing budgets, beside DS-AL.

CIFAR-100, K phases after 50 base classes, 32 pixels. Every method starts from the shipped ResNet-32, which was trained
on the base classes alone. A budget is a number of epochs per phase, with the losses and schedules of
``configs/table1-paper.toml``, shortened in proportion; a head that the network does not have is trained for
``ADAPT_EPOCHS`` in phase 0. DS-AL and ACIL make one pass over features of the same network.

    python benchmarks/compute.py choose lwf icarl --data-root DATA
    python benchmarks/compute.py run ds-al acil lwf icarl --data-root DATA --epochs 1 3 10

``choose`` makes five trials for every method on the proxy of ``proxy.py`` (``PROXY`` has the weights of its trial
``strong``: classes 0-39, then 40-49 in the phases of ``TRIALS``): the learning rates ``RATES``, relative to the
published one, and, at the best of them, the weights of distillation ``STRENGTHS``, relative to the published ones; a
method that has no such weight tries ``MORE_RATES``. ``run`` uses the best by the harmonic mean of the accuracies of old
and new classes: either is half of the classes in the end, and who learns nothing new gets nothing. A result is saved in
``benchmarks/results/compute.json`` when it is complete; nothing is computed twice.

Seconds are processor time of one thread, without the tests: of all phases, and of phase 0 alone (training a head; for
features, extracting and learning them).
"""

from __future__ import annotations

import argparse
import fcntl
import json
import os
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import proxy
import tomllib
import torch
from compute_page import best_first

from dsal.backbones import load_backbone
from dsal.backbones.backbone import SHIPPED
from dsal.backbones.extraction import extract_dataset
from dsal.data import DataSet, FeatureSet, ImageData, Scenario, load_dataset, load_features, save_features
from dsal.files.schema import write_json
from dsal.methods import METHODS
from dsal.methods.contract import Method, State
from dsal.protocol.metrics import Tally, accuracy, average_accuracy, new_accuracy
from dsal.protocol.phases import PhaseResult, TrainTestData, run_phases
from dsal.protocol.provenance import environment
from dsal.training import RECIPES

ROOT = Path(__file__).parent
RESULTS, SCHEDULES = ROOT / "results" / "compute.json", ROOT.parent / "configs" / "table1-paper.toml"
PROXY = ROOT / "results" / "cifar100-resnet32-proxy.safetensors"
ADAPT_EPOCHS, MIRRORED_FROM = 3, 10
TRIALS = {"images are kept": (2, 2), "no images are kept": (1, 3)}
"""Phases and epochs per phase: without images, one phase of ten classes, as in the runs, at the middle budget."""
RATES, MORE_RATES, STRENGTHS = (1.0, 0.3, 0.1), (3.0, 0.03), (0.3, 3.0)
KEEPING = ("strength", "distil", "spatial", "flat")
"""Options that weigh what a method keeps of the network before the phase."""
EPOCH_OPTIONS = ("tune_epochs", "compress_epochs")
VIEWS = {"last, one view": ("last", 1), "blocks, one view": ("blocks", 1), "blocks, six views": ("blocks", 6)}
EXPANSION_SIZE = 4096
CLOSED_FORM: dict[str, dict[str, Any]] = {"ds-al": {"compensation": 0.6}, "acil": {}}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("step", choices=("choose", "run"))
    parser.add_argument("methods", nargs="*")
    parser.add_argument("--data-root", type=Path)
    parser.add_argument("--proxy", type=Path, default=PROXY, help="weights of a trial of proxy.py, for choose")
    parser.add_argument("--epochs", type=int, nargs="+", default=[1, 3, 10])
    parser.add_argument("--phases", type=int, default=5)
    parser.add_argument("--seed", type=int, default=0)
    arguments = parser.parse_args()
    torch.set_num_threads(int(os.environ.get("OMP_NUM_THREADS", "1")))
    data = load_dataset("cifar100", arguments.data_root)
    for name in arguments.methods:
        if arguments.step == "choose":
            choose(name, data, arguments.proxy)
        elif name in CLOSED_FORM:
            run_closed_form(name, data, arguments.phases, arguments.seed)
        else:
            run_network(name, data, arguments.phases, arguments.epochs, arguments.seed)


# What is written.


def read() -> dict[str, Any]:
    return json.loads(RESULTS.read_text()) if RESULTS.exists() else {"environment": {}, "trials": [], "runs": []}


@contextmanager
def changed() -> Iterator[dict[str, Any]]:
    """Give the results to change, one process at a time."""
    with RESULTS.with_suffix(".lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        results = read()
        yield results
        results["environment"] = {**environment(), "threads": torch.get_num_threads()}
        write_json(RESULTS, results)


def done(**facts: Any) -> bool:
    return any(facts.items() <= run.items() for run in read()["runs"])


# Methods that train the network.


def published(name: str, epochs: int) -> dict[str, Any]:
    """Return the published schedule of a method, shortened to some epochs per phase."""
    own = tomllib.loads(SCHEDULES.read_text())["method"].get(name, {})
    options = {key.replace("-", "_"): value for key, value in own.items() if not isinstance(value, dict)}
    kept = {key: value for key, value in options.items() if not key.startswith("base_")}
    defaults = METHODS.get(name)()
    full = kept.get("epochs", defaults.epochs)  # type: ignore[attr-defined]
    for key in EPOCH_OPTIONS:
        if hasattr(defaults, key):
            kept[key] = max(round(kept.get(key, getattr(defaults, key)) * epochs / full), 1)
    return {**kept, "epochs": epochs, "adapt_epochs": ADAPT_EPOCHS}


class Start:
    """A method after phase 0, from which every setting and budget continues: none of them changes phase 0.

    Args:
        name: of the method.
        weights: a network trained on the classes of phase 0.
        data: training and test images.
        scenario: which classes arrive when.
        seed: of batches and augmentation.
    """

    def __init__(self, name: str, weights: Path, data: DataSet, scenario: Scenario, seed: int = 0) -> None:
        self.kind, self.data, self.scenario = METHODS.get(name), data, scenario
        self.lr: float = self.kind().lr  # type: ignore[attr-defined]
        method = self.kind(**{**published(name, 1), "base_lr": 0.5 * self.lr, "seed": seed})
        method.start(load_backbone(weights))
        add_mirror(method)
        share_outputs(method)
        self.result = next(results_of(method, data, scenario))
        self.state = method.state()

    def results(self, options: dict[str, Any], mirrored: bool = False) -> list[PhaseResult]:
        """Return the results of all phases, those from phase 1 on with these options.

        Args:
            options: of the method.
            mirrored: see :func:`add_mirror`.
        """
        arrays = {key: array.copy() for key, array in self.state.arrays.items()}
        facts = {**self.state.facts, "options": {**self.state.facts["options"], **options}}
        method = self.kind.from_state(State(arrays, facts))
        if mirrored:
            add_mirror(method)
        share_outputs(method)
        return [self.result, *results_of(method, self.data, self.scenario, 1)]


def add_mirror(method: Method) -> None:
    """Let a method also predict from the sum of the scores of each image and of its mirror image."""
    own = method.other_predictions

    def both(images: ImageData) -> dict[str, Any]:
        scores = method.scores(images) + method.scores(images.flipped())
        return {**own(images), "mirror": scores.argmax(axis=1)}

    method.other_predictions = both  # type: ignore[assignment,method-assign]


def share_outputs(method: Method) -> None:
    """Let all read-outs of the same test images share one pass through the network, as slow as an epoch."""
    read, predict, others = method.read, method.predict, method.other_predictions  # type: ignore[attr-defined]
    held: dict[str, Any] = {}

    def reading(samples: ImageData, network: Any = None) -> Iterator[Any]:
        if held and "samples" not in held and network is None:
            batches = [(images, output._replace(maps=()), labels) for images, output, labels in read(samples)]
            held.update(samples=samples, batches=batches)
        return iter(held["batches"]) if held.get("samples") is samples else read(samples, network)

    def predicting(samples: ImageData) -> Any:
        held.clear()
        held["testing"] = True
        return predict(samples)

    def predicting_otherwise(samples: ImageData) -> Any:
        try:
            return others(samples)
        finally:
            held.clear()  # the network is trained next

    method.read, method.predict, method.other_predictions = reading, predicting, predicting_otherwise  # type: ignore


def choose(name: str, data: DataSet, weights: Path) -> None:
    """Try learning rates and weights of distillation for a method on the proxy."""
    kind = METHODS.get(name)()
    phases, epochs = TRIALS["no images are kept" if kind.exemplar_free else "images are kept"]
    start = Start(name, weights, proxy_data(data.train), Scenario.deal(50, base=40, phases=phases))
    kept = {key: value for key in KEEPING if (value := getattr(kind, key, None)) is not None}
    rates = RATES if kept else RATES + MORE_RATES
    for share in rates:
        trial(name, start, epochs, {"lr": share * start.lr})
    best = best_options(name)
    for share in STRENGTHS if kept else ():
        trial(name, start, epochs, {"lr": best["lr"], **{key: share * value for key, value in kept.items()}})


def best_options(name: str) -> dict[str, float]:
    """Return the options of the best trial of a method; none before there is one."""
    trials = [trial for trial in read()["trials"] if trial["method"] == name]
    return best_first(trials)[0]["options"] if trials else {}


def trial(name: str, start: Start, epochs: int, options: dict[str, float]) -> None:
    """Make a trial, if it has not been made."""
    if any((row["method"], row["options"]) == (name, options) for row in read()["trials"]):
        return
    began = time.process_time()
    tally = start.results({**published(name, epochs), **options})[-1].tally
    base, new = accuracy(tally, range(40)), new_accuracy(tally, range(40))
    facts = {"method": name, "phases": len(start.scenario.phases) - 1, "epochs": epochs, "options": options}
    row = {**facts, "base": base, "new": new}
    row["seconds"] = round(time.process_time() - began, 1)
    with changed() as document:
        document["trials"].append(row)
    print(json.dumps(row), flush=True)


def proxy_data(train: ImageData) -> DataSet:
    """Return the classes 0-49: images that the proxy's network was trained on, and new ones; a tenth is held out."""
    parts = [proxy.make_training(train, RECIPES.get("paper"), classes) for classes in (proxy.BASE, proxy.NEW)]
    shifted = [(part.train, part.held_out, offset) for part, offset in zip(parts, (0, len(proxy.BASE)), strict=True)]
    learned, tested = (
        ImageData(
            torch.cat([group[number].images for group in shifted]),
            torch.cat([group[number].labels + group[2] for group in shifted]),
        )
        for number in (0, 1)
    )
    return DataSet("proxy", learned, tested, tuple(map(str, range(50))), "")


def run_network(name: str, data: DataSet, phases: int, budgets: list[int], seed: int) -> None:
    """Run a method at every budget; what happens in phase 0 is the same for all of them."""
    chosen, scenario = best_options(name), Scenario.deal(100, phases=phases)
    start: Start | None = None
    for epochs in budgets:
        facts = {"method": name, "phases": phases, "epochs": epochs, "features": "last, one view", "seed": seed}
        if done(**facts):
            continue
        start = start or Start(name, SHIPPED / "cifar100-resnet32.safetensors", data, scenario, seed)
        results = start.results({**published(name, epochs), **chosen}, mirrored=epochs >= MIRRORED_FROM)
        save(facts, results, {"options": chosen})


def results_of(method: Method, data: TrainTestData, scenario: Scenario, start: int = 0) -> Iterator[PhaseResult]:
    every = run_phases(method, data, scenario, start, confusions=0, clock=time.process_time)
    return (result for result in every if isinstance(result, PhaseResult))


# Methods on features.


def run_closed_form(name: str, data: DataSet, phases: int, seed: int) -> None:
    for label, (kind, views) in VIEWS.items():
        facts = {"method": name, "phases": phases, "epochs": 1, "features": label, "seed": seed}
        if done(**facts):
            continue
        one, seconds = one_view(data)
        features = (one if views == 1 else load_features("cifar100-features")).select(kind)
        method = METHODS.get(name)(expansion_size=EXPANSION_SIZE, gamma=0.1, seed=seed, **CLOSED_FORM[name])
        results = list(results_of(method, features, Scenario.deal(100, phases=phases)))
        save(facts, results, {"extraction_seconds": round(views * seconds, 1)})


def one_view(data: DataSet) -> tuple[FeatureSet, float]:
    """Return features of one view (the embedded ones have six), and the seconds of extracting the training images."""
    path = RESULTS.with_name("compute-features.safetensors")
    if not path.exists():
        backbone = load_backbone(SHIPPED / "cifar100-resnet32.safetensors")
        backbone.card = replace(backbone.card, flip=False, shift=0)
        began = time.process_time()
        features = extract_dataset(backbone, data)
        seconds = (time.process_time() - began) * len(data.train) / (len(data.train) + len(data.test))
        save_features(path, features)
        with changed() as document:
            document["extraction_seconds"] = round(seconds, 1)
    return load_features(path), read()["extraction_seconds"]


def save(facts: dict[str, Any], results: list[PhaseResult], more: dict[str, Any]) -> None:
    tallies, last = [result.tally for result in results], results[-1]
    base = range(len(tallies[0]))
    seconds = [result.learn_seconds for result in results]
    seconds[0] += more.get("extraction_seconds", 0.0)
    row = {
        **facts,
        "seconds": round(sum(seconds), 1),
        "base_seconds": round(seconds[0], 1),
        **figures(tallies, base),
        "other_readouts": {
            name: figures([tally for result in results if (tally := result.others.get(name))], base)
            for name in last.others
        },
        **more,
    }
    with changed() as document:
        document["runs"].append(row)
    print(json.dumps(row), flush=True)


def figures(tallies: list[Tally], base: range) -> dict[str, float]:
    return {
        "average": round(average_accuracy(tallies), 2),
        "last": round(accuracy(tallies[-1]), 2),
        "base": round(accuracy(tallies[-1], base), 2),
        "new": round(new_accuracy(tallies[-1], base) or 0.0, 2),
        "start": round(accuracy(tallies[0]), 2),
    }


if __name__ == "__main__":
    main()
