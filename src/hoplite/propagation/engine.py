"""Propagation: the operator and features of one graph, evaluated on the rows that are needed.

A model is evaluated on a View of some rows, wherever these are: in memory or in files. It sees
them as a RowView, which answers four questions, for R runs at once (theta: (R, d, m),
coefficients: (R, k + 1)):

    combine       sum_i c_i p_i(S) X Theta      (rows, R, m)
    sum_of_blocks sum_i p_i(S) X Theta_i        (rows, R, m)
    hop_outputs   p_i(S) X Theta, each i         (k + 1, rows, R, m)
    hop_features  p_i(S) X, each i               (k + 1, rows, R or 1, d), constant
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, ClassVar, Literal, Protocol

import numpy as np
import scipy.sparse as sp
import torch
from torch import Tensor

from hoplite.bases import Basis
from hoplite.errors import GraphError
from hoplite.graph import Graph
from hoplite.operators import Operator, find_operator
from hoplite.propagation.dropout import Dropout
from hoplite.propagation.features import Features, thinned
from hoplite.propagation.fitted import fitted_basis
from hoplite.propagation.orders import DENSE_GAIN
from hoplite.propagation.polynomial import (
    block_sum,
    combine,
    gather_hops,
    hop_stack,
    iterate,
    last_hop,
    weighted_sum,
)
from hoplite.propagation.spmm import SparseMatrix, matmul
from hoplite.propagation.whole import WholeGraph

BLOCK_COLUMNS = 256  # features propagated at a time, so that wide sparse X is never densified whole
FEW_ROWS = 64  # up to one row in so many, keeping every hop's rows is cheaper than a second pass
MOST_NEAR = 0.9  # of all nodes: beyond it, leaving out the others saves too little
WIDE_GAIN = 8  # as DENSE_GAIN, for products of hundreds of columns
MOST_FILTER_SIZE = 2**27  # elements of p_k(S) kept for some rows


Numbers = tuple[float, ...]  # coefficients that are no weights: c_0, c_1, ...


class Filter(Protocol):
    """What a view asks of a model."""

    linear: ClassVar[bool]
    gated: ClassVar[bool]
    map_per_hop: ClassVar[bool]
    kept_hops: ClassVar[str]
    num_classes: int

    @property
    def last_hop(self) -> int: ...

    def filtered(
        self, weights: dict[str, Tensor], view: RowView, dropout: Dropout | None
    ) -> Tensor: ...

    def coefficients(self, weights: dict[str, Tensor]) -> Tensor | None: ...


class View(Protocol):
    """Some rows of a graph."""

    def evaluate(
        self, model: Filter, weights: dict[str, Tensor], dropout: Dropout | None
    ) -> Tensor:
        """The model's filtered signal on the rows: (rows, R, m), differentiable in the weights."""
        ...

    def std_mean(self, values: Tensor) -> tuple[Tensor, Tensor]:
        """Deviation and mean of each column of a signal over all nodes: (1, R, m) each."""
        ...

    def part(self, rows: Tensor, kept_hops: str) -> View:
        """Some of the rows, counted within the view, with these hop features in memory."""
        ...


