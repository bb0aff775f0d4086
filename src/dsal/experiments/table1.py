"""Table 1: DS-AL and ACIL for K = 5, 25, 50 on CIFAR-100, beside the paper's rows for all methods.

Each method and K becomes a folder of results as ``dsal run`` writes them, though one training served both methods.
"""

from __future__ import annotations

from typing import Any

from dsal.evaluation.config import write_config
from dsal.evaluation.paper_numbers import TABLE_1, Figure, paper_results
from dsal.evaluation.protocol import PhaseResult
from dsal.evaluation.results import write_results
from dsal.experiments.archive import Archive
from dsal.experiments.item import Block, Item, Summary, Table, draw_nothing, shown, signed
from dsal.experiments.plan import Need, Plan
from dsal.experiments.training import Measurement

METHODS = {"ds-al": "DS-AL", "acil": "ACIL"}


def needs(plan: Plan) -> list[Need]:
    """Every K with every seed."""
    return [Need(plan.dataset, phases, seed) for phases in plan.phases for seed in plan.seeds]


def summarise(archive: Archive) -> dict[str, Any]:
    """Write a folder of results for each method and K; gather average and last accuracy."""
    plan, rows = archive.plan, []
    for phases in plan.phases:
        of_k = [need for need in needs(plan) if need.phases == phases]
        for method, read in (("ds-al", archive.stream), ("acil", archive.main)):
            setting = archive.setting(of_k[0], method, plan.seeds)
            measured = {need.seed: read(need) for need in of_k}
            out = archive.out / "runs" / f"{method}-k{phases}"
            out.mkdir(parents=True, exist_ok=True)
            write_config(out, setting.config)
            document = write_results(
                out,
                setting,
                {seed: _phase_results(measurement) for seed, measurement in measured.items()},
                dict(archive.origin(of_k[0])),
                measured[plan.seeds[0]].stored_bytes,
            )
            names = ("average_accuracy", "last_accuracy", "base_accuracy", "new_accuracy")
            rows.append({"method": method, "phases": phases, **{name: document[name] for name in names}})
    dataset = archive.setting(needs(plan)[0]).image_dataset
    return {"image_dataset": dataset, "seeds": list(plan.seeds), "phases": list(plan.phases), "rows": rows}


def tell(summary: Summary) -> list[Block]:
    """Our rows with the difference to the paper's, then all rows of the paper."""
    ours, ahead = [], []
    for row in summary["rows"]:
        listed = paper_results(summary["image_dataset"] or "", row["phases"], row["method"])
        paper = next((result for result in listed if result.backbone == "resnet32"), None)
        cells = [f"{METHODS[row['method']]}, K = {row['phases']}"]
        for name, figure in (("average", paper.average if paper else None), ("last", paper.last if paper else None)):
            value = row[f"{name}_accuracy"]
            cells += [shown(value), _printed(figure), signed(value["mean"] - figure.value) if figure else "-"]
        ours.append(tuple(cells))
    for phases in summary["phases"]:
        dual, main = (_row(summary, method, phases)["last_accuracy"] for method in ("ds-al", "acil"))
        gain = dual["mean"] - main["mean"]
        every = all(d > m for d, m in zip(dual["values"], main["values"], strict=True))
        ahead.append(f"K = {phases}: {signed(gain)}{' (with every seed)' if every else ''}")
    heads = ("ours", "average", "paper", "difference", "last", "paper", "difference")
    return [
        f"Percent; mean ± standard deviation over the seeds {summary['seeds']}, which vary the random projection. The "
        "paper's numbers are of a ResNet-32 that its authors trained.",
        Table(heads, tuple(ours)),
        f"DS-AL over ACIL in last accuracy, same features and projections: {'; '.join(ahead)}.",
        "All methods that the paper lists for CIFAR-100, **its numbers, not ours** (average / last; in brackets with a "
        "ResNet-18; * run by the paper's authors):",
        _paper_table(summary),
    ]


def _row(summary: Summary, method: str, phases: int) -> dict[str, Any]:
    return next(row for row in summary["rows"] if (row["method"], row["phases"]) == (method, phases))


def _paper_table(summary: Summary) -> Table:
    cells: dict[tuple[str, bool, str], dict[int, str]] = {}
    for result in TABLE_1:
        if result.dataset == summary["image_dataset"] and result.phases in summary["phases"]:
            text = f"{_printed(result.average)} / {_printed(result.last)}{' *' if result.reproduced else ''}"
            of_k = cells.setdefault((result.method, result.exemplar_free, result.backbone), {})
            of_k[result.phases] = f"({text})" if result.backbone == "resnet18" else text
    heads = ("paper", "exemplar-free", *(f"K = {phases}" for phases in summary["phases"]))
    rows = (
        (method, "yes" if free else "no", *(of_k.get(phases, "-") for phases in summary["phases"]))
        for (method, free, _), of_k in cells.items()
    )
    return Table(heads, tuple(rows))


def _printed(figure: Figure | None) -> str:
    if figure is None:
        return "-"
    return f"{figure.value:.2f}" if figure.std is None else f"{figure.value:.2f} ± {figure.std:.2f}"


def _phase_results(measurement: Measurement) -> list[PhaseResult]:
    return [
        PhaseResult(k, counts, float(learning), float(testing))
        for k, (counts, (learning, testing)) in enumerate(zip(measurement.counts, measurement.seconds, strict=True))
    ]


ITEM = Item("table1", "Table 1: DS-AL and ACIL over K", needs, summarise, draw_nothing, tell)
