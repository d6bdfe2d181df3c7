"""
Your own tables of graphs
=========================

A set of graphs is three tables, ``graphs``, ``nodes`` and ``edges``, each with a column ``graph``.
Here every graph is a discussion, its nodes are people, and an edge is a reply.
"""

import tempfile
from pathlib import Path

import numpy as np
import pandas as pd

import hoplite

# %%
# Under a question, everybody replies to one person; in a debate, people reply to each other.
rng = np.random.default_rng(0)
graphs, nodes, edges = [], [], []
for number in range(200):
    name, size = f"thread-{number:03d}", int(rng.integers(5, 25))
    debate = number % 2 == 1
    graphs.append((name, "debate" if debate else "question"))
    for person in range(size):
        words = rng.lognormal(4 + 0.3 * debate, 1)
        nodes.append((name, person, rng.choice(["phone", "desktop"]), words))
        to = rng.integers(size) if debate and rng.random() < 0.6 else 0
        edges.append((name, person, int(to)))
tables = {
    "graphs": pd.DataFrame(graphs, columns=["graph", "label"]),
    "nodes": pd.DataFrame(nodes, columns=["graph", "id", "device", "words"]),
    "edges": pd.DataFrame(edges, columns=["graph", "source", "target"]),
}
print(tables["nodes"].head(3).to_string(index=False))

# %%
# Load a folder of files, a database or the data frames themselves: numbers are scaled and text
# becomes one-hot columns, fitted to the nodes of training graphs.
scratch = tempfile.TemporaryDirectory()
for name, table in tables.items():
    table.to_csv(Path(scratch.name) / f"{name}.csv", index=False)
data = hoplite.load_graphs(scratch.name, seed=0, scale="log")
data

# %%
# Without a model, several families are tried, and the validation graphs choose:
result = hoplite.train_graphs(data)
result

# %%
# Save and load the model; new discussions are prepared as in training.
result.model.save(Path(scratch.name) / "model")
model = hoplite.GraphModel.load(Path(scratch.name) / "model")
some = data.select(data.split.test[:5])
print(np.array(model.class_names)[model.predict(some)], some.graph_ids)
scratch.cleanup()