class Propagation:
    """S (in the form that the basis needs) and X of ``graph``, for polynomials of degree ``hops``.

    Both are of the features' number type, or of ``dtype``. A basis that comes from a signal is
    fitted to X, see :mod:`hoplite.propagation.fitted`.

    >>> g = Graph.from_edges([(0, 1)], features=[[1.0], [3.0]])
    >>> Propagation(g, "adjacency", hops=1).view().hop_features().flatten().tolist()
    [1.0, 3.0, 3.0, 1.0]
    """

    stored: ClassVar[Literal[False]] = False  # whether hop features come from files

    def __init__(
        self,
        graph: Graph,
        operator: str | Operator = "renormalized",
        basis: str | Basis = "monomial",
        hops: int = 2,
        dtype: Any = None,
    ) -> None:
        graph.refuse_relations("this")
        self.basis = fitted_basis(graph, operator, basis, hops)
        dtype = graph.features.dtype if dtype is None else np.dtype(dtype)
        chosen = find_operator(operator)
        matrix = chosen.matrix(graph, dtype, self.basis)
        self.matrix = SparseMatrix.from_scipy(matrix, symmetric=chosen.symmetric)
        self.features = Features.from_graph_array(thinned(graph.features.astype(dtype, copy=False)))
        self.hops = hops
        self._adjacency = graph.adjacency

    @property
    def num_nodes(self) -> int:
        return self.features.shape[0]

    @property
    def dtype(self) -> torch.dtype:
        return self.features.dtype

    @property
    def nonzeros(self) -> int:
        """Of all operators."""
        return self.matrix.nnz

    @property
    def slices(self) -> int:
        """How many hop features there are."""
        return self.hops + 1

    def reach(self, node: int) -> Tensor:
        """The rows ``node`` of p_0(S) .. p_k(S): (k + 1, n)."""
        unit = _unit(self.num_nodes, torch.tensor([node]), self.dtype)
        return torch.cat(list(iterate(self.matrix.T, self.basis, unit, self.hops)), dim=1).T

    def feature_blocks(self) -> Iterator[tuple[slice, Tensor]]:
        """X a block of columns at a time, dense."""
        columns = self.features.shape[1]
        for start in range(0, columns, BLOCK_COLUMNS):
            stop = min(start + BLOCK_COLUMNS, columns)
            yield slice(start, stop), self.features.dense_columns(start, stop)

    def view(
        self,
        nodes: np.ndarray | Sequence[int] | None = None,
        *,
        hops_first: bool = False,
    ) -> RowView:
        """The rows of ``nodes`` (all if None); ``hops_first`` propagates X once and keeps it."""
        return RowView(self, nodes, hops_first)

    @cached_property
    def edges(self) -> Tensor:
        """Source and target of every edge, both ways, and a loop per node: (2, e), by target."""
        entries, loops = self.matrix.to_scipy().tocoo(), np.arange(self.matrix.shape[0])
        apart = entries.row != entries.col  # whether S stores a diagonal depends on the operator
        sources = np.concatenate([entries.col[apart], loops])
        targets = np.concatenate([entries.row[apart], loops])
        order = np.lexsort((sources, targets))
        return torch.from_numpy(np.stack([sources, targets])[:, order].astype(np.int64))

    @cached_property
    def whole(self) -> WholeGraph:
        """The graph as networks of other libraries take it."""
        return WholeGraph.of(self._adjacency, self.features)


