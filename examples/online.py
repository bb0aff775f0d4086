"""Learn from a stream, one sample at a time: predict first, then learn (prequential evaluation).

New classes appear in the stream: the model starts with five digits and meets the others later.
"""

from sklearn.datasets import load_digits
from sklearn.utils import shuffle

from dsal import DSALClassifier

X, y = shuffle(*load_digits(return_X_y=True), random_state=0)
start = y[:200] < 5
model = DSALClassifier(expansion_size=256, compensation=None, random_state=0)  # main stream: exact, sample by sample
model.partial_fit(X[:200][start], y[:200][start])

correct = 0
for seen, (row, label) in enumerate(zip(X[200:800], y[200:800], strict=True), start=1):
    correct += model.predict(row[None])[0] == label
    model.partial_fit(row[None], [label])
    if seen % 200 == 0:
        print(f"after {seen} samples: {len(model.classes_)} classes, {correct / seen:.1%} right before learning")
assert correct / seen > 0.8

rows = [*X[:200][start], *X[200:800]]
labels = [*y[:200][start], *y[200:800]]
joint = DSALClassifier(expansion_size=256, compensation=None, random_state=0).fit(rows, labels)
assert (joint.predict(X[800:]) == model.predict(X[800:])).all()  # as if all had arrived at once
print("the same predictions as joint training on all of them")
