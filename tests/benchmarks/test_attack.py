"""The attack on the server, in small."""

import json
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]

pytest.importorskip("fastapi")
pytest.importorskip("prometheus_client")


def test_every_kind_of_hostile_request_is_http_or_ends() -> None:
    from benchmarks.attack.kinds import Attacker

    weights = Attacker(("127.0.0.1", 1), 0, b"x" * 5000).kinds
    assert len(weights) == 18
    assert Attacker(("127.0.0.1", 1), 0, b"x" * 5000).step()[1] == 0  # nobody listens


def test_runs_with_different_damage_count_together(tmp_path: Path) -> None:
    from benchmarks.attack.served import record
    from benchmarks.attack.table import attack_section

    path, committed = tmp_path / "attack.json", ROOT / "benchmarks" / "results" / "attack.json"
    one = json.loads(committed.read_text())["mutations"][0]
    for seed, files in ((1, 10), (0, 1000), (1, 2000)):  # the last takes the place of the first
        record(path, "mutations", {**one, "seed": seed, "files": files})
    assert [run["seed"] for run in json.loads(path.read_text())["mutations"]] == [0, 1]
    assert "3,000 damaged model files" in attack_section(path, tmp_path / "none")


@pytest.mark.slow
def test_killed_while_uploads_and_locks_come_and_go() -> None:
    from benchmarks.attack.kills import kills

    found = kills(6, 6, most_seconds=600)
    assert (found["killed"], found["terminated"]) == (6, 6)
    assert (found["lessons_lost"], found["lessons_doubled"], found["false_denials"]) == (0, 0, 0)
    assert max(times["slowest"] for times in found["exit_ms"].values()) < 1000 * found["grace"] + 2000


@pytest.mark.slow
def test_damaged_uploads() -> None:
    pytest.importorskip("onnxruntime")
    from benchmarks.attack.mutations import mutations

    found = mutations(300, seed=7, most_seconds=600)
    assert found["status_5xx"] == []
    assert found["slowest_ms"] < 10_000
    assert found["grown_mb"] < 200


@pytest.mark.slow
def test_hostile_requests_beside_honest_ones(tmp_path: Path) -> None:
    pytest.importorskip("onnxruntime")
    from benchmarks.attack.hostile import hostile

    found = hostile(60, "2GB", alone=5, most_seconds=600)
    assert found["beside"]["wrong"] == []
    assert found["images_learned"] == found["images_acknowledged"]
    assert found["status_500"] == 0
    assert found["beside"]["resident_mb"]["largest"] < 1.2 * 2048
