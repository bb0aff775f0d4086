"""Base training on two processes, against one."""

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from dsal.store import load_tensors

from . import jobs
from .conftest import JOBS, Start
from .test_together import Answers, together  # noqa: F401 (a fixture)


@pytest.fixture(scope="module")
def curve() -> np.ndarray:
    """Of one process: (epochs, 3): loss, training and held-out accuracy."""
    made = jobs.training(False)
    list(made.epochs())
    return jobs.trained(made, "alone")["alone.curve"]


def test_follows_the_curve_of_one_process(together: list[Answers], curve: np.ndarray) -> None:  # noqa: F811
    """Same batches, same augmentation; with shared statistics only the order of float32 sums differs.

    Rounding of 1e-7 in a gradient grows by a factor of about ten in every dozen steps of so small a network at first;
    after three epochs of three steps, 1e-3 of the loss is far above it and far below what a wrong gradient changes: a
    gradient that is summed instead of averaged, or taken from one rank, moves the loss by 1e-2 and more.
    """
    np.testing.assert_allclose(together[0]["syncTrue.curve"][:, 0], curve[:, 0], rtol=1e-3)
    # Without them each rank normalises by its own half of a batch, which is another training: near, not equal.
    np.testing.assert_allclose(together[0]["syncFalse.curve"][:, 0], curve[:, 0], rtol=0.1)


def test_all_ranks_end_up_with_the_same_weights(together: list[Answers]) -> None:  # noqa: F811
    first, *others = together
    for answers in others:
        for name in first:
            if name.startswith("sync"):
                np.testing.assert_array_equal(answers[name], first[name], err_msg=name)


def test_resumes_after_a_kill_to_the_same_weights(
    together: list[Answers],  # noqa: F811
    start: Start,
    finish: Callable[..., None],
    tmp_path: Path,
) -> None:
    if len(together) != 2:
        pytest.skip("two ranks tell")
    ranks = start(2, JOBS, "interrupted", tmp_path)
    errors = [process.communicate(timeout=120)[1] for process in ranks]
    assert [process.returncode for process in ranks] == [1, -9]
    assert f"rank 1 (process {ranks[1].pid} on " in errors[0]
    assert "Traceback" not in errors[0]
    finish(2, "interrupted", tmp_path)
    resumed = load_tensors(tmp_path / "resumed.safetensors")[0]
    assert len(resumed["syncFalse.curve"]) == jobs.RECIPE.epochs
    for name, array in resumed.items():
        np.testing.assert_array_equal(array, together[0][name], err_msg=name)
