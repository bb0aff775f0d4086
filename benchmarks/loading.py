"""Reading image files for base training: images per second against a bare Pillow loop, and memory by number of files.

    python benchmarks/loading.py --photos DATA_ROOT/imagenet/train

``--photos`` has one folder of JPEG files per class. The contestants take turns, on the same files and the same crops:

- bare: processes that loop over ``Image.open``, ``convert``, ``resize`` (with the crop as its box) and ``asarray``;
- bare threads: the same loop in threads;
- ours: ``dsal.training.stream``, with as many processes; batches of 128 are assembled and discarded.

All processes are started before the first measurement; how long ours take to start is measured separately, as the time
until the first batch is there. Memory: peak of the process and of its largest reader after listing 2,000, 20,000 or
200,000 links to these files and reading 20 batches; memory that they share counts in both.
Results are written to ``benchmarks/results/loading.json``.
"""

from __future__ import annotations

import argparse
import json
import multiprocessing
import os
import re
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

from dsal.data.images.crop_readers import Readers, random_box
from dsal.data.images.image_files import FileData
from dsal.data.sets.class_folders import list_classes
from dsal.protocol.provenance import environment
from dsal.training.stream import Crops, Wanted, open_readers

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


def ours(files: FileData, rows: torch.Tensor, size: int, readers: Readers) -> None:
    """Read batches as base training does."""
    for images, _ in Crops(files, 0).batches(wanted(rows, size), readers):
        assert images.dtype == torch.uint8


def start(files: FileData, size: int, workers: int) -> float:
    """Return the seconds until new readers have read a first batch."""
    began = perf_counter()
    with open_readers(workers, BATCH, size, 3) as readers:
        ours(files, torch.arange(BATCH), size, readers)
        return perf_counter() - began


def speed(folder: Path, count: int, size: int, workers: int, rounds: int) -> dict[str, float]:
    """Return images per second of each contestant: medians over rounds, in a different order each round."""
    files = listed(folder)
    rows = torch.randperm(len(files), generator=torch.Generator().manual_seed(0))[:count]
    paths = [str(files.paths[row]) for row in rows.tolist()]
    cuts = [len(paths) * part // (8 * workers) for part in range(8 * workers + 1)]
    tasks = [(paths[a:b], a, size) for a, b in pairwise(cuts)]
    seconds: dict[str, list[float]] = {}
    with (
        multiprocessing.get_context("fork").Pool(workers) as pool,
        ThreadPoolExecutor(workers) as threads,
        open_readers(workers, BATCH, size, 3) as readers,
    ):
        contestants = {
            "bare": lambda: pool.map(bare, tasks, chunksize=1),
            "bare threads": lambda: list(threads.map(bare, tasks)),
            "ours": lambda: ours(files, rows, size, readers),
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


def peak(folder: Path, size: int, workers: int) -> tuple[int, int]:
    """Return the peak memory in bytes of this process and of its largest reader after 20 batches of ``folder``."""
    files = listed(folder)
    rows = torch.randperm(len(files), generator=torch.Generator().manual_seed(0))
    with open_readers(workers, BATCH, size, 3) as readers:
        ours(files, rows[: 20 * BATCH], size, readers)
        return _peak(os.getpid()), max(_peak(process) for process in readers.processes)


def _peak(process: int) -> int:
    # not getrusage: it counts the memory of the parent from before the child's own program was loaded
    return 1024 * int(re.search(r"VmHWM:\s+(\d+)", Path(f"/proc/{process}/status").read_text())[1])


def linked(folder: Path, out: Path, count: int) -> None:
    """Create ``count`` links to the files of ``folder``, in class folders of a thousand."""
    targets = [path.resolve() for path in listed(folder).paths]
    for number in range(count):
        target = out / f"n{number // 1000:08d}" / f"n{number // 1000:08d}_{number}.JPEG"
        if number % 1000 == 0:
            target.parent.mkdir(parents=True)
        target.symlink_to(targets[number % len(targets)])


def memory(folder: Path, size: int, workers: int) -> dict[str, list[int]]:
    """Return the peak memory of a separate process and of its largest reader, by the number of files listed."""
    peaks = {}
    for count in (2_000, 20_000, 200_000):
        with tempfile.TemporaryDirectory() as links:
            linked(folder, Path(links), count)
            command = [sys.executable, __file__, "--photos", links, "--peak", "--size", str(size)]
            said = subprocess.run([*command, "--workers", str(workers)], check=True, capture_output=True, text=True)
            peaks[str(count)] = [int(value) for value in said.stdout.split()]
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
        print(*peak(asked.photos, asked.size, asked.workers))
        return
    rates = speed(asked.photos, asked.images, asked.size, asked.workers, asked.rounds)
    first = median(start(listed(asked.photos), asked.size, asked.workers) for _ in range(asked.rounds))
    peaks = memory(asked.photos, asked.size, asked.workers)
    for name, rate in rates.items():
        print(f"{name:>13}: {rate:7.1f} images/s, {rate / rates['bare']:.2f} of the bare loop")
    print(f"first batch after {first:.2f} s")
    for count, used in peaks.items():
        print(f"{int(count):>9,} files listed: {used[0] / 2**20:.0f} MiB at most, and {used[1] / 2**20:.0f} per reader")
    facts = {"images": asked.images, "size": asked.size, "workers": asked.workers, "rounds": asked.rounds}
    measured = {"images_per_second": rates, "first_batch_seconds": first, "peak_bytes": peaks}
    document = {**facts, **measured, "environment": environment()}
    asked.out.write_text(json.dumps(document, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
