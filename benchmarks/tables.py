"""Put the tables of ``benchmarks/results/speed`` into docs/speed.md, between its two marks.

python -m benchmarks.tables
"""

from __future__ import annotations

from pathlib import Path

ROOT = Path(__file__).parents[1]
PAGE, RESULTS = ROOT / "docs" / "speed.md", ROOT / "benchmarks" / "results" / "speed"
ORDER = ("recursion", "accuracy", "phases", "width", "refit", "online")
START, END = "<!-- results: python -m benchmarks.tables -->\n", "<!-- end of results -->"


def filled(page: str, results: Path) -> str:
    """The page with the results that are there."""
    before, _, rest = page.partition(START)
    _, _, after = rest.partition(END)
    parts = []
    for name in ORDER:
        table = results / f"{name}.md"
        if table.is_file():
            title, body = table.read_text(encoding="utf-8").split("\n", 1)
            picture = f"![{title}](../benchmarks/results/speed/{name}.png)"
            parts.append(f"### {name}\n\n{title}.\n{body}\n{picture}\n")
    return before + START + "\n" + "\n".join(parts) + "\n" * bool(parts) + END + after


if __name__ == "__main__":
    PAGE.write_text(filled(PAGE.read_text(encoding="utf-8"), RESULTS), encoding="utf-8")
