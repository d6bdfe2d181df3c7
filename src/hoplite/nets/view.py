"""Some nodes as a network reads them: the engine's kernels, with their gradients for PyTorch.

A view has some rows of a graph, or of hop features. With M the operator, p_i the basis, X~ what
dropout leaves of X, and W weights (d, w):

    inputs         X~ W                                        (rows, w)
    hop_features   p_i(M) X~ for every i, constant             (k + 1, rows, d)
    hop_outputs    p_i(M) X~ W for every i                     (k + 1, rows, w)
    hop_output     p_i(M) X~ W for one i                       (rows, w)
    layers         the parts of S, or of another matrix, that each of several layers reads
"""

from __future__ import annotations

import threading
import warnings
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cached_property, partial
from typing import Any, TypeVar
from weakref import WeakKeyDictionary

import numpy as np
import scipy.sparse as sp
import torch
from torch import Tensor
from torch.nn.functional import leaky_relu

from hoplite.engine.backend import get_num_threads
from hoplite.engine.dropout import Dropout
from hoplite.engine.features import Features
from hoplite.engine.polynomial import gather_hops, scatter_hops
from hoplite.engine.propagation import Propagation
from hoplite.engine.sparse import SparseMatrix, spmm

WIDE_GAIN = 16  # a multiply-add of wide dense products costs so many times less than of sparse ones
SLOPE = 0.2  # slope of LeakyReLU below 0
SHARED_WORK = 1 << 24  # multiply-adds from which on several threads are worth their start

Map = Callable[[np.ndarray], np.ndarray]
_lock = threading.RLock()
L = TypeVar("L", bound="Layer")


class HopView:
    """Rows of hop features (k + 1, rows, d), without a graph; so nothing can be dropped from X."""

    def __init__(self, hops: np.ndarray) -> None:
        self._hops = as_tensor(np.ascontiguousarray(hops))

    def inputs(self, weight: Tensor, dropout: Dropout | None = None) -> Tensor:
        """X W, as p_0(M) X = X."""
        return self._hops[0] @ weight

    def hop_features(self, dropout: Dropout | None = None) -> Tensor:
        """The hop features themselves."""
        return self._hops

    def hop_outputs(
        self, weight: Tensor, dropout: Dropout | None = None, hops: Tensor | None = None
    ) -> Tensor:
        """The products of all hop features, or of the ``hops`` ones, with W."""
        return (self._hops if hops is None else hops) @ weight

    def hop_output(
        self, hop: int, weight: Tensor, dropout: Dropout | None, hop_features: Tensor
    ) -> Tensor:
        """The product of one hop's features with W."""
        return hop_features @ weight


@dataclass(frozen=True, eq=False)
class WholeGraph:
    """A graph as networks of other libraries take it: X dense, and a list of edges.

    X is (n, d); the edges are the graph's own, both ways, without self-loops, sorted by target:
    ``edge_index`` (2, e), sources and targets, and ``edge_weight`` (e,) of the type of X.

    >>> link = sp.csr_array(([2.0, 2.0], ([0, 1], [1, 0])), shape=(2, 2))
    >>> whole = WholeGraph.of(link, Features.from_array(np.eye(2)))
    >>> whole.edge_index.tolist(), whole.edge_weight.tolist()
    ([[1, 0], [0, 1]], [2.0, 2.0])
    """

    features: Tensor
    edge_index: Tensor
    edge_weight: Tensor

    @classmethod
    def of(cls, adjacency: sp.csr_array, features: Features) -> WholeGraph:
        """The view of a graph with this adjacency and X."""
        entries = adjacency.tocoo()
        order = np.lexsort((entries.col, entries.row))  # i, j is the weight of j's message to i
        ends = np.stack([entries.col, entries.row])[:, order].astype(np.int64)
        weights = torch.from_numpy(np.asarray(entries.data)[order].astype(features.dtype))
        return cls(as_tensor(features.dense()), torch.from_numpy(ends), weights)


_wholes: WeakKeyDictionary[Propagation, WholeGraph] = WeakKeyDictionary()