class RowView:
    """The outputs of a Propagation at some nodes, in one of the two evaluation orders."""

    def __init__(
        self,
        owner: Propagation,
        nodes: np.ndarray | Sequence[int] | None,
        hops_first: bool,
    ) -> None:
        self._owner = owner
        self._hops_first = hops_first
        self._rows = None if nodes is None else _checked_rows(nodes, owner.matrix.shape[0])
        self._nears: dict[int, Near] = {}
        self._fixed: dict[Numbers, Tensor] = {}
        self._fixed_filters: dict[Numbers, Tensor] = {}

    @property
    def num_rows(self) -> int:
        return self._owner.features.shape[0] if self._rows is None else len(self._rows)

    @property
    def nodes(self) -> Tensor | None:
        """The nodes whose rows these are; None stands for all."""
        return self._rows

    @property
    def edges(self) -> Tensor:
        """All edges of the graph, see :attr:`Propagation.edges`."""
        return self._owner.edges

    @property
    def whole(self) -> WholeGraph:
        """All nodes and edges of the graph, see :attr:`Propagation.whole`."""
        return self._owner.whole

    def at(self, nodes: Tensor | None) -> RowView:
        """The same graph at other nodes."""
        return self._owner.view(None if nodes is None else nodes.numpy())

    def evaluate(
        self, model: Filter, weights: dict[str, Tensor], dropout: Dropout | None
    ) -> Tensor:
        """The model's filtered signal on the rows: (rows, R, m)."""
        return model.filtered(weights, self, dropout)

    def std_mean(self, values: Tensor) -> tuple[Tensor, Tensor]:
        """Deviation and mean of the columns of a signal: (rows, R, m) -> (1, R, m) each."""
        return torch.std_mean(values, dim=0, keepdim=True, correction=0)

    def part(self, rows: Tensor, kept_hops: str = "all") -> RowView:
        """Some of the rows, counted within the view, with all their hop features or the last."""
        last = kept_hops == "last"
        hops = self._last_hop.unsqueeze(0) if last else self._hop_features.squeeze(2)
        return KnownRows(hops.index_select(1, rows))

    def combine(
        self, theta: Tensor, coefficients: Tensor | Numbers | None, dropout: Dropout | None = None
    ) -> Tensor:
        """sum_i c_i p_i(S) X Theta on the rows; without coefficients p_k(S) X Theta alone.

        Coefficients of the last hops may be left out; they count as 0. What numbers that are no
        weights make of X, or of S, is computed once.
        """
        if self._hops_first and dropout is None:
            if coefficients is None:
                mixed = self._last_hop
            elif isinstance(coefficients, tuple):
                mixed = self._fixed_features(coefficients)
            else:
                hops = self._hop_features[: coefficients.shape[1]].squeeze(2)
                mixed = torch.tensordot(coefficients, hops, dims=1)
            return _narrow_product(mixed, theta).transpose(0, 1)
        few = self._owner.features.shape[1] < theta.shape[-1]  # columns to propagate
        if few and (dropout is None or dropout.of_outputs is None):
            inputs = self._dropped_features(theta.shape[0], dropout)
            return torch.einsum("nrd,rdm->nrm", self._filtered(inputs, coefficients), theta)
        return self._filtered(self._owner.features.outputs(theta, dropout), coefficients)

    def sum_of_blocks(self, theta: Tensor, dropout: Dropout | None = None) -> Tensor:
        """sum_i p_i(S) X Theta_i on the rows, for theta (R, k + 1, d, m)."""
        runs, blocks, _, outputs = theta.shape
        if self._hops_first and dropout is None:
            wide = theta.permute(1, 2, 0, 3).flatten(2)  # (k + 1, d, R m)
            found = _narrow_product(self._hop_features.squeeze(2), wide).sum(dim=0)
            return found.view(-1, runs, outputs)
        near = self.near(blocks - 1)
        signal = near.features.outputs(theta.transpose(1, 2).flatten(2), dropout)
        signals = signal.unflatten(2, (blocks, outputs)).permute(2, 0, 1, 3)
        return near.pick(block_sum(near.matrix, self._owner.basis, signals))

    def _filtered(self, signal: Tensor, coefficients: Tensor | Numbers | None) -> Tensor:
        """sum_i c_i p_i(S) of a signal (n, R, c) on the rows; see :meth:`combine`."""
        owner = self._owner
        if not isinstance(coefficients, Tensor):
            numbers = (0.0,) * owner.hops + (1.0,) if coefficients is None else coefficients
            if self._filter_is_cheap(len(numbers) - 1):
                product = _narrow_product(self._fixed_filter(numbers), signal.flatten(1))
                return product.view(self.num_rows, *signal.shape[1:])
            coefficients = signal.new_tensor(numbers).expand(signal.shape[1], -1)
        few = self._rows is not None and FEW_ROWS * self.num_rows < signal.shape[0]
        if few and coefficients.requires_grad:
            # their hops are small enough to keep, and give the gradient by the coefficients
            hops = coefficients.shape[1] - 1
            stack = hop_stack(owner.matrix, owner.basis, signal, hops, self._rows)
            return torch.einsum("rk,knrm->nrm", coefficients, stack)
        return self.pick(combine(owner.matrix, owner.basis, signal, coefficients))

    def hop_outputs(
        self, theta: Tensor, dropout: Dropout | None = None, known: Tensor | None = None
    ) -> Tensor:
        """p_i(S) X Theta on the rows, one slice per hop.

        ``known`` are hop features that are there anyway, of all hops or the first ones: then there
        are as many outputs, and they are multiplied with Theta if that costs less.
        """
        if known is None and self._hops_first and dropout is None:
            return _products(self._hop_features, theta)
        if known is not None and self._product_is_cheap(len(known), len(known) - 1):
            return _products(known, theta)
        hops = self._owner.hops if known is None else len(known) - 1
        near = self.near(hops)
        signal = near.features.outputs(theta, dropout)
        return hop_stack(near.matrix, self._owner.basis, signal, hops, near.rows)

    def hop_output(self, hop: int, theta: Tensor, dropout: Dropout | None, known: Tensor) -> Tensor:
        """p_i(S) X Theta of hop i alone: (rows, R, m); ``known`` (rows, R or 1, d) is p_i(S) X."""
        if hop == 0:
            return self.inputs(theta, dropout)
        if self._product_is_cheap(1, hop):
            return _products(known.unsqueeze(0), theta)[0]
        near = self.near(hop)
        signal = near.features.times(theta, dropout)
        return hop_stack(near.matrix, self._owner.basis, signal, hop, near.rows)[-1]

    def _product_is_cheap(self, slices: int, hops: int) -> bool:
        """Whether products of hop features and Theta cost less than propagating X Theta.

        Per column of Theta: slices rows d / WIDE_GAIN against nnz(X) + hops nnz(S), near the rows.
        """
        near = self.near(hops)
        sparse = near.features.nnz + hops * near.matrix.nnz
        return slices * self.num_rows * near.features.shape[1] < WIDE_GAIN * sparse

    def near(self, hops: int) -> Near:
        """What ``hops`` hops of the rows depend on: the nodes within that distance."""
        if hops not in self._nears:
            self._nears[hops] = Near.of(self._owner, self._rows, hops)
        return self._nears[hops]

    def _dropped_features(self, runs: int, dropout: Dropout | None) -> Tensor:
        """X itself on all nodes, with each run's dropout: (n, R, d)."""
        features = self._owner.features
        if dropout is None:
            return features.dense().unsqueeze(1).repeat(1, runs, 1)
        return torch.stack([features.dense(dropout, run) for run in range(runs)], dim=1)

    def smoothed(self, signal: Tensor, numbers: Numbers) -> Tensor:
        """sum_i c_i p_i(S) of any signal on all nodes, on the rows: (n, R, c) -> (rows, R, c).

        A signal of fewer rows is of the first nodes, and 0 at the others.
        """
        owner, (_, runs, columns) = self._owner, signal.shape
        known = signal.flatten(1)
        whole = known.new_zeros(owner.num_nodes, known.shape[1])
        whole[: len(known)] = known
        found = _summed(owner.matrix, owner.basis, whole, numbers)
        return self.pick(found).view(-1, runs, columns)

    def inputs(self, theta: Tensor, dropout: Dropout | None = None) -> Tensor:
        """X Theta on the rows: (rows, R, m)."""
        return self._row_features.times(theta, dropout)

    def pick(self, signal: Tensor) -> Tensor:
        """The view's rows of a signal on all nodes."""
        return signal if self._rows is None else signal.index_select(0, self._rows)

    def hop_features(self, dropout: Dropout | None = None) -> Tensor:
        """p_i(S) X on the rows; under dropout each run has its own, otherwise they share one."""
        if dropout is None:
            return self._hop_features
        runs = [self._dropped_hops(dropout.of_run(run)) for run in range(dropout.runs)]
        return runs[0].unsqueeze(2) if len(runs) == 1 else torch.stack(runs, dim=2)

    def _dropped_hops(self, dropout: Dropout) -> Tensor:
        """p_i(S) X on the rows under one run's dropout: (k + 1, rows, d).

        Nothing of p_i(S) is dropped, so its rows, computed once, give all hops of the rows in one
        pass over X, nnz(X) (k + 1) rows, where that is less than k nnz(S) d.
        """
        basis, hops = self._owner.basis, self._owner.hops
        near = self.near(hops)
        n, d = near.features.shape
        columns = (hops + 1) * self.num_rows
        hop_by_hop = hops * near.matrix.nnz * d + n * d
        if near.features.nnz * columns < hop_by_hop and n * columns <= MOST_FILTER_SIZE:
            found = near.features.transposed_times(self._filters.unsqueeze(1), dropout)[0]
            return found.T.contiguous().view(hops + 1, self.num_rows, d)
        dense = near.features.dense(dropout, 0)
        return gather_hops(near.matrix, basis, dense, hops, near.rows)

    def last_hop_features(self) -> Tensor:
        """p_k(S) X on the rows: (rows, d)."""
        return self._last_hop

    def _filter_is_cheap(self, hops: int) -> bool:
        """Whether one dense product with the rows of a filter costs less than ``hops`` sparse."""
        owner = self._owner
        dense = self.num_rows * owner.matrix.shape[0]
        return (
            self._rows is not None
            and dense < DENSE_GAIN * hops * owner.matrix.nnz
            and dense <= MOST_FILTER_SIZE
        )

    def _fixed_filter(self, numbers: Numbers) -> Tensor:
        """The rows of sum_i c_i p_i(S) itself: (rows, n)."""
        if numbers not in self._fixed_filters:
            owner = self._owner
            unit = _unit(owner.matrix.shape[0], self._rows, owner.features.dtype)
            found = _summed(owner.matrix.T, owner.basis, unit, numbers)
            self._fixed_filters[numbers] = found.T.contiguous()
        return self._fixed_filters[numbers]

    def _fixed_features(self, numbers: Numbers) -> Tensor:
        """sum_i c_i p_i(S) X on the rows: (rows, d)."""
        if numbers not in self._fixed:
            owner, result = self._owner, self._empty(1)[0]
            for columns, block in owner.feature_blocks():
                found = _summed(owner.matrix, owner.basis, block, numbers)
                result[:, columns] = self.pick(found)
            self._fixed[numbers] = result
        return self._fixed[numbers]

    @cached_property
    def _filters(self) -> Tensor:
        """The rows of every p_i(S) at the nodes near them, transposed: (near, (k + 1) rows)."""
        hops = self._owner.hops
        near = self.near(hops)
        unit = _unit(near.matrix.shape[0], near.rows, near.features.dtype)
        return torch.cat(list(iterate(near.matrix.T, self._owner.basis, unit, hops)), dim=1)

    @cached_property
    def _row_features(self) -> Features:
        features = self._owner.features
        return features if self._rows is None else features.rows(self._rows.numpy())

    @cached_property
    def _hop_features(self) -> Tensor:
        owner = self._owner
        if self._rows is None and not owner.features.is_sparse:  # nothing to save by blocks
            dense = owner.features.dense()
            return gather_hops(owner.matrix, owner.basis, dense, owner.hops, None).unsqueeze(2)
        result = self._empty(owner.hops + 1)
        for columns, block in owner.feature_blocks():
            result[:, :, columns] = gather_hops(
                owner.matrix, owner.basis, block, owner.hops, self._rows
            )
        return result.unsqueeze(2)

    @cached_property
    def _last_hop(self) -> Tensor:
        owner = self._owner
        result = self._empty(1)[0]
        for columns, block in owner.feature_blocks():
            result[:, columns] = self.pick(last_hop(owner.matrix, owner.basis, block, owner.hops))
        return result

    def _empty(self, hops: int) -> Tensor:
        features = self._owner.features
        return torch.empty(hops, self.num_rows, features.shape[1], dtype=features.dtype)


