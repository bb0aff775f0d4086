"""The report: one self-contained HTML page, and its figures as files."""

from __future__ import annotations

import base64
import hashlib
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from dsal.files.atomic import write_text
from dsal.report.charts import Chart, Facet, facets_of
from dsal.report.confusion_chart import ConfusionChart, confusion_of
from dsal.report.figures import draw_chart, draw_confusion, save_figure, style
from dsal.report.run_pages import Run, dataset_title, method_title, paper_results_of, read_runs, training_histories
from dsal.report.templates import asset, render


def payload(runs: Sequence[Run], matrices: Sequence[ConfusionChart | None], facets: Sequence[Facet]) -> dict[str, Any]:
    """Return the data of the page's script: the curves' points and the confusion counts."""
    names = list(dict.fromkeys(run.class_names for run in runs))  # runs on one data set share one list
    return {
        "charts": {chart.key: _chart_data(chart) for facet in facets for chart in facet.charts},
        "names": names,
        "matrices": {
            str(number): _matrix_data(run, matrix, names.index(run.class_names))
            for number, (run, matrix) in enumerate(zip(runs, matrices, strict=True))
            if matrix is not None
        },
    }


def _chart_data(chart: Chart) -> dict[str, Any]:
    panels = [
        [
            {
                "run": line.run,
                "label": line.label,
                "color": style(line.run).color,
                "points": [
                    [x, phase, round(y, 4), None if line.std is None else round(line.std[i], 4)]
                    for i, (x, phase, y) in enumerate(zip(line.x, line.phases, line.y, strict=True))
                ],
            }
            for line in panel.lines
        ]
        for panel in chart.panels
    ]
    return {"unit": chart.unit, "panels": panels}


def _matrix_data(run: Run, matrix: ConfusionChart, names: int) -> dict[str, Any]:
    packed, width = matrix.packed()
    return {
        "label": run.label,
        "names": names,
        "classes": run.classes,
        "base": run.phases[0].classes_seen,
        "increments": run.increments,
        "seeds": len(run.seeds),
        "group": matrix.group,
        "phases": matrix.phases,
        "seen": matrix.seen,
        "accuracy": [round(phase.accuracy.mean, 2) for phase in run.phases if phase.number in matrix.phases],
        "pairs": [[[p.true, p.predicted, p.count, p.total] for p in pairs] for pairs in matrix.pairs],
        "width": width,
        "counts": packed,
    }


CONTENTS = "Summary", "Accuracy", "Stability", "Confusion", "Cost", "Numbers", "Configuration", "Provenance"
ORIGINS = {
    "generic": "the backbone is a generic pretrained one; it may have seen classes that count as new here.",
    "other data set": "the backbone was trained on another data set.",
    "unknown": "it is not known which classes the backbone was trained on.",
}
_NAMED = 4  # maximum number of methods named in the title; more are counted


def build_report(run_dirs: Sequence[Path], out: Path, documents: Sequence[Mapping[str, Any]] | None = None) -> Path:
    """Write ``out/report.html`` and ``out/figures/*.png, *.pdf`` from one or more run directories.

    Args:
        run_dirs: directories with ``results.json`` and, for the confusion matrix, ``confusion.npz``.
        out: directory to write to; created if missing.
        documents: their results, if the caller has them already; read from the directories by default.

    Returns:
        The path of the page. It loads nothing from elsewhere and can be sent as a single file.

    Raises:
        InputError: no directory was given, or one holds no results.
        FileFormatError: a file is truncated or corrupt, foreign, or written by a later version.
    """
    runs = read_runs(run_dirs, documents)
    matrices = [confusion_of(run) for run in runs]
    facets = facets_of(runs)
    folder = Path(out) / "figures"
    folder.mkdir(parents=True, exist_ok=True)
    for facet in facets:
        for chart in facet.charts:
            save_figure(draw_chart(chart), folder, chart.key)
    drawn = [(run, matrix) for run, matrix in zip(runs, matrices, strict=True) if matrix is not None]
    if drawn:
        save_figure(draw_confusion(drawn), folder, "confusion")
    script = asset("page.js")
    digest = base64.b64encode(hashlib.sha256(script.encode()).digest()).decode("ascii")
    page = render(
        "report.html",
        title=_title(runs),
        subtitle=_subtitle(runs),
        contents=[(name.lower(), name) for name in CONTENTS],
        policy=f"script-src 'sha256-{digest}'",
        script=script,
        data=payload(runs, matrices, facets),
        runs=runs,
        facets=facets,
        known=runs[0].paper_result,
        own=paper_results_of(runs),
        paper=tuple(dict.fromkeys(result for run in runs for result in run.paper)),
        notes=_notes(runs),
        histories=training_histories(runs),
    )
    path = Path(out) / "report.html"
    write_text(path, page)
    return path


def _title(runs: Sequence[Run]) -> str:
    methods = dict.fromkeys(method_title(run.method) for run in runs)
    what = _listed(methods) if len(methods) <= _NAMED else f"{len(methods)} methods"
    return f"{what} on {_listed(dataset_title(run.family) for run in runs)}"


def _subtitle(runs: Sequence[Run]) -> str:
    count = f"{len(runs)} runs" if len(runs) > 1 else "1 run"
    base = _listed(str(run.phases[0].classes_seen) for run in runs)
    increments = _listed(str(run.increments) for run in runs)
    classes = _listed(str(run.classes) for run in runs)
    return f"{count}: {base} base classes, then K = {increments} phases up to {classes} classes"


def _notes(runs: Sequence[Run]) -> list[str]:
    """Return what a reader must know before comparing: what seeds vary, and backbones that saw unknown classes."""
    varied = {run.seed_varies for run in runs if len(run.seeds) > 1}
    notes = [f"A seed varies {', and elsewhere '.join(sorted(varied))}."] if varied else []
    backbones = dict.fromkeys(result.backbone_title for result in paper_results_of(runs))
    if backbones:
        notes.append(f"Marked as the paper's: Table 1 of Zhuang et al., AAAI 2024, with {' and '.join(backbones)}.")
    for run in runs:
        origin = run.provenance.get("backbone_trained_on", "unknown")
        if origin != "base classes":
            notes.append(f"{run.label}: {ORIGINS.get(origin, origin)}")
    return notes


def _listed(words: Iterable[str]) -> str:
    """Join the distinct words in order, as in a sentence."""
    unique = list(dict.fromkeys(words))
    return " and ".join([", ".join(unique[:-1]), unique[-1]]) if len(unique) > 1 else unique[0]
