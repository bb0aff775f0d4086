"""Classify the rows of a pandas table; later, rows of a new class arrive."""

import pandas as pd
from sklearn.compose import make_column_transformer
from sklearn.datasets import load_wine
from sklearn.preprocessing import OneHotEncoder, StandardScaler

from dsal import DSALClassifier

wine = load_wine(as_frame=True)
table = wine.data.drop(columns="color_intensity").assign(
    colour=pd.cut(wine.data.color_intensity, [0, 3, 5, 20], labels=["light", "medium", "deep"]).astype(str),
    cultivar=wine.target.map({0: "Barolo", 1: "Grignolino", 2: "Barbera"}),
)
held_out = table.sample(frac=0.3, random_state=0)
table = table.drop(held_out.index)

columns = make_column_transformer((OneHotEncoder(handle_unknown="ignore"), ["colour"]), remainder=StandardScaler())
known = table[table.cultivar != "Barbera"]
columns.fit(known.drop(columns="cultivar"))

model = DSALClassifier(expansion_size=256, gamma=1.0, random_state=0)
model.partial_fit(columns.transform(known.drop(columns="cultivar")), known.cultivar)
print("classes:", *model.classes_)

new = table[table.cultivar == "Barbera"]  # the old rows are not needed any more
model.partial_fit(columns.transform(new.drop(columns="cultivar")), new.cultivar)
print("classes:", *model.classes_)

accuracy = model.score(columns.transform(held_out.drop(columns="cultivar")), held_out.cultivar)
print(f"held-out accuracy: {accuracy:.1%}")
assert accuracy > 0.9
