"""Choose the unlabelled images worth labelling: typical of what the model is unsure of, and diverse.

The rule was chosen among twenty by the accuracy of a model after it learned the images: see docs/photo-results.md.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float64]

_MIN_WEIGHT = 1e-6  # of an image the model is sure of: k-means needs positive weights


def most_useful(x: NDArray[np.float32], likely: Array, count: int) -> list[int]:
    """Return the rows most worth labelling, the most useful first.

    k-means divides the features, scaled to length 1, into ``count`` clusters. Rows are weighted by the model's doubt,
    so there are many small clusters where it is unsure. From each cluster the row nearest to the centre is chosen. The
    cluster with the largest sum of doubts comes first.

    Args:
        x: features (n, d).
        likely: probabilities (n, c).
        count: number of rows to return; all rows if there are not more.
    """
    from sklearn.cluster import KMeans

    doubt = doubts(likely) + _MIN_WEIGHT
    most_doubtful: list[int] = np.argsort(-doubt, kind="stable").tolist()
    if len(x) <= count:
        return most_doubtful
    lengths = np.linalg.norm(x, axis=1, keepdims=True)
    directions = x / np.where(lengths > 0, lengths, 1.0)
    if len(np.unique(directions, axis=0)) <= count:  # k-means needs as many distinct rows as clusters
        return most_doubtful[:count]
    clusters = KMeans(count, n_init=1, random_state=0).fit(directions, sample_weight=doubt)
    middles = clusters.transform(directions).argmin(0)  # the nearest row to each centre
    weights = np.bincount(clusters.labels_, doubt, minlength=count)
    chosen = dict.fromkeys(middles[np.argsort(-weights, kind="stable")].tolist())
    return [*chosen, *(row for row in most_doubtful if row not in chosen)][:count]


def doubts(likely: Array) -> Array:
    """Return 1 minus the margin between the two most likely classes (n,); 1 if there is only one class.

    >>> doubts(np.array([[0.5, 0.5, 0.0], [0.75, 0.25, 0.0]])).tolist()
    [1.0, 0.5]
    """
    if likely.shape[1] < 2:
        return np.ones(len(likely))
    two = np.partition(likely, -2, axis=1)[:, -2:]
    doubt: Array = 1.0 - (two[:, 1] - two[:, 0])
    return doubt
