"""A run of ImageNet's size without its images: 1.28 million rows in shards, 1,000 classes, K = 500.

    python benchmarks/many_classes.py --folder SCRATCH

Writes synthetic features (one direction per class plus noise; 1.3 GB) as ``dsal extract`` would, runs ``dsal run`` on
them in a separate process, and reports: seconds and peak memory of the run, seconds for learning and testing a phase,
bytes written, and seconds until the report has drawn its confusion matrix in Chromium. d_B is small, so that this takes
only minutes on two cores; docs/speed.md says how time and memory grow with it. Results are written to
``benchmarks/results/many_classes.json``.
"""

from __future__ import annotations

import argparse
import json
import resource
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path
from statistics import median
from time import perf_counter
from typing import Any

import numpy as np

from dsal.data.features.shards import is_sharded, shard_digest, write_index, write_shard
from dsal.protocol.provenance import environment

RESULTS = Path(__file__).parent / "results" / "many_classes.json"
CLASSES, TRAIN, TEST, WIDTH, SHARD = 1_000, 1_281_167, 50_000, 512, 2**15
MADE = "synthetic"


def write_features(folder: Path, train: int = TRAIN, test: int = TEST) -> None:
    """Write rows in shards, one in memory at a time, with classes in order, as from folders of images."""
    if is_sharded(folder):
        return
    folder.mkdir(parents=True, exist_ok=True)
    centres = np.random.RandomState(0).standard_normal((CLASSES, WIDTH)).astype(np.float32)
    labels, digests = {}, {}
    for part, rows in (("train", train), ("test", test)):
        labels[part], digests[part] = np.sort(np.arange(rows) % CLASSES), []
        for number, start in enumerate(range(0, rows, SHARD)):
            y = labels[part][start : start + SHARD]
            noise = np.random.default_rng([number, part == "test"]).standard_normal((len(y), WIDTH), dtype=np.float32)
            write_shard(folder, part, number, 0.25 * centres[y] + noise, made=MADE, start=start)
            digest = shard_digest(folder, part, number, made=MADE, start=start, rows=len(y), width=WIDTH)
            digests[part].append(str(digest))
    names = [f"class {number}" for number in range(CLASSES)]
    facts = {"name": "imagenet-shaped", "class_names": names, "widths": [["last", WIDTH]], "backbone": {}}
    write_index(folder, labels, digests, {**facts, "dataset": None}, made=MADE, shard_rows=SHARD)


def run(features: Path, out: Path, size: int, every: int) -> dict[str, Any]:
    """Run ``dsal run`` in a separate process; return seconds and peak memory."""
    options = ["--phases", "500", "--expansion-size", str(size), "--eval-every", str(every), "--no-report"]
    command = [sys.executable, "-m", "dsal", "run", "--dataset", str(features), *options, "--out", str(out)]
    began = perf_counter()
    subprocess.run(command, check=True)
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    cpu = used.ru_utime + used.ru_stime
    return {"seconds": perf_counter() - began, "cpu_seconds": cpu, "peak_bytes": 1024 * used.ru_maxrss}


def opened(page: Path) -> float | None:
    """Return seconds until the page has drawn its confusion matrix in a new Chromium; None without Chromium."""
    found = [shutil.which(name) for name in ("chromium", "chromedriver")]
    if not all(found):
        return None
    from selenium import webdriver
    from selenium.webdriver.support.ui import WebDriverWait

    options = webdriver.ChromeOptions()
    options.binary_location = str(found[0])
    with tempfile.TemporaryDirectory() as profile:
        flags = ("headless=new", "no-sandbox", "disable-gpu", "disable-dev-shm-usage", f"user-data-dir={profile}")
        for flag in flags:
            options.add_argument(f"--{flag}")
        browser = webdriver.Chrome(options=options, service=webdriver.ChromeService(str(found[1])))
        try:
            began = perf_counter()
            browser.get(page.as_uri())
            drawn = "return (document.querySelector('#matrix')?.getAttribute('aria-label') || '').includes('Confusion')"
            WebDriverWait(browser, 60, poll_frequency=0.02).until(lambda _: browser.execute_script(drawn))
            return perf_counter() - began
        finally:
            browser.quit()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--folder", type=Path, required=True)
    parser.add_argument("--expansion-size", type=int, default=256)
    parser.add_argument("--eval-every", type=int, default=25)
    parser.add_argument("--rows", type=int, default=TRAIN, help="training rows; fewer to try it out")
    parser.add_argument("--out", type=Path, default=RESULTS)
    asked = parser.parse_args()
    features, out = asked.folder / "features", asked.folder / "run"
    began = perf_counter()
    write_features(features, asked.rows, min(TEST, asked.rows))
    told: dict[str, Any] = {"writing_seconds": perf_counter() - began}
    if not (out / "results.json").exists():
        told |= run(features, out, asked.expansion_size, asked.eval_every)
    began = perf_counter()
    subprocess.run([sys.executable, "-m", "dsal", "report", str(out)], check=True)
    told["report_seconds"] = perf_counter() - began
    results = json.loads((out / "results.json").read_text())
    phases = results["phases"]
    later = [phase["seconds"]["mean"] / asked.eval_every for phase in phases[1:]]  # seconds since the last test
    told["learning_seconds"] = {"base": phases[0]["seconds"]["mean"], "later": median(later), "longest": max(later)}
    told["testing_seconds"] = phases[-1]["seconds_evaluate"]["mean"]
    told["last_accuracy"] = results["last_accuracy"]["mean"]
    told["file_bytes"] = {path.name: path.stat().st_size for path in sorted(out.iterdir()) if path.is_file()}
    told["browser_seconds"] = opened((out / "report.html").resolve())
    print(json.dumps(told, indent=1))
    facts = {"rows": asked.rows, "expansion_size": asked.expansion_size, "eval_every": asked.eval_every}
    asked.out.write_text(json.dumps({**facts, **told, "environment": environment()}, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
