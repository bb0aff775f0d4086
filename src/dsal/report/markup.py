"""HTML by construction: every string is escaped unless it was built here.

Class names, configuration values and paths come from files that a stranger may have made, so there is no other way
to put text on the page than :func:`el` (for HTML and SVG) and :func:`json_script` (for what the page's script reads).
"""

from __future__ import annotations

import html
import json
from typing import TypeAlias

VOID = frozenset({"meta", "input", "br", "hr", "link"})


class Markup(str):
    """Text that is already HTML."""

    __slots__ = ()


Child: TypeAlias = "str | int | float | Markup | None"
Attribute: TypeAlias = "str | int | float | bool | None"


def el(name: str, *children: Child, **attributes: Attribute) -> Markup:
    """One element; ``class_`` gives ``class``, other underscores give hyphens, ``None`` and ``False`` are left out.

    >>> el("td", "<b> & co", class_="name", data_sort=3)
    '<td class="name" data-sort="3">&lt;b&gt; &amp; co</td>'
    """
    written = []
    for key, value in attributes.items():
        if value is None or value is False:
            continue
        key = key.rstrip("_").replace("_", "-")
        written.append(f" {key}" if value is True else f' {key}="{html.escape(str(value))}"')
    opening = f"<{name}{''.join(written)}>"
    return Markup(opening if name in VOID else f"{opening}{join(*children)}</{name}>")


def join(*children: Child) -> Markup:
    """Children side by side, escaped where they are not markup; ``None`` is nothing."""
    return Markup("".join(_escaped(child) for child in children if child is not None))


def json_script(identifier: str, data: object) -> Markup:
    """A data block that no content can break out of: ``<``, ``>`` and ``&`` are written as JSON escapes."""
    text = json.dumps(data, separators=(",", ":"), allow_nan=False)  # ASCII only, so U+2028 cannot occur either
    for character in "<>&":
        text = text.replace(character, f"\\u{ord(character):04x}")
    return Markup(f'<script type="application/json" id="{html.escape(identifier)}">{text}</script>')


def _escaped(child: Child) -> str:
    return child if isinstance(child, Markup) else html.escape(str(child))
