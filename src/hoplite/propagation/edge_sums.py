"""Sums along edges whose weights are computed anew each time, like attention.

    out[t, h, :] = sum over edges e into t  w[e, h] z[source(e), h, :]

for h heads at once: one product with a sparse matrix of (targets h) x (sources h), in which the
heads stand side by side, instead of a message of every edge in memory.
"""

from __future__ import annotations

from typing import Any

import scipy.sparse as sp
import torch
from torch import Tensor

from hoplite.propagation.spmm import SparseMatrix, spmm


class EdgeSums:
    """The edges (2, e), source and target; there is at least one into every target.

    >>> sums = EdgeSums(torch.tensor([[0, 1, 1], [0, 0, 1]]))
    >>> sums(torch.tensor([[[1.0]], [[3.0]]]), torch.tensor([[1.0], [2.0], [4.0]])).flatten()
    tensor([ 7., 12.])
    """

    def __init__(self, ends: Tensor) -> None:
        self.ends = ends
        self._patterns: dict[int, tuple[Any, Any, Tensor]] = {}

    def __call__(self, signal: Tensor, weights: Tensor) -> Tensor:
        """(sources, h, c) and (e, h) -> (targets, h, c), differentiable in both."""
        return _EdgeSums.apply(signal, weights, self)  # pyright: ignore[reportReturnType]

    def matrix(self, weights: Tensor, sources: int) -> SparseMatrix:
        """The matrix of these weights, (targets h) x (sources h)."""
        heads = weights.shape[1]
        if heads not in self._patterns:
            source, target = self.ends
            head = torch.arange(heads)
            order = (target[:, None] * heads + head).flatten().argsort(stable=True)
            indices = (source[:, None] * heads + head).flatten()[order]
            ends = torch.bincount(target).repeat_interleave(heads).cumsum(0)
            indptr = torch.cat([ends.new_zeros(1), ends])
            self._patterns[heads] = indptr.numpy(), indices.numpy(), order
        indptr, indices, order = self._patterns[heads]
        values = weights.detach().reshape(-1)[order].numpy()
        shape = (len(indptr) - 1, sources * heads)
        return SparseMatrix(sp.csr_array((values, indices, indptr), shape=shape), symmetric=False)


class _EdgeSums(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, signal: Tensor, weights: Tensor, sums: EdgeSums) -> Tensor:
        ctx.save_for_backward(signal, weights)
        ctx.sums = sums
        sources, heads, columns = signal.shape
        matrix = sums.matrix(weights, sources)
        return spmm(matrix, signal.reshape(sources * heads, columns)).view(-1, heads, columns)

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> Any:
        signal, weights = ctx.saved_tensors
        source, target = ctx.sums.ends
        along = gradients[0].index_select(0, target)  # (e, h, c)
        to_weights = (along * signal.index_select(0, source)).sum(dim=2)
        along = along * weights.unsqueeze(2)
        return torch.zeros_like(signal).index_add_(0, source, along), to_weights, None
