"""The page's tables: summary, cost, every phase, configuration and provenance."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from dsal.evaluation.paper_numbers import PaperResult
from dsal.report.markup import Child, Markup, el
from dsal.report.paper import value_of
from dsal.report.runs import Run, Value, dataset_title
from dsal.report.svg import draw_paper_swatch, draw_swatch

MISSING = "\N{EN DASH}"


def summary_table(runs: Sequence[Run], paper: Sequence[PaperResult]) -> Markup:
    """One row a run, the paper's rows marked as such below."""
    rows: list[tuple[Child, ...]] = [
        (
            run_name(number, run),
            *(value_cell(v) for v in (run.average, run.last, run.base, run.new, run.forgetting, run.backward_transfer)),
            el("td", len(run.seeds), class_="num", data_sort=len(run.seeds)),
        )
        for number, run in enumerate(runs)
    ]
    rows += [
        (
            _paper_name(f"{result.method}, K = {result.phases}"),
            *(value_cell(v) for v in (value_of(result.average), value_of(result.last), None, None, None, None, None)),
        )
        for result in paper
    ]
    heads = ("Run", "Average", "Last", "Base at end", "New at end", "Forgetting", "Backward transfer", "Seeds")
    return _sortable("Accuracies in percent, mean ± standard deviation over seeds", heads, rows, text=1)


def paper_table(results: Sequence[PaperResult]) -> Markup:
    """What the paper's Table 1 says about the runs' settings, all methods."""
    rows = [
        (
            result.method + (", run by the paper's authors" if result.reproduced else ""),
            "yes" if result.exemplar_free else "no",
            f"{dataset_title(result.dataset)}, {result.backbone_title}",
            el("td", result.phases, class_="num", data_sort=result.phases),
            value_cell(value_of(result.average)),
            value_cell(value_of(result.last)),
        )
        for result in results
    ]
    heads = ("Method", "Exemplar-free", "Data set", "K", "Average", "Last")
    return _sortable("Table 1 of the paper, in percent; replay methods are cited there", heads, rows, text=3)


def cost_table(runs: Sequence[Run]) -> Markup:
    """Seconds and bytes, with bars that compare the runs."""
    totals = [sum(phase.learning.mean for phase in run.phases) for run in runs]
    stored, peak = [run.stored_bytes for run in runs], [run.peak_memory for run in runs]
    rows = []
    for number, run in enumerate(runs):
        later = [phase.learning.mean for phase in run.phases[1:]]
        rows.append(
            (
                run_name(number, run),
                "yes" if run.exemplar_free else "no",
                _number(run.phases[0].learning.mean, "{:.2f} s"),
                _number(sum(later) / len(later), "{:.3f} s") if later else value_cell(None),
                _bar(totals[number], max(totals), f"{totals[number]:.1f} s"),
                _bar(stored[number], max(stored), _bytes(stored[number])),
                _bar(peak[number], max(peak), _bytes(peak[number])),
            )
        )
    heads = ("Run", "Exemplar-free", "Phase 0", "A later phase", "All phases", "Kept between phases", "Peak memory")
    caption = "Learning time of one seed (mean over seeds); what the method keeps; most memory the process held"
    return _sortable(caption, heads, rows, text=2)


def phase_table(runs: Sequence[Run]) -> Markup:
    """Every number that the curves show."""
    rows = [
        (
            run.label,
            *(el("td", n, class_="num", data_sort=n) for n in (phase.number, phase.classes_seen)),
            *(value_cell(value) for value in (phase.accuracy, phase.base, phase.new)),
            *(value_cell(value, "{:.3f}") for value in (phase.learning, phase.testing)),
        )
        for run in runs
        for phase in run.phases
    ]
    heads = ("Run", "Phase", "Classes seen", "Accuracy, %", "Base, %", "New, %", "Learning, s", "Testing, s")
    return _sortable("Every phase of every run", heads, rows, text=1)


