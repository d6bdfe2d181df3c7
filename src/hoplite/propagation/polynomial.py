"""Polynomials of an operator applied to a signal: two dual loops and the two autograd forms.

With p_0, p_1, ... the basis (monomial S^i, or Chebyshev T_i) and S symmetric (for Chebyshev S has
its spectrum in [-1, 1]):

    iterate     yields p_i(S) X, i = 0 .. k              (k products)
    accumulate  gives  sum_i p_i(S) T_i for terms T_i     (k products, Horner or Clenshaw)

Each is the other's adjoint, so forward and backward of both autograd functions below are these
two loops, and no intermediate signal is kept for the backward pass.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import torch
from torch import Tensor

from hoplite.propagation.spmm import SparseMatrix, spmm

Term = tuple[Tensor, Tensor]  # (Z, column scale): the term is Z * scale


def iterate(matrix: SparseMatrix, basis: str, signal: Tensor, hops: int) -> Iterator[Tensor]:
    """Yield p_i(S) signal for i = 0 .. hops; ``signal`` is (n, w) and contiguous."""
    yield signal
    if basis == "monomial":
        for _ in range(hops):
            signal = spmm(matrix, signal)
            yield signal
        return
    before, now = signal, signal
    for i in range(hops):
        if i == 0:
            now = spmm(matrix, before)
        else:
            before, now = now, spmm(matrix, now, scale=2.0, W=before, w_scale=-1.0)
        yield now


def accumulate(matrix: SparseMatrix, basis: str, term: Callable[[int], Term], hops: int) -> Tensor:
    """sum_i p_i(S) (Z_i * scale_i) where ``term(i)`` gives Z_i (n, w) and scale_i (w,)."""
    last, scale = term(hops)
    total = last * scale
    if basis == "monomial":
        for i in reversed(range(hops)):
            last, scale = term(i)
            total = spmm(matrix, total, Z=last, column_scale=scale)
        return total
    # Clenshaw: B_i = T_i-term + 2 M B_{i+1} - B_{i+2}; the last step has no factor 2.
    ahead: Tensor | None = None
    for i in reversed(range(hops)):
        last, scale = term(i)
        factor = 1.0 if i == 0 else 2.0
        total, ahead = (
            spmm(matrix, total, scale=factor, Z=last, column_scale=scale, W=ahead, w_scale=-1.0),
            total,
        )
    return total


class _Combine(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any, signal: Tensor, coefficients: Tensor, matrix: SparseMatrix, basis: str
    ) -> Tensor:
        n, runs, columns = signal.shape
        hops = coefficients.shape[1] - 1
        flat = signal.reshape(n, runs * columns).contiguous()
        scales = _column_scales(coefficients, columns)
        ctx.matrix, ctx.basis, ctx.shape = matrix, basis, signal.shape
        ctx.save_for_backward(flat, scales)
        total = accumulate(matrix, basis, lambda i: (flat, scales[i]), hops)
        return total.view(n, runs, columns)

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor | None, ...]:
        flat, scales = ctx.saved_tensors
        gradient = gradients[0].reshape(flat.shape).contiguous()
        hops = scales.shape[0] - 1
        if not ctx.needs_input_grad[1]:
            total = accumulate(ctx.matrix, ctx.basis, lambda i: (gradient, scales[i]), hops)
            return total.view(ctx.shape), None, None, None
        to_signal = torch.zeros_like(flat)
        to_coefficients = []
        for i, hop in enumerate(iterate(ctx.matrix, ctx.basis, gradient, hops)):
            to_signal.addcmul_(hop, scales[i])
            to_coefficients.append((hop * flat).view(ctx.shape).sum(dim=(0, 2)))
        return to_signal.view(ctx.shape), torch.stack(to_coefficients, dim=1), None, None


class _Hops(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any, signal: Tensor, hops: int, rows: Tensor | None, matrix: SparseMatrix, basis: str
    ) -> Tensor:
        n, runs, columns = signal.shape
        flat = signal.reshape(n, runs * columns).contiguous()
        picked = [hop if rows is None else hop[rows] for hop in iterate(matrix, basis, flat, hops)]
        ctx.matrix, ctx.basis, ctx.rows, ctx.shape = matrix, basis, rows, signal.shape
        return torch.stack(picked).view(hops + 1, -1, runs, columns)

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor | None, ...]:
        gradient = gradients[0]
        n, runs, columns = ctx.shape
        width = runs * columns
        one = gradient.new_ones(width)

        def term(i: int) -> Term:
            part = gradient[i].reshape(-1, width)
            if ctx.rows is None:
                return part.contiguous(), one
            return gradient.new_zeros(n, width).index_copy_(0, ctx.rows, part), one

        total = accumulate(ctx.matrix, ctx.basis, term, gradient.shape[0] - 1)
        return total.view(ctx.shape), None, None, None, None


def combine(matrix: SparseMatrix, basis: str, signal: Tensor, coefficients: Tensor) -> Tensor:
    """sum_i c[r, i] p_i(S) Z[:, r]: (n, R, m) and (R, k + 1) -> (n, R, m), differentiable."""
    result = _Combine.apply(signal, coefficients, matrix, basis)
    assert isinstance(result, Tensor)
    return result


def hop_stack(
    matrix: SparseMatrix, basis: str, signal: Tensor, hops: int, rows: Tensor | None = None
) -> Tensor:
    """p_i(S) Z on ``rows``: (n, R, m) -> (k + 1, rows, R, m), differentiable in Z."""
    result = _Hops.apply(signal, hops, rows, matrix, basis)
    assert isinstance(result, Tensor)
    return result


def _column_scales(coefficients: Tensor, columns: int) -> Tensor:
    """(R, k + 1) -> (k + 1, R * columns): each run's coefficient repeated over its columns."""
    return coefficients.t().repeat_interleave(columns, dim=1).contiguous()
