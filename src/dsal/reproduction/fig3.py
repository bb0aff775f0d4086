"""Fig. 3: test images whose five best classes change with compensation (C = 1), before and after."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import torch
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure

from dsal.data import load_dataset
from dsal.errors import MissingDataError
from dsal.report.figures import INK, SMALL, save_figure
from dsal.report.styles import LIGHT
from dsal.reproduction.item import Block, Item, Picture, Summary
from dsal.reproduction.plan import Plan, TrainingSpec
from dsal.reproduction.stream_training import SHOWN_RATIO
from dsal.reproduction.training_archive import Archive

SHOWN = {"corrected": 4, "worsened": 2}
"""Number of images to show that compensation corrects, and that it makes wrong."""

SIDE = 128  # pixels, for images in files


def needs(plan: Plan) -> list[TrainingSpec]:
    """Return the one training that is needed."""
    return [TrainingSpec(plan.dataset, plan.phases[0], plan.seeds[0])]


def summarise(archive: Archive) -> dict[str, Any] | str:
    """Return the images whose true-class logit changes most, among those corrected and those made wrong."""
    (need,) = needs(archive.plan)
    setting, root = archive.setting(need), archive.plan.data_root
    name = setting.image_dataset
    if name is None or root is None:
        return "it shows images: give their folder with --data-root"
    try:
        images = load_dataset(name, Path(root)).test.at(SIDE, 3)
    except MissingDataError as error:
        return f"it shows images, which are missing: {error}"
    if not np.array_equal(images.labels.numpy(), setting.features.test_y):
        return "the features do not match these images, row by row"
    before, after = archive.main(need), archive.stream(need)
    true = setting.scenario.positions(setting.features.test_y)
    right = {"before": before.best[:, 0] == true, "after": after.best[:, 0] == true}
    rows = {
        "corrected": np.flatnonzero(~right["before"] & right["after"] & (before.best == true[:, None]).any(1)),
        "worsened": np.flatnonzero(right["before"] & ~right["after"] & (after.best == true[:, None]).any(1)),
    }
    titles = [setting.data.class_names[label] for label in setting.scenario.order]
    chosen = []
    for kind, of_kind in rows.items():
        margin = np.abs(_logit(after, true, of_kind) - _logit(before, true, of_kind))
        for row in of_kind[np.argsort(-margin, kind="stable")][: SHOWN[kind]]:
            chosen.append(
                {
                    "row": int(row),
                    "kind": kind,
                    "class": titles[true[row]],
                    "pixels": images.take(torch.tensor([row])).in_memory().images[0].permute(1, 2, 0).tolist(),
                    "before": _top_five(before, int(row), titles),
                    "after": _top_five(after, int(row), titles),
                }
            )
    return {
        "phases": need.phases,
        "seed": need.seed,
        "ratio": SHOWN_RATIO,
        "corrected": int((~right["before"] & right["after"]).sum()),
        "worsened": int((right["before"] & ~right["after"]).sum()),
        "images": chosen,
    }


def draw(summary: Summary, folder: Path) -> None:
    """Draw one row per image: the image, and its five best classes before and after."""
    shown = summary["images"]
    if not shown:
        return
    figure = Figure(figsize=(7.2, 1.15 * len(shown)), layout="constrained")
    FigureCanvasAgg(figure)
    axes = figure.subplots(len(shown), 3, squeeze=False, width_ratios=(1, 2, 2))
    for row, image in zip(axes, shown, strict=True):
        row[0].imshow(np.array(image["pixels"], dtype=np.uint8))
        row[0].set_axis_off()
        row[0].set_title(image["class"], fontsize=SMALL, color=INK)
        for ax, title in ((row[1], "before"), (row[2], "after")):
            names, scores = zip(*image[title], strict=True)
            colors = [LIGHT[2] if name == image["class"] else LIGHT[5] for name in names]
            ax.barh(range(len(names)), scores, color=colors, height=0.7)
            marked = [f"{name} ✓" if name == image["class"] else name for name in names]
            ax.set_yticks(range(len(names)), marked, fontsize=SMALL - 1)
            ax.invert_yaxis()
            ax.tick_params(labelsize=SMALL - 1, length=0)
            ax.set_title(f"{title} compensation" if title == "before" else f"after, C = {summary['ratio']:g}",
                            fontsize=SMALL, color=INK)  # fmt: skip
            for side in ("top", "right", "left"):
                ax.spines[side].set_visible(False)
    save_figure(figure, folder, "fig3")


def describe(summary: Summary) -> list[Block]:
    """Report how many predictions compensation corrects and how many it makes wrong, with examples of both."""
    blocks: list[Block] = [
        f"Test images after the last of K = {summary['phases']} phases, seed {summary['seed']}, C = "
        f"{summary['ratio']:g} as in the paper's figure: compensation corrects {summary['corrected']} predictions "
        f"and makes {summary['worsened']} wrong. Shown are those of both kinds whose true-class logit changes most.",
    ]
    if summary["images"]:
        blocks.append(Picture("fig3", "The five best classes and their logits, before and after compensation."))
    return blocks


def _top_five(measured: Any, row: int, titles: list[str]) -> list[tuple[str, float]]:
    return [(titles[c], float(s)) for c, s in zip(measured.best[row], measured.scores[row], strict=True)]


def _logit(measured: Any, true: Any, rows: Any) -> Any:
    """Return the logit of the true class, which is among the five best."""
    return (measured.scores[rows] * (measured.best[rows] == true[rows, None])).sum(1)


ITEM = Item("fig3", "Fig. 3: what compensation changes", needs, summarise, draw, describe)
