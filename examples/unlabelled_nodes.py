"""
Learn from unlabelled nodes
===========================

In Cora, 140 nodes have a label and 2,568 have none. The model should predict the same class for an
unlabelled node, whichever neighbours are hidden. Training for this (GRAND's consistency loss)
improves a linear model, which stays linear.
"""

import os

import hoplite

small = os.environ.get("HOPLITE_EXAMPLES") == "small"
more = {"seeds": 1, "epochs": 20} if small else {"seeds": 3}

graph = hoplite.load("cora")
options = {"hops": 10, "alpha": 0.2, "lr": 0.1, "weight_decay": 1e-5, **more}
plain = hoplite.train(graph, "ppr", **options)

# %%
# Each step makes three draws, each without half of the nodes, and penalises their differences.
consistent = hoplite.train(
    graph, "ppr", dropout=0, drop_nodes=0.5, draws=3, consistency=1, **options
)
for name, result in (("labelled nodes", plain), ("all nodes", consistent)):
    val, test = (result.metrics(part)["accuracy"] for part in ("val", "test"))
    print(f"{name}: validation {val.mean:.1%}, test {test.mean:.1%} +- {test.std:.1%}")

# %%
# This takes more time: every step uses all nodes, three times.
for name, result in (("labelled nodes", plain), ("all nodes", consistent)):
    print(f"{name}: {result.ms_per_epoch:.1f} ms per epoch")

# %%
consistent.plot_history()