class GraphView:
    """Some nodes of a graph with one operator; all if ``nodes`` is None.

    ``hops_first`` propagates X once and keeps it.
    """

    def __init__(
        self, graph: Propagation, nodes: np.ndarray | None = None, *, hops_first: bool = False
    ) -> None:
        self.graph, self.nodes, self._hops_first = graph, nodes, hops_first
        self._nears: dict[int, tuple[Propagation, np.ndarray | None]] = {}
        self._layers: dict[Any, tuple[Features, list[Any]]] = {}

    @property
    def whole(self) -> WholeGraph:
        """The graph as networks of other libraries take it; its edges are listed once."""
        with _lock:
            if self.graph not in _wholes:
                _wholes[self.graph] = WholeGraph.of(self.graph.adjacency, self.graph.features)
            return _wholes[self.graph]

    @property
    def num_rows(self) -> int:
        """How many nodes there are."""
        return self.graph.num_nodes if self.nodes is None else len(self.nodes)

    def pick(self, signal: Tensor) -> Tensor:
        """The view's rows of a signal on all nodes."""
        return at_rows(signal, self.nodes)

    def layers(self, count: int, make: type[L]) -> tuple[Features, list[L]]:
        """X and the graph as a network of ``count`` layers reads them, the first layer first.

        The outputs of the last layer are needed at the view's rows alone, those of another one only
        at the nodes that the next one reads.
        """
        if (count, make) not in self._layers:
            matrix, nodes, layers = make.whole(self.graph), self.nodes, []
            for _ in range(count):
                targets, part = nodes, matrix
                if targets is not None:
                    rows = matrix[targets]
                    nodes = np.union1d(rows.indices, targets)
                    part = sp.csr_array(rows[:, nodes])
                layers.insert(0, make(part, self.graph.features.dtype, targets, nodes))
            features = self.graph.features if nodes is None else self.graph.features.rows(nodes)
            self._layers[count, make] = features, layers
        return self._layers[count, make]

    def part(self, rows: np.ndarray) -> HopView:
        """The hop features of some of the rows, by their positions."""
        return HopView(self._hop_features.numpy()[:, rows])

    def inputs(self, weight: Tensor, dropout: Dropout | None = None) -> Tensor:
        """X~ W at the rows: (rows, w)."""
        return times(self._row_features, weight, dropout)

    def hop_features(self, dropout: Dropout | None = None) -> Tensor:
        """p_i(M) X~ at the rows, for every hop: (k + 1, rows, d); no gradient goes through them.

        Under dropout they are rows of p_i(M), which are computed once, times X~, where that takes
        fewer multiply-adds than the hops of X~.
        """
        if dropout is None:
            return self._hop_features
        graph, (near, rows) = self.graph, self.near(self.graph.hops)
        columns, slices = near.features.shape[1], graph.hops + 1
        if slices * self.num_rows * near.features.nnz < graph.hops * near.nonzeros * columns:
            product = near.features.transposed_times(self._filter_rows, dropout)
            shape = (columns, slices, self.num_rows)
            return torch.from_numpy(product).view(shape).permute(1, 2, 0)
        return torch.from_numpy(near.gather(near.features.dense(dropout), rows))

    @cached_property
    def _filter_rows(self) -> np.ndarray:
        """p_i(M)' at the rows, for every hop: (n, (k + 1) rows)."""
        near, rows = self.near(self.graph.hops)
        unit = np.zeros((near.num_nodes, self.num_rows), near.dtype)
        unit[np.arange(near.num_nodes) if rows is None else rows, np.arange(self.num_rows)] = 1
        filters = near.sum_blocks_adjoint(unit)
        return np.ascontiguousarray(filters.transpose(1, 0, 2)).reshape(near.num_nodes, -1)

    def hop_outputs(
        self, weight: Tensor, dropout: Dropout | None = None, known: Tensor | None = None
    ) -> Tensor:
        """p_i(M) X~ W at the rows, for every hop: (k + 1, rows, w).

        ``known`` are hop features that are there anyway, of all hops or the first ones: then there
        are as many outputs, and they are multiplied with W if that costs less.
        """
        if known is None and self._hops_first and dropout is None:
            return self._hop_features @ weight
        if known is not None and self._product_is_cheap(len(known), len(known) - 1):
            return known @ weight
        hops = self.graph.hops if known is None else len(known) - 1
        return self._propagated(weight, dropout, hops)

    def hop_output(
        self, hop: int, weight: Tensor, dropout: Dropout | None, hop_features: Tensor
    ) -> Tensor:
        """p_i(M) X~ W for i = ``hop``: (rows, w); ``hop_features`` (rows, d) is p_i(M) X~."""
        if hop == 0:
            return self.inputs(weight, dropout)
        if self._product_is_cheap(1, hop):
            return hop_features @ weight
        return self._propagated(weight, dropout, hop)[-1]

    def _propagated(self, weight: Tensor, dropout: Dropout | None, hops: int) -> Tensor:
        """The hops of X~ W up to ``hops``, at the rows."""
        near, rows = self.near(hops)
        (matrix,), basis = near.matrices, near.basis
        return linear(
            times(near.features, weight, dropout),
            lambda signal: gather_hops(matrix, basis, signal, hops, rows),
            lambda gathered: scatter_hops(matrix.T, basis, gathered, rows),
        )

    def _product_is_cheap(self, slices: int, hops: int) -> bool:
        """Whether products of hop features and W cost less than propagating X W.

        Per column of W: slices rows d / WIDE_GAIN against nnz(X) + hops nnz(M), near the rows.
        """
        near, _ = self.near(hops)
        sparse = near.features.nnz + hops * near.nonzeros
        return slices * self.num_rows * near.features.shape[1] < WIDE_GAIN * sparse

    def near(self, hops: int) -> tuple[Propagation, np.ndarray | None]:
        """M and X of the nodes within ``hops`` hops, and where the rows are among them (None: all).

        p_i(M) X at the rows depends on no other node.
        """
        if hops not in self._nears:
            whole, nodes = self.graph, self.nodes
            self._nears[hops] = (whole, None) if nodes is None else whole.near(nodes, hops)
        return self._nears[hops]

    @cached_property
    def _row_features(self) -> Features:
        return self.graph.features if self.nodes is None else self.graph.features.rows(self.nodes)

    @cached_property
    def _hop_features(self) -> Tensor:
        return torch.from_numpy(self.graph.hop_features(self.nodes))


