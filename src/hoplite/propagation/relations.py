"""Propagation with several matrices: the hops of every S_p side by side.

The matrices, called parts, are one for each relation of the graph (:mod:`hoplite.relations`) and
each operator (channel) of the model. What a model sees is one list of 1 + P k hop features, of
which hop 0 is shared:

    X, p_1(S_1) X .. p_k(S_1) X, p_1(S_2) X .. p_k(S_2) X, ...

so coefficients are (R, 1 + P k) for R runs. All channels of a relation come before the next one.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from functools import cached_property
from typing import Any, Protocol

import numpy as np
import torch
from torch import Tensor

from hoplite.bases import Basis
from hoplite.graph import Graph
from hoplite.operators import Operators, find_operator, listed
from hoplite.propagation.dropout import Dropout
from hoplite.propagation.engine import MOST_NEAR, Numbers, Propagation, RowView, nodes_near
from hoplite.propagation.features import Features
from hoplite.propagation.fitted import fitted_basis
from hoplite.propagation.polynomial import block_sum
from hoplite.propagation.spmm import SparseMatrix


class Hops(Protocol):
    """What settings of a model say of its propagation."""

    @property
    def operators(self) -> tuple[str, ...]: ...
    @property
    def basis(self) -> str: ...
    @property
    def hops(self) -> int: ...


def propagation_for(graph: Graph, config: Hops, dtype: Any = None) -> Propagation:
    """What a model with the settings ``config`` is evaluated with on ``graph``."""
    return propagation_of(graph, config.operators, config.basis, config.hops, dtype)


def propagation_of(
    graph: Graph,
    operator: Operators = "renormalized",
    basis: str | Basis = "monomial",
    hops: int = 2,
    dtype: Any = None,
) -> Propagation:
    """As :func:`propagation_for`; several operators are channels."""
    operators = listed(operator)
    if graph.relations or len(operators) > 1:
        return RelationPropagation(graph, operators, basis, hops, dtype)
    return Propagation(graph, operators[0], basis, hops, dtype)


def part_names(relations: Collection[str], operators: Sequence[str]) -> list[str]:
    """What the parts are called; nothing if there is but one matrix.

    >>> part_names(["out", "in"], ["adjacency"]), part_names([], ["adjacency", "laplacian"])
    (['out', 'in'], ['adjacency', 'laplacian'])
    >>> part_names(["out", "in"], ["adjacency", "laplacian"])
    ['out adjacency', 'out laplacian', 'in adjacency', 'in laplacian']
    """
    if len(operators) == 1:
        return list(relations)
    if not relations:
        return list(operators)
    return [f"{relation} {operator}" for relation in relations for operator in operators]


class RelationPropagation(Propagation):
    """The matrices S_p and X of a graph, for polynomials of degree ``hops``.

    >>> g = Graph.from_edges([(0, 1)], features=[[1.0], [3.0]], directed=True)
    >>> found = RelationPropagation(g, "adjacency", hops=1).view().hop_features()
    >>> found.flatten(1).tolist()  # X, what a node points to, what points to it
    [[1.0, 3.0], [3.0, 0.0], [0.0, 1.0]]
    """

    def __init__(
        self,
        graph: Graph,
        operator: Operators = "renormalized",
        basis: str | Basis = "monomial",
        hops: int = 2,
        dtype: Any = None,
    ) -> None:
        self.basis, self.hops = fitted_basis(graph, operator, basis, hops), hops
        dtype = graph.features.dtype if dtype is None else np.dtype(dtype)
        self.features = Features.from_graph_array(graph.features.astype(dtype, copy=False))
        self.parts = [_Part(matrix, self) for matrix in self._matrices(graph, operator, dtype)]
        self.matrix = self.parts[0].matrix

    def _matrices(self, graph: Graph, operator: Operators, dtype: Any) -> list[SparseMatrix]:
        channels = [find_operator(one) for one in listed(operator)]
        if not graph.relations:
            return [
                SparseMatrix.from_scipy(
                    one.matrix(graph, dtype, self.basis), symmetric=one.symmetric
                )
                for one in channels
            ]
        return [
            SparseMatrix.from_scipy(
                one.relation_matrix(relation, dtype, self.basis),
                symmetric=relation.turned is None and one.symmetric,
            )
            for relation in graph.relations
            for one in channels
        ]

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
    """One S_p, and the features of all."""

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

    def sum_of_blocks(self, theta: Tensor, dropout: Dropout | None = None) -> Tensor:
        """sum_b P_b X Theta_b on the rows, for theta (R, 1 + P k, d, m)."""
        if self._hops_first and dropout is None:
            return super().sum_of_blocks(theta)
        _, blocks, _, outputs = theta.shape
        features, rows, matrices = self._shared
        signal = features.outputs(theta.transpose(1, 2).flatten(2), dropout)  # X is read once
        signals = signal.unflatten(2, (blocks, outputs)).permute(2, 0, 1, 3)
        first, *others = signals.split([1] + [self._owner.hops] * len(matrices))
        shared = [first, *[torch.zeros_like(first)] * (len(others) - 1)]
        total = signal.new_zeros(())
        for matrix, zero, own in zip(matrices, shared, others, strict=True):
            total = total + block_sum(matrix, self._owner.basis, torch.cat([zero, own]))
        return total if rows is None else total.index_select(0, rows)

    @cached_property
    def _shared(self) -> tuple[Features, Tensor | None, list[SparseMatrix]]:
        """X and every S_p of the nodes that any of them reads for the rows, and where these are."""
        owner, whole = self._owner, [view._owner.matrix for view in self._views]
        if self._rows is None:
            return owner.features, None, whole
        found = [nodes_near(matrix, self._rows, owner.hops) for matrix in whole]
        nodes = np.flatnonzero(np.any(found, axis=0))
        if len(nodes) > MOST_NEAR * owner.num_nodes:
            return owner.features, self._rows, whole
        places = torch.from_numpy(np.searchsorted(nodes, self._rows.numpy()))
        return owner.features.rows(nodes), places, [matrix.among(nodes) for matrix in whole]

    @cached_property
    def _hop_features(self) -> Tensor:
        first, *others = [view._hop_features for view in self._views]
        return torch.cat([first, *(hops[1:] for hops in others)])
