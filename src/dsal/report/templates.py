"""HTML pages from the templates in ``assets``.

Every value is escaped (names and paths may come from untrusted files), except what is ``Markup``:
the style sheet, the script and the drawn charts.
"""

from __future__ import annotations

from functools import cache
from typing import Any

from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup

from dsal.base.version import __version__
from dsal.report.html_tables import differences, readable, signed, size
from dsal.report.run_pages import dataset_title
from dsal.report.styles import css_colors, style
from dsal.report.svg import draw_svg


def render(template: str, **values: Any) -> str:
    """Fill in a template of ``assets``; all take title, subtitle, contents and policy."""
    css = Markup(css_colors() + asset("page.css"))
    return _environment().get_template(template).render(version=__version__, css=css, **values)


def asset(name: str) -> Markup:
    """Return the text of a file in ``assets``, unescaped."""
    environment = _environment()
    assert environment.loader is not None
    return Markup(environment.loader.get_source(environment, name)[0])


@cache
def _environment() -> Environment:
    environment = Environment(
        loader=PackageLoader("dsal.report", "assets"),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.policies["json.dumps_kwargs"] = {"separators": (",", ":"), "allow_nan": False}
    environment.globals |= {"style": style, "draw_svg": draw_svg}
    environment.filters |= {
        "bytes": size,
        "dataset_title": dataset_title,
        "differences": differences,
        "readable": readable,
        "signed": signed,
    }
    return environment
