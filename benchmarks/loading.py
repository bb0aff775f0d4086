"""Reading image files for base training: images per second against a bare Pillow loop, and memory by number of files.

    python benchmarks/loading.py --photos DATA_ROOT/imagenet/train

``--photos`` has one folder of JPEG files per class. The contestants take turns, on the same files and the same crops:

- bare: processes that loop over ``Image.open``, ``convert``, ``resize`` (with the crop as its box) and ``asarray``;
- bare threads: the same loop in threads;
- ours: ``dsal.training.stream``, with as many threads; batches of 128 are assembled and discarded.

Memory: peak of a process after listing 2,000, 20,000 or 200,000 links to these files and reading 20 batches.
Results are written to ``benchmarks/results/loading.json``.
"""

from __future__ import annotations

import argparse
import json
import multiprocessing
import os
import resource
import subprocess
import sys
import tempfile
from concurrent.futures import ThreadPoolExecutor
from itertools import pairwise
from pathlib import Path
from random import Random
from statistics import median
from time import perf_counter

import numpy as np
import torch
from PIL import Image

from dsal.data.class_folders import list_classes
from dsal.data.files import FileData
from dsal.evaluation.provenance import environment
from dsal.training.stream import Crops, Wanted, random_box

RESULTS = Path(__file__).parent / "results" / "loading.json"
BATCH = 128


def listed(folder: Path) -> FileData:
    """Return the files of a folder of class folders."""
    found = list_classes(folder)
    return FileData(found.paths, torch.from_numpy(found.numbers))


def wanted(rows: torch.Tensor, size: int) -> list[Wanted]:
    """Return batches of these rows, in order."""
    positions = torch.arange(len(rows))
    return [Wanted(rows[at], at, size) for at in positions.split(BATCH)]


def bare(task: tuple[list[str], int, int]) -> int:
    """Decode, crop and resize, nothing else; return a sum, so that the pixels must be computed."""
    paths, first, size = task
    total = 0
    for position, path in enumerate(paths, first):
        with Image.open(path) as image:
            box = random_box(*image.size, Random(f"0 {position}"))
            pixels = np.asarray(image.convert("RGB").resize((size, size), Image.Resampling.BILINEAR, box=box))
        total += int(pixels[0, 0, 0])
    return total


def ours(files: FileData, rows: torch.Tensor, size: int, workers: int) -> None:
    """Read batches as base training does."""
    for images, _ in Crops(files, 0, workers=workers).batches(wanted(rows, size)):
        assert images.dtype == torch.uint8


def speed(folder: Path, count: int, size: int, workers: int, rounds: int) -> dict[str, float]:
    """Return images per second of each contestant: medians over rounds, in a different order each round."""
    files = listed(folder)
    rows = torch.randperm(len(files), generator=torch.Generator().manual_seed(0))[:count]
    paths = [str(files.paths[row]) for row in rows.tolist()]
    cuts = [len(paths) * part // (8 * workers) for part in range(8 * workers + 1)]
    tasks = [(paths[a:b], a, size) for a, b in pairwise(cuts)]
    seconds: dict[str, list[float]] = {}
    with multiprocessing.get_context("fork").Pool(workers) as pool, ThreadPoolExecutor(workers) as threads:
        contestants = {
            "bare": lambda: pool.map(bare, tasks, chunksize=1),
            "bare threads": lambda: list(threads.map(bare, tasks)),
            "ours": lambda: ours(files, rows, size, workers),
        }
        for run in contestants.values():
            run()  # fill the page cache, load the libraries
        for number in range(rounds):
            names = list(contestants)
            for name in names[number % 3 :] + names[: number % 3]:
                began = perf_counter()
                contestants[name]()
                seconds.setdefault(name, []).append(perf_counter() - began)
    return {name: len(rows) / median(times) for name, times in seconds.items()}


def peak(folder: Path, size: int, workers: int) -> int:
    """Return the peak memory in bytes after reading 20 batches of the files of ``folder``."""
    files = listed(folder)
    rows = torch.randperm(len(files), generator=torch.Generator().manual_seed(0))
    ours(files, rows[: 20 * BATCH], size, workers)
    return 1024 * resource.getrusage(resource.RUSAGE_SELF).ru_maxrss


def linked(folder: Path, out: Path, count: int) -> None:
    """Create ``count`` links to the files of ``folder``, in class folders of a thousand."""
    targets = [path.resolve() for path in listed(folder).paths]
    for number in range(count):
        target = out / f"n{number // 1000:08d}" / f"n{number // 1000:08d}_{number}.JPEG"
        if number % 1000 == 0:
            target.parent.mkdir(parents=True)
        target.symlink_to(targets[number % len(targets)])


def memory(folder: Path, size: int, workers: int) -> dict[str, int]:
    """Return the peak memory of separate processes, by the number of files listed."""
    peaks = {}
    for count in (2_000, 20_000, 200_000):
        with tempfile.TemporaryDirectory() as links:
            linked(folder, Path(links), count)
            command = [sys.executable, __file__, "--photos", links, "--peak", "--size", str(size)]
            said = subprocess.run([*command, "--workers", str(workers)], check=True, capture_output=True, text=True)
            peaks[str(count)] = int(said.stdout)
    return peaks


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--photos", type=Path, required=True)
    parser.add_argument("--images", type=int, default=2_000)
    parser.add_argument("--size", type=int, default=224)
    parser.add_argument("--workers", type=int, default=len(os.sched_getaffinity(0)))
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--out", type=Path, default=RESULTS)
    parser.add_argument("--peak", action="store_true", help="only print the peak memory of one reading")
    asked = parser.parse_args()
    if asked.peak:
        print(peak(asked.photos, asked.size, asked.workers))
        return
    rates = speed(asked.photos, asked.images, asked.size, asked.workers, asked.rounds)
    peaks = memory(asked.photos, asked.size, asked.workers)
    for name, rate in rates.items():
        print(f"{name:>13}: {rate:7.1f} images/s, {rate / rates['bare']:.2f} of the bare loop")
    for count, used in peaks.items():
        print(f"{int(count):>9,} files listed: {used / 2**20:.0f} MiB at most")
    facts = {"images": asked.images, "size": asked.size, "workers": asked.workers, "rounds": asked.rounds}
    document = {**facts, "images_per_second": rates, "peak_bytes": peaks, "environment": environment()}
    asked.out.write_text(json.dumps(document, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
