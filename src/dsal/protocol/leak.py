"""Check that weights have not already seen classes that a later phase treats as new."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict
from typing import Any, Literal

from dsal.backbones.backbone import Card
from dsal.data.scenario import Scenario
from dsal.errors import LeakError

Origin = Literal["base classes", "other data set", "generic", "unknown"]
"""What the weights were trained on, relative to a scenario; reports mark everything except ``"base classes"``."""


def check_no_leak(card: Card | Mapping[str, Any], scenario: Scenario, dataset: str | None) -> Origin:
    """Raise :class:`LeakError` if the weights have seen a class of phase 1 or later; else return their origin.

    Args:
        card: of the backbone, or the copy of it stored with a set of features.
        scenario: which classes arrive when.
        dataset: name of the image data set; if None, the card's classes are taken as being of it.

    Returns:
        ``"base classes"``: all classes seen are of phase 0. ``"other data set"``: trained on labels of another data
        set, which cannot be compared. ``"generic"``: pretrained on something large. ``"unknown"``: not in the card.
    """
    record = card if isinstance(card, Mapping) else asdict(card)
    if "seen_classes" not in record:
        return "unknown"
    if record["seen_classes"] is None:
        return "generic"
    if None not in (dataset, record.get("dataset")) and dataset != record["dataset"]:
        return "other data set"
    later = {label: k for k in range(1, scenario.last + 1) for label in scenario.labels(k)}
    leaked = sorted(set(record["seen_classes"]) & later.keys())
    if leaked:
        shown = ", ".join(f"{label} (phase {later[label]})" for label in leaked[:5])
        raise LeakError(
            f"the backbone was trained on {len(leaked)} classes that later phases treat as new: labels {shown}"
            f"{', ...' if len(leaked) > 5 else ''}. It was trained for class order {record.get('class_order')!r} with "
            f"{len(record['seen_classes'])} base classes: use these, or weights trained for this scenario."
        )
    return "base classes"
