"""
Larger than memory
==================

These models need nothing of a graph but its hop features, X, S X, S^2 X and so on. A hop store
holds them on disk, computed within the memory that you allow, and training, prediction and
explanation read it piece by piece. Killed at any moment, the same call goes on.
"""

import os
import tempfile
from pathlib import Path

import numpy as np
import pyarrow as pa

import hoplite
from hoplite.datasets import synthetic

nodes = 2_000 if os.environ.get("HOPLITE_EXAMPLES") == "small" else 50_000
graph = synthetic(nodes=nodes, edges=10 * nodes, features=64, classes=8, homophily=0.5, seed=0)
scratch = tempfile.TemporaryDirectory()
folder = Path(scratch.name)

# %%
# ``memory`` is the peak of the whole process, Python and all libraries included; if it is too
# little, the error says how much is needed.
store = hoplite.propagate(graph, folder / "hops", hops=3, memory="4GB")
size = sum(file.stat().st_size for file in folder.rglob("*") if file.is_file())
print(f"{store}: {size / 1e6:.0f} MB on disk")
print("damage found:", store.verify())

# %%
# A store goes wherever a graph goes.
options = {"hops": 3, "optimizer": "lbfgs", "lr": 1, "dropout": 0, "epochs": 5}
stored = hoplite.train(store, "lgc", memory="4GB", **options)
in_memory = hoplite.train(graph, "lgc", **options)
print(f"test: {stored.test_accuracy:.2%} from disk, {in_memory.test_accuracy:.2%} in memory")
print(f"the largest class for all: {stored.baseline('test')['accuracy']:.2%}")
difference = np.abs(stored.model.logits(store) - stored.model.logits(graph)).max()
print(f"one model on both, largest difference of a logit: {difference:.0e}")

# %%
# New nodes and edges change a few rows, and only these are computed again.
new = nodes + np.arange(5)
names = [f"feature {i}" for i in range(64)]
