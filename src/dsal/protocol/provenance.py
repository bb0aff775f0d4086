"""Where a number comes from: versions, hardware, commit, the content of data and weights, and what those have seen."""

from __future__ import annotations

import platform
import re
import subprocess
import sys
from collections.abc import Mapping
from dataclasses import asdict
from datetime import datetime, timezone
from importlib.metadata import version
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from dsal.backbones.backbone import Card
from dsal.base import __version__
from dsal.data.scenario import Scenario
from dsal.distributed import ALONE, Team
from dsal.errors import LeakError

if TYPE_CHECKING:
    from dsal.protocol.experiment import Setting


def environment(team: Team = ALONE) -> dict[str, Any]:
    """Return versions, hardware, commit, time and the number of processes, as a JSON object."""
    import torch

    return {
        "dsal": __version__,
        "python": platform.python_version(),
        **{package: version(package) for package in ("torch", "numpy", "scipy")},
        "platform": platform.platform(),
        "cpu": _cpu(),
        "threads": torch.get_num_threads(),
        "processes": team.size,
        "commit": _commit(),
        "started": datetime.now(timezone.utc).isoformat(timespec="seconds"),
    }


def provenance(setting: Setting, team: Team = ALONE) -> dict[str, Any]:
    """Return everything needed to get the same numbers again, as a JSON object."""
    return {
        **environment(team),
        "features": setting.config.get("features"),
        "data_sha256": setting.data.fingerprint,
        "weights_sha256": setting.backbone.get("weights_sha256"),
        "image_dataset": setting.image_dataset,
        "backbone_trained_on": setting.origin,
        "backbone": setting.backbone,
    }


def peak_memory_bytes() -> int:
    """Return the peak memory of this process so far."""
    status = Path("/proc/self/status")
    if status.exists():  # Linux, where getrusage would include the peak of the parent process
        found = re.search(r"VmHWM:\s*(\d+) kB", status.read_text())
        if found:
            return int(found[1]) * 1024
    if sys.platform == "win32":
        return 0
    import resource

    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return peak if sys.platform == "darwin" else peak * 1024


def _cpu() -> str:
    info = Path("/proc/cpuinfo")
    found = re.search(r"model name\s*:\s*(.+)", info.read_text()) if info.exists() else None
    return found[1].strip() if found else platform.processor() or platform.machine()


def _commit() -> str | None:
    """Return the commit of a source checkout, with ``-dirty`` if the package's files differ; None if installed."""
    package = Path(__file__).resolve().parents[1]
    try:
        top, commit = _git(package, "rev-parse", "--show-toplevel", "HEAD").split()
        if Path(top).resolve() / "src" / "dsal" != package:
            return None  # installed inside some other project's checkout
        return commit + ("-dirty" if _git(package, "status", "--porcelain", "--", ".") else "")
    except (OSError, subprocess.SubprocessError, ValueError):
        return None


def _git(folder: Path, *arguments: str) -> str:
    done = subprocess.run(["git", *arguments], cwd=folder, capture_output=True, text=True, check=True, timeout=10)
    return done.stdout.strip()


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
