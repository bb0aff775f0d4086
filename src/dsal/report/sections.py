"""The page's sections, each a function from runs to markup."""

from __future__ import annotations

from collections.abc import Sequence

from dsal.report.charts import Chart
from dsal.report.confusion import Confusion
from dsal.report.facets import Facet
from dsal.report.markup import Markup, el, join
from dsal.report.paper import comparable_results, own_result, own_results, value_of
from dsal.report.runs import Run, Value
from dsal.report.svg import draw_chart, draw_paper_swatch, draw_swatch
from dsal.report.tables import comparison_table, cost_table, paper_table, phase_table, signed, summary_table

DEFINITIONS = (
    ("Accuracy at phase k", "Top-1, on the test images of all classes seen up to phase k, which all compete."),
    ("Average", "The mean of the accuracies at all phases tested, phase 0 included."),
    ("Last", "The accuracy at phase K."),
    ("Base, new at end", "At phase K: the accuracy on the classes of phase 0, and on those of all later phases."),
    (
        "Forgetting",
        "For the classes of each phase but the last: their best accuracy before phase K minus that at phase K. The mean"
        " over phases; lower is better. Part of it is unavoidable, since classes that arrive later compete.",
    ),
    (
        "Backward transfer",
        "For the classes of each phase but the last: their accuracy at phase K minus that when they were learned. The"
        " mean over phases; higher is better.",
    ),
)

ORIGINS = {
    "generic": "the backbone is a generic pretrained one; it may have seen classes that count as new here.",
    "other data set": "the backbone was trained on another data set.",
    "unknown": "it is not known which classes the backbone was trained on.",
}


def summary(runs: Sequence[Run]) -> Markup:
    """Headline numbers of the first run, a table of all, and what the words mean."""
    first = runs[0]
    known = own_result(first)
    tiles = (
        _tile("Average accuracy", first.average, value_of(known.average) if known else None),
        _tile("Last accuracy", first.last, value_of(known.last) if known else None),
        _tile("Base, at the end", first.base, None),
        _tile("New, at the end", first.new, None),
        _tile("Forgetting", first.forgetting, None),
    )
    notes = [el("p", note, class_="note") for note in _notes(runs)]
    paper = tuple(dict.fromkeys(result for run in runs for result in comparable_results(run)))
    terms = join(*(el("div", el("dt", term), el("dd", text)) for term, text in DEFINITIONS))
    return _section(
        "summary",
        "Summary",
        el("p", "Headline numbers of ", el("b", first.label), ":", class_="lead") if len(runs) > 1 else None,
        el("ul", *tiles, class_="tiles"),
        summary_table(runs, own_results(runs)),
        *notes,
        el("details", el("summary", "What the numbers mean"), el("dl", terms)),
        el("details", el("summary", "What the paper reports in these settings"), paper_table(paper)) if paper else None,
    )


def charts(identifier: str, title: str, drawn: Sequence[tuple[Facet, Chart]]) -> Markup:
    """A section of charts, one a data set."""
    return _section(identifier, title, *(_figure(facet, chart) for facet, chart in drawn))


def confusion(runs: Sequence[Run], matrices: Sequence[Confusion | None]) -> Markup:
    """The confusion matrix with its controls; the page's script draws it."""
    kept = [(number, run) for number, run in enumerate(runs) if matrices[number] is not None]
    if not kept:
        return _section("confusion", "Confusion", el("p", "These runs kept no confusion counts.", class_="note"))
    options = (el("option", run.label, value=number) for number, run in kept)
    return _section(
        "confusion",
        "Confusion",
        el(
            "div",
            el("label", el("span", "Run"), el("select", *options, id="matrix-run")),
            el(
                "label",
                el("span", "Phase ", el("output", id="matrix-phase-name", for_="matrix-phase")),
                el("input", id="matrix-phase", type="range", min=0, max=0, value=0, step=1),
            ),
            class_="controls",
        ),
        el(
            "div",
            el(
                "figure",
                el("div", "true class", class_="axis-y", aria_hidden="true"),
                el(
                    "div",
                    el("canvas", id="matrix", tabindex=0, role="img", aria_describedby="matrix-readout"),
                    el("div", id="matrix-marks", aria_hidden="true"),
                    class_="matrix",
                ),
                el("div", "predicted class, in order of arrival", class_="axis-x", aria_hidden="true"),
                el("div", class_="ramp", aria_hidden="true"),
                el("div", el("span", "0"), el("span", "25 %"), el("span", "100 % of the row"), class_="scale"),
                el("div", id="matrix-readout", class_="matrix-readout", role="status"),
                el("figcaption", id="matrix-caption"),
            ),
            el(
                "div",
                el("h3", "Most confused pairs"),
                el("table", el("caption", "Most confused pairs", class_="hidden"), id="pairs", class_="pairs"),
            ),
            class_="confusion",
        ),
        el("noscript", el("p", "Drawn by JavaScript. Without it, see figures/confusion.png.", class_="note")),
    )


