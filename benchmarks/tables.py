"""Write committed results into the pages that show them, such as docs/speed.md, between two marks.

python -m benchmarks.tables
"""

from __future__ import annotations

import io
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

from benchmarks.attack.table import attack_section
from benchmarks.paper_recipe import RESULTS as PAPER_RECIPE
from benchmarks.paper_recipe import table as paper_table
from benchmarks.serve_table import serve_table
from rich.box import MARKDOWN
from rich.console import Console

from benchmarks import compute_page
from dsal.cli.table import comparison_table
from dsal.protocol.paper_numbers import paper_results

ROOT = Path(__file__).parents[1]
RESULTS = ROOT / "benchmarks" / "results"
ORDER = ("recursion", "accuracy", "phases", "width", "refit", "online")
START, END = "<!-- results: python -m benchmarks.tables -->\n", "<!-- end of results -->"


def filled(page: str, results: str) -> str:
    """Return the page with these results between its marks."""
    before, _, rest = page.partition(START)
    _, _, after = rest.partition(END)
    return f"{before}{START}\n{results}\n{END}{after}"


def speed(folder: Path) -> str:
    """Return the tables and pictures of the benchmarks that have results."""
    parts = []
    for name in ORDER:
        table = folder / f"{name}.md"
        if table.is_file():
            title, body = table.read_text(encoding="utf-8").split("\n", 1)
            picture = f"![{title}](../benchmarks/results/speed/{name}.png)"
            parts.append(f"### {name}\n\n{title}.\n{body}\n{picture}\n")
    return "\n".join(parts)


def comparison(*paths: Path) -> str:
    """Return tables of comparisons, one per data set, kind of features and K, and what tuning chose.

    Files with the same features share their tables.
    """
    documents = [json.loads(path.read_text(encoding="utf-8")) for path in paths]
    groups: dict[tuple[str, str, int], list[dict[str, Any]]] = {}
    for document in documents:
        for run in document["runs"]:
            groups.setdefault((*_features(run), run["phases"]), []).append(run)
    parts = []
    for (dataset, features, k), rows in groups.items():
        names = {run["method"] for run in rows}
        published = paper_results(dataset.removesuffix("-features"), k)
        beside = [result for result in published if result.method.lower() in names]
        parts.append(f"### {dataset}, {features}, K = {k}\n\n{_markdown(comparison_table(rows, beside))}")
    tunings: dict[str, dict[str, Any]] = {}
    for document in documents:
        tunings.setdefault(_features(document["runs"][0])[1], {}).update(document["tuning"])
    head = "| method | chosen | held-out | others tried |\n|---|---|---:|---|\n"
    for features, tuning in tunings.items():
        lines = "".join(_tuned(name, tuning[name]) for name in sorted(tuning))
        parts.append(f"### What tuning chose, {features}\n\n{head}{lines}")
    return "\n".join([*parts, *map(_origin, documents)])


def _features(run: dict[str, Any]) -> tuple[str, str]:
    """Return a run's data set and its kind of features, by its present name."""
    dataset, kind = run["config"]["dataset"], run["config"]["features"]
    return dataset, "stages" if kind == "all" else kind


def _origin(document: dict[str, Any]) -> str:
    origin, (dataset, features) = document["provenance"], _features(document["runs"][0])
    return (
        f"{dataset}, {features}: dsal {origin['dsal']}, commit {origin['commit'][:12]}, torch {origin['torch']}, "
        f"NumPy {origin['numpy']}, SciPy {origin['scipy']}; {origin['cpu']}, {origin['threads']} threads; begun "
        f"{origin['started']}.\n"
    )


def _tuned(name: str, found: dict[str, Any]) -> str:
    chosen = found["chosen"]
    accuracy = next(trial["accuracy"] for trial in found["trials"] if trial["options"] == chosen)
    others = (
        f"{_listed(trial['options'])}: {trial['accuracy']:.2f}"
        for trial in found["trials"]
        if trial["options"] != chosen
    )
    return f"| {name} | {_listed(chosen)} | {accuracy:.2f} | {'; '.join(others)} |\n"


def _listed(options: dict[str, Any]) -> str:
    return ", ".join(f"{name} {value}" for name, value in options.items()) or "nothing to choose"


def _markdown(table: Any) -> str:
    """Return a console table as Markdown."""
    table.box, table.title, table.caption, table.pad_edge, table.padding = MARKDOWN, None, None, True, (0, 1)
    text = io.StringIO()
    Console(file=text, width=400, highlight=False).print(table)
    return "".join(f"{line.strip()}\n" for line in text.getvalue().splitlines() if line.strip())


PAGES: dict[str, Callable[[], str]] = {
    "speed": lambda: speed(RESULTS / "speed"),
    "compute": lambda: compute_page.page(compute_page.read()),
    "start/paper": lambda: paper_table(json.loads(PAPER_RECIPE.read_text(encoding="utf-8"))),
    "serve": lambda: (
        f"{serve_table(RESULTS / 'serve.json')}\n{attack_section(RESULTS / 'attack.json', RESULTS / 'soak.json')}"
    ),
    "comparison": lambda: comparison(
        *(RESULTS / f"comparison{part}.json" for part in ("", "-stages", "-omniglot")),
    ),
}

if __name__ == "__main__":
    for name, results in PAGES.items():
        page = ROOT / "docs" / f"{name}.md"
        page.write_text(filled(page.read_text(encoding="utf-8"), results()), encoding="utf-8")
