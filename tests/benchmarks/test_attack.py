"""The attack on the server, in small."""

from pathlib import Path

import pytest

pytest.importorskip("fastapi")
pytest.importorskip("prometheus_client")


def test_every_kind_of_hostile_request_is_http_or_ends() -> None:
    from benchmarks.attack.kinds import Attacker

    weights = Attacker(("127.0.0.1", 1), 0, b"x" * 5000).kinds
    assert len(weights) == 18
    assert Attacker(("127.0.0.1", 1), 0, b"x" * 5000).step()[1] == 0  # nobody listens


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

    found = mutations(300, most_seconds=600)
    assert found["status_5xx"] == []
    assert found["slowest_ms"] < 10_000
    assert found["grown_mb"] < 200


@pytest.mark.slow
def test_hostile_requests_beside_honest_ones(tmp_path: Path) -> None:
    pytest.importorskip("onnxruntime")
    from benchmarks.attack.hostile import hostile

    found = hostile(60, "2GB", alone=5)
    assert found["beside"]["wrong"] == []
    assert found["images_learned"] == found["images_acknowledged"]
    assert found["status_500"] == 0
    assert found["beside"]["resident_mb"]["largest"] < 1.2 * 2048