def cost(runs: Sequence[Run], drawn: Sequence[tuple[Facet, Chart]]) -> Markup:
    """Timing curves, totals and memory."""
    return _section("cost", "Time and memory", *(_figure(facet, chart) for facet, chart in drawn), cost_table(runs))


def numbers(runs: Sequence[Run]) -> Markup:
    """All points of all curves, folded away."""
    count = sum(len(run.phases) for run in runs)
    return _section(
        "numbers", "All numbers", el("details", el("summary", f"Table of all {count} points"), phase_table(runs))
    )


def configuration(runs: Sequence[Run]) -> Markup:
    """The effective configuration of each run."""
    switch = el("label", el("input", type="checkbox", id="only-differences"), " only what differs", class_="switch")
    table = comparison_table("Effective configuration", runs, [run.config for run in runs])
    return _section("configuration", "Configuration", switch if len(runs) > 1 else None, table)


def provenance(runs: Sequence[Run]) -> Markup:
    """Versions, hardware, commit and hashes."""
    table = comparison_table("Where the numbers come from", runs, [run.provenance for run in runs])
    return _section("provenance", "Provenance", table)


def _figure(facet: Facet, chart: Chart) -> Markup:
    """One chart with its legend of switches, its read-out and its caption."""
    switches = [
        el("button", draw_swatch(number), run.label, type="button", aria_pressed="true", data_toggle=number)
        for number, run in facet.runs
    ]
    if any(panel.references for panel in chart.panels):
        switches.append(
            el("button", draw_paper_swatch(), "the paper", type="button", aria_pressed="true", data_toggle="paper")
        )
    files = join("Files: ", el("code", f"figures/{chart.key}.png"), ", ", el("code", ".pdf"))
    return el(
        "figure",
        el("h3", facet.title) if facet.title else None,
        el("div", *switches, class_="legend", role="group", aria_label="Show or hide"),
        el("div", draw_chart(chart), el("div", class_="readout", role="status", hidden=True), class_="chart"),
        el("figcaption", chart.caption, " ", el("span", files, class_="files")),
        id=f"figure-{chart.key}",
    )


def _tile(title: str, value: Value | None, paper: Value | None) -> Markup | None:
    if value is None:
        return None
    std = None if value.std is None else el("span", f"± {value.std:.2f}", class_="std")
    against = None
    if paper is not None:
        against = el(
            "div",
            el("span", "paper", class_="tag"),
            f" {paper.mean:.2f} ({signed(f'{value.mean - paper.mean:+.2f}')})",
            class_="against",
        )
    return el("li", el("div", title, class_="name"), el("div", f"{value.mean:.2f}", std, class_="big"), against)


def _notes(runs: Sequence[Run]) -> list[str]:
    """What a reader must know before comparing: what seeds vary, and backbones that saw unknown classes."""
    varied = {run.seed_varies for run in runs if len(run.seeds) > 1}
    notes = [f"A seed varies {', and elsewhere '.join(sorted(varied))}."] if varied else []
    backbones = dict.fromkeys(result.backbone_title for result in own_results(runs))
    if backbones:
        notes.append(f"Marked as the paper's: Table 1 of Zhuang et al., AAAI 2024, with {' and '.join(backbones)}.")
    for run in runs:
        origin = run.provenance.get("backbone_trained_on", "unknown")
        if origin != "base classes":
            notes.append(f"{run.label}: {ORIGINS.get(origin, origin)}")
    return notes


def _section(identifier: str, title: str, *children: Markup | None) -> Markup:
    heading = f"{identifier}-title"
    return el("section", el("h2", title, id=heading), *children, id=identifier, aria_labelledby=heading)
