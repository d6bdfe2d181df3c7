"""
GridSearchCV and pipelines
==========================

The estimators are scikit-learn's: samples are node numbers, the graph is an argument. So ``clone``,
``GridSearchCV``, ``cross_val_score`` and pipelines work as they always do.
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
# A grid with cross-validation on the 60 labelled nodes. Two threads share the graph, and need no
# seconds to start, as the processes would that joblib takes by default:
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
told = [
    f"{p['hops']} hops, decay {p['weight_decay']:g}"
    for p in search.cv_results_["params"]
]
figure = go.Figure()
figure.add_bar(x=scores, y=told, orientation="h", error_x={"array": spread})
figure.update_layout(xaxis_title="cross-validated accuracy", xaxis_tickformat=".0%")
figure

# %%
# Hop features as a step of a pipeline: whatever comes behind them learns from the neighbourhood.
for hops in (0, 4):
    pipeline = make_pipeline(
        hoplite.HopFeatures(graph, hops),
        StandardScaler(),
        LogisticRegression(C=0.01, max_iter=500),
    )
    pipeline.fit(nodes, y)
    print(f"logistic regression on hop {hops}: test {pipeline.score(test, y_test):.1%}")
