"""Schemathesis over the OpenAPI schema: whatever comes, no 500."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings

schemathesis = pytest.importorskip("schemathesis")

from starlette.testclient import TestClient  # noqa: E402

from dsal.serve import Settings, create_app  # noqa: E402

from .conftest import LOCAL, teach  # noqa: E402


@pytest.fixture
def operations(tmp_path: Path, weights: Path, album: Path) -> Iterator[list[Any]]:
    """Every operation of a server with one model."""
    folder = tmp_path / "models"
    folder.mkdir()
    app = create_app(
        Settings(folder=folder, backbone=str(weights), expansion_size=16, allowed_hosts=("testserver",), timeout=20)
    )
    with TestClient(app, base_url=LOCAL) as client:
        teach(client, album, "char 0", name="0")  # a name that is found soon
        schema = schemathesis.openapi.from_asgi("/openapi.json", app)
        yield [found.ok() for found in schema.get_all_operations()]


def ask(operations: list[Any], examples: int) -> None:
    assert len(operations) > 15
    for operation in operations:
        if operation.path.endswith("/export"):
            continue  # takes a process of its own each time

        @settings(max_examples=examples, deadline=None, database=None, suppress_health_check=list(HealthCheck))
        @given(case=operation.as_strategy())
        def answered(case: Any) -> None:
            answer = case.call()
            assert answer.status_code < 500, answer.text
            if answer.status_code >= 400:
                assert set(answer.json()) == {"error"}

        answered()


def test_a_little_of_everything(operations: list[Any]) -> None:
    ask(operations, examples=3)


@pytest.mark.slow
def test_much_of_everything(operations: list[Any]) -> None:
    ask(operations, examples=200)
