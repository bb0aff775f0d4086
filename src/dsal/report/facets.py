"""Charts grouped by data set: runs on one data set share a set of charts."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

from dsal.report.charts import Chart, Numbered, accuracy_chart, stability_chart, timing_chart
from dsal.report.run_pages import Run, dataset_title


@dataclass(frozen=True)
class Facet:
    """The charts of all runs on one data set; ``title`` is empty if the page has only one."""

    title: str
    runs: Numbered
    accuracy: Chart
    stability: Chart
    timing: Chart

    @property
    def charts(self) -> tuple[Chart, ...]:
        return (self.accuracy, self.stability, self.timing)


def facets_of(runs: Sequence[Run]) -> tuple[Facet, ...]:
    """Group the runs by data set; file names include the data set if there are several."""
    groups: dict[str, list[tuple[int, Run]]] = {}
    for number, run in enumerate(runs):
        groups.setdefault(run.family, []).append((number, run))
    if len(groups) == 1:
        return (_facet("", "", next(iter(groups.values()))),)
    slugs = [re.sub("[^a-z0-9]+", "-", family.lower()).strip("-") for family in groups]
    if len(set(slugs)) < len(slugs) or not all(slugs):
        slugs = [str(number) for number in range(1, len(slugs) + 1)]
    return tuple(
        _facet(dataset_title(family), f"-{slug}", groups[family]) for family, slug in zip(groups, slugs, strict=True)
    )


def _facet(title: str, suffix: str, runs: Numbered) -> Facet:
    charts = (accuracy_chart(runs, suffix), stability_chart(runs, suffix), timing_chart(runs, suffix))
    return Facet(title, runs, *charts)
