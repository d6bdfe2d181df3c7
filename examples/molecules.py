"""
Molecules: which atoms decide
=============================

Classify molecules by how often each pattern of atoms occurs in them, and split every prediction
exactly into contributions of atoms. The molecules are generated, so the truth is known.
"""

import numpy as np

import hoplite
from hoplite import Graph, GraphSet

# %%
# A molecule is a chain of carbon with some nitrogen and oxygen. Half of them have a nitro group, a
# nitrogen with two oxygens, and are toxic; nitrogen or oxygen by themselves are harmless.
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
# A colour of depth 1 describes an atom and its neighbours, one of depth 2 also their neighbours.
# All molecules are used for training, and the scores are out-of-fold.
result = hoplite.train_graphs(graphs, "colours", depth=2)
result

# %%
# Which atoms make ``M1`` toxic? Blue atoms support the class, orange ones oppose it, and the
# contributions add up to the margin.
why = hoplite.explain_graph(result.model, graphs, "M1")
print(f"margin {why.logit:.3f} = {why.constant:.3f} + atoms {why.by_node.sum():.3f}")
why
