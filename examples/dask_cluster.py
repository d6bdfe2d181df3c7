"""
On a Dask cluster
=================

Compute the hops of a store on a Dask cluster. Each worker takes some columns of X and reads and
writes the shared folder; only file names are sent to the scheduler. If a worker dies, others take
over its work. The result equals that of one process.
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
# Start a scheduler and two workers, each in its own process. On your machines, run
# ``dask scheduler`` and ``dask worker HOST:PORT --memory-limit 0``, with a folder that all of them
# share. (``cluster="local:2"`` starts two local workers without these steps.)
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
# Compute the same in this process, and compare every bit:
alone = hoplite.propagate(graph, folder / "alone", hops=3)
equal = np.array_equal(store.read(0, nodes), alone.read(0, nodes))
print("the same numbers as from one process:", equal)

# %%
# Train from the store as from any other:
result = hoplite.train(store, "lgc", optimizer="lbfgs", lr=1, epochs=5)
print(
    f"test {result.test_accuracy:.1%}, the largest class {result.baseline()['accuracy']:.1%}"
)
scratch.cleanup()
result.plot_history()
