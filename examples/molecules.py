"""
Molecules: which atoms decide
=============================

Whole graphs are classified by how often each pattern of atoms occurs in them, and every prediction
splits exactly into its atoms. The molecules are made here, so that the truth is known.
"""

import numpy as np

import hoplite
from hoplite import Graph, GraphSet

# %%
# A molecule is a chain of carbon with a few oxygens. One in two has a nitro group, a nitrogen with
# two oxygens, and is toxic; nitrogen or oxygen alone mean nothing.
rng = np.random.default_rng(0)
ELEMENTS = ["C", "N", "O"]


def molecule(toxic: bool) -> Graph:
    size = int(rng.integers(6, 12))
    elements = rng.choice([0, 0, 0, 1, 2], size)
    edges = [(i, i + 1) for i in range(size - 1)]
    if toxic:
        place = int(rng.integers(size))
        elements = np.append(elements, [1, 2, 2])
        edges += [(place, size), (size, size + 1), (size, size + 2)]
    names = [f"{ELEMENTS[e]}{i}" for i, e in enumerate(elements)]
    return Graph.from_edges(
        edges, np.eye(3)[elements], feature_names=ELEMENTS, node_ids=names
    )


labels = np.arange(300) % 2
graphs = GraphSet.from_graphs(
    [molecule(bool(label)) for label in labels],
    labels,
    class_names=["harmless", "toxic"],
    graph_ids=[f"M{i}" for i in range(300)],
    name="molecules",
)
graphs

# %%
# Colours of depth 1 are an atom with its neighbours, of depth 2 the atoms around these, too. All
# molecules train, and folds of them judge: colours that a fold has alone do not count there.
result = hoplite.train_graphs(graphs, "colours", depth=2)
result

# %%
# Which atoms make ``M1`` toxic? Blue ones speak for the class, orange ones against it, and their
# parts add up to the lead of the class.
why = hoplite.explain_graph(result.model, graphs, "M1")
print(f"lead {why.logit:.3f} = {why.constant:.3f} + atoms {why.by_node.sum():.3f}")
why
