"""Propagation on a graph with relations: the hops of every S_r side by side.

What a model sees is one list of 1 + R k hop features, of which hop 0 is shared:

    X, p_1(S_1) X .. p_k(S_1) X, p_1(S_2) X .. p_k(S_2) X, ...

so coefficients are (R, 1 + R k) for R runs, see :mod:`hoplite.relations`.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property
from typing import Any

import numpy as np
import torch
from torch import Tensor

from hoplite.bases import Basis
from hoplite.graph import Graph
from hoplite.operators import Operator, find_operator
from hoplite.propagation.engine import Numbers, Propagation, RowView
from hoplite.propagation.features import Features
from hoplite.propagation.fitted import fitted_basis
from hoplite.propagation.spmm import SparseMatrix


def propagation_of(
    graph: Graph,
    operator: str | Operator = "renormalized",
    basis: str | Basis = "monomial",
    hops: int = 2,
    dtype: Any = None,
) -> Propagation:
    """What a model of one polynomial per relation is evaluated with on ``graph``."""
    kind = RelationPropagation if graph.relations else Propagation
    return kind(graph, operator, basis, hops, dtype)


class RelationPropagation(Propagation):
    """The operators S_r and X of a graph with relations, for polynomials of degree ``hops``.

    >>> g = Graph.from_edges([(0, 1)], features=[[1.0], [3.0]], directed=True)
    >>> found = RelationPropagation(g, "adjacency", hops=1).view().hop_features()
    >>> found.flatten(1).tolist()  # X, what a node points to, what points to it
    [[1.0, 3.0], [3.0, 0.0], [0.0, 1.0]]
    """

    def __init__(
        self,
        graph: Graph,
        operator: str | Operator = "renormalized",
        basis: str | Basis = "monomial",
        hops: int = 2,
        dtype: Any = None,
    ) -> None:
        self.basis, self.hops = fitted_basis(graph, operator, basis, hops), hops
        dtype = graph.features.dtype if dtype is None else np.dtype(dtype)
        self.features = Features.from_graph_array(graph.features.astype(dtype, copy=False))
        chosen = find_operator(operator)
        self.parts = [
            _Part(
                SparseMatrix.from_scipy(
                    chosen.relation_matrix(relation, dtype, self.basis),
                    symmetric=relation.turned is None,
                ),
                self,
            )
            for relation in graph.relations
        ]
        self.matrix = self.parts[0].matrix

    @property
    def nonzeros(self) -> int:
        return sum(part.matrix.nnz for part in self.parts)

    @property
    def slices(self) -> int:
        return 1 + len(self.parts) * self.hops

    def view(
        self, nodes: np.ndarray | Sequence[int] | None = None, *, hops_first: bool = False
    ) -> RelationView:
        return RelationView(self, nodes, hops_first)

    def reach(self, node: int) -> Tensor:
        found = [part.reach(node) for part in self.parts]
        return torch.cat([found[0], *(rows[1:] for rows in found[1:])])


class _Part(Propagation):
    """One relation: its S_r, and the features of all."""

    def __init__(self, matrix: SparseMatrix, whole: RelationPropagation) -> None:
        self.matrix, self.features = matrix, whole.features
        self.basis, self.hops = whole.basis, whole.hops


class RelationView(RowView):
    """The outputs of a RelationPropagation at some nodes."""

    def __init__(self, owner: RelationPropagation, nodes: Any, hops_first: bool) -> None:
        super().__init__(owner, nodes, hops_first)
        self._views = [part.view(nodes, hops_first=hops_first) for part in owner.parts]

    def _filtered(self, signal: Tensor, coefficients: Tensor | Numbers | None) -> Tensor:
        assert isinstance(coefficients, Tensor)  # of models that know relations
        first, *others = coefficients.split([1] + [self._owner.hops] * len(self._views), dim=1)
        shared = [first, *[torch.zeros_like(first)] * (len(others) - 1)]
        total = signal.new_zeros(())
        for view, zero, own in zip(self._views, shared, others, strict=True):
            total = total + view._filtered(signal, torch.cat([zero, own], dim=1))
        return total

    @cached_property
    def _hop_features(self) -> Tensor:
        first, *others = [view._hop_features for view in self._views]
        return torch.cat([first, *(hops[1:] for hops in others)])
