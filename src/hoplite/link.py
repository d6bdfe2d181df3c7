"""Links as features: the rows of the adjacency itself, for the exact linear LINK.

    X becomes [X | L],    L[v, u] = s A[v, u] / sqrt(sum_w A[v, w]^2),    A: n x n
                          s = sqrt(1/n sum_{v, f} X[v, f]^2)

so that logits gain L Theta_A, with a weight for every neighbour and class. All rows of L have the
length s, that of X's rows in the root mean square (1 if X is 0, or has no columns), whatever the
unit of the weights and the degree, but for nodes without edges, whose rows are 0. A penalty then
holds back links no more than features. With directions, or types, there is an L of every relation.
L is sparse, and so [X | L] is.
"""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from typing import Any

import numpy as np
import scipy.sparse as sp

from hoplite.errors import HopliteWarning
from hoplite.graph import Graph
from hoplite.preparation import Preparation
from hoplite.relations import IN, OUT

TO, FROM = "link to", "link from"


def with_link(graph: Graph) -> Graph:
    """``graph`` with the links of every node beside its features.

    They are called ``link to ID``, of directed edges also ``link from ID``, and of types
    ``link to ID (TYPE)``, with the index of a node for its id if it has none.

    >>> g = Graph.from_edges([(0, 1), (1, 2)], features=np.eye(3)[:, :1], weights=[3.0, 4.0])
    >>> made = with_link(g)
    >>> made.feature_names
    ('x0', 'link to 0', 'link to 1', 'link to 2')
    >>> made.features.toarray().round(1).tolist()[1]
    [0.0, 0.3, 0.0, 0.5]
    """
    parts = [(_words(relation.name), relation.adjacency) for relation in graph.relations]
    parts = parts or [(f"{TO} {{}}", graph.adjacency)]
    ids = range(graph.num_nodes) if graph.node_ids is None else graph.node_ids
    own = graph.feature_names or tuple(f"x{j}" for j in range(graph.num_features))
    names = [words.format(node) for words, _ in parts for node in ids]
    size = _mean_length(graph.features)
    links = [(size * _unit_rows(rows)).astype(graph.features.dtype) for _, rows in parts]
    both = sp.csr_array(sp.hstack([sp.csr_array(graph.features), *links], format="csr"))
    return graph.with_features(both, (*own, *names), preparation=graph.preparation)


def links_among(
    names: Sequence[str] | None, preparation: Preparation | None = None
) -> range | None:
    """Which features of these names are links, all in a row; None if there are none.

    The first ones are columns of a table, if ``preparation`` made them, whatever they are called.

    >>> links_among(["age", "link to a", "link to b", "degree"]), links_among(["age"])
    (range(1, 3), None)
    """
    columns = 0 if preparation is None else len(preparation.names)
    words = (f"{TO} ", f"{FROM} ")
    found = [j for j, name in enumerate(names or ()) if j >= columns and name.startswith(words)]
    return range(found[0], found[-1] + 1) if found else None


def link_of_model(model: Any) -> bool:
    """Whether ``model``, or None, was trained with links; HopliteWarning if no ids tell which."""
    names = getattr(model, "feature_names", None)
    found = links_among(names, getattr(model, "preparation", None))
    if found is None or names is None:
        return False
    if names[found[0]].split()[:3] == [*TO.split(), "0"]:
        warnings.warn(
            f"the model's features {names[found[0]]!r} and so on count the nodes of the graph that "
            "it was trained on; of a graph whose nodes are others they mean something else, so do "
            "not trust its predictions there.",
            HopliteWarning,
            stacklevel=3,
        )
    return True


def _words(relation: str) -> str:
    """What a link of ``relation`` is called, with a place for the node's id."""
    if relation in (OUT, IN):
        return f"{TO if relation == OUT else FROM} {{}}"
    shown = relation.replace("{", "{{").replace("}", "}}")
    return f"{TO} {{}} ({shown})"


def _mean_length(features: Any) -> float:
    """The root mean square of the rows' lengths; 1 if all are 0, or there are none."""
    values = features.data if sp.issparse(features) else np.asarray(features)
    largest = float(abs(values).max(initial=0.0))
    if not largest:
        return 1.0
    squares = float(((values / largest) ** 2).sum(dtype=np.float64))
    return largest * (squares / features.shape[0]) ** 0.5


def _unit_rows(adjacency: sp.csr_array) -> sp.csr_array:
    """Every row divided by its length, in float64."""
    rows = sp.csr_array(adjacency, dtype=np.float64, copy=True)
    counts = np.diff(rows.indptr)
    largest = abs(rows).max(axis=1).toarray().ravel()  # so that no square over- or underflows
    rows.data /= np.repeat(np.where(largest > 0, largest, 1.0), counts)
    lengths = np.sqrt(rows.multiply(rows).sum(axis=1))
    rows.data /= np.repeat(np.where(lengths > 0, lengths, 1.0), counts)
    return rows
