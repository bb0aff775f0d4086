"""Print a run or a comparison to stdout: tables with the paper's numbers, or the document itself."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from rich.box import SIMPLE_HEAD
from rich.console import Console
from rich.table import Table
from rich.text import Text

from dsal.cli.say import printable, say
from dsal.protocol.metrics import MeanStd
from dsal.protocol.paper_numbers import PaperResult, comparable_results


def show_results(document: dict[str, Any], *, as_json: bool) -> None:
    """Print the results as a table or as JSON."""
    if as_json:
        say(json.dumps(document, indent=1))
        return
    print_table(results_table(document))


class _Plain(Console):
    """Names may come from files: no markup, and no control character, in any text of a table."""

    def render_str(self, text: str, **options: Any) -> Text:
        return super().render_str(printable(text), **{**options, "markup": False})


def print_table(table: Table) -> None:
    """Print a table to stdout; in a file or pipe, lines are not wrapped."""
    console = _Plain(highlight=False)
    if not console.is_terminal:
        console.width = 160
    console.print(table)


def results_table(document: dict[str, Any]) -> Table:
    """Build a table with the run in one row, and below it what the paper reports for its data set and K."""
    config, seeds = document["config"], document["seeds"]
    table = _empty_table(config, f", {len(seeds)} seed{'s' * (len(seeds) > 1)}")
    seconds = sum(phase["seconds"]["mean"] for phase in document["phases"])
    table.add_row(document["method"], *(spread_text(document[name]) for name in _ACCURACIES), f"{seconds:.1f}")
    published = paper_rows(document)
    for result in published:
        table.add_row(f"{result.method} *", figure_text(result.average), figure_text(result.last), style="dim")
    note = f"\n* the paper's, with a {published[0].backbone_title}" if published else ""
    table.caption = f"percent; average over {averaged(config)}; base and new after phase K{note}"
    return table


def _empty_table(config: dict[str, Any], runs: str, *more: str) -> Table:
    """Return a table for runs of this configuration; the columns ``more`` come last."""
    table = Table(
        *("", "average", "last", "base", "new", "forgetting", "seconds", *more),
        title=f"{Path(config['dataset']).name}, K = {config['phases']}{runs}",
        box=SIMPLE_HEAD,
        padding=(0, 1, 0, 0),  # with deviations it just fits 80 columns
        pad_edge=False,
    )
    for column in table.columns[1:]:
        column.justify = "right"
    return table


def paper_rows(document: dict[str, Any]) -> list[PaperResult]:
    """Return the paper's DS-AL and ACIL if it has them in the setting of this run, with a backbone of this kind."""
    wide = str(document["provenance"]["backbone"].get("architecture", "")).startswith("resnet18")
    return [r for r in comparable_results(document, ("ds-al", "acil")) if (r.backbone == "resnet18") == wide]


def averaged(config: dict[str, Any]) -> str:
    """Describe what the average is over."""
    return f"phases 0..K, one in {config['eval_every']}" if "eval_every" in config else "phases 0..K"


def spread_text(values: dict[str, Any] | None) -> str:
    """Format a quantity over seeds, with its deviation if there are several."""
    return figure_text(None if values is None else MeanStd.of(values))


def figure_text(figure: MeanStd | None) -> str:
    """Format a mean and its deviation; tightly, for 80 columns."""
    return "-" if figure is None else figure.text("±")


_COUNTS = {"kept samples": "stored_samples", "trained weights": "trained_parameters"}
_READOUTS = {"nme": "nearest mean of exemplars", "cnn": "head"}
_ACCURACIES = ("average_accuracy", "last_accuracy", "base_accuracy", "new_accuracy", "forgetting")


def show_comparison(comparison: dict[str, Any], documents: Sequence[dict[str, Any]], *, as_json: bool) -> None:
    """Print the comparison as tables or as JSON; ``documents`` are the results of its runs."""
    if as_json:
        say(json.dumps(comparison, indent=1))
        return
    for k in dict.fromkeys(run["phases"] for run in comparison["runs"]):
        runs = [run for run in comparison["runs"] if run["phases"] == k]
        print_table(comparison_table(runs, published(documents, k)))


def comparison_table(runs: Sequence[dict[str, Any]], paper: Sequence[PaperResult]) -> Table:
    """Build a table of runs at the same K, best average first, and below them what the paper reports."""
    config = runs[0]["config"]
    counts = {title: name for title, name in _COUNTS.items() if any(run.get(name) is not None for run in runs)}
    table = _empty_table(config, "", "peak MB", "stored MB", *counts, "exemplar-free")
    table.caption = (
        f"percent; average over {averaged(config)}; base and new after phase K; seconds of learning, one seed"
    )
    for run in sorted(runs, key=lambda run: -run["average_accuracy"]["mean"]):
        table.add_row(
            run["method"],
            *(spread_text(run[name]) for name in _ACCURACIES),
            f"{run['seconds']:.1f}",
            f"{run['peak_memory_bytes'] / 1e6:.0f}",
            f"{run['stored_bytes'] / 1e6:.2f}",
            *("-" if run.get(name) is None else f"{run[name]:,}" for name in counts.values()),
            "yes" if run["exemplar_free"] else "no",
        )
        for readout, values in run.get("other_readouts", {}).items():
            name = _READOUTS.get(readout, readout)
            table.add_row(f"  by {name}", *(spread_text(values[each]) for each in _ACCURACIES[:-1]), style="dim")
    for result in paper:
        name = f"{result.method}, paper ({result.backbone_title})"
        table.add_row(name, figure_text(result.average), figure_text(result.last), style="dim")
    return table


def published(documents: Sequence[dict[str, Any]], k: int) -> tuple[PaperResult, ...]:
    """Return what the paper reports at K for the compared methods."""
    first = next(document for document in documents if document["config"]["phases"] == k)
    return comparable_results(first, {document["method"] for document in documents})
