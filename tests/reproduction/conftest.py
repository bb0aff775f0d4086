"""A whole reproduction of the smallest kind, on real features; tests that change it work on a copy."""

from pathlib import Path

import pytest

from dsal.reproduction.plan import Plan, quick
from dsal.reproduction.reproduction import reproduce, write_documents


@pytest.fixture(scope="session")
def plan(sample_file: Path) -> Plan:
    return quick(dataset=str(sample_file), characters=None, expansion_size=64, activations=("sigmoid", "tanh"))


@pytest.fixture(scope="session")
def reproduction(plan: Plan, tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("reproduction")
    list(reproduce(["all"], plan, out))
    write_documents(out)
    return out
