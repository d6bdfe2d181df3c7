"""The peers: PyTorch Geometric's layers, trained as one would, and DGL's sparse product.

An epoch of a layer is Adam, dropout on dense X, cross-entropy, then a validation pass.
"""

from __future__ import annotations

from collections.abc import Callable
from types import ModuleType
from typing import Any

import numpy as np
import scipy.sparse as sp
import torch
from torch import Tensor
from torch.nn.functional import cross_entropy, dropout

from hoplite.graph import Graph
from hoplite.peers import find, quiet
from hoplite.propagation.spmm import as_tensor, csr_tensor


def quietly(work: Callable[[], Any]) -> Callable[[], Any]:
    """``work`` without a peer's warnings."""

    def silent() -> Any:
        with quiet():
            return work()

    return silent


def missing_note(package: str) -> str:
    """The note that stands for the figures of a peer that could not be asked."""
    return f"{package} is not installed (or does not load), so it was not measured."


def dgl_product(matrix: sp.csr_array, X: Tensor) -> Callable[[], Tensor] | None:
    """S @ X by DGL's sparse product, or None without DGL."""
    sparse = find("dgl.sparse")
    if sparse is None:
        return None
    parts = [torch.from_numpy(part) for part in (matrix.indptr, matrix.indices, matrix.data)]
    indptr, indices, values = parts
    S = sparse.from_csr(indptr.long(), indices.long(), values, shape=matrix.shape)
    return quietly(lambda: sparse.spmm(S, X))


class PygData:
    """A graph as PyTorch Geometric takes it."""

    def __init__(self, graph: Graph) -> None:
        self.X = torch.from_numpy(sp.csr_array(graph.features).toarray())
        adjacency = graph.adjacency
        coordinates = adjacency.tocoo()
        self.edge_index = torch.from_numpy(
            np.stack([coordinates.row, coordinates.col]).astype(np.int64)
        )
        self.csr = csr_tensor(
            as_tensor(adjacency.indptr).long(),
            as_tensor(adjacency.indices).long(),
            torch.ones(adjacency.nnz, dtype=self.X.dtype),
            adjacency.shape,
        )
        assert graph.labels is not None  # the benchmark's graphs are labelled
        self.labels = torch.from_numpy(np.array(graph.labels, np.int64))
        self.train = torch.from_numpy(np.array(graph.split.train))
        self.val = torch.from_numpy(np.array(graph.split.val))
        self.classes = graph.num_classes


def training_epoch(
    data: PygData, model: torch.nn.Module, *, csr: bool = False, rate: float = 0.5
) -> Callable[[], float]:
    """One epoch as a function: a training step, then the validation accuracy."""
    optimizer = torch.optim.Adam(model.parameters(), lr=0.2, weight_decay=5e-4)
    edges = data.csr if csr else data.edge_index

    def epoch() -> float:
        optimizer.zero_grad()
        logits = model(dropout(data.X, rate), edges)[data.train]
        cross_entropy(logits, data.labels[data.train]).backward()
        optimizer.step()
        with torch.no_grad():
            predicted = model(data.X, edges)[data.val].argmax(dim=1)
        return float((predicted == data.labels[data.val]).double().mean())

    return quietly(epoch)


def tag(nn: ModuleType, data: PygData, hops: int) -> torch.nn.Module:
    """TAGConv: sum_i S^i X Theta_i, the peer's layer closest to LGC."""
    return nn.TAGConv(data.X.shape[1], data.classes, K=hops, bias=False)


def sgc(nn: ModuleType, data: PygData, hops: int) -> torch.nn.Module:
    """SGConv: S^k X Theta, not cached since dropout changes X in every step."""
    return nn.SGConv(data.X.shape[1], data.classes, K=hops, bias=False)


def cheb(nn: ModuleType, data: PygData, hops: int) -> torch.nn.Module:
    """ChebConv of degree ``hops``: sum_i T_i(L) X Theta_i (its K counts the terms)."""
    return nn.ChebConv(data.X.shape[1], data.classes, K=hops + 1, bias=False)


def gcn(nn: ModuleType, data: PygData, hidden: int = 16) -> torch.nn.Module:
    """Two GCNConv layers with a ReLU between."""

    class TwoLayers(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.first: Any = nn.GCNConv(data.X.shape[1], hidden)
            self.second: Any = nn.GCNConv(hidden, data.classes)

        def forward(self, X: Tensor, edges: Tensor) -> Tensor:
            return self.second(self.first(X, edges).relu(), edges)

    return TwoLayers()
