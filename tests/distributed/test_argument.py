"""The team of processes is an argument: below the command line nothing looks it up."""

from __future__ import annotations

import re
from pathlib import Path

import dsal
import dsal.distributed

PACKAGE = Path(dsal.__file__).parent
LOOKED_UP = re.compile(
    r"distributed import .*\b(current|join_processes)\b|\b(current_team|get_rank|get_world_size|is_initialized)\("
    r"|\bglobal \w*team"
    r"|[\"'](RANK|WORLD_SIZE)[\"']"
)


def test_only_the_command_line_and_the_room_itself_know_a_team_that_is_no_argument() -> None:
    rooms = (path for path in PACKAGE.rglob("*.py") if path.relative_to(PACKAGE).parts[0] not in ("cli", "distributed"))
    found = [f"{path}: {hit[0]}" for path in rooms for hit in LOOKED_UP.finditer(path.read_text(encoding="utf-8"))]
    assert found == []


def test_the_room_keeps_no_team() -> None:
    """Nothing to look up: joining yields the team and stores it nowhere."""
    assert set(dsal.distributed.__all__) == {"ALONE", "Team", "join_processes"}
    texts = [path.read_text(encoding="utf-8") for path in (PACKAGE / "distributed").glob("*.py")]
    assert not any(re.search(r"^\s*global ", text, re.MULTILINE) for text in texts)
