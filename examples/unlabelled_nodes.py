"""
Learning from the nodes without labels
======================================

Of Cora 140 nodes have a label and 2,568 have none. The model may say nothing certain about these,
but it should say the same about a node whichever neighbours are hidden from it. Asking for that
(GRAND's consistency) lifts a linear model, and it stays linear.
"""

import os

import hoplite

small = os.environ.get("HOPLITE_EXAMPLES") == "small"
more = {"seeds": 1, "epochs": 20} if small else {"seeds": 3}

graph = hoplite.load("cora")
options = {"hops": 10, "alpha": 0.2, "lr": 0.1, "weight_decay": 1e-5, **more}
usual = hoplite.train(graph, "ppr", **options)

# %%
# Three draws in each step, each hiding half of the nodes; what they say is drawn together.
consistent = hoplite.train(
    graph, "ppr", dropout=0, drop_nodes=0.5, draws=3, consistency=1, **options
)
for name, result in (("labelled nodes alone", usual), ("and the others", consistent)):
    val, test = (result.metrics(part)["accuracy"] for part in ("val", "test"))
    print(f"{name}: validation {val.mean:.1%}, test {test.mean:.1%} +- {test.std:.1%}")

# %%
# The price is time: every step looks at all nodes, three times.
for name, result in (("labelled nodes alone", usual), ("and the others", consistent)):
    print(f"{name}: {result.ms_per_epoch:.1f} ms an epoch")

# %%
consistent.plot_history()
