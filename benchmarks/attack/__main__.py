"""The command line of the attack."""

from __future__ import annotations

import argparse
from pathlib import Path

from benchmarks.attack.served import record


def main() -> None:
    """Run one part and add its results."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("part", choices=("hostile", "kills", "mutations", "many"))
    parser.add_argument("--fraction", type=float, default=1.0, help="of the requests, kills, files or models")
    parser.add_argument("--minutes", type=float, default=1e6, help="stop the attack after this time")
    parser.add_argument(
        "--alone", type=float, default=60, help="seconds of honest clients alone, before the hostile ones"
    )
    parser.add_argument("--memory", default="2GB", help="budget of the server, for hostile and many")
    parser.add_argument("--seed", type=int, default=0, help="of the damage, for mutations; runs with others are kept")
    parser.add_argument("--beside", default="", help="what else runs on this machine, for the record")
    parser.add_argument("--out", type=Path, default=Path("benchmarks/results/attack.json"))
    options = parser.parse_args()

    def of(count: int) -> int:
        return max(round(options.fraction * count), 1)

    if options.part == "hostile":
        from benchmarks.attack.hostile import hostile

        found = hostile(of(2000), options.memory, options.alone, 60 * options.minutes)
    elif options.part == "kills":
        from benchmarks.attack.kills import kills

        found = kills(of(200), of(100), 60 * options.minutes)
    elif options.part == "mutations":
        from benchmarks.attack.mutations import mutations

        found = mutations(of(10_000), options.seed, 60 * options.minutes)
    else:
        from benchmarks.attack.many import many

        found = many(of(1000), options.memory, 60 * options.minutes)
    if options.beside:
        found["conditions"]["beside"] = options.beside
    longer = options.part == "hostile" and options.fraction > 1
    record(options.out, f"{options.part}_long" if longer else options.part, found)


if __name__ == "__main__":
    main()
