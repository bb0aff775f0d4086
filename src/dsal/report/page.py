"""The report: one self-contained HTML page, and its figures as files."""

from __future__ import annotations

import base64
import hashlib
from collections.abc import Iterable, Sequence
from importlib.resources import files
from pathlib import Path
from string import Template

from dsal import __version__
from dsal.report import sections
from dsal.report.confusion import Confusion, confusion_of
from dsal.report.facets import Facet, facets_of
from dsal.report.figures import draw_chart, draw_confusion, save_figure
from dsal.report.markup import el, join, json_script
from dsal.report.payload import payload
from dsal.report.runs import Run, dataset_title, method_title, read_runs
from dsal.report.styles import css_colors
from dsal.store import atomic_write

CONTENTS = (
    ("summary", "Summary"),
    ("accuracy", "Accuracy"),
    ("stability", "Stability"),
    ("confusion", "Confusion"),
    ("cost", "Cost"),
    ("numbers", "Numbers"),
    ("configuration", "Configuration"),
    ("provenance", "Provenance"),
)
_NAMED = 4  # methods that the title names; more are counted


def build_report(run_dirs: Sequence[Path], out: Path) -> Path:
    """Write ``out/report.html`` and ``out/figures/*.png, *.pdf`` from one or more run directories.

    Args:
        run_dirs: directories with ``results.json`` and, for the confusion matrix, ``confusion.npz``.
        out: directory to write to; made if it is not there.

    Returns:
        The path of the page. It loads nothing from elsewhere and can be sent as a single file.

    Raises:
        InputError: no directory was given, or one holds no results.
        FileFormatError: a file is torn, foreign, or written by a later version.
    """
    runs = read_runs(run_dirs)
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
    path = Path(out) / "report.html"
    with atomic_write(path) as temporary:
        temporary.write_text(_page(runs, matrices, facets), encoding="utf-8")
    return path


def _page(runs: Sequence[Run], matrices: Sequence[Confusion | None], facets: Sequence[Facet]) -> str:
    assets = files("dsal.report") / "assets"
    template, css, script = (assets.joinpath(f"page.{kind}").read_text("utf-8") for kind in ("html", "css", "js"))
    body = join(
        sections.summary(runs),
        sections.charts("accuracy", "Accuracy", [(facet, facet.accuracy) for facet in facets]),
        sections.charts("stability", "Stability and plasticity", [(facet, facet.stability) for facet in facets]),
        sections.confusion(runs, matrices),
        sections.cost(runs, [(facet, facet.timing) for facet in facets]),
        sections.numbers(runs),
        sections.configuration(runs),
        sections.provenance(runs),
    )
    digest = base64.b64encode(hashlib.sha256(script.encode()).digest()).decode("ascii")
    return Template(template).substitute(
        title=join(_title(runs)),
        subtitle=join(_subtitle(runs)),
        policy=f"default-src 'none'; style-src 'unsafe-inline'; script-src 'sha256-{digest}'; base-uri 'none'",
        css=css_colors() + css,
        contents=join(*(el("a", title, href=f"#{identifier}") for identifier, title in CONTENTS)),
        body=body,
        data=json_script("report-data", payload(runs, matrices, facets)),
        script=script,
        version=join(__version__),
    )


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


def _listed(words: Iterable[str]) -> str:
    """Different words in order, as a sentence lists them."""
    unique = list(dict.fromkeys(words))
    return " and ".join([", ".join(unique[:-1]), unique[-1]]) if len(unique) > 1 else unique[0]
