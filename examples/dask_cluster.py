"""
On a Dask cluster
=================

The hops of a store are computed by the workers of a Dask cluster: each does some columns of X,
reads and writes the shared folder, and only names travel over the network. Workers may die; what
they had is given to others. What comes out is what one process computes.
"""

import os
import tempfile
from pathlib import Path

import numpy as np
from distributed import Client, SubprocessCluster

import hoplite
from hoplite.io import synthetic

nodes = 2_000 if os.environ.get("HOPLITE_EXAMPLES") == "small" else 40_000
graph = synthetic(
    nodes=nodes, edges=8 * nodes, features=64, classes=5, homophily=0.4, seed=0
)

# %%
# A scheduler and two workers, each a process of its own. On machines of yours that is
# ``dask scheduler`` and ``dask worker HOST:PORT --memory-limit 0``, with a folder that all of them
# see. (``cluster="local:2"`` starts two workers here, and needs none of this.)
scratch = tempfile.TemporaryDirectory()
folder = Path(scratch.name)
with (
    SubprocessCluster(
        n_workers=2,
        threads_per_worker=1,
        dashboard_address=None,
        worker_kwargs={"memory_limit": 0},
    ) as cluster,
    Client(cluster) as client,
):
    client.wait_for_workers(2)
    print("workers:", len(client.scheduler_info()["workers"]))
    store = hoplite.propagate(
        graph, folder / "cluster", hops=3, cluster=cluster.scheduler_address
    )
print(store)

# %%
# The same in this process, and compared to the bit:
alone = hoplite.propagate(graph, folder / "alone", hops=3)
equal = np.array_equal(store.read(0, nodes), alone.read(0, nodes))
print("the same numbers as from one process:", equal)

# %%
# Training from it is as from any store.
result = hoplite.train(store, "lgc", optimizer="lbfgs", lr=1, epochs=5)
print(
    f"test {result.test_accuracy:.1%}, the largest class {result.baseline()['accuracy']:.1%}"
)
scratch.cleanup()
result.plot_history()
