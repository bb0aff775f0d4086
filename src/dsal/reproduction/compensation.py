"""What compensation does, at the smallest K: Table 2 and Figs. 3, 4 and 5."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure

from dsal.data import load_dataset
from dsal.errors import MissingDataError
from dsal.protocol.metrics import mean_std
from dsal.protocol.paper_numbers import TABLE_2
from dsal.report.charts import Axis
from dsal.report.figures import INK, LIGHT, SMALL, save_figure
from dsal.reproduction.item import Block, Item, Picture, Summary, Table, draw_lines, shown, signed
from dsal.reproduction.plan import DS_AL, Plan, TrainingSpec, title_of
from dsal.reproduction.stream_training import RATIOS, SHOWN_RATIO, Stream, percent, phase_accuracies
from dsal.reproduction.training_archive import TrainingArchive

UNCLEANSED = Stream(cleanse=False)

SHOWN = {"corrected": 4, "worsened": 2}
"""Number of images of Fig. 3 that compensation corrects, and that it makes wrong."""
SIDE = 128  # pixels of these images, if they are in files

PAPER_FIG4 = {"base": (75.48, 72.79), "new": (36.61, 43.56)}
"""Values of Fig. 4a, without and with compensation; their means are the paper's last accuracies on ImageNet-Full."""


class Table2(Item):
    """What each module adds; the paper's table is on ImageNet-Full."""

    name = "table2"
    title = "Table 2: what each module adds"

    def needs(self, plan: Plan) -> list[TrainingSpec]:
        """Return trainings with and without cleansing; the main stream comes with both."""
        return [
            TrainingSpec(plan.dataset, plan.phases[0], seed, stream)
            for stream in (UNCLEANSED, DS_AL)
            for seed in plan.seeds
        ]

    def summarise(self, archive: TrainingArchive) -> dict[str, Any]:
        """Return average and last accuracy of the main stream, with compensation, and with cleansed compensation."""
        plan = archive.plan
        needs = self.needs(plan)
        plain, cleansed = ([need for need in needs if need.stream == stream] for stream in (UNCLEANSED, DS_AL))
        seen = [classes.stop for classes in archive.setting(plain[0]).scenario.phases]
        measured = (
            [archive.main(need) for need in plain],
            [archive.stream(need) for need in plain],
            [archive.stream(need) for need in cleansed],
        )
        rows = [
            {
                "modules": paper.modules,
                "average": mean_std([float(np.mean(phase_accuracies(m, seen))) for m in of_seeds]),
                "last": mean_std([percent(m.hits[-1], m.totals) for m in of_seeds]),
            }
            for paper, of_seeds in zip(TABLE_2, measured, strict=True)
        ]
        dataset = archive.setting(plain[0]).image_dataset
        return {
            "image_dataset": dataset,
            "phases": plan.phases[0],
            "compensation": plan.compensation,
            "seeds": list(plan.seeds),
            "rows": rows,
        }

    def describe(self, summary: Summary) -> list[Block]:
        """Report our rows beside the paper's, and whether the order is the same."""
        last = [row["last"]["mean"] for row in summary["rows"]]
        same = last[0] < last[1] < last[2]
        rows = tuple(
            (row["modules"], shown(row["average"]), shown(row["last"]), f"{paper.average:.2f}", f"{paper.last:.2f}",
             signed(row["last"]["mean"] - last[0]), signed(paper.last - TABLE_2[0].last))
            for row, paper in zip(summary["rows"], TABLE_2, strict=True)
        )  # fmt: skip
        heads = ("modules", "average", "last", "paper: average", "paper: last", "gain in last", "paper: gain in last")
        name = summary["image_dataset"]
        setting = f"{title_of(name)}, K = {summary['phases']}, C = {summary['compensation']:g}."
        if name != "imagenet":
            setting += " The paper's ablation is on ImageNet-Full with C = 1.4, so compare gains, not levels."
        levels = " / ".join(f"{value:.2f}" for value in last)
        order = f"The order in last accuracy is {'' if same else '**not** '}the paper's: {levels}."
        return [setting, Table(heads, rows), order]