RowView = HopView | GraphView


class Layer(ABC):
    """What one layer of a network reads of a matrix: some rows and columns.

    Parameters
    ----------
    part : csr_array of shape (nodes, sources)
    dtype : dtype
        Type of the signals.
    nodes : array, optional
        Where the layer's outputs are needed; all nodes if None.
    sources : array, optional
        The nodes that it reads, in rising order, ``nodes`` among them; all nodes if None.
    """

    def __init__(
        self,
        part: sp.csr_array,
        dtype: np.dtype,
        nodes: np.ndarray | None = None,
        sources: np.ndarray | None = None,
    ) -> None:
        self.part, self.dtype, self.nodes, self.sources = part, dtype, nodes, sources

    @staticmethod
    @abstractmethod
    def whole(graph: Propagation) -> sp.csr_array:
        """The matrix of all nodes: n x n."""


class Convolution(Layer):
    """S."""

    @staticmethod
    def whole(graph: Propagation) -> sp.csr_array:
        return graph.matrices[0].to_scipy()

    def __call__(self, signal: Tensor) -> Tensor:
        """S times a signal: (sources, w) -> (nodes, w)."""
        return linear(signal, partial(spmm, self._matrix), partial(spmm, self._matrix.T))

    @cached_property
    def _matrix(self) -> SparseMatrix:
        return SparseMatrix.from_scipy(self.part)


