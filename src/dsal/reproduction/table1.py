"""Table 1: DS-AL and ACIL for K = 5, 25, 50 on one of the data sets, beside the paper's rows for all methods.

Each method and K gets a folder of results like those of ``dsal run``, although one training serves both methods.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from dsal.data import Scenario
from dsal.protocol.config import write_config
from dsal.protocol.metrics import MeanStd, Tally
from dsal.protocol.paper_numbers import TABLE_1, nearest_result, paper_results
from dsal.protocol.phases import PhaseResult
from dsal.protocol.results import write_results
from dsal.protocol.run_checkpoint import Kept
from dsal.reproduction.item import Block, Item, Summary, Table, draw_nothing, shown, signed
from dsal.reproduction.networks import describe_networks, read_networks
from dsal.reproduction.plan import PAPER_SETTINGS, Plan, TrainingSpec, title_of
from dsal.reproduction.stream_training import Measurement
from dsal.reproduction.training_archive import Archive

METHODS = {"ds-al": "DS-AL", "acil": "ACIL"}


def needs(plan: Plan) -> list[TrainingSpec]:
    """Return every K with every seed."""
    return [TrainingSpec(plan.dataset, phases, seed) for phases in plan.phases for seed in plan.seeds]


def summarise(archive: Archive) -> dict[str, Any]:
    """Write a folder of results for each method and K; return average and last accuracies."""
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
                {seed: _phase_results(measurement, setting.scenario) for seed, measurement in measured.items()},
                dict(archive.origin(of_k[0])),
                Kept(measured[plan.seeds[0]].stored_bytes, 0),
            )
            names = ("average_accuracy", "last_accuracy", "base_accuracy", "new_accuracy")
            rows.append({"method": method, "phases": phases, **{name: document[name] for name in names}})
    dataset = archive.setting(needs(plan)[0]).image_dataset
    summary = {"image_dataset": dataset, "seeds": list(plan.seeds), "phases": list(plan.phases), "rows": rows}
    return summary if plan.comparison is None else {**summary, "networks": read_networks(Path(plan.comparison))}


def describe(summary: Summary) -> list[Block]:
    """Report our rows with the difference from the paper's, then all rows of the paper."""
    ours, ahead, images = [], [], summary["image_dataset"]
    for row in summary["rows"]:
        paper = nearest_result(paper_results(images or "", row["phases"], row["method"]), "resnet32")
        cells = [f"{METHODS[row['method']]}, K = {row['phases']}"]
        for name, figure in (("average", paper.average if paper else None), ("last", paper.last if paper else None)):
            value = row[f"{name}_accuracy"]
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
        f"Percent; mean ± standard deviation over the seeds {summary['seeds']}, which vary the random projection. The "
        f"paper's numbers are of a {'ResNet-32' if images == 'cifar100' else 'ResNet-18'} that its authors trained.",
        Table(heads, tuple(ours)),
        f"DS-AL over ACIL in last accuracy, same features and projections: {'; '.join(ahead)}.",
        *(listed_there if images in PAPER_SETTINGS else []),
        *_networks(summary),
    ]


def _networks(summary: Summary) -> list[Block]:
    """Report methods that train a network in every phase, if a comparison with them was given."""
    if "networks" not in summary:
        return []
    return [
        "Methods that train a network in every phase, and DS-AL in the same run:",
        *describe_networks(summary["networks"]),
    ]


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


ITEM = Item("table1", "Table 1: DS-AL and ACIL over K", needs, summarise, draw_nothing, describe)
