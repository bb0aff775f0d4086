"""The paper as the paper did it: its recipe for the backbone, its features, its settings.

    dsal pretrain --recipe paper --held-out 0 --no-flip --data-root DATA --out paper.safetensors
    dsal extract --backbone paper.safetensors --data-root DATA --features last --out features.safetensors
    dsal run --paper --dataset features.safetensors --phases 25 --seeds 0,1,2 --out runs/k25      # and K = 5, 50
    python -m benchmarks.paper_recipe runs/*        # collect them into benchmarks/results/paper-recipe.json

ResNet-32, SGD, 160 epochs, crop and flip; 64 features of one view; d_B = 8192, gamma = 0.1, C = 0.6.
"""

from __future__ import annotations

import argparse
import json
from pathlib import Path
from typing import Any

from dsal.protocol.metrics import MeanStd, mean_std
from dsal.protocol.paper_numbers import paper_results

RESULTS = Path(__file__).parent / "results" / "paper-recipe.json"
TOTALS = ("average", "last", "base", "new")


def collected(folders: list[Path]) -> dict[str, Any]:
    """Join the seeds of every method and K; the first figures are those of DS-AL at K = 25."""
    found = [json.loads((folder / "results.json").read_text(encoding="utf-8")) for folder in folders]
    runs = []
    for method, phases in sorted({(run["config"]["method"], run["config"]["phases"]) for run in found}):
        same = [run for run in found if (run["config"]["method"], run["config"]["phases"]) == (method, phases)]
        values = {total: [v for run in same for v in run[f"{total}_accuracy"]["values"]] for total in TOTALS}
        runs.append(
            {
                "method": method,
                "phases": phases,
                "seeds": [seed for run in same for seed in run["seeds"]],
                **{total: mean_std(each) for total, each in values.items()},
                "phase_0": same[0]["phases"][0]["accuracy"]["mean"],
                "config": same[0]["config"],
            }
        )
    main = next(run for run in runs if (run["method"], run["phases"]) == ("ds-al", 25))
    return {
        "average": main["average"]["mean"],
        "last": main["last"]["mean"],
        "runs": runs,
        "provenance": {key: value for key, value in found[0]["provenance"].items() if key != "backbone"},
    }


def table(document: dict[str, Any]) -> str:
    """Return the runs as a Markdown table, beside the paper's numbers."""
    lines = [
        "| | seeds | average | paper | last | paper | base classes, last | new classes, last |",
        "|---|---:|---:|---:|---:|---:|---:|---:|",
    ]
    for run in sorted(document["runs"], key=lambda run: (run["method"] == "acil", run["phases"])):
        published = next(
            result
            for result in paper_results("cifar100", run["phases"])
            if (result.method.lower(), result.backbone) == (run["method"], "resnet32")
        )
        ours = {total: str(MeanStd.of(run[total])) for total in TOTALS}
        cells = (
            f"{published.method}, K = {run['phases']}",
            str(len(run["seeds"])),
            *(ours["average"], str(published.average), ours["last"], str(published.last), ours["base"], ours["new"]),
        )
        lines.append(f"| {' | '.join(cells)} |")
    origin = document["provenance"]
    versions = f"dsal {origin['dsal']}, commit {origin['commit'][:12]}, torch {origin['torch']}; {origin['cpu']}"
    return "\n".join([*lines, "", versions + "."]) + "\n"


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("runs", type=Path, nargs="+", help="folders of finished runs")
    document = collected(sorted(parser.parse_args().runs))
    RESULTS.write_text(json.dumps(document, indent=1) + "\n", encoding="utf-8")
