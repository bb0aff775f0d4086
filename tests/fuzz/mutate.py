"""Damaged and lying files, made from good ones: by bytes, or by contents with every checksum made right again."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from dsal.files.tensors import load_tensors, save_tensors

Random = np.random.Generator
STRANGE: tuple[Callable[[], Any], ...] = (
    lambda: None,
    lambda: True,
    lambda: -1,
    lambda: 0,
    lambda: 10**6,
    lambda: 10**18,
    lambda: 10**400,
    lambda: 0.5,
    lambda: 1e308,
    lambda: float("nan"),
    lambda: float("-inf"),
    lambda: "",
    lambda: "unheard of",
    lambda: "\ud800",
    lambda: "x" * 10**6,
    lambda: [],
    lambda: {},
    lambda: [[1, "a"], None],
    lambda: {"a": {"b": []}},
    lambda: list(range(1000)),
)


def break_bytes(path: Path, random: Random) -> str:
    """Change the bytes of a file; returns what was done."""
    data = bytearray(path.read_bytes())
    place = int(random.integers(len(data)))
    if random.random() < 0.5:  # where formats have their structure
        place = min(place, int(random.integers(4096)))
    match random.integers(5):
        case 0:
            done, data[place] = "bit flipped", data[place] ^ (1 << int(random.integers(8)))
        case 1:
            done, data[place] = "byte replaced", int(random.integers(256))
        case 2:
            done, data = "cut off", data[:place]
        case 3:
            done, data[place:place] = "bytes inserted", random.bytes(int(random.integers(1, 40)))
        case _:
            done, data[place : place + 40] = "bytes zeroed", bytes(len(data[place : place + 40]))
    path.write_bytes(bytes(data))
    return f"{done} at {place}"


def break_tensors(path: Path, random: Random) -> str:
    """Change what a safetensors file holds, and make its checksum right again."""
    arrays, facts = load_tensors(path)
    if random.random() < 0.5 or not arrays:
        kind = facts.pop("kind")
        done, facts = break_value(facts, random)
        facts = {**facts, "kind": kind} if isinstance(facts, dict) else {"kind": kind}
    else:
        done = break_arrays(arrays, random)
    save_tensors(path, {name: np.asarray(array) for name, array in arrays.items()}, facts)
    return done


def break_json(path: Path, random: Random) -> str:
    """Change one value of a JSON file."""
    done, value = break_value(json.loads(path.read_text(encoding="utf-8")), random)
    path.write_text(json.dumps(value), encoding="utf-8")
    return done


def break_npz(path: Path, random: Random) -> str:
    """Change one array of an .npz file."""
    with np.load(path) as file:
        arrays = dict(file)
    done = break_arrays(arrays, random)
    np.savez_compressed(path, **arrays)
    return done


def break_value(value: Any, random: Random) -> tuple[str, Any]:
    """A JSON value with one part of it changed, deleted, doubled or added, at any depth."""
    if isinstance(value, (dict, list)) and value and random.random() < 0.85:
        keys = list(value) if isinstance(value, dict) else range(len(value))
        key = keys[int(random.integers(len(keys)))]
        action = random.integers(12)
        if action == 0:
            del value[key]
            return f"{key} deleted", value
        if action == 1 and isinstance(value, dict):
            value["unheard of"] = strange(random)
            return "key added", value
        if action == 1:
            value.append(value[key])
            return "item doubled", value
        done, value[key] = break_value(value[key], random)
        return f"{key}.{done}", value
    new = strange(random)
    return f"= {str(new)[:30]!r}", new


def strange(random: Random) -> Any:
    """A value that is seldom right."""
    return STRANGE[int(random.integers(len(STRANGE)))]()


def break_arrays(arrays: dict[str, Any], random: Random) -> str:
    """Change one of the arrays: type, shape or values; or take it away, rename it, add one."""
    name = sorted(arrays)[int(random.integers(len(arrays)))]
    array = arrays[name]
    types = (np.float16, np.float32, np.float64, np.int8, np.int32, np.int64, np.uint8, np.bool_)
    kind = str(random.choice(["type", "shape", "value", "value", "value", "values", "gone", "renamed", "added"]))
    if kind == "type":
        arrays[name] = np.nan_to_num(array.astype(types[int(random.integers(len(types)))]), posinf=1, neginf=-1)
    elif kind == "shape":
        rows = np.atleast_1d(array)
        shapes = (rows[None], rows.ravel(), rows.T, rows[:0], rows[..., :-1], np.concatenate([rows, rows]), rows[:1])
        arrays[name] = np.ascontiguousarray(shapes[int(random.integers(len(shapes)))])
    elif kind in ("value", "values") and array.size:
        extreme = np.array([np.nan, np.inf, -1, 0, 1e30, 2**31, -(2**62)][int(random.integers(7))])
        with np.errstate(all="ignore"):
            new = np.where(np.arange(array.size) == random.integers(array.size), extreme, array.ravel())
            new = np.full(array.size, extreme) if kind == "values" else new
            arrays[name] = new.astype(array.dtype).reshape(array.shape)
        kind += f" {extreme}"
    elif kind == "renamed":
        arrays[f"{name}x"] = arrays.pop(name)
    elif kind == "added":
        arrays["unheard of"] = np.ones(3)
    else:
        del arrays[name]
    return f"{name}: {kind}"
