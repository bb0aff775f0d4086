"""Losses as pure functions of tensors, each the mean over a batch unless stated otherwise."""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence

import torch
from torch import Tensor
from torch.nn import functional


def new_cross_entropy(logits: Tensor, labels: Tensor, known: int) -> Tensor:
    """Return -log softmax(o[known:])_y, the cross-entropy over new classes; logits (n, classes), labels (n,) >= known.

    LwF and EWC use it in class-incremental learning: over all classes, it would needlessly push down the old ones.
    """
    return functional.cross_entropy(logits[:, known:], labels - known)


def distillation(logits: Tensor, old: Tensor, temperature: float, weights: Tensor | None = None) -> Tensor:
    """Return -sum_c p_c log softmax(o / T)_c with p = softmax(old / T) (Hinton et al., 2015; LwF, eq. 2).

    Args:
        logits: o, (n, c).
        old: (n, c).
        temperature: T.
        weights: class weights (c,) that multiply p, which is then rescaled to sum 1 (FOSTER).
    """
    soft = (old / temperature).softmax(dim=1)
    if weights is not None:
        soft = soft * weights / (soft * weights).sum(dim=1, keepdim=True)
    return -(soft * (logits / temperature).log_softmax(dim=1)).sum(dim=1).mean()


def grouped_distillation(logits: Tensor, old: Tensor, groups: Sequence[int], temperature: float) -> Tensor:
    """Return sum_g KD_T(o[g], old[g]) over groups of classes (EEIL, eq. 3).

    Args:
        logits: o, (n, classes).
        old: (n, c), of the first c classes.
        groups: number of classes in each group, in order; groups beyond ``old`` are ignored.
        temperature: T.
    """
    ends = [end for end in itertools.accumulate(groups) if end <= old.shape[1]]
    spans = itertools.pairwise([0, *ends])
    return torch.stack([distillation(logits[:, a:b], old[:, a:b], temperature) for a, b in spans]).sum()


def effective_weights(counts: Tensor, beta: float) -> Tensor:
    """Return (1 - b) / (1 - b^n_c), scaled to mean 1 (Cui et al., 2019), for image counts n (classes,)."""
    weights = (1 - beta) / (1 - beta ** counts.clamp(min=1).double())
    return (weights / weights.mean()).float()


def quadratic_pull(
    parameters: Mapping[str, Tensor], anchors: Mapping[str, Tensor], importance: Mapping[str, Tensor]
) -> Tensor:
    """Return sum_i F_i (theta_i - theta*_i)^2 / 2 (EWC, eq. 3), over the parameters that have an importance."""
    terms = [(f * (parameters[name] - anchors[name]) ** 2).sum() for name, f in importance.items()]
    return torch.stack(terms).sum() / 2


def less_forget(features: Tensor, old: Tensor) -> Tensor:
    """Return 1 - cos(f, f_old) (LUCIR, eq. 6), for features (n, d) of both."""
    return (1 - functional.cosine_similarity(features, old)).mean()


def margin_ranking(cosines: Tensor, labels: Tensor, known: int, margin: float, negatives: int) -> Tensor:
    """Return mean max(0, m - cos(w_y, f) + cos(w_j, f)) over old samples and K nearest new classes j (LUCIR, eq. 8).

    Args:
        cosines: (n, classes), not scaled.
        labels: (n,).
        known: the number of old classes.
        margin: m.
        negatives: K; all new classes if there are fewer.

    Returns:
        0 if the batch has no old sample.
    """
    old = labels < known
    if not old.any():
        return cosines.sum() * 0.0
    true = cosines[old].gather(1, labels[old][:, None])  # (n_old, 1)
    nearest = cosines[old, known:].topk(min(negatives, cosines.shape[1] - known), dim=1).values  # (n_old, K)
    return (margin - true + nearest).clamp(min=0).mean()


def feature_distance(features: Tensor, old: Tensor) -> Tensor:
    """Return |f - f_old|^2 / 2 (LFL, eq. 3), for features (n, d) of both."""
    return ((features - old) ** 2).sum(dim=1).mean() / 2


def frobenius(features: Tensor, old: Tensor) -> Tensor:
    """Return |F - F_old|_F over the batch, not its mean (PASS, IL2A), for features (n, d) of both: grows as sqrt(n)."""
    distance: Tensor = (features - old).norm()
    return distance


def implicit_augmentation(logits: Tensor, weights: Tensor, labels: Tensor, covariances: Tensor, ratio: float) -> Tensor:
    """Return o_j + ratio / 2 (w_j - w_y)^T S_y (w_j - w_y), scores equivalent to infinitely many draws (IL2A).

    Args:
        logits: o of prototypes, (n, classes).
        weights: w, the rows of the head (classes, d).
        labels: y, (n,).
        covariances: S_y, (n, d, d).
        ratio: scale of the covariance of the draws.
    """
    difference = weights - weights[labels][:, None]  # (n, classes, d)
    return logits + ratio / 2 * (difference @ covariances * difference).sum(dim=2)


def nearest_prototype(features: Tensor, prototypes: Tensor) -> Tensor:
    """Return s = max_c cos(f, p_c) (SSRE): features (n, d), prototypes (classes, d) -> (n,)."""
    return functional.linear(functional.normalize(features), functional.normalize(prototypes)).max(dim=1).values


def nca(logits: Tensor, labels: Tensor) -> Tensor:
    """Return -log [exp(o_y - m) / (1 + sum_{j != y} exp(o_j - m))] with m = max o (PODNet), for logits (n, classes).

    It omits the paper's margin of the true class: PODNet's published code subtracts the margin from all similarities,
    where it cancels, and leaves exp(0) for the true class in the sum. The published values are those of this form.
    """
    shifted = logits - logits.max(dim=1, keepdim=True).values
    rows = torch.arange(len(labels), device=labels.device)
    others = shifted.index_put((rows, labels), torch.zeros_like(shifted[:, 0]))
    return (others.logsumexp(dim=1) - shifted[rows, labels]).mean()


def pod_spatial(maps: Sequence[Tensor], old: Sequence[Tensor]) -> Tensor:
    """Return the mean over depths of |p(h) - p(h_old)| (PODNet), for maps (n, channels, height, width) of both.

    p(h): squares of a map summed over its width and over its height, concatenated and scaled to length 1.
    """
    terms = [(_pooled(a) - _pooled(b)).norm(dim=1).mean() for a, b in zip(maps, old, strict=True)]
    return torch.stack(terms).mean()


def _pooled(image: Tensor) -> Tensor:
    squares = image.float() ** 2  # (n, channels, height, width)
    return functional.normalize(torch.cat([squares.sum(dim=3).flatten(1), squares.sum(dim=2).flatten(1)], dim=1))
