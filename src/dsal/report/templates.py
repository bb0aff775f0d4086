"""HTML pages from the templates in ``assets``.

Every value is escaped (names and paths may come from untrusted files), except what is ``Markup``:
the style sheet, the script and the drawn charts.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from functools import cache
from typing import Any

from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup

from dsal.base import __version__
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