class Fig3(Item):
    """Test images whose five best classes change with compensation (C = 1), before and after."""

    name = "fig3"
    title = "Fig. 3: what compensation changes"

    def needs(self, plan: Plan) -> list[TrainingSpec]:
        return one_training(plan)

    def summarise(self, archive: TrainingArchive) -> dict[str, Any] | str:
        """Return the images whose true-class logit changes most, among those corrected and those made wrong."""
        (need,) = self.needs(archive.plan)
        setting, root = archive.setting(need), archive.plan.data_root
        name = setting.image_dataset
        if name is None or root is None:
            return "the figure shows images; give their folder with --data-root"
        try:
            images = load_dataset(name, Path(root)).test.at(SIDE, 3)
        except MissingDataError as error:
            return f"the figure shows images, which are missing: {error}"
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

    def draw(self, summary: Summary, folder: Path) -> None:
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

    def describe(self, summary: Summary) -> list[Block]:
        """Report how many predictions compensation corrects and how many it makes wrong, with examples of both."""
        blocks: list[Block] = [
            f"Test images after the last of K = {summary['phases']} phases, seed {summary['seed']}, "
            f"C = {summary['ratio']:g} as in the paper's figure: compensation corrects {summary['corrected']} "
            f"predictions and makes {summary['worsened']} wrong. Shown are those of both kinds whose true-class logit "
            "changes most.",
        ]
        if summary["images"]:
            blocks.append(Picture("fig3", "The five best classes and their logits, before and after compensation."))
        return blocks


class Fig4(Item):
    """(a) Base and new classes with and without compensation, (b) the same over C."""

    name = "fig4"
    title = "Fig. 4: stability and plasticity"

    def needs(self, plan: Plan) -> list[TrainingSpec]:
        return one_training(plan)

    def summarise(self, archive: TrainingArchive) -> dict[str, Any]:
        """Return the accuracy on base, new and all classes after the last phase, for every C."""
        (need,) = self.needs(archive.plan)
        measured, base = archive.stream(need), archive.setting(need).scenario.seen(0)
        grid, totals = measured.grid, measured.totals
        return {
            "phases": need.phases,
            "seed": need.seed,
            "compensation": archive.plan.compensation,
            "ratios": list(RATIOS),
            "base": [percent(hits[:base], totals[:base]) for hits in grid],
            "new": [percent(hits[base:], totals[base:]) for hits in grid],
            "all": [percent(hits, totals) for hits in grid],
        }

    def draw(self, summary: Summary, folder: Path) -> None:
        """Draw Fig. 4b; Fig. 4a is a table of two of its points."""
        lines = {f"{group} classes": summary[group] for group in ("base", "new", "all")}
        draw_over_ratios("fig4", summary["ratios"], lines, "accuracy, %", folder)

    def describe(self, summary: Summary) -> list[Block]:
        """Report what the base classes lose and the new classes gain by compensation."""
        place = summary["ratios"].index(summary["compensation"])
        rows = tuple(
            (f"{group} classes", f"{summary[group][0]:.2f}", f"{summary[group][place]:.2f}",
             signed(summary[group][place] - summary[group][0]), _paper_change(group))
            for group in ("base", "new", "all")
        )  # fmt: skip
        best = max(range(len(summary["all"])), key=lambda i: summary["all"][i])
        return [
            f"After the last of K = {summary['phases']} phases, seed {summary['seed']}. The paper does not name the "
            "data set of its numbers; their means are its last accuracies on ImageNet-Full.",
            Table(("", "C = 0", f"C = {summary['compensation']:g}", "change", "paper"), rows),
            f"Over C, all classes together peak at C = {summary['ratios'][best]:g} with {summary['all'][best]:.2f} "
            "(measured on test data, as in the paper; not used to choose anything).",
            Picture("fig4", "Accuracy after the last phase over C: base classes, new classes, all classes."),
        ]


