"""DS-AL and ACIL as K grows: Table 1 and Fig. 6."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

from dsal.data import Scenario
from dsal.protocol.metrics import MeanStd, Tally
from dsal.protocol.paper_numbers import TABLE_1, nearest_result, paper_results
from dsal.protocol.phases import PhaseResult
from dsal.protocol.results import write_results
from dsal.protocol.run_checkpoint import Kept
from dsal.protocol.runs import write_config
from dsal.report.charts import Axis
from dsal.reproduction.item import Block, Item, Picture, Summary, Table, draw_lines, shown, signed
from dsal.reproduction.plan import PAPER_SETTINGS, Plan, TrainingSpec, named_file, title_of
from dsal.reproduction.stream_training import Measurement, percent, phase_accuracies
from dsal.reproduction.training_archive import TrainingArchive

TITLES = {"ds-al": "DS-AL", "acil": "ACIL"}


class Table1(Item):
    """DS-AL and ACIL for K = 5, 25, 50 on one of the data sets, beside the paper's rows for all methods.

    Each method and K gets a folder of results like those of ``dsal run``, although one training serves both methods.
    """

    name = "table1"
    title = "Table 1: DS-AL and ACIL over K"

    def needs(self, plan: Plan) -> list[TrainingSpec]:
        """Return every K with every seed."""
        return [TrainingSpec(plan.dataset, phases, seed) for phases in plan.phases for seed in plan.seeds]

    def summarise(self, archive: TrainingArchive) -> dict[str, Any]:
        """Write a folder of results for each method and K; return average and last accuracies."""
        plan, rows = archive.plan, []
        for phases in plan.phases:
            of_k = [need for need in self.needs(plan) if need.phases == phases]
            for method, read in (("ds-al", archive.stream), ("acil", archive.main)):
                setting = archive.setting(of_k[0], method, plan.seeds)
                measured = {need.seed: read(need) for need in of_k}
                out = archive.out / "runs" / f"{method}-k{phases}"
                out.mkdir(parents=True, exist_ok=True)
                write_config(out, setting.config)
                document = write_results(
                    out,
                    setting,
                    {seed: _phase_results(measurement, setting.scenario) for seed, measurement in measured.items()},
                    dict(archive.origin(of_k[0])),
                    Kept(measured[plan.seeds[0]].stored_bytes, 0),
                )
                names = ("average_accuracy", "last_accuracy", "base_accuracy", "new_accuracy")
                rows.append({"method": method, "phases": phases, **{name: document[name] for name in names}})
        dataset = archive.setting(self.needs(plan)[0]).image_dataset
        return {"image_dataset": dataset, "seeds": list(plan.seeds), "phases": list(plan.phases), "rows": rows}

    def describe(self, summary: Summary) -> list[Block]:
        """Report our rows with the difference from the paper's, then all rows of the paper."""
        ours, ahead, images = [], [], summary["image_dataset"]
        for row in summary["rows"]:
            paper = nearest_result(paper_results(images or "", row["phases"], row["method"]), "resnet32")
            cells = [f"{TITLES[row['method']]}, K = {row['phases']}"]
            for name in ("average", "last"):
                value, figure = row[f"{name}_accuracy"], getattr(paper, name, None)
                cells += [shown(value), _printed(figure), signed(value["mean"] - figure.mean) if figure else "-"]
            ours.append(tuple(cells))
        for phases in summary["phases"]:
            dual, main = (_row(summary, method, phases)["last_accuracy"] for method in ("ds-al", "acil"))
            gain = dual["mean"] - main["mean"]
            every = all(d > m for d, m in zip(dual["values"], main["values"], strict=True))
            ahead.append(f"K = {phases}: {signed(gain)}{' (with every seed)' if every else ''}")
        heads = ("ours", "average", "paper", "difference", "last", "paper", "difference")
        brackets = "in brackets with a ResNet-18; " if images == "cifar100" else ""
        listed_there: list[Block] = [
            f"All methods that the paper lists for {title_of(images)}, **its numbers, not ours** (average / last; "
            f"{brackets}* run by the paper's authors):",
            _paper_table(summary),
        ]
        return [
            f"Percent; mean ± standard deviation over the seeds {summary['seeds']}, which vary the random projection. "
            f"The paper's numbers are of a {'ResNet-32' if images == 'cifar100' else 'ResNet-18'} that its authors "
            "trained.",
            Table(heads, tuple(ours)),
            f"DS-AL over ACIL in last accuracy, same features and projections: {'; '.join(ahead)}.",
            *(listed_there if images in PAPER_SETTINGS else []),
        ]


