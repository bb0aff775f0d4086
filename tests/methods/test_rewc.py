"""R-EWC: rotations that decorrelate, and EWC where they do nothing."""

from __future__ import annotations

from collections.abc import Callable
from typing import cast

import numpy as np
import pytest
import torch
from torch import Generator, Tensor
from torch.nn import functional

from dsal.data import ImageData
from dsal.methods import Phase
from dsal.methods.network.rewc import REWC, RotatedImportance, carried, rotated

NAME = "body.layer2.0.conv1.weight"
Trained = Callable[..., REWC]


def orthogonal(size: int, seed: int) -> Tensor:
    return torch.linalg.qr(torch.randn(size, size, generator=Generator().manual_seed(seed)).double()).Q


def test_without_rotations_it_is_ewc(
    trained: Trained, three: list[Phase], test: ImageData, monkeypatch: pytest.MonkeyPatch
) -> None:
    ewc, whole = trained("ewc", three, clip=1e-2), trained("r-ewc", three)
    rotations_of = RotatedImportance.rotations_of

    def none(part: RotatedImportance, phase: Phase) -> tuple[dict[str, Tensor], dict[str, Tensor]]:
        u_in, u_out = ({name: torch.eye(len(u)) for name, u in us.items()} for us in rotations_of(part, phase))
        return u_in, u_out

    monkeypatch.setattr(RotatedImportance, "rotations_of", none)
    same = trained("r-ewc", three)
    np.testing.assert_array_equal(same.scores(test), ewc.scores(test))
    assert (whole.scores(test) != ewc.scores(test)).any()


@pytest.mark.parametrize("off", [{"strength": 0.0}, {"clip": 0.0}])
def test_without_its_term_it_is_fine_tuning(
    off: dict[str, float], trained: Trained, three: list[Phase], test: ImageData
) -> None:
    expected = trained("finetune", three).scores(test)
    np.testing.assert_array_equal(trained("r-ewc", three, **off).scores(test), expected)


def test_rotations_decorrelate_inputs_and_gradients(trained: Trained, three: list[Phase]) -> None:
    method = trained("r-ewc", three[:1])
    network, layer = method.network.eval(), method.network.get_submodule(NAME.removesuffix(".weight"))
    kept: list[Tensor] = []
    layer.register_forward_hook(lambda _, x, y: kept.extend((x[0], y)))
    data = cast(ImageData, three[0].samples)
    loss = functional.cross_entropy(network(network.normalise(data.images)).logits, data.labels, reduction="sum")
    (gradient,) = torch.autograd.grad(loss, kept[1])
    part = method.part(RotatedImportance)
    for maps, basis in ((kept[0], part.u_in[NAME]), (gradient, part.u_out[NAME])):
        turned = torch.einsum("nchw,ck->knhw", maps.detach(), basis).flatten(1)
        moments = (turned @ turned.T).numpy()
        off = moments - np.diag(np.diag(moments))
        assert np.abs(off).max() < 1e-4 * np.abs(moments).max()
        torch.testing.assert_close(basis.T @ basis, torch.eye(len(basis)), atol=1e-5, rtol=0)


def test_rotated_kernels_written_out_and_turned_back() -> None:
    kernels, u_in, u_out = torch.randn(3, 4, 2, 2).double(), orthogonal(4, 0), orthogonal(3, 1)
    turned = rotated(kernels, u_in, u_out)
    for h in range(2):
        for w in range(2):
            np.testing.assert_allclose(turned[:, :, h, w], u_out.T @ kernels[:, :, h, w] @ u_in)
    torch.testing.assert_close(rotated(turned, u_in.T, u_out.T), kernels)
    x = torch.randn(2, 4, 5, 5).double()  # x -> U_in^T x -> W' -> U_out is the same layer
    inside = functional.conv2d(torch.einsum("nchw,ck->nkhw", x, u_in), turned)
    torch.testing.assert_close(torch.einsum("nkhw,ck->nchw", inside, u_out), functional.conv2d(x, kernels))


def test_importance_is_carried_over_as_the_diagonal_of_the_old_quadratic_form() -> None:
    importance, turn_in, turn_out = torch.rand(3, 4, 1, 1).double(), orthogonal(4, 2), orthogonal(3, 3)
    both = np.kron(turn_out.numpy(), turn_in.numpy())  # of W as a vector, row by row
    expected = np.diag(both.T @ np.diag(importance.flatten().numpy()) @ both)
    found = carried(importance, turn_in, turn_out)
    np.testing.assert_allclose(found.flatten(), expected)
    assert float(found.sum()) == pytest.approx(float(importance.sum()))
    torch.testing.assert_close(carried(importance, torch.eye(4).double(), torch.eye(3).double()), importance)


def test_importance_is_that_of_rotated_gradients(trained: Trained, three: list[Phase]) -> None:
    method = trained("r-ewc", three[:1], fisher_batch=60, clip=1e9)
    network, data = method.network.eval(), cast(ImageData, three[0].samples)
    weight = dict(network.named_parameters())[NAME]
    loss = functional.cross_entropy(network(network.normalise(data.images)).logits, data.labels)
    (gradient,) = torch.autograd.grad(loss, weight)
    part = method.part(RotatedImportance)
    importance = part.importance[NAME]
    torch.testing.assert_close(importance, rotated(gradient, part.u_in[NAME], part.u_out[NAME]) ** 2)
    assert float(importance.sum()) == pytest.approx(float((gradient**2).sum()), rel=1e-4)
    assert importance.max() > (gradient**2).max()  # concentrated
