"""Write docs/models.md and its curves from the cards of the weights that ship in the package.

python benchmarks/model_cards.py
"""

from __future__ import annotations

import json
from dataclasses import asdict
from pathlib import Path
from typing import Any

from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator

from dsal.backbones import Backbone, load_backbone, shipped_weights
from dsal.data.dataset import EMBEDDED
from dsal.data.features.feature_set import read_features
from dsal.training import Recipe

DOCS = Path(__file__).parent.parent / "docs"
INTRODUCTION = """# Model cards

Backbones that ship in the package, each with the features of all images of its data set (`data/embedded`), extracted
from just these weights. This page is written from the weights' own cards by `benchmarks/model_cards.py`. The test
accuracy is that of the head of base training, measured once, after the last epoch; nothing was chosen by it.

Features have a kind (`--features`): `last` is the mean of each channel after the last stage, `stages` that after every
stage, and `blocks` the mean and the standard deviation of each channel after the stem and after every block. Each kind
is a part of the next. Embedded features are float16 or coded ([training.md](training.md#what-is-embedded)).
"""


def main() -> None:
    sections = [INTRODUCTION]
    for name in shipped_weights():
        backbone = load_backbone(name)
        draw_curve(backbone.card.training["history"], DOCS / "figures" / f"{name}.png")
        sections.append(section(name, backbone))
    (DOCS / "models.md").write_text("\n".join(sections), encoding="utf-8")


def section(name: str, backbone: Backbone) -> str:
    card, training = backbone.card, backbone.card.training
    path = EMBEDDED / f"{card.dataset}-features.safetensors"
    embedded = read_features(path)
    kinds = ", ".join(f"`{kind}` ({backbone.widths[kind]})" for kind in backbone.kinds)
    history = training["history"]
    defaults = json.loads(json.dumps(asdict(Recipe(epochs=0))))
    changed = {field: value for field, value in training["recipe"].items() if value != defaults.get(field)}
    rows = {
        "architecture": f"{card.architecture}, {card.in_channels} x {card.size} x {card.size} pixels",
        "trained on": f"{len(card.seen_classes or ())} classes of {card.dataset}, class order {card.class_order}",
        "features": f"{kinds}; standardised on the base training data"
        + (", mean of the image and its mirror image" if card.flip else "")
        + (f", averaged over shifts by {card.shift} pixel{'s' * (card.shift > 1)}" if card.shift else ""),
        "embedded": f"`{embedded.kind}` of {len(embedded.train_y) + len(embedded.test_y):,} images, "
        f"{path.stat().st_size / 1e6:.1f} MB",
        "test accuracy, base classes": f"{training['base_test_accuracy']:.2f}%, last epoch",
        "held-out accuracy": f"{history[-1]['held_out_accuracy']:.2f}%, last epoch",
        "recipe": ", ".join(f"{field} {value}" for field, value in changed.items()),
        "seed": training["seed"],
        "time": f"{sum(entry['seconds'] for entry in history) / 60:.0f} minutes on a machine shared with other work",
        "command": f"`{training['command']}`",
        "made with": f"dsal {training['dsal']}, torch {training['torch']}, Python {training['python']}, "
        f"{training['cpu']}, commit {(training['commit'] or 'unknown')[:12]}",
    }
    lines = [f"## {name}", "", "| | |", "|---|---|", *(f"| {key} | {value} |" for key, value in rows.items())]
    return "\n".join([*lines, "", f"![Accuracy by epoch](figures/{name}.png)", ""])


def draw_curve(history: list[dict[str, Any]], path: Path) -> None:
    figure = Figure(figsize=(6.4, 3.4), layout="constrained")
    FigureCanvasAgg(figure)
    axes = figure.subplots()
    epochs = [entry["epoch"] for entry in history]
    axes.plot(epochs, [entry["accuracy"] for entry in history], "--", color="#777777", label="training, as augmented")
    axes.plot(epochs, [entry["held_out_accuracy"] for entry in history], "-", color="#0b3d91", label="held out")
    axes.set(xlabel="epoch", ylabel="accuracy, %", xlim=(0, epochs[-1]), ylim=(0, 100))
    axes.xaxis.set_major_locator(MaxNLocator(integer=True))
    axes.grid(color="#dddddd")
    axes.spines[["top", "right"]].set_visible(False)
    axes.legend(frameon=False, loc="lower right")
    path.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(path, dpi=150)


if __name__ == "__main__":
    main()
