"""
A number instead of a class
===========================

What will a house sell for? Its own columns tell something, and the prices around it more, which
the model reads from the columns of its neighbours. The houses are drawn here: a price follows
size, age and the quality of the street, which no column holds.
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
# ``task="regression"``; everything else is as with classes. Numbers are scaled inside, and the
# predictions are in euros. A column ``split`` keeps houses aside to judge by.
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
    ("the house alone", alone.metrics("test")),
):
    told = ", ".join(
        f"{figure} {spread.mean:,.2f}" for figure, spread in figures.items()
    )
    print(f"{name}: {told}")
print("the mean price for all:", result.baseline("test").figures)

# %%
# Intervals that hold the price of nine houses in ten, by split conformal prediction on the
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
