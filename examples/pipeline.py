"""DSALClassifier as a step of a scikit-learn pipeline, with options chosen by cross-validation."""

from sklearn.datasets import load_digits
from sklearn.model_selection import GridSearchCV, train_test_split
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from dsal import DSALClassifier

X, y = load_digits(return_X_y=True)
X_train, X_test, y_train, y_test = train_test_split(X, y, test_size=0.3, random_state=0, stratify=y)

pipeline = make_pipeline(StandardScaler(), DSALClassifier(expansion_size=256, random_state=0))
grid = {"dsalclassifier__gamma": [0.1, 10.0], "dsalclassifier__compensation": [0.0, 0.6]}
search = GridSearchCV(pipeline, grid, cv=3).fit(X_train, y_train)
print("chosen:", search.best_params_)

accuracy = search.score(X_test, y_test)
print(f"test accuracy: {accuracy:.1%}")
assert accuracy > 0.95
