"""``python -m benchmarks.speed NAME... [--small] [--out DIR]``."""

from __future__ import annotations

import argparse
from pathlib import Path

from benchmarks.speed import accuracy, online, phases, recursion, refit, width
from benchmarks.speed.record import RESULTS

BENCHMARKS = {module.NAME: module for module in (recursion, accuracy, phases, width, refit, online)}


def main() -> None:
    names = "\n".join(f"  {name:10} about {module.MINUTES} minutes" for name, module in BENCHMARKS.items())
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.speed",
        description="Measure speed. Run this on an idle machine.",
        epilog=f"benchmarks, and how long they take at full size on two cores:\n{names}",
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("names", nargs="*", metavar="NAME", help="one or more of those below, or all")
    parser.add_argument("--small", action="store_true", help="small sizes that take seconds; the results mean nothing")
    parser.add_argument("--out", type=Path, default=RESULTS, help="folder for the results")
    parser.add_argument("--official", type=Path, help="copy of the authors' repository, to run as well (recursion)")
    arguments = parser.parse_args()
    wanted = list(BENCHMARKS) if arguments.names == ["all"] else arguments.names
    unknown = [name for name in wanted if name not in BENCHMARKS]
    if unknown or not wanted:
        parser.error(f"no benchmark {', '.join(unknown)}" if unknown else "name one or more benchmarks, or all")
    for name in wanted:
        module = BENCHMARKS[name]
        record = module.run(arguments.small, arguments.official) if module is recursion else module.run(arguments.small)
        record.save(arguments.out)


if __name__ == "__main__":
    main()
