"""Three sites learn together: each keeps its rows and sends only its model, and the models are merged."""

import tempfile
from pathlib import Path

import numpy as np
from sklearn.datasets import load_digits

from dsal import DSALClassifier

X, y = load_digits(return_X_y=True)
X_test, y_test = X[1200:], y[1200:]
X, y = X[:1200], y[:1200]
sites = np.digitize(np.random.default_rng(0).random(len(y)) + 0.1 * (y - 4.5), [0.2, 0.8])  # unequal shares of classes


def new_model() -> DSALClassifier:
    """All sites agree on the options; the seed fixes the random expansion."""
    return DSALClassifier(expansion_size=512, compensation=None, random_state=0)


with tempfile.TemporaryDirectory() as folder:
    for site in range(3):  # at each site
        rows = sites == site
        model = new_model().fit(X[rows], y[rows])
        model.save(Path(folder) / f"site{site}.safetensors")
        print(f"site {site}: {rows.sum()} rows, {len(model.classes_)} classes, alone {model.score(X_test, y_test):.1%}")

    merged = DSALClassifier.load(Path(folder) / "site0.safetensors")  # at the centre
    for site in (1, 2):
        merged.merge(DSALClassifier.load(Path(folder) / f"site{site}.safetensors"))

print(f"merged: {len(merged.classes_)} classes, {merged.score(X_test, y_test):.1%}")
pooled = new_model().fit(X, y)
assert (merged.predict(X_test) == pooled.predict(X_test)).all()
print("the same predictions as if all rows had been in one place")
