"""HTML pages from the templates in ``assets``, and charts as inline SVG in the page's fonts and colours.

Every value is escaped (names and paths may come from untrusted files), except what is ``Markup``:
the style sheet, the script and the drawn charts. The page contains each panel twice, wide and narrow, and shows the one
that fits, so text keeps its size on a phone.
"""

from __future__ import annotations

import io
import re
from collections.abc import Iterable, Mapping, Sequence
from functools import cache
from typing import Any
from xml.etree import ElementTree

from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup
from matplotlib import rc_context

from dsal.base import __version__
from dsal.report.charts import Chart
from dsal.report.figures import FAINT, GROUND, INK, LIGHT, PAPER, css_colors, draw_panels, style
from dsal.report.run_pages import dataset_title

_VARIABLES = {INK: "--ink", FAINT: "--grid", PAPER: "--soft", GROUND: "--page", **dict.fromkeys(LIGHT, "--c")}
_NO_METADATA = dict.fromkeys(("Date", "Creator", "Format", "Type"))
_SUPERFLUOUS = re.compile(  # in HTML: namespaces, a style for the whole page, fonts, space, and empty groups
    r' xmlns(:xlink)?="[^"]*"|xlink:(?=href)|<style.*?</style>|font-family: [^;]*; | transform="rotate\(-0 [^"]*"'
    r"|(?<=>)\s+(?=<)|<g/>|<g id=\"\w+\"/>"
)


def draw_svg(chart: Chart, number: int, narrow: bool) -> Markup:
    """Draw one panel for the page: colours follow its theme, runs have ``data-run``, the paper's numbers ``paper``.

    ``data-plot`` holds the plot's left, right, top and bottom edges in the picture and the values there.
    """
    panel, single = chart.panels[number], len(chart.panels) == 1
    width, height = (3.1, 2.3) if narrow else (6.6, 3.4) if single else (3.5, 2.6)
    figure = draw_panels([panel], width, height, named=not narrow)
    file = io.BytesIO()
    with rc_context({"svg.fonttype": "none"}):  # text stays text
        figure.savefig(file, format="svg", transparent=True, metadata=_NO_METADATA)
    (axes,) = figure.axes
    (left, bottom), (right, top) = 72 * figure.get_size_inches() * axes.get_position().get_points()
    xlim, ylim = axes.get_xlim(), axes.get_ylim()
    lines = ", ".join(line.label for line in panel.lines)
    title = panel.title or chart.title
    root = _themed(file.getvalue(), prefix=f"{chart.key}-{number}-{'narrow' if narrow else 'wide'}-")
    root.attrib = {
        "class": "plot",
        "viewBox": root.attrib["viewBox"],
        "role": "img",
        "tabindex": "0",
        "aria-label": f"{title}. Lines: {lines}. Arrow keys read out the points; a table is below.",
        "data-chart": chart.key,
        "data-panel": str(number),
        "data-plot": " ".join(f"{v:.7g}" for v in (left, right, 72 * height - top, 72 * height - bottom, *xlim, *ylim)),
        **({"data-log": ""} if panel.y.log else {}),
    }
    return Markup(ElementTree.tostring(root, encoding="unicode"))


def _themed(svg: bytes, prefix: str) -> ElementTree.Element:
    """Prepare the picture for HTML: plain names, unique identifiers, and variables of the style sheet as colours."""
    text = _SUPERFLUOUS.sub("", svg.decode())
    for color, variable in _VARIABLES.items():
        text = text.replace(color, f"var({variable})")
    used = {name: f"{prefix}{n}" for n, name in enumerate(dict.fromkeys(re.findall(r'(?:href="|url\()#(\w+)', text)))}
    for name, ours in used.items():
        text = text.replace(f'id="{name}"', f'id="{ours}"').replace(f"#{name}", f"#{ours}")
    root = ElementTree.fromstring(text)
    for element in root.iter():
        name = element.get("id", "")
        if name.startswith("run-"):
            run = int(name.removeprefix("run-"))
            element.attrib = {"data-run": str(run), "class": f"c{style(run).color}"}
        elif name == "paper":
            element.attrib = {"class": "paper"}
        elif name not in used.values():
            element.attrib.pop("id", None)
    return root


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


MISSING = "\N{EN DASH}"


def differences(entries: Iterable[Mapping[str, Any]]) -> list[tuple[str, list[str], bool]]:
    """Return rows of (key, values, whether they differ); one value if all are the same.

    >>> differences([{"a": 1, "b": {"c": True}}, {"a": 1}])
    [('a', ['1'], False), ('b.c', ['yes', '–'], True)]
    """
    flat = [dict(_flatten(entry)) for entry in entries]
    rows = []
    for key in dict.fromkeys(key for entry in flat for key in entry):
        values = [entry.get(key, MISSING) for entry in flat]
        same = len(set(values)) == 1
        rows.append((key, values[:1] if same else values, not same and key != "started"))  # the start always differs
    return rows


def signed(number: str) -> str:
    """Return a number with a true minus sign."""
    return number.replace("-", "\N{MINUS SIGN}")


def readable(value: object) -> str:
    """Format a configuration value for people; consecutive integers are shortened to ranges.

    >>> readable([0, 1, 2, 3, 7]), readable(True), readable(None), readable(0.1), readable([{"a": 1}] * 9)
    ('0–3, 7', 'yes', '–', '0.1', '9 tables')
    """
    if value is None or value == [] or value == {}:
        return MISSING
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, (list, tuple)):
        if len(value) > 2 and all(type(item) is int for item in value):
            return _ranges(value)
        if len(value) > 2 and all(isinstance(item, Mapping) for item in value):
            return f"{len(value)} tables"
        return ", ".join(readable(item) for item in value)
    return str(value)


def size(count: int) -> str:
    """Format a number of bytes for people.

    >>> size(26_400), size(334_000_000), size(1_070_000_000)
    ('26 kB', '334 MB', '1.07 GB')
    """
    if count >= 1e9:
        return f"{count / 1e9:.2f} GB"
    return f"{count / 1e6:.0f} MB" if count >= 1e6 else f"{count / 1e3:.0f} kB"


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
