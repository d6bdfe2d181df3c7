"""
Larger than memory
==================

These models need nothing of a graph but its hop features, X, S X, S (S X) and so on. A hop store
holds them on disk, computed within the memory that you allow, and training, prediction and
explanation read it piece by piece. Killed at any moment, the same call goes on.
"""

import os
import tempfile
from pathlib import Path

import numpy as np
import plotly.graph_objects as go
import pyarrow as pa

import hoplite
from hoplite.io import synthetic

nodes = 2_000 if os.environ.get("HOPLITE_EXAMPLES") == "small" else 50_000
graph = synthetic(
    nodes=nodes, edges=4 * nodes, features=32, classes=8, homophily=0.5, seed=0
)
names = [f"feature {i}" for i in range(32)]
graph = graph.with_features(graph.features, names)  # by which new rows are matched
scratch = tempfile.TemporaryDirectory()
folder = Path(scratch.name) / "hops"

# %%
# ``memory`` is the peak of the whole process, Python and all libraries included; if it is too
# little, the error says how much is needed.
store = hoplite.propagate(graph, folder, hops=3, memory="4GB")
size = sum(file.stat().st_size for file in folder.rglob("*") if file.is_file())
print(f"{store}: {size / 1e6:.1f} MB on disk, damage: {store.verify() or 'none'}")

# %%
# A store goes wherever a graph goes.
options = {"hops": 3, "optimizer": "lbfgs", "lr": 1, "dropout": 0, "epochs": 5}
stored = hoplite.train(store, "lgc", memory="4GB", **options)
in_memory = hoplite.train(graph, "lgc", **options)
model = stored.model
print(
    f"test: {stored.test_accuracy:.2%} from disk, {in_memory.test_accuracy:.2%} in memory"
)
print(f"the largest class for all: {stored.baseline('test')['accuracy']:.2%}")
difference = np.abs(model.logits(store) - model.logits(graph)).max()
print(f"one model on both, largest difference of a logit: {difference:.0e}")

# %%
# Next week three nodes arrive. Only the rows near them are computed again, and the store is then
# that of the grown graph.
rng = np.random.default_rng(0)
arrived = pa.table(
    {"id": nodes + np.arange(3)}
    | {name: rng.standard_normal(3).astype("f4") for name in names}
)
edges = pa.table({"source": nodes + np.arange(3), "target": [7, 7, 11]})
store = hoplite.update_store((arrived, edges), folder)
grown = hoplite.io.extend(graph, (arrived, edges))
difference = np.abs(model.logits(store) - model.logits(grown)).max()
print(f"{store}: largest difference of a logit to the grown graph {difference:.0e}")

# %%
# What is in the folder, by megabytes:
parts = {
    part.name: sum(file.stat().st_size for file in part.iterdir()) / 1e6
    for part in [*folder.glob("*/operator"), *sorted(folder.glob("*/hops/*"))]
}
figure = go.Figure(go.Bar(x=list(parts.values()), y=list(parts), orientation="h"))
figure.update_layout(xaxis_title="megabytes")
figure.update_yaxes(autorange="reversed")
scratch.cleanup()
figure
