"""The pages of the documentation, and what they show."""

from __future__ import annotations

import re
import shlex
from pathlib import Path

ROOT = Path(__file__).parents[2]
PAGES = sorted([*ROOT.glob("docs/**/*.md"), *ROOT.glob("*.md")])
FENCED = re.compile(r"^```(\w*)[^\n]*\n(.*?)^```", re.MULTILINE | re.DOTALL)
INDENTED = re.compile(r"(?:^\n|\A)((?: {4}[^\n]*\n|\n)+)", re.MULTILINE)


def name(page: Path) -> str:
    """The path of a page in the repository."""
    return page.relative_to(ROOT).as_posix()


def python_blocks(page: Path) -> list[str]:
    """The Python code of a page that is written there, not included from a file."""
    blocks = FENCED.findall(page.read_text(encoding="utf-8"))
    return [code for language, code in blocks if language == "python" and not code.startswith("--8<--")]


def shell_lines(page: Path) -> list[str]:
    """Lines of blocks that are not Python, comments taken away, continued lines joined."""
    text = page.read_text(encoding="utf-8")
    blocks = [code for language, code in FENCED.findall(text) if language != "python"]
    blocks += INDENTED.findall(FENCED.sub("", text))
    lines = re.sub(r"\\\n\s*", " ", "\n".join(blocks)).splitlines()
    return [re.sub(r"\s#.*", "", line).strip() for line in lines]


def shown_command(page: Path, start: str) -> list[str]:
    """The words of the one line of a page's blocks that starts like this."""
    (line,) = [line for line in shell_lines(page) if line.startswith(start)]
    return shlex.split(line)


def prose(page: Path) -> str:
    """The text of a page without its blocks of code."""
    return INDENTED.sub("\n", FENCED.sub("", page.read_text(encoding="utf-8")))