class Fig5(Item):
    """Last accuracy over C for every activation of the compensation stream."""

    name = "fig5"
    title = "Fig. 5: activations and C"

    def needs(self, plan: Plan) -> list[TrainingSpec]:
        """Return one compensation stream per activation; varying C costs nothing."""
        return [TrainingSpec(plan.dataset, plan.phases[0], plan.seeds[0], Stream(name)) for name in plan.activations]

    def summarise(self, archive: TrainingArchive) -> dict[str, Any]:
        """Return the last accuracy of each activation at C = 0.1 .. 2.0."""
        curves = {}
        for need in self.needs(archive.plan):
            measured = archive.stream(need)
            curves[need.stream.activation] = [percent(hits, measured.totals) for hits in measured.grid[1:]]
        first = self.needs(archive.plan)[0]
        main = archive.main(first)
        without = percent(main.hits[-1], main.totals)
        return {
            "phases": first.phases,
            "seed": first.seed,
            "ratios": list(RATIOS[1:]),
            "without": without,
            "curves": curves,
        }

    def draw(self, summary: Summary, folder: Path) -> None:
        """Draw all curves in one chart."""
        draw_over_ratios("fig5", summary["ratios"], summary["curves"], "last accuracy, %", folder)

    def describe(self, summary: Summary) -> list[Block]:
        """Report the peak of each activation, best first."""
        ratios, curves = summary["ratios"], sorted(summary["curves"].items(), key=lambda item: -max(item[1]))
        rows = tuple(
            (name, f"{max(at):.2f}", f"{ratios[at.index(max(at))]:g}", f"{at[5]:.2f}", f"{at[-1]:.2f}")
            for name, at in curves
        )
        return [
            f"K = {summary['phases']}, seed {summary['seed']}; without compensation {summary['without']:.2f}. One "
            "compensation stream for each activation; all share the projection and the main stream. Peaks are measured "
            "on test data, as in the paper's figure; they were not used to choose anything.",
            Table(("activation", "best last accuracy", "at C", "at C = 0.6", "at C = 2"), rows),
            "The paper finds tanh good on all data sets, with its peak at C = 0.6 on CIFAR-100.",
            Picture("fig5", "Last accuracy over C for each activation of the compensation stream."),
        ]


def one_training(plan: Plan) -> list[TrainingSpec]:
    """Return the training of DS-AL at the smallest K with the first seed."""
    return [TrainingSpec(plan.dataset, plan.phases[0], plan.seeds[0])]


def draw_over_ratios(
    key: str, ratios: Sequence[float], lines: Mapping[str, Sequence[float]], unit: str, folder: Path
) -> None:
    """Draw named lines over C."""
    tenths = [round(10 * ratio) for ratio in ratios]
    ticks = tuple((float(tenth), f"{tenth / 10:g}") for tenth in tenths if tenth % 2 == 0 or len(tenths) < 8)
    draw_lines(key, Axis("compensation ratio C", min(tenths), max(tenths), ticks), tenths, lines, unit, folder)


def _top_five(measured: Any, row: int, titles: list[str]) -> list[tuple[str, float]]:
    return [(titles[c], float(s)) for c, s in zip(measured.best[row], measured.scores[row], strict=True)]


def _logit(measured: Any, true: Any, rows: Any) -> Any:
    """Return the logit of the true class, which is among the five best."""
    return (measured.scores[rows] * (measured.best[rows] == true[rows, None])).sum(1)


def _paper_change(group: str) -> str:
    if group not in PAPER_FIG4:
        return "-"
    before, after = PAPER_FIG4[group]
    return f"{before:.2f} to {after:.2f} ({signed(after - before)})"
