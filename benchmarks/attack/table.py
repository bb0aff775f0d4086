"""The results of the attack as a section of docs/serve.md."""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path
from textwrap import fill
from typing import Any

_INTRODUCTION = (
    "`python -m benchmarks.attack` attacks a server of its own on the same machine, and writes down what it cost and "
    "whether the answers were true ([results](../benchmarks/results/attack.json)). Server, clients and attackers share "
    "the cores with each other and with whatever else runs."
)


def attack_section(path: Path, soak: Path) -> str:
    """Return the section; parts without results are left out."""
    found = json.loads(path.read_text(encoding="utf-8")) if path.is_file() else {}
    parts = {"hostile": _hostile, "hostile_long": _hostile, "kills": _kills, "mutations": _mutations, "many": _many}
    rows = [row for name, describe in parts.items() if name in found for row in describe(found[name])]
    table = ["| what | asked for | found |", "|---|---|---|", *(f"| {' | '.join(row)} |" for row in rows)]
    lines = [fill(_soaked(json.loads(soak.read_text(encoding="utf-8"))), 120)] if soak.is_file() else []
    runs = [run for part in found.values() for run in (part if isinstance(part, list) else [part])]
    seen = {"{cpu}, {cores} cores, Python {python}.".format(**run["conditions"]) for run in runs}
    machine = [" ".join(sorted(seen))] if seen else []
    return "\n\n".join(["## Under attack", fill(_INTRODUCTION, 120), "\n".join(table), *machine, *lines]) + "\n"


def _hostile(of: dict[str, Any]) -> list[tuple[str, ...]]:
    alone, beside = of["alone"], of["beside"]
    what = f"{of['requests']:,} hostile requests from 16 clients beside 16 honest ones, {_time(beside['seconds'], of)}"
    return [
        (what, f"memory below {of['memory']} + 20%", f"{beside['resident_mb']['largest']:,} MB at most"),
        ("", "alive within 250 ms", f"99 of 100 within {beside['live']['p99_ms']:.0f} ms, all within "
         f"{beside['live']['slowest_ms']:.0f} ms; without the attack {alone['live']['p99_ms']:.0f} and "
         f"{alone['live']['slowest_ms']:.0f} ms; the client that asked was itself kept from a core for "
         f"{beside['live']['asker_waited_for_a_core_ms']['longest']:.0f} ms at most"),
        ("", "honest answers right", f"{len(beside['wrong'])} of {beside['predictions']:,} wrong"),
        ("", "p99 of honest clients at most 3 times that without",
         f"{beside['p99_ms'] / 1000:.2f} s, {of['p99_ratio']:.1f} times {alone['p99_ms'] / 1000:.2f} s"),
        ("", "learned = acknowledged", f"{of['images_learned']} = {of['images_acknowledged']} images"),
        ("", "no 500", f"{of['status_500']}"),
    ]  # fmt: skip


def _kills(of: dict[str, Any]) -> list[tuple[str, ...]]:
    what = (
        f"{of['killed']} kill -9 and {of['terminated']} SIGTERM at random moments, on {of['servers']} servers, "
        f"{_time(of['seconds'], of)}"
    )
    slowest = max(times["slowest"] for times in of["exit_ms"].values()) / 1000
    return [
        (what, "no acknowledged lesson lost or doubled",
         f"{of['lessons_lost']} lost, {of['lessons_doubled']} doubled of {of['lessons_acknowledged']:,}"),
        ("", "no false “nothing was learned”", f"{of['false_denials']}"),
        ("", f"ends within its grace time, {of['grace']:g} s", f"{slowest:.1f} s at most"),
    ]  # fmt: skip


def _mutations(runs: list[dict[str, Any]]) -> list[tuple[str, ...]]:
    reached = sum((Counter(run["ended_at"]) for run in runs), Counter[str]())
    ended = ", ".join(f"{count:,} {name}" for name, count in reached.most_common())
    files, slowest = sum(run["files"] for run in runs), max(run["slowest_ms"] for run in runs)
    times = " and ".join(_time(run["seconds"], run) for run in runs)
    return [
        (f"{files:,} damaged model files uploaded by {runs[0]['clients']} clients, {times}; ended at: {ended}",
         "none takes 10 s", f"{slowest / 1000:.1f} s at most"),
        ("", "growth below 200 MB", f"{max(run['grown_mb'] for run in runs)} MB"),
        ("", "no 500", f"{sum(len(run['status_5xx']) for run in runs)}"),
    ]  # fmt: skip


def _many(of: dict[str, Any]) -> list[tuple[str, ...]]:
    what = (
        f"{of['models']:,} models of {of['megabytes_each']:g} MB ({of['distinct_files']} different files) listed, "
        f"{of['used']:,} uses in turn, {_time(of['seconds'], of)}"
    )
    held = of["resident_mb_every_100"]
    return [
        (what, f"memory flat below {of['memory']}",
         f"{of['resident_mb']['largest']:,} MB at most, {held[-1]:,.0f} MB at the last listing"),
        ("", "every answer right", f"{of['wrong']} wrong; list {of['list_ms'] / 1000:.1f} s, first use "
         f"{of['first_use_ms'] / 1000:.1f} s"),
    ]  # fmt: skip


def _time(seconds: float, of: dict[str, Any]) -> str:
    found = of["conditions"]
    beside = f"beside {found['beside']}; " if "beside" in found else ""
    return f"{max(seconds / 60, 1):.0f} min ({beside}load average before: {found['load_before']:.0f})"


def _soaked(of: dict[str, Any]) -> str:
    sizes, descriptors = of["resident_mb"], of["descriptors"]
    return (
        f"`python benchmarks/soak.py --images FOLDER` sends a mix of predictions, lessons, corrections, uploads and "
        f"mistakes. The [committed run](../benchmarks/results/soak.json) took {of['minutes']:.0f} minutes, "
        f"{sum(of['steps'].values()):,} steps: the largest resident memory was {sizes['largest_first_half']} MB in the "
        f"first half after the warm-up and {sizes['largest_second_half']} MB in the second. There were "
        f"{descriptors['largest_first_half']} and {descriptors['largest_second_half']} descriptors, {of['threads'][0]} "
        f"and {of['threads'][1]} threads, and {len(of['wrong_answers']) or 'no'} unexpected answers."
    )
