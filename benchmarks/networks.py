"""Methods that train a network, compared with DS-AL: a finished ``dsal compare`` with the paper's rows and costs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from dsal.files.schema import ANY_TABLE, Anything, Each, Record, read_json
from dsal.methods import METHODS
from dsal.protocol.paper_numbers import PaperResult, nearest_result, paper_results
from dsal.reproduction.item import Block, Summary, Table, shown, signed

PAPER = {"podnet-aanets": "aanets"}
"""Methods that have a different name in the paper's table."""
ORDER = (("finetune", "ewc"), ("finetune", "lwf"), ("ewc", "icarl"), ("lwf", "icarl"), ("icarl", "lucir"),
         ("icarl", "podnet"))  # fmt: skip
"""Pairs of methods; in the literature, the second is ahead."""
_COMPARISON = Record({"runs": Each(ANY_TABLE, 1), "provenance": ANY_TABLE}, rest=Anything())
_ROW = ("method", "phases", "seeds", "average_accuracy", "last_accuracy", "base_accuracy", "new_accuracy", "seconds",
        "stored_bytes", "stored_samples", "trained_parameters", "peak_memory_bytes", "config")  # fmt: skip


def read_networks(path: Path) -> dict[str, Any]:
    """Read the rows of ``comparison.json`` and their provenance."""
    comparison = read_json(path, _COMPARISON)
    rows = [{name: run.get(name) for name in _ROW} for run in comparison["runs"]]
    return {"rows": rows, "provenance": comparison["provenance"]}


def describe_networks(summary: Summary) -> list[Block]:
    """Report by K: the budget, a table with the paper's rows, what is ahead of DS-AL at what cost, what was not run."""
    blocks: list[Block] = []
    rows: Sequence[Mapping[str, Any]] = summary["rows"]
    origin = summary["provenance"]
    for phases in dict.fromkeys(row["phases"] for row in rows):
        here = sorted(
            (row for row in rows if row["phases"] == phases), key=lambda row: -float(row["average_accuracy"]["mean"])
        )
        named = {row["method"]: row for row in here}
        blocks += [
            f"**K = {phases}.** {_budget(here, origin)}",
            _table(here, phases, origin["image_dataset"] or ""),
            *_ahead(named),
            _order(named),
            _left_out(named),
        ]
    peak = max((row["peak_memory_bytes"], row["method"]) for row in rows)
    blocks.append(
        f"The peak memory of a process is {peak[0] / 1e6:.0f} MB ({peak[1]}), including the data set, whose images of "
        "all phases are one array of bytes. A method receives those of one phase, and keeps its exemplars; only "
        "`joint-network` keeps all images."
    )
    blocks.append(
        f"dsal {origin['dsal']}, commit {(origin['commit'] or 'unknown')[:12]}, torch {origin['torch']}, "
        f"{origin['cpu']}, {origin['threads']} thread(s). Started {origin['started']}."
    )
    return blocks


def _is_network(row: Mapping[str, Any]) -> bool:
    return METHODS.get(row["method"]).inputs == "images"


def _budget(rows: Sequence[Mapping[str, Any]], origin: Mapping[str, Any]) -> str:
    """Describe the budget of methods that train a network."""
    trained = [row["config"] for row in rows if _is_network(row)]
    size = origin.get("backbone", {}).get("size")
    same = {name for name in ("epochs", "adapt_epochs") if len({config[name] for config in trained}) == 1}
    words = [f"images of {size} pixels" if size else "images of their original size"]
    if trained and "epochs" in same:
        words.append(f"{_epochs(trained[0]['epochs'])} per phase in every stage of a method")
    if trained and "adapt_epochs" in same:
        words.append(f"{_epochs(trained[0]['adapt_epochs'])} of phase 0 if a head does not fit the given network")
    seeds = ", ".join(str(seed) for seed in rows[0]["seeds"])
    weights = Path(str(rows[0]["config"].get("weights", "no weights"))).name
    return f"Budget: {'; '.join(words)}. All start from {weights}; seed {seeds}; class order " + (
        f"{rows[0]['config']['class_order']}. Options of every run are in its configuration."
    )


def _epochs(count: int) -> str:
    return "1 epoch" if count == 1 else f"{count} epochs"


