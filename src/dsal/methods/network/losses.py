"""Losses as pure functions of tensors, each the mean over a batch: one formula, one function, one source."""

from __future__ import annotations

from collections.abc import Mapping

import torch
from torch import Tensor
from torch.nn import functional


def new_cross_entropy(logits: Tensor, labels: Tensor, known: int) -> Tensor:
    """-log softmax(o[known:])_y: cross-entropy over the new classes alone; logits (n, classes), labels (n,) >= known.

    LwF's and EWC's in class-incremental learning: over all classes, the old ones would be pushed down for nothing.
    """
    return functional.cross_entropy(logits[:, known:], labels - known)


def distillation(logits: Tensor, old: Tensor, temperature: float) -> Tensor:
    """-sum_c softmax(old / T)_c log softmax(o / T)_c (Hinton et al., 2015; LwF, eq. 2), for logits (n, c) of both."""
    soft = (old / temperature).softmax(dim=1)
    return -(soft * (logits / temperature).log_softmax(dim=1)).sum(dim=1).mean()


def quadratic_pull(
    parameters: Mapping[str, Tensor], anchors: Mapping[str, Tensor], importance: Mapping[str, Tensor]
) -> Tensor:
    """sum_i F_i (theta_i - theta*_i)^2 / 2 (EWC, eq. 3), over the parameters that have an importance."""
    terms = [(f * (parameters[name] - anchors[name]) ** 2).sum() for name, f in importance.items()]
    return torch.stack(terms).sum() / 2


def less_forget(features: Tensor, old: Tensor) -> Tensor:
    """1 - cos(f, f_old) (LUCIR, eq. 6), for features (n, d) of both."""
    return (1 - functional.cosine_similarity(features, old)).mean()


def margin_ranking(cosines: Tensor, labels: Tensor, known: int, margin: float, negatives: int) -> Tensor:
    """mean max(0, m - cos(w_y, f) + cos(w_j, f)) over old samples and their K nearest new classes j (LUCIR, eq. 8).

    Args:
        cosines: (n, classes), not scaled.
        labels: (n,).
        known: the number of old classes.
        margin: m.
        negatives: K; with fewer new classes, all of them.

    Returns:
        0 where the batch holds no old sample.
    """
    old = labels < known
    if not old.any():
        return cosines.sum() * 0.0
    true = cosines[old].gather(1, labels[old][:, None])  # (n_old, 1)
    nearest = cosines[old, known:].topk(min(negatives, cosines.shape[1] - known), dim=1).values  # (n_old, K)
    return (margin - true + nearest).clamp(min=0).mean()


def feature_distance(features: Tensor, old: Tensor) -> Tensor:
    """|f - f_old|^2 / 2 (LFL, eq. 3), for features (n, d) of both."""
    return ((features - old) ** 2).sum(dim=1).mean() / 2
