"""
Predict numbers
===============

What will a house sell for? Its own columns help, and those of its neighbours help more. The houses
are generated: the price depends on size, age and the quality of the street, which is in no column.
"""

import numpy as np
import pandas as pd
import plotly.graph_objects as go
from scipy.spatial import KDTree

import hoplite

rng = np.random.default_rng(0)
n = 1500
place = rng.random((n, 2))
street = np.sin(5 * place[:, 0]) + np.cos(7 * place[:, 1])  # hidden
size = rng.normal(110 + 15 * street, 25, n).clip(35).round()
built = rng.integers(1900, 2024, n)
price = (
    2500 * size + 800 * (built - 1960) + 60_000 * street + rng.normal(0, 20_000, n)
).round(-3)
houses = pd.DataFrame(
    {
        "id": range(n),
        "price": price,
        "size": size,
        "built": built,
        "rooms": (size // 28),
    }
)
near = KDTree(place).query(place, 6)[1][:, 1:]  # the five nearest
streets = pd.DataFrame({"source": np.repeat(np.arange(n), 5), "target": near.ravel()})

# %%
# Pass ``task="regression"``; everything else is as for classes. Numbers are scaled internally, and
# predictions are in euros. The column ``split`` holds out validation and test houses.
houses["split"] = rng.choice(["train", "val", "test"], n, p=[0.6, 0.2, 0.2])
graph = hoplite.io.from_frames(houses, streets, label="price", task="regression")
options = {
    "bias": True,
    "optimizer": "lbfgs",
    "lr": 1,
    "dropout": 0,
    "weight_decay": 1e-3,
}
result = hoplite.train(graph, "blocks", hops=4, operator="adjacency", **options)
alone = hoplite.train(graph, "sgc", hops=0, **options)
for name, figures in (
    ("with the neighbours", result.metrics("test")),
    ("only the house itself", alone.metrics("test")),
):
    scores = ", ".join(
        f"{figure} {spread.mean:,.2f}" for figure, spread in figures.items()
    )
    print(f"{name}: {scores}")
print("always the mean price:", result.baseline("test").figures)

# %%
# Intervals that contain the price of nine in ten houses, by split conformal prediction on the
# validation houses:
test = graph.split.test
low, high = result.model.prediction_sets(graph, 0.9)[test].T
inside = (low <= price[test]) & (price[test] <= high)
print(f"covered: {inside.mean():.1%}, width {np.mean(high - low):,.0f}")

# %%
predicted = result.model.predict(graph)[test]
figure = go.Figure()
figure.add_scatter(
    x=predicted, y=price[test], mode="markers", name="test houses", opacity=0.5
)
ends = [price.min(), price.max()]
figure.add_scatter(x=ends, y=ends, mode="lines", name="equal", line={"dash": "dot"})
figure.update_layout(xaxis_title="predicted price", yaxis_title="price")
figure