@dataclass(frozen=True)
class Near:
    """S and X of the nodes within some hops of a view's rows, and where these are among them.

    p_i(S) X at the rows depends on no other node. Far rows of the smaller S are not those of S.
    None stands for all rows, and all nodes.
    """

    matrix: SparseMatrix
    features: Features
    rows: Tensor | None
    nodes: Tensor | None = None

    @classmethod
    def of(cls, owner: Propagation, rows: Tensor | None, hops: int) -> Near:
        if rows is None:
            return cls(owner.matrix, owner.features, None)
        reached = nodes_near(owner.matrix, rows, hops)
        if reached.sum() > MOST_NEAR * len(reached):
            return cls(owner.matrix, owner.features, rows)
        nodes = np.flatnonzero(reached)
        places = torch.from_numpy(np.searchsorted(nodes, rows.numpy()))
        features = owner.features.rows(nodes)
        return cls(owner.matrix.among(nodes), features, places, torch.from_numpy(nodes))

    def propagate(self, signal: Tensor) -> Tensor:
        """S times a signal on these nodes: (nodes, R, c) -> (nodes, R, c), differentiable."""
        return matmul(self.matrix, signal)

    def pick(self, signal: Tensor) -> Tensor:
        """The view's rows of a signal on these nodes."""
        return signal if self.rows is None else signal.index_select(0, self.rows)


