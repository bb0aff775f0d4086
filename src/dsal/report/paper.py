"""The paper's own numbers for a run: same data set, same K, same protocol."""

from __future__ import annotations

from collections.abc import Iterable

from dsal.protocol.paper_numbers import Figure, PaperResult, is_the_papers_setting, paper_results
from dsal.report.run_pages import Run, Value


def comparable_results(run: Run) -> tuple[PaperResult, ...]:
    """Return all methods of the paper in the run's setting; empty if the paper has no such setting."""
    if not is_the_papers_setting(run.config, run.phases[0].classes_seen, run.classes):
        return ()
    return paper_results(run.family, run.increments)


def own_result(run: Run) -> PaperResult | None:
    """Return the paper's result for the run's method; of two backbones the run's own, else the one listed first."""
    found = [result for result in comparable_results(run) if result.method.lower() == run.method]
    same = [result for result in found if run.architecture.startswith(result.backbone)]
    return next(iter(same or found), None)


def own_results(runs: Iterable[Run]) -> tuple[PaperResult, ...]:
    """Return the paper's results for the runs' methods, each once."""
    return tuple(dict.fromkeys(result for run in runs if (result := own_result(run)) is not None))


def value_of(figure: Figure | None) -> Value | None:
    """Convert a published number to the report's :class:`Value`."""
    return None if figure is None else Value(figure.value, figure.std)
