"""
GridSearchCV and pipelines
==========================

The estimators follow scikit-learn: samples are node indices, and the graph is a parameter. So
``clone``, ``GridSearchCV``, ``cross_val_score`` and pipelines work with them.
"""

import os

import joblib
import plotly.graph_objects as go
from sklearn.linear_model import LogisticRegression
from sklearn.model_selection import GridSearchCV
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

import hoplite

small = os.environ.get("HOPLITE_EXAMPLES") == "small"
epochs = 10 if small else 100

graph = hoplite.load("pubmed")
nodes, test = graph.split.train, graph.split.test
y, y_test = graph.labels[nodes], graph.labels[test]

# %%
# Search a grid with cross-validation on the 60 labelled nodes. Two threads share the graph, and
# start faster than joblib's processes:
search = GridSearchCV(
    hoplite.LGCClassifier(graph, epochs=epochs, dropout=0, lr=0.2),
    {"hops": [2, 5, 10], "weight_decay": [1e-3, 1e-4]},
    cv=3,
    n_jobs=2,
)
with joblib.parallel_config("threading"):
    search.fit(nodes, y)
print(search.best_params_, f"cross-validation {search.best_score_:.1%}")
print(f"test {search.score(test, y_test):.1%}")

# %%
scores, spread = (search.cv_results_[f"{what}_test_score"] for what in ("mean", "std"))
names = [
    f"{p['hops']} hops, decay {p['weight_decay']:g}"
    for p in search.cv_results_["params"]
]
figure = go.Figure()
figure.add_bar(x=scores, y=names, orientation="h", error_x={"array": spread})
figure.update_layout(xaxis_title="cross-validated accuracy", xaxis_tickformat=".0%")
figure

# %%
# Use hop features as a step of a pipeline: any classifier can then learn from the neighbourhood.
for hops in (0, 4):
    pipeline = make_pipeline(
        hoplite.HopFeatures(graph, hops),
        StandardScaler(),
        LogisticRegression(C=0.01, max_iter=500),
    )
    pipeline.fit(nodes, y)
    print(f"logistic regression on hop {hops}: test {pipeline.score(test, y_test):.1%}")