class KnownRows(RowView):
    """Rows of which nothing but the hop features (k + 1, rows, d) is known, or only the last hop.

    That is all that a linear model needs; there is no graph to propagate on.
    """

    def __init__(self, hops: Tensor) -> None:
        self._hops_first, self._rows = True, None
        self._hop_features, self._last_hop = hops.unsqueeze(2), hops[-1]

    @property
    def num_rows(self) -> int:
        return len(self._last_hop)

    def _product_is_cheap(self, slices: int, hops: int) -> bool:
        return True

    def _fixed_features(self, numbers: Numbers) -> Tensor:
        hops = self._hop_features[: len(numbers)].squeeze(2)
        return torch.tensordot(hops.new_tensor(numbers), hops, dims=1)

    @cached_property
    def _row_features(self) -> Features:
        return Features(self._hop_features[0, :, 0])  # p_0(S) X = X


def nodes_near(matrix: SparseMatrix, rows: Tensor, hops: int) -> np.ndarray:
    """Whether ``hops`` hops of ``rows`` read each node: (n,) of bool."""
    whole = matrix.to_scipy()
    reached = np.zeros(whole.shape[0], bool)
    reached[rows.numpy()] = True
    linked = sp.csr_array((np.ones(whole.nnz, bool), whole.indices, whole.indptr), whole.shape)
    for _ in range(hops):
        reached |= reached @ linked  # what the rows of these read, in whichever direction
    return reached