class Attention(Layer):
    """Attention: edges whose weights are computed at each step; ``part`` numbers them.

        out[t, h, :] = sum over edges e into t  w[e, h] z[source(e), h, :]

    for h heads, each of which is a product with a sparse matrix: no message of an edge is kept.

    >>> layer = Attention(sp.csr_array(([7, 8, 9], ([0, 0, 1], [0, 1, 1]))), np.float32)
    >>> layer.sums(torch.tensor([[[1.0]], [[3.0]]]), torch.tensor([[1.0], [2.0], [4.0]])).flatten()
    tensor([ 7., 12.])
    """

    @staticmethod
    def whole(graph: Propagation) -> sp.csr_array:
        """The number of every edge, both ways, with a loop per node: n x n, [target, source]."""
        S = graph.matrices[0].to_scipy()
        pattern = sp.csr_array((np.ones_like(S.data), S.indices, S.indptr), S.shape)
        edges = sp.csr_array(pattern + sp.eye_array(len(S.indptr) - 1, format="csr"))
        edges.sort_indices()
        return sp.csr_array((np.arange(edges.nnz), edges.indices, edges.indptr), edges.shape)

    def __call__(
        self, signal: Tensor, scores: tuple[Tensor, Tensor], dropout: Dropout | None, mask: int
    ) -> Tensor:
        """Sums of a signal by its attention: (sources, h, c) -> (nodes, h, c).

        An edge's score is that of its source plus that of its target, (sources, h) each; ``mask``
        is the number of the mask that drops from the attention.
        """
        at_sources, at_targets = scores
        if self._places is not None:
            at_targets = at_targets.index_select(0, self._places)
        edges = at_sources.index_select(0, self.edge_sources) + self._of_targets(at_targets)
        attention = self.softmax(leaky_relu(edges, SLOPE))
        return self.sums(signal, drop(attention, dropout, mask, self.part.data))

    def softmax(self, scores: Tensor) -> Tensor:
        """exp(s_e) over the sum of its target's edges: (e, h) -> (e, h)."""
        offsets = torch.from_numpy(self.part.indptr.astype(np.int64))
        largest = torch.segment_reduce(scores.detach(), "max", offsets=offsets)
        raised = (scores - self._of_targets(largest)).exp()
        totals = linear(raised, partial(spmm, self.into), partial(spmm, self.into.T))
        return raised / self._of_targets(totals)

    def _of_targets(self, signal: Tensor) -> Tensor:
        """At every edge, the value of its target: (nodes, h) -> (e, h)."""
        return linear(signal, partial(spmm, self.into.T), partial(spmm, self.into))

    @cached_property
    def into(self) -> SparseMatrix:
        """1 where an edge leads into a node: (nodes, e); its products are faster than an index."""
        edges = np.arange(self.part.nnz)
        values, shape = np.ones(len(edges), self.dtype), (self.part.shape[0], len(edges))
        return SparseMatrix.from_scipy(sp.csr_array((values, edges, self.part.indptr), shape))

    @cached_property
    def edge_sources(self) -> Tensor:
        """The source of every edge, counted among the sources."""
        return torch.from_numpy(self.part.indices.astype(np.int64))

    @cached_property
    def _places(self) -> Tensor | None:
        """The nodes, counted among the sources; None if both are all nodes."""
        if self.nodes is None or self.sources is None:
            return None
        return torch.from_numpy(np.searchsorted(self.sources, self.nodes))

    def sums(self, signal: Tensor, weights: Tensor) -> Tensor:
        """(sources, h, c) and (e, h) -> (nodes, h, c), differentiable in both."""
        return _Sums.apply(signal, weights, self)  # pyright: ignore[reportReturnType]

    def products(self, signal: np.ndarray, weights: np.ndarray) -> np.ndarray:
        """For every head, the product of a sparse matrix of its weights and its signal."""
        part = self.part
        heads = [
            spmm(SparseMatrix(sp.csr_array((w, part.indices, part.indptr), part.shape), False), z)
            for w, z in zip(weights.T.copy(), signal.swapaxes(0, 1), strict=True)
        ]
        return np.stack(heads, axis=1)


class _Sums(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, signal: Tensor, weights: Tensor, layer: Attention) -> Tensor:
        ctx.save_for_backward(signal, weights)
        ctx.layer = layer
        return torch.from_numpy(layer.products(as_array(signal), as_array(weights)))

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> Any:
        signal, weights = ctx.saved_tensors
        layer, (outer,) = ctx.layer, gradients
        flat = as_array(outer).reshape(len(outer), -1)
        along = torch.from_numpy(spmm(layer.into.T, flat)).view(-1, *outer.shape[1:])  # (e, h, c)
        to_weights = (along * signal.index_select(0, layer.edge_sources)).sum(dim=2)
        along = along * weights.unsqueeze(2)
        return torch.zeros_like(signal).index_add_(0, layer.edge_sources, along), to_weights, None