class Fig6(Item):
    """Average accuracy as K grows, on CIFAR-100 (or another data set) and on Omniglot's 1,623 classes.

    Theorem 1 says that the main stream after the last phase does not depend on K at all: its predictions are compared
    sample by sample, and those that differ are listed with their margins.
    """

    name = "fig6"
    title = "Fig. 6: average accuracy as K grows"

    def needs(self, plan: Plan) -> list[TrainingSpec]:
        """Return every K with the first seed."""
        ks = {plan.dataset: plan.growing, plan.characters: plan.growing_characters}
        return [TrainingSpec(name, k, plan.seeds[0]) for name, of_set in ks.items() if name is not None for k in of_set]

    def summarise(self, archive: TrainingArchive) -> dict[str, Any]:
        """Return by data set and K: average accuracies, correct images at the end, flips of the main stream."""
        sets: dict[str, Any] = {}
        for need in self.needs(archive.plan):
            scenario = archive.setting(need).scenario
            seen = [classes.stop for classes in scenario.phases]
            main, dual = archive.main(need), archive.stream(need)
            entry = sets.setdefault(
                named_file(need.dataset),
                {"classes": len(scenario.order), "images": int(main.totals.sum()), "seed": need.seed, "points": [],
                 "flips": []},
            )  # fmt: skip
            if not entry["points"]:
                first = main
            entry["flips"] += _flips(need.phases, first.best, first.scores, main.best)
            entry["points"].append(
                {
                    "phases": need.phases,
                    "acil_average": float(np.mean(phase_accuracies(main, seen))),
                    "ds_al_average": float(np.mean(phase_accuracies(dual, seen))),
                    "acil_correct": int(main.hits[-1].sum()),
                    "ds_al_correct": int(dual.hits[-1].sum()),
                    "acil_last": percent(main.hits[-1], main.totals),
                    "ds_al_last": percent(dual.hits[-1], dual.totals),
                }
            )
        return {"sets": sets}

    def draw(self, summary: Summary, folder: Path) -> None:
        """Draw one chart per data set; the values of K are evenly spaced."""
        for name, entry in summary["sets"].items():
            at = list(range(len(entry["points"])))
            ticks = tuple((float(i), str(point["phases"])) for i, point in enumerate(entry["points"]))
            axis = Axis("phases K", 0, max(len(at) - 1, 1), ticks)
            lines = {
                title: [point[f"{key}_average"] for point in entry["points"]]
                for title, key in (("DS-AL", "ds_al"), ("ACIL", "acil"))
            }
            draw_lines(f"fig6-{name}", axis, at, lines, "average accuracy, %", folder)

    def describe(self, summary: Summary) -> list[Block]:
        """Report a table and a chart per data set, and whether the main stream is the same for every K."""
        blocks: list[Block] = []
        for name, entry in summary["sets"].items():
            points = entry["points"]
            rows = tuple(
                (f"K = {p['phases']}", f"{p['acil_average']:.2f}", f"{p['ds_al_average']:.2f}", f"{p['acil_last']:.2f}",
                 f"{p['ds_al_last']:.2f}", str(p["acil_correct"]), str(p["ds_al_correct"]))
                for p in points
            )  # fmt: skip
            heads = ("", "ACIL average", "DS-AL average", "ACIL last", "DS-AL last", "ACIL correct", "DS-AL correct")
            counts = {point["acil_correct"] for point in points}
            last = [point["ds_al_last"] for point in points]
            same = (
                f"ACIL classifies {points[0]['acil_correct']} of {entry['images']} images correctly for every K"
                if len(counts) == 1
                else f"ACIL's number of correct images differs between values of K: {sorted(counts)}"
            )
            blocks += [
                f"**{name}**: {entry['classes']} classes, seed {entry['seed']}.",
                Table(heads, rows),
                f"{same}; {_text(entry['flips'])} DS-AL's last accuracy varies by {max(last) - min(last):.2f} points "
                "over K: its residues are computed at the end of each phase.",
                Picture(f"fig6-{name}", f"Average accuracy over K on {name}."),
            ]
        return blocks


def _row(summary: Summary, method: str, phases: int) -> dict[str, Any]:
    return next(row for row in summary["rows"] if (row["method"], row["phases"]) == (method, phases))


def _paper_table(summary: Summary) -> Table:
    cells: dict[tuple[str, bool, str], dict[int, str]] = {}
    for result in TABLE_1:
        if result.dataset == summary["image_dataset"] and result.phases in summary["phases"]:
            text = f"{_printed(result.average)} / {_printed(result.last)}{' *' if result.reproduced else ''}"
            of_k = cells.setdefault((result.method, result.exemplar_free, result.backbone), {})
            of_k[result.phases] = f"({text})" if (result.dataset, result.backbone) == ("cifar100", "resnet18") else text
    heads = ("paper", "exemplar-free", *(f"K = {phases}" for phases in summary["phases"]))
    rows = (
        (method, "yes" if free else "no", *(of_k.get(phases, "-") for phases in summary["phases"]))
        for (method, free, _), of_k in cells.items()
    )
    return Table(heads, tuple(rows))


def _printed(figure: MeanStd | None) -> str:
    return "-" if figure is None else str(figure)


def _phase_results(measured: Measurement, scenario: Scenario) -> list[PhaseResult]:
    results = []
    for k, (learning, testing) in enumerate(measured.seconds):
        seen = scenario.seen(k)
        tally = Tally(measured.hits[k, :seen], measured.totals[:seen])
        results.append(PhaseResult(k, tally, measured.confusions.get(k), float(learning), float(testing)))
    return results


def _flips(phases: int, best: Any, scores: Any, other: Any) -> list[dict[str, Any]]:
    """Return the test samples that the smallest K and this one classify differently, with the former's margin."""
    rows = np.flatnonzero(best[:, 0] != other[:, 0])
    return [{"phases": phases, "sample": int(row), "margin": float(scores[row, 0] - scores[row, 1])} for row in rows]


def _text(flips: list[dict[str, Any]]) -> str:
    if not flips:
        return "no prediction differs."
    listed = "; ".join(f"K = {f['phases']}, image {f['sample']}: margin {f['margin']:.1e}" for f in flips[:20])
    return f"{len(flips)} predictions differ from those of the smallest K ({listed})."
