"""Attention along the edges of a graph, at the nodes that a layer's outputs are needed at."""

from __future__ import annotations

from functools import cached_property, partial
from typing import Any

import numpy as np
import scipy.sparse as sp
import torch
from torch import Tensor
from torch.nn.functional import leaky_relu

from hoplite.engine.dropout import Dropout
from hoplite.engine.propagation import Propagation
from hoplite.engine.sparse import SparseMatrix, spmm
from hoplite.nets.view import Layer, as_array, drop, linear

SLOPE = 0.2  # of LeakyReLU below 0


class Attention(Layer):
    """The edges of a layer, whose weights are computed anew each time; ``part`` numbers them.

        out[t, h, :] = sum over edges e into t  w[e, h] z[source(e), h, :]

    for h heads at once: one product with a sparse matrix of (nodes h) x (sources h), in which the
    heads stand side by side, instead of a message of every edge in memory.

    >>> layer = Attention(sp.csr_array(([7, 8, 9], ([0, 0, 1], [0, 1, 1]))), np.float32)
    >>> layer.sums(torch.tensor([[[1.0]], [[3.0]]]), torch.tensor([[1.0], [2.0], [4.0]])).flatten()
    tensor([ 7., 12.])
    """

    @staticmethod
    def whole(graph: Propagation) -> sp.csr_array:
        """The number of every edge, both ways, with a loop per node: n x n, [target, source]."""
        S = graph.matrices[0].to_scipy()
        ones = sp.csr_array((np.ones_like(S.data), S.indices, S.indptr), S.shape)
        edges = sp.csr_array(ones + sp.eye_array(len(S.indptr) - 1, format="csr"))
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
        ones, shape = np.ones(len(edges), self.dtype), (self.part.shape[0], len(edges))
        return SparseMatrix.from_scipy(sp.csr_array((ones, edges, self.part.indptr), shape))

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

    def matrix(self, weights: Tensor) -> SparseMatrix:
        """The matrix of these weights (e, h): (nodes h) x (sources h)."""
        heads = weights.shape[1]
        if heads not in self._patterns:
            counts, head = np.diff(self.part.indptr), np.arange(heads)
            rows = np.repeat(np.arange(len(counts)), counts)[:, None] * heads + head
            order = rows.ravel().argsort(kind="stable")
            indices = (self.part.indices[:, None] * heads + head).ravel()[order]
            counts = np.repeat(counts, heads)
            self._patterns[heads] = np.append(0, counts.cumsum()), indices, order
        indptr, indices, order = self._patterns[heads]
        values = as_array(weights).reshape(-1)[order]
        shape = (self.part.shape[0] * heads, self.part.shape[1] * heads)
        return SparseMatrix(sp.csr_array((values, indices, indptr), shape=shape), symmetric=False)

    @cached_property
    def _patterns(self) -> dict[int, tuple[np.ndarray, np.ndarray, np.ndarray]]:
        """For a number of heads, the matrix without its values, and their order."""
        return {}


class _Sums(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, signal: Tensor, weights: Tensor, layer: Attention) -> Tensor:
        ctx.save_for_backward(signal, weights)
        ctx.layer = layer
        sources, heads, columns = signal.shape
        flat = as_array(signal).reshape(sources * heads, columns)
        totals = spmm(layer.matrix(weights), flat)
        return torch.from_numpy(totals).view(-1, heads, columns)

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> Any:
        signal, weights = ctx.saved_tensors
        layer, (outer,) = ctx.layer, gradients
        flat = as_array(outer).reshape(len(outer), -1)
        along = torch.from_numpy(spmm(layer.into.T, flat)).view(-1, *outer.shape[1:])  # (e, h, c)
        to_weights = (along * signal.index_select(0, layer.edge_sources)).sum(dim=2)
        along = along * weights.unsqueeze(2)
        return torch.zeros_like(signal).index_add_(0, layer.edge_sources, along), to_weights, None