def _products(hops: Tensor, theta: Tensor) -> Tensor:
    """Every hop's features (k + 1, rows, R or 1, d) times Theta: (k + 1, rows, R, m)."""
    if hops.shape[2] == 1:
        return (hops.squeeze(2).unsqueeze(1) @ theta).transpose(1, 2)
    return torch.einsum("knrd,rdm->knrm", hops, theta)


def _summed(matrix: SparseMatrix, basis: Basis, signal: Tensor, numbers: Numbers) -> Tensor:
    """sum_i c_i p_i(S) signal: (n, w) -> (n, w)."""
    scales = signal.new_tensor(numbers).unsqueeze(1).repeat(1, signal.shape[1])
    return weighted_sum(matrix, basis, signal, scales)


def _unit(size: int, rows: Tensor | None, dtype: torch.dtype) -> Tensor:
    """A column per row (all if None), 1 at its place: (size, rows)."""
    rows = torch.arange(size) if rows is None else rows
    unit = torch.zeros(size, len(rows), dtype=dtype)
    unit[rows, torch.arange(len(rows))] = 1
    return unit


def _narrow_product(wide: Tensor, narrow: Tensor) -> Tensor:
    """A B for B of few columns: (..., a, b) and (..., b, c) -> (..., a, c).

    As (B^T A^T)^T it takes a quarter of the time that BLAS takes for A B, and so does its gradient.
    """
    product = narrow.transpose(-2, -1).contiguous() @ wide.transpose(-2, -1)
    return product.transpose(-2, -1)


def _checked_rows(nodes: np.ndarray | Sequence[int], count: int) -> Tensor:
    """The nodes as a tensor; the C++ core trusts them."""
    rows = np.array(nodes, dtype=np.int64)
    if rows.size and (rows.min() < 0 or rows.max() >= count):
        raise GraphError(
            f"nodes go from {rows.min():,} to {rows.max():,} but the graph has {count:,} nodes; "
            f"pass indices from 0 to {count - 1:,}."
        )
    return torch.as_tensor(rows)
