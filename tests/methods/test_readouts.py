"""Methods with exemplars report two read-outs: the head, and the nearest mean of exemplars."""

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import torch

from dsal.data import ImageData
from dsal.methods import METHODS, Phase
from dsal.methods.network.kit.network_method import NetworkMethod
from dsal.methods.network.kit.replay import ReplayMethod
from dsal.protocol.metrics import ConfusionCounts, Tally
from dsal.protocol.phases import PhaseResult
from dsal.protocol.run_checkpoint import load_run_checkpoint, save_run_checkpoint

Trained = Callable[..., NetworkMethod]


def nearest_means(method: NetworkMethod, samples: ImageData) -> np.ndarray:
    kept = method.exemplars.data
    assert kept is not None

    def directions(data: ImageData) -> np.ndarray:
        rows = method.features_of(data).double().numpy()
        return rows / np.linalg.norm(rows, axis=1, keepdims=True)

    rows = directions(kept) + directions(kept.flipped())
    means = np.array([rows[kept.labels.numpy() == label].mean(0) for label in range(method.classes_seen)])
    means /= np.linalg.norm(means, axis=1, keepdims=True)
    return (directions(samples) @ means.T).argmax(1)


@pytest.mark.parametrize("name", ["lucir", "foster", "mnemonics"])
def test_the_other_read_out_of_a_head_is_the_nearest_mean(
    name: str, trained: Trained, three: list[Phase], test: ImageData
) -> None:
    more = {"compress_epochs": 1, "answer": "boosted"} if name == "foster" else {}
    method = trained(name, three[:1], exemplars_per_class=3, **more)
    method.other_predictions(test)  # means must not outlive the phase
    method = trained(name, three[:2], exemplars_per_class=3, **more)
    others = method.other_predictions(test)
    assert set(others) == {"nme"}
    np.testing.assert_array_equal(others["nme"], nearest_means(method, test))
    assert (others["nme"] != method.predict(test)).any()
    assert method.other_predictions(test.take(slice(0)))["nme"].shape == (0,)


def test_means_are_those_of_the_last_phase(trained: Trained, three: list[Phase], test: ImageData) -> None:
    method = trained("lucir", three[:1], exemplars_per_class=3)
    for phase in three[1:]:
        method.other_predictions(test)
        for _ in method.learn(phase):
            pass
        np.testing.assert_array_equal(method.other_predictions(test)["nme"], nearest_means(method, test))


def test_the_other_read_out_of_icarl_is_its_head(trained: Trained, three: list[Phase], test: ImageData) -> None:
    method = trained("icarl", three[:2], exemplars_per_class=3)
    network = method.network.eval()
    with torch.no_grad():
        expected = network(network.normalise(test.images)).logits.argmax(1)
    np.testing.assert_array_equal(method.other_predictions(test)["cnn"], expected)
    np.testing.assert_array_equal(method.predict(test), nearest_means(method, test))


def test_methods_without_exemplars_have_one_read_out(trained: Trained, three: list[Phase], test: ImageData) -> None:
    assert trained("lwf", three[:1]).other_predictions(test) == {}
    assert trained("lucir", three[:1], exemplars_per_class=0).other_predictions(test) == {}
    keep = {name for name in METHODS.names() if issubclass(METHODS.get(name), ReplayMethod)}
    assert keep >= {
        "icarl",
        "eeil",
        "bic",
        "lucir",
        "podnet",
        "foster",
        "mnemonics",
        "online-lucir",
        "rmm",
        "icarl-rmm",
    }
    assert keep >= {"lucir-aanets", "podnet-aanets"}


def test_a_checkpoint_keeps_the_counts_of_both(trained: Trained, three: list[Phase], tmp_path: Path) -> None:
    counts = np.array([[3, 1], [0, 2]], dtype=np.int32)
    others = {"nme": Tally(np.array([2, 1]), np.array([4, 2]))}
    results = [PhaseResult(0, Tally.of(counts), ConfusionCounts.of(counts), 1.0, 0.5, others)]
    save_run_checkpoint(tmp_path / "state", results, trained("lucir", three[:1]), finished=True)
    found = load_run_checkpoint(tmp_path / "state")
    assert found is not None
    (result,) = found.results
    assert result.tally.hits.tolist() == [3, 2]
    assert result.others["nme"].hits.tolist() == [2, 1]
    assert result.others["nme"].totals.tolist() == [4, 2]
