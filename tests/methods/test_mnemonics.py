"""Mnemonics: LUCIR where pixels stay, a lower loss of nearest means where they move, however little."""

from typing import cast

import numpy as np
import pytest
import torch

from dsal.data import ImageData
from dsal.methods import Phase
from dsal.methods.network.mnemonics import Mnemonics, class_means, nearest_mean_loss

RANDOM = np.random.RandomState(0)
F = torch.from_numpy(RANDOM.standard_normal((6, 7)))
LABELS = torch.tensor([0, 2, 1, 1, 0, 2])


def test_the_loss_of_nearest_means_written_out() -> None:
    means = class_means(F, LABELS)
    expected_means = [(F[0] + F[4]) / 2, (F[2] + F[3]) / 2, (F[1] + F[5]) / 2]
    torch.testing.assert_close(means, torch.stack(expected_means))
    terms = []
    for f, y in zip(F.numpy(), LABELS.numpy(), strict=True):
        cosines = [f @ m / np.linalg.norm(f) / np.linalg.norm(m) for m in means.numpy()]
        terms.append(-np.log(np.exp(cosines[y]) / np.exp(cosines).sum()))
    assert float(nearest_mean_loss(F, LABELS, means)) == pytest.approx(np.mean(terms))


@pytest.mark.parametrize("off", [{"pixel_lr": 0.0}, {"pixel_epochs": 0}])
def test_without_learned_pixels_it_is_lucir(
    trained: object, three: list[Phase], test: ImageData, off: dict[str, float]
) -> None:
    plain = trained("lucir", three, exemplars_per_class=3)  # type: ignore[operator]
    same = trained("mnemonics", three, exemplars_per_class=3, **off)  # type: ignore[operator]
    np.testing.assert_array_equal(same.scores(test), plain.scores(test))


def test_pixels_that_move_by_less_than_half_a_byte_make_a_difference(
    trained: object, three: list[Phase], test: ImageData
) -> None:
    plain = trained("lucir", three, exemplars_per_class=3)  # type: ignore[operator]
    method = trained("mnemonics", three, exemplars_per_class=3, pixel_lr=0.01)  # type: ignore[operator]
    assert (method.scores(test) != plain.scores(test)).any()
    kept = method.exemplars.data.images
    assert kept.dtype == torch.float32
    assert 0 < float((kept - kept.round()).abs().max()) < 0.5
    assert type(method).from_state(method.state()).exemplars.data.images.equal(kept)


def test_pixels_of_new_exemplars_move_to_better_means(trained: object, three: list[Phase]) -> None:
    plain = trained("lucir", three[:1], exemplars_per_class=3)  # type: ignore[operator]
    options = {"exemplars_per_class": 3, "pixel_lr": 1.0, "pixel_epochs": 5}
    method = cast(Mnemonics, trained("mnemonics", three[:1], **options))  # type: ignore[operator]
    before, after = plain.exemplars.data, method.exemplars.data
    assert before is not None
    assert after is not None

    def loss(kept: ImageData) -> float:  # both have the same network: that of phase 0
        rows, labels = method.features_of(three[0].samples), three[0].samples.labels
        return float(nearest_mean_loss(rows, labels, class_means(method.features_of(kept), kept.labels)))

    assert loss(after) < loss(before)
    assert method.exemplars.nbytes == 4 * plain.exemplars.nbytes == 4 * 12 * 28 * 28  # float32 for bytes
    for _ in method.learn(three[1]):
        pass
    later = method.exemplars.data
    assert later is not None
    assert torch.equal(later.images[later.labels < 4], after.images)  # old ones stay
    herded = trained("lucir", three[:1], exemplars_per_class=15).exemplars.data  # type: ignore[operator]
    assert herded is not None
    assert not (herded.images[:, None] == after.images[None]).flatten(2).all(2).any()  # none is a real image
