"""Charts as inline SVG for the page: the same drawing as in the files, in the page's fonts and colours.

The page contains each panel twice, wide and narrow, and shows the one that fits, so text keeps its size on a phone.
"""

from __future__ import annotations

import io
import re
from xml.etree import ElementTree

from markupsafe import Markup
from matplotlib import rc_context

from dsal.report.charts import Chart
from dsal.report.figures import FAINT, GROUND, INK, PAPER, draw_panels
from dsal.report.styles import LIGHT, style

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
