"""
Larger than memory
==================

Linear models need only the hop features of a graph: X, S X, S (S X) and so on. A hop store has them
on disk, computed within a memory limit. Training, prediction and explanation read it in pieces. If
the computation is interrupted, the same call continues it.
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
graph = graph.with_features(graph.features, names)  # new rows are matched by name
scratch = tempfile.TemporaryDirectory()
folder = Path(scratch.name) / "hops"

# %%
# ``memory`` limits the peak of the whole process, including Python and all libraries. If it is too
# small, the error says how much is needed.
store = hoplite.propagate(graph, folder, hops=3, memory="4GB")
size = sum(file.stat().st_size for file in folder.rglob("*") if file.is_file())
print(f"{store}: {size / 1e6:.1f} MB on disk, damage: {store.verify() or 'none'}")

# %%
# Use the store like a graph:
options = {"hops": 3, "optimizer": "lbfgs", "lr": 1, "dropout": 0, "epochs": 5}
stored = hoplite.train(store, "lgc", memory="4GB", **options)
in_memory = hoplite.train(graph, "lgc", **options)
model = stored.model
print(
    f"test: {stored.test_accuracy:.2%} from disk, {in_memory.test_accuracy:.2%} in memory"
)
print(f"always the largest class: {stored.baseline('test')['accuracy']:.2%}")
difference = np.abs(model.logits(store) - model.logits(graph)).max()
print(f"the same model on both: largest difference of a logit {difference:.0e}")

# %%
# Later, three nodes are added. Only the rows near them are computed again, and the result is the
# store of the extended graph.
rng = np.random.default_rng(0)
new_nodes = pa.table(
    {"id": nodes + np.arange(3)}
    | {name: rng.standard_normal(3).astype("f4") for name in names}
)
edges = pa.table({"source": nodes + np.arange(3), "target": [7, 7, 11]})
store = hoplite.update_store((new_nodes, edges), folder)
extended = hoplite.io.extend(graph, (new_nodes, edges))
difference = np.abs(model.logits(store) - model.logits(extended)).max()
print(
    f"{store}: largest difference of a logit from the extended graph {difference:.0e}"
)

# %%
# The sizes of the parts of the store:
parts = {
    part.name: sum(file.stat().st_size for file in part.iterdir()) / 1e6
    for part in [*folder.glob("*/operator"), *sorted(folder.glob("*/hops/*"))]
}
figure = go.Figure(go.Bar(x=list(parts.values()), y=list(parts), orientation="h"))
figure.update_layout(xaxis_title="megabytes")
figure.update_yaxes(autorange="reversed")
scratch.cleanup()
figure
