"""Fig. 3: test images whose best five classes change with compensation, before and after, C = 1."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import torch
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure

from dsal.data import load_dataset
from dsal.errors import MissingDataError
from dsal.experiments.archive import Archive
from dsal.experiments.item import Block, Item, Picture, Summary
from dsal.experiments.plan import Need, Plan
from dsal.experiments.training import SHOWN_RATIO
from dsal.report.figures import INK, SMALL, save_figure
from dsal.report.styles import LIGHT

SHOWN = {"mended": 4, "spoilt": 2}
"""How many images to show that compensation puts right, and that it puts wrong."""

SIDE = 128  # pixels, of images that are in files


def needs(plan: Plan) -> list[Need]:
    """One training."""
    return [Need(plan.dataset, plan.phases[0], plan.seeds[0])]


def summarise(archive: Archive) -> dict[str, Any] | str:
    """Images with the largest gain of the true class's logit, of those put right and of those put wrong."""
    (need,) = needs(archive.plan)
    setting, root = archive.setting(need), archive.plan.data_root
    name = setting.image_dataset
    if name is None or root is None:
        return "it shows images: give their folder with --data-root"
    try:
        images = load_dataset(name, Path(root)).test.at(SIDE, 3)
    except MissingDataError as error:
        return f"it shows images, and they are not there: {error}"
    if not np.array_equal(images.labels.numpy(), setting.features.test_y):
        return "the features are not of these images, row by row"
    before, after = archive.main(need), archive.stream(need)
    true = setting.scenario.positions(setting.features.test_y)
    right = {"before": before.best[:, 0] == true, "after": after.best[:, 0] == true}
    rows = {
        "mended": np.flatnonzero(~right["before"] & right["after"] & (before.best == true[:, None]).any(1)),
        "spoilt": np.flatnonzero(right["before"] & ~right["after"] & (after.best == true[:, None]).any(1)),
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
                    "before": _five(before, int(row), titles),
                    "after": _five(after, int(row), titles),
                }
            )
    return {
        "phases": need.phases,
        "seed": need.seed,
        "ratio": SHOWN_RATIO,
        "mended": int((~right["before"] & right["after"]).sum()),
        "spoilt": int((right["before"] & ~right["after"]).sum()),
        "images": chosen,
    }


def draw(summary: Summary, folder: Path) -> None:
    """A row for each image: the image, its five best classes before, and after."""
    shown = summary["images"]
    if not shown:
        return
    figure = Figure(figsize=(7.2, 1.15 * len(shown)), layout="constrained")
    FigureCanvasAgg(figure)
    axes = figure.subplots(len(shown), 3, squeeze=False, width_ratios=(1, 2, 2))
    for places, image in zip(axes, shown, strict=True):
        places[0].imshow(np.array(image["pixels"], dtype=np.uint8))
        places[0].set_axis_off()
        places[0].set_title(image["class"], fontsize=SMALL, color=INK)
        for place, title in ((places[1], "before"), (places[2], "after")):
            names, scores = zip(*image[title], strict=True)
            colors = [LIGHT[2] if name == image["class"] else LIGHT[5] for name in names]
            place.barh(range(len(names)), scores, color=colors, height=0.7)
            marked = [f"{name} ✓" if name == image["class"] else name for name in names]
            place.set_yticks(range(len(names)), marked, fontsize=SMALL - 1)
            place.invert_yaxis()
            place.tick_params(labelsize=SMALL - 1, length=0)
            place.set_title(f"{title} compensation" if title == "before" else f"after, C = {summary['ratio']:g}",
                            fontsize=SMALL, color=INK)  # fmt: skip
            for side in ("top", "right", "left"):
                place.spines[side].set_visible(False)
    save_figure(figure, folder, "fig3")


def tell(summary: Summary) -> list[Block]:
    """How many predictions compensation mends and spoils, and some of both."""
    blocks: list[Block] = [
        f"Test images after the last of K = {summary['phases']} phases, seed {summary['seed']}, C = "
        f"{summary['ratio']:g} as in the paper's figure: compensation puts {summary['mended']} right that were wrong, "
        f"and {summary['spoilt']} wrong that were right. Shown are those whose true class changes most, of both kinds.",
    ]
    if summary["images"]:
        blocks.append(Picture("fig3", "The five best classes and their logits, before and after compensation."))
    return blocks


def _five(measured: Any, row: int, titles: list[str]) -> list[tuple[str, float]]:
    return [(titles[c], float(s)) for c, s in zip(measured.best[row], measured.scores[row], strict=True)]


def _logit(measured: Any, true: Any, rows: Any) -> Any:
    """The logit of the true class, which is among the five best."""
    return (measured.scores[rows] * (measured.best[rows] == true[rows, None])).sum(1)


ITEM = Item("fig3", "Fig. 3: what compensation changes", needs, summarise, draw, tell)
