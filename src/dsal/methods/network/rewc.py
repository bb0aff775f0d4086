"""R-EWC: elastic weight consolidation in rotated parameter space (Liu et al., ICPR 2018)."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor, nn
from torch.nn import functional

from dsal.methods.contract import Phase
from dsal.methods.network.ewc import EWC, Importance


class RotatedImportance(Importance):
    """The importance of convolutions in coordinates that change with every phase."""

    tensors = (*Importance.tensors, "u_in", "u_out")

    def __init__(self, method: EWC) -> None:
        super().__init__(method)
        self.u_in: dict[str, Tensor] = {}  # (in, in) by parameter
        self.u_out: dict[str, Tensor] = {}  # (out, out)

    def turn(self, phase: Phase) -> None:
        old_in, old_out = self.u_in, self.u_out
        self.u_in, self.u_out = self.rotations_of(phase)
        for name in old_in:
            turns = old_in[name].T @ self.u_in[name], old_out[name].T @ self.u_out[name]
            self.importance[name] = carried(self.importance[name], *turns)

    def turned(self, name: str, values: Tensor) -> Tensor:
        return rotated(values, self.u_in[name], self.u_out[name]) if name in self.u_in else values

    def rotations_of(self, phase: Phase) -> tuple[dict[str, Tensor], dict[str, Tensor]]:
        """Return U_in and U_out of every convolution by parameter, at the end of a phase."""
        network, device = self.method.network.eval(), self.method.torch_device
        convolutions = {name: own for name, own in network.named_modules() if isinstance(own, nn.Conv2d)}
        layers = {f"{name}.weight": own for name, own in convolutions.items() if own.groups == 1}
        sums: tuple[dict[str, Tensor], dict[str, Tensor]] = {}, {}  # of inputs, of gradients of outputs
        seen: dict[str, tuple[Tensor, Tensor]] = {}  # input and output of a layer

        def record(name: str) -> torch.utils.hooks.RemovableHandle:
            return layers[name].register_forward_hook(lambda _, x, y: seen.update({name: (x[0], y)}))

        hooks = [record(name) for name in layers]
        try:
            for images, labels in phase.samples.batches(self.method.fisher_batch):
                logits = network(network.normalise(images.to(device))).logits
                loss = functional.cross_entropy(logits, labels.to(device), reduction="sum")
                gradients = torch.autograd.grad(loss, [seen[name][1] for name in layers])
                for name, gradient in zip(layers, gradients, strict=True):
                    for total, maps in zip(sums, (seen[name][0], gradient), strict=True):
                        rows = maps.detach().transpose(0, 1).flatten(1).double()  # (channels, positions)
                        total[name] = rows @ rows.T + total.get(name, 0.0)
        finally:
            for hook in hooks:
                hook.remove()
        # in the layout that a restored state has: another one would be rounded differently
        bases = [{name: torch.linalg.eigh(total[name]).eigenvectors for name in layers} for total in sums]
        u_in, u_out = ({name: u.float().contiguous() for name, u in of_side.items()} for of_side in bases)
        return u_in, u_out


@dataclass(kw_only=True, eq=False)
class REWC(EWC):
    """EWC with the importance of convolutions measured in coordinates where their Fisher matrix is nearly diagonal.

    A convolution W (out, in, h, w) becomes W' = U_out^T W U_in, with U_in the eigenvectors of E[x x^T] for its input x
    and U_out those of E[g g^T] for the gradient g of its output, over channels, at the end of a phase. Then
    L = CE(o[new], y) + strength sum_i F'_i (theta'_i - theta'*_i)^2 / 2. SGD takes the same steps in both coordinates:
    the network itself is unchanged. Normalisations, grouped convolutions and the head are as in EWC.

    Unlike the published code (RotateNetworks), g is rotated so that its moments become diagonal (there by the
    transpose, which leaves them as mixed as before); the Fisher matrix is EWC's, with its clip, of batches and true
    labels (there of single images and labels drawn from the network); and the importance of earlier phases is carried
    over (there it is dropped): when the coordinates change, F' becomes the diagonal of the old quadratic form in the
    new ones. It stores what EWC does and two square matrices for each convolution: no image.

    Args:
        clip: largest importance of a weight. Rotations concentrate it, and EWC's 1e-4 would cut off most of it; 1e-2 is
            1 / (lr strength), where one SGD step leads straight back to the old weight.
    """

    name = "r-ewc"
    title = "R-EWC"

    clip: float = 1e-2

    parts = (RotatedImportance,)


def rotated(weights: Tensor, u_in: Tensor, u_out: Tensor) -> Tensor:
    """Return U_out^T W U_in at every position of kernels W (out, in, h, w)."""
    return torch.einsum("oihw,ok,il->klhw", weights, u_out, u_in)


def carried(importance: Tensor, turn_in: Tensor, turn_out: Tensor) -> Tensor:
    """Return the diagonal, in new coordinates, of the quadratic form diag(F) (out, in, h, w), given U_old^T U_new.

    F''_kl = sum_oi F'_oi (turn_out_ok turn_in_il)^2: its sum does not change.
    """
    return rotated(importance, turn_in**2, turn_out**2)
