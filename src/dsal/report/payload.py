"""The data of the page's script: the points of the curves and the confusion counts, as JSON."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from dsal.report.charts import Chart, Facet
from dsal.report.confusion_chart import ConfusionChart
from dsal.report.run_pages import Run
from dsal.report.styles import style


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