class _Polynomial(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, signal: Tensor, coefficients: Tensor, near: Propagation) -> Tensor:
        scales = coefficients.detach().unsqueeze(1).expand(-1, signal.shape[1])
        ctx.near, ctx.arrays = near, (as_array(signal), as_array(scales))
        return torch.from_numpy(near.combine(*ctx.arrays))

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> Any:
        by_signal, by_scales = ctx.near.combine_adjoint(as_array(gradients[0]), *ctx.arrays)
        by_coefficients = torch.from_numpy(by_scales.sum(axis=1)).to(gradients[0].dtype)
        return torch.from_numpy(by_signal), by_coefficients, None


def polynomial(near: Propagation, signal: Tensor, coefficients: Tensor) -> Tensor:
    """sum_i c_i p_i(M) signal: (n, w) and (k + 1,) -> (n, w), differentiable in both."""
    return _Polynomial.apply(signal, coefficients, near)  # pyright: ignore[reportReturnType]


def at_rows(signal: Tensor, rows: np.ndarray | None) -> Tensor:
    """(n, w) -> (rows, w)."""
    return signal if rows is None else signal.index_select(0, torch.tensor(rows))


def times(features: Features, weight: Tensor, dropout: Dropout | None = None) -> Tensor:
    """X~ W: (d, w) -> (n, w), differentiable in W."""
    adjoint = partial(features.transposed_times, dropout=dropout)
    return linear(weight, partial(features.times, dropout=dropout), adjoint)


def drop(
    signal: Tensor, dropout: Dropout | None, layer: int, nodes: np.ndarray | None = None
) -> Tensor:
    """A dense signal (n, w) with its entries dropped, by a mask of its layer (1, 2, ...).

    It has the rows of ``nodes`` if they are given, and is dropped as on the whole graph.
    """
    if dropout is None or not dropout.rate:
        return signal
    own = Dropout(dropout.rate, dropout.seed, dropout.step + (layer << 32))  # of_entries(layer)

    def masked(values: np.ndarray) -> np.ndarray:
        return Features(values, nodes).dense(own)

    return linear(signal, masked, masked)  # it is its own adjoint


class _Linear(torch.autograd.Function):
    """A linear map of NumPy arrays, and its adjoint; nothing of it is stored but the two."""

    @staticmethod
    def forward(ctx: Any, signal: Tensor, function: Map, adjoint: Map) -> Tensor:
        ctx.adjoint = adjoint
        return torch.from_numpy(function(as_array(signal)))

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> Any:
        return torch.from_numpy(ctx.adjoint(as_array(gradients[0]))), None, None


def linear(signal: Tensor, function: Map, adjoint: Map) -> Tensor:
    """``function`` of a signal, differentiable by its ``adjoint``."""
    return _Linear.apply(signal, function, adjoint)  # pyright: ignore[reportReturnType]


def as_array(tensor: Tensor) -> np.ndarray:
    """A contiguous array, which shares the tensor's memory if that is contiguous."""
    return np.ascontiguousarray(tensor.detach().numpy())


def as_tensor(array: np.ndarray) -> Tensor:
    """A tensor that shares the array's memory; it is only read.

    PyTorch warns where the array is read-only, as the arrays of a graph are.
    """
    if array.flags.writeable:
        return torch.from_numpy(array)
    with _lock, warnings.catch_warnings():  # which no two threads may enter at the same time
        warnings.filterwarnings("ignore", message="The given NumPy array is not writable")
        return torch.from_numpy(array)


class _TorchThreads:
    """PyTorch's threads belong to the process: the last block that limits them restores them."""

    def __init__(self) -> None:
        self._lock, self._blocks, self._before = threading.Lock(), 0, 1

    @contextmanager
    def __call__(self, work: int) -> Iterator[None]:
        """Within the block, few threads for short operations.

        Little ``work``, in multiply-adds, is not worth a second thread, whoever else trains, so a
        small run gives the same bits alone or among others; and threads that wait for each other
        after every short operation cost most where other programs run. More work takes the
        engine's threads; runs at the same time share them.
        """
        threads = 1 if work < SHARED_WORK else get_num_threads()
        with self._lock:
            if not self._blocks:
                self._before = torch.get_num_threads()
            self._blocks += 1
            torch.set_num_threads(threads)
        try:
            yield
        finally:
            with self._lock:
                self._blocks -= 1
                if not self._blocks:
                    torch.set_num_threads(self._before)


torch_threads = _TorchThreads()
