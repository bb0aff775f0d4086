"""Base training on two processes, against one."""

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from dsal.distributed import ALONE
from dsal.files.tensors import load_tensors

from . import jobs
from .conftest import JOBS, Answers, Start


def test_follows_the_curve_of_one_process(together: list[Answers]) -> None:
    """At the same global batch: same batches, same augmentation, same statistics, so the same loss but for rounding.

    In float32, rounding is not small: the gradient of a ResNet-32 at its first step is off by about one per cent, and
    some steps later the loss of *one* process differs by as much from that of float64. So the comparison is made in
    float64, where only the loss itself is rounded to float32, to 6e-8: 1e-6 is some steps of that, and any error of the
    method (a gradient summed rather than averaged, shares weighed wrongly, statistics of one rank) is far above it.
    """
    np.testing.assert_allclose(together[0]["exact"], jobs.curve(jobs.training(double=True)), rtol=1e-6)


def test_without_shared_statistics_the_curve_is_near(together: list[Answers]) -> None:
    """Each rank then normalises by its own share of a batch: another training, whose loss differs by some per cent."""
    np.testing.assert_allclose(together[0]["curve"][:, 0], together[0]["exact"][:, 0], rtol=0.1)
    assert (together[0]["curve"][:, 0] != together[0]["exact"][:, 0]).all()


def test_all_ranks_end_up_with_the_same_weights(together: list[Answers]) -> None:
    first, *others = together
    for answers in others:
        for name in first:
            if name.startswith("weights."):
                np.testing.assert_array_equal(answers[name], first[name], err_msg=name)


def test_resumes_after_a_kill_to_the_same_weights(
    together: list[Answers], start: Start, finish: Callable[..., None], tmp_path: Path
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
    for name, array in resumed.items():
        np.testing.assert_array_equal(array, together[0][name], err_msg=name)


@pytest.mark.slow
@pytest.mark.parametrize("size", [2, 4])
def test_image_files_come_in_the_same_batches(
    size: int, finish: Callable[..., None], photo_folder: Path, tmp_path: Path
) -> None:
    """Each rank reads its own share; put together they are the batches of one process, pixel by pixel."""
    finish(size, "streamed", tmp_path, photo_folder)
    jobs.streamed(ALONE, str(tmp_path), str(photo_folder))
    alone = load_tensors(tmp_path / "1-0.safetensors")[0]
    ranks = [load_tensors(tmp_path / f"{size}-{rank}.safetensors")[0] for rank in range(size)]
    assert len(alone) == 1 + 96 // 31
    for name, batch in alone.items():
        if name == "losses":
            # float32: the gradient is a little off after the first step, see above
            np.testing.assert_allclose(ranks[0][name], batch, rtol=0.05)
            continue
        whole = np.empty_like(batch)
        for rank, own in enumerate(ranks):
            whole[rank::size] = own[name]
        np.testing.assert_array_equal(whole, batch)
