"""
When neighbours differ
======================

Most graph networks smooth: they assume that neighbours are similar. In a graph of buyers and
sellers, or of words that follow each other, they are not. A learned filter adapts.

These graphs have three classes; between 10 % and 90 % of their edges are within a class. At one
third, the edges contain no information.
"""

import os

import plotly.graph_objects as go

import hoplite
from hoplite.io import synthetic

small = os.environ.get("HOPLITE_EXAMPLES") == "small"  # the tests' size
shares = (0.1, 0.9) if small else (0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9)

# %%
# Hop 0 is logistic regression without the graph; SGC smooths once; LGC learns a coefficient of any
# sign for each of four hops; hop blocks learn a linear map for each of two hops.
models = {
    "only features": ("sgc", {"hops": 0}),
    "SGC, smooths": ("sgc", {"hops": 1}),
    "LGC, learns the filter": (
        "lgc",
        {"hops": 4, "operator": "adjacency", "start": "lowpass"},
    ),
    "hop blocks": ("blocks", {"hops": 2, "operator": "adjacency"}),
}
accuracies = {name: [] for name in models}
coefficients = {}
for share in shares:
    graph = synthetic(
        nodes=1500,
        edges=9000,
        features=16,
        classes=3,
        homophily=share,
        separation=1.5,
        misfits=0,
    )
    for name, (model, options) in models.items():
        result = hoplite.train(
            graph,
            model,
            optimizer="lbfgs",
            lr=1,
            dropout=0,
            bias=True,
            epochs=10,
            **options,
        )
        accuracies[name].append(result.test_accuracy)
        coefficients[name, share] = result.model.filter_coefficients_

# %%
# The settings are the same everywhere, so nothing is chosen on the test nodes.
for name, values in accuracies.items():
    print(f"{name:24}", *(f"{100 * value:5.1f}" for value in values))

# %%
# What does LGC learn if neighbours differ? Positive weights for even hops (neighbours of neighbours
# are similar again), and negative ones for odd hops.
for share in (shares[0], shares[-1]):
    values = coefficients["LGC, learns the filter", share]
    print(f"{share:.0%} within a class: coefficients {values.round(2)}")

# %%
figure = go.Figure()
for name, values in accuracies.items():
    figure.add_scatter(x=shares, y=values, name=name, mode="lines+markers")
figure.update_layout(
    xaxis_title="share of edges within a class",
    yaxis_title="test accuracy",
    xaxis_tickformat=".0%",
    yaxis_tickformat=".0%",
)
figure