def comparison_table(caption: str, runs: Sequence[Run], entries: Sequence[Mapping[str, Any]]) -> Markup:
    """Keys as rows, runs as columns; rows in which runs differ are marked, and what they share stands once."""
    flat = [dict(_flatten(entry)) for entry in entries]
    keys = list(dict.fromkeys(key for entry in flat for key in entry))
    body = []
    for key in keys:
        values = [entry.get(key, MISSING) for entry in flat]
        same = len(set(values)) == 1
        differs = not same and key != "started"  # which no two runs share
        mark = (
            el("span", "≠", class_="differs", title="the runs differ", aria_label="the runs differ")
            if differs
            else None
        )
        cells = [el("td", values[0], colspan=len(values))] if same else [el("td", value) for value in values]
        body.append(el("tr", el("th", key, " ", mark, scope="row"), *cells, class_="diff" if differs else None))
    head = el("tr", el("th", "", scope="col"), *(el("th", run_name(i, run), scope="col") for i, run in enumerate(runs)))
    table = el("table", el("caption", caption), el("thead", head), el("tbody", *body), class_="comparison")
    return _scrolling(caption, table)


def run_name(number: int, run: Run) -> Markup:
    """A run's swatch and label."""
    return el("span", draw_swatch(number), run.label, class_="run-name")


def value_cell(value: Value | None, form: str = "{:.2f}") -> Markup:
    """A number with its deviation, sortable by the mean."""
    if value is None:
        return el("td", MISSING, class_="num missing")
    std = None if value.std is None else el("span", f" ± {form.format(value.std)}", class_="std")
    return el("td", signed(form.format(value.mean)), std, class_="num", data_sort=repr(value.mean))


def signed(number: str) -> str:
    """A number with a true minus sign."""
    return number.replace("-", "\N{MINUS SIGN}")


def readable(value: object) -> str:
    """A configuration value for people; runs of integers are shortened.

    >>> readable([0, 1, 2, 3, 7]), readable(True), readable(None), readable(0.1)
    ('0–3, 7', 'yes', '–', '0.1')
    """
    if value is None or value == [] or value == {}:
        return MISSING
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, (list, tuple)):
        if len(value) > 2 and all(type(item) is int for item in value):
            return _ranges(value)
        return ", ".join(readable(item) for item in value)
    return str(value)


def _paper_name(text: str) -> Markup:
    return el("span", draw_paper_swatch(), el("span", "paper", class_="tag"), text, class_="run-name")


def _ranges(numbers: Sequence[int]) -> str:
    parts: list[list[int]] = []
    for number in numbers:
        if parts and number == parts[-1][1] + 1:
            parts[-1][1] = number
        else:
            parts.append([number, number])
    return ", ".join(str(a) if a == b else f"{a}{', ' if b == a + 1 else MISSING}{b}" for a, b in parts)


def _flatten(entry: Mapping[str, Any], prefix: str = "") -> list[tuple[str, str]]:
    pairs = []
    for key, value in entry.items():
        if isinstance(value, Mapping) and value:
            pairs += _flatten(value, f"{prefix}{key}.")
        else:
            pairs.append((f"{prefix}{key}", readable(value)))
    return pairs


def _sortable(caption: str, heads: Sequence[str], rows: Sequence[Sequence[Child]], text: int) -> Markup:
    """A table whose columns sort at a click; the first ``text`` columns are text, the others numbers."""
    head = [
        el("th", el("button", name, type="button"), scope="col", class_="num" if column >= text else None)
        for column, name in enumerate(heads)
    ]
    body = [
        el("tr", el("th", row[0], scope="row"), *(cell if _is_cell(cell) else el("td", cell) for cell in row[1:]))
        for row in rows
    ]
    table = el("table", el("caption", caption), el("thead", el("tr", *head)), el("tbody", *body), class_="sortable")
    return _scrolling(caption, table)


def _is_cell(child: Child) -> bool:
    return isinstance(child, Markup) and child.startswith("<td")


def _scrolling(caption: str, table: Markup) -> Markup:
    return el("div", table, class_="scroll", role="region", tabindex=0, aria_label=caption)


def _number(value: float, form: str) -> Markup:
    return el("td", form.format(value), class_="num", data_sort=repr(value))


def _bar(value: float, largest: float, text: str) -> Markup:
    share = 100 * value / largest if largest > 0 else 0
    bar = el("span", class_="bar", style=f"width:{share:.1f}%", aria_hidden="true")
    return el("td", el("span", text), el("span", bar, class_="track"), class_="num", data_sort=repr(value))


def _bytes(count: int) -> str:
    """
    >>> _bytes(26_400), _bytes(334_000_000), _bytes(1_070_000_000)
    ('26 kB', '334 MB', '1.07 GB')
    """
    if count >= 1e9:
        return f"{count / 1e9:.2f} GB"
    return f"{count / 1e6:.0f} MB" if count >= 1e6 else f"{count / 1e3:.0f} kB"
