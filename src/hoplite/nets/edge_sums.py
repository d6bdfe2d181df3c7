"""Sums along edges whose weights are computed anew each time, like attention.

    out[t, h, :] = sum over edges e into t  w[e, h] z[source(e), h, :]

for h heads at once: one product with a sparse matrix of (targets h) x (sources h), in which the
heads stand side by side, instead of a message of every edge in memory.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import scipy.sparse as sp
import torch
from torch import Tensor

from hoplite.engine.sparse import SparseMatrix, spmm
from hoplite.nets.view import as_array


class EdgeSums:
    """The edges (2, e), source and target, sorted by target; at least one leads into every target.

    >>> sums = EdgeSums(torch.tensor([[0, 1, 1], [0, 0, 1]]))
    >>> sums(torch.tensor([[[1.0]], [[3.0]]]), torch.tensor([[1.0], [2.0], [4.0]])).flatten()
    tensor([ 7., 12.])
    """

    def __init__(self, ends: Tensor) -> None:
        self.source, self.target = ends
        self.num_targets = int(self.target[-1]) + 1
        self._patterns: dict[int, tuple[np.ndarray, np.ndarray, np.ndarray]] = {}

    def __call__(self, signal: Tensor, weights: Tensor) -> Tensor:
        """(sources, h, c) and (e, h) -> (targets, h, c), differentiable in both."""
        return _EdgeSums.apply(signal, weights, self)  # pyright: ignore[reportReturnType]

    def softmax(self, scores: Tensor) -> Tensor:
        """exp(s_e) over the sum of its target's edges: (e, h) -> (e, h)."""
        shape = (self.num_targets, scores.shape[1])
        into = self.target.unsqueeze(1).expand_as(scores)
        fixed = scores.detach()
        zeros = fixed.new_zeros(shape)
        largest = zeros.scatter_reduce(0, into, fixed, "amax", include_self=False)
        raised = (scores - largest.index_select(0, self.target)).exp()
        total = raised.new_zeros(shape).index_add(0, self.target, raised)
        return raised / total.index_select(0, self.target)

    def matrix(self, weights: Tensor, sources: int) -> SparseMatrix:
        """The matrix of these weights, (targets h) x (sources h)."""
        heads = weights.shape[1]
        if heads not in self._patterns:
            source, target, head = self.source.numpy(), self.target.numpy(), np.arange(heads)
            order = (target[:, None] * heads + head).ravel().argsort(kind="stable")
            indices = (source[:, None] * heads + head).ravel()[order]
            indptr = np.concatenate([[0], np.repeat(np.bincount(target), heads).cumsum()])
            self._patterns[heads] = indptr, indices, order
        indptr, indices, order = self._patterns[heads]
        values = as_array(weights).reshape(-1)[order]
        shape = (len(indptr) - 1, sources * heads)
        return SparseMatrix(sp.csr_array((values, indices, indptr), shape=shape), symmetric=False)


class _EdgeSums(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, signal: Tensor, weights: Tensor, sums: EdgeSums) -> Tensor:
        ctx.save_for_backward(signal, weights)
        ctx.sums = sums
        sources, heads, columns = signal.shape
        flat = as_array(signal).reshape(sources * heads, columns)
        totals = spmm(sums.matrix(weights, sources), flat)
        return torch.from_numpy(totals).view(-1, heads, columns)

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> Any:
        signal, weights = ctx.saved_tensors
        source, target = ctx.sums.source, ctx.sums.target
        along = gradients[0].index_select(0, target)  # (e, h, c)
        to_weights = (along * signal.index_select(0, source)).sum(dim=2)
        along = along * weights.unsqueeze(2)
        return torch.zeros_like(signal).index_add_(0, source, along), to_weights, None