def _paper(method: str, phases: int, dataset: str) -> PaperResult | None:
    return nearest_result(paper_results(dataset, phases, PAPER.get(method, method)), "resnet32")


def _table(rows: Sequence[Mapping[str, Any]], phases: int, dataset: str) -> Table:
    reference = next((row for row in rows if row["method"] == "ds-al"), None)
    heads = ("ours", "average", "last", "base", "new", "minus DS-AL", "paper: average", "paper: last", "seconds",
             "stored MB", "images kept", "trained weights", "peak MB")  # fmt: skip
    cells = []
    for row in rows:
        paper = _paper(row["method"], phases, dataset)
        behind = "-" if reference is None else signed(_mean(row, "average") - _mean(reference, "average"))
        cells.append(
            (
                row["method"],
                *(
                    "-" if row[f"{name}_accuracy"] is None else shown(row[f"{name}_accuracy"])
                    for name in ("average", "last", "base", "new")
                ),
                behind,
                *(_figure(paper, name) for name in ("average", "last")),
                f"{row['seconds']:.0f}",
                f"{row['stored_bytes'] / 1e6:.2f}",
                *("-" if row[name] is None else f"{row[name]:,}" for name in ("stored_samples", "trained_parameters")),
                f"{row['peak_memory_bytes'] / 1e6:.0f}",
            )
        )
    return Table(heads, tuple(cells))


def _figure(paper: PaperResult | None, name: str) -> str:
    figure = None if paper is None else getattr(paper, name)
    if paper is None or figure is None:
        return "-"
    return f"{figure.mean:.2f}" if paper.backbone == "resnet32" else f"({figure.mean:.2f})"


def _mean(row: Mapping[str, Any], name: str) -> float:
    return float(row[f"{name}_accuracy"]["mean"])


def _ahead(named: Mapping[str, Mapping[str, Any]]) -> list[Block]:
    """Report which methods are ahead of DS-AL, by how much and at what cost."""
    if "ds-al" not in named:
        return []
    ours, parts = named["ds-al"], []
    for method, row in named.items():
        gains = [_mean(row, name) - _mean(ours, name) for name in ("average", "last")]
        if method != "ds-al" and max(gains) > 0:
            kept = "no images" if not row["stored_samples"] else f"{row['stored_samples']:,} images"
            parts.append(
                f"{method} by {signed(gains[0])} on average and {signed(gains[1])} at the end ({row['seconds']:.0f} s, "
                f"{row['stored_bytes'] / 1e6:.1f} MB and {kept} kept)"
            )
    cost = f"DS-AL itself: {ours['seconds']:.0f} s of learning, {ours['stored_bytes'] / 1e6:.1f} MB, no images kept."
    if not parts:
        return [
            "No method is ahead of DS-AL at this budget, neither on average nor at the end. DS-AL and ACIL read other "
            f"features than the rest: all blocks of the network, in several views. {cost}"
        ]
    return [f"Ahead of DS-AL, on average or at the end: {'; '.join(parts)}. {cost}"]


def _order(named: Mapping[str, Mapping[str, Any]]) -> str:
    """Report whether the methods are in the order of the literature."""
    known = [pair for pair in ORDER if set(pair) <= set(named)]
    missing = sorted({name for pair in ORDER for name in pair} - set(named))
    wrong = [
        f"{low} {_mean(named[low], 'average'):.2f} against {high} {_mean(named[high], 'average'):.2f}"
        for low, high in known
        if _mean(named[low], "average") >= _mean(named[high], "average")
    ]
    text = "The literature's order is fine-tuning < EWC, LwF < iCaRL < LUCIR, PODNet, by average accuracy. "
    if not known:
        return text + "Too few of these methods were run to check it."
    text += f"Of its {len(known)} pairs that were run, {len(known) - len(wrong)} are in this order"
    text += f"; the others: {'; '.join(wrong)}." if wrong else "."
    return text + (f" Not run: {', '.join(missing)}." if missing else "")


def _left_out(named: Mapping[str, Mapping[str, Any]]) -> str:
    missing = [name for name in METHODS.names() if METHODS.get(name).inputs == "images" and name not in named]
    return f"Not run at this K: {', '.join(missing)}." if missing else "Every method that trains a network was run."
