"""A graph as networks of other libraries take it: X dense, and a list of edges."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import scipy.sparse as sp
import torch
from torch import Tensor

from hoplite.propagation.features import Features


@dataclass(frozen=True, eq=False)
class WholeGraph:
    """X, (n, d), and the graph's own edges, both ways, without self-loops, sorted by target.

    ``edge_index`` is (2, e): sources and targets; ``edge_weight`` (e,) of the type of X.

    >>> link = sp.csr_array(([2.0, 2.0], ([0, 1], [1, 0])), shape=(2, 2))
    >>> whole = WholeGraph.of(link, Features.from_graph_array(np.eye(2)))
    >>> whole.edge_index.tolist(), whole.edge_weight.tolist()
    ([[1, 0], [0, 1]], [2.0, 2.0])
    """

    features: Tensor
    edge_index: Tensor
    edge_weight: Tensor

    @classmethod
    def of(cls, adjacency: sp.csr_array, features: Features) -> WholeGraph:
        entries = adjacency.tocoo()
        order = np.lexsort((entries.col, entries.row))  # i, j is the weight of j's message to i
        ends = np.stack([entries.col, entries.row])[:, order].astype(np.int64)
        weights = torch.from_numpy(np.array(entries.data)[order]).to(features.dtype)
        return cls(features.dense(), torch.from_numpy(ends), weights)
