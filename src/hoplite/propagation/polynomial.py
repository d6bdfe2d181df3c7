"""Polynomials of an operator applied to a signal: two dual loops and the two autograd forms.

With p_0, p_1, ... the polynomials of a basis (:mod:`hoplite.bases`) and S in the form that the
basis needs:

    iterate     yields p_i(S) X, i = 0 .. k              (k products)
    accumulate  gives  sum_i p_i(S) T_i for terms T_i     (k products, Horner or Clenshaw)

Each, with S transposed, is the other's adjoint, so forward and backward of the autograd functions
below are these two loops, and no intermediate signal is kept for the backward pass.
"""

from __future__ import annotations

import functools
from collections import deque
from collections.abc import Callable, Iterator
from typing import Any

import torch
from torch import Tensor

from hoplite.bases import Basis, find_basis
from hoplite.bases.base import Step
from hoplite.config import check_number
from hoplite.errors import ConfigError, GraphError
from hoplite.propagation.backend import get_num_threads, native, uses_native
from hoplite.propagation.spmm import SparseMatrix, check_operand, plain, spmm

TILE_ROWS = 65_536
Term = tuple[Tensor, Tensor]  # (Z, column scale): the term is Z * scale


def next_hop(
    matrix: SparseMatrix,
    step: Step,
    now: Tensor,
    before: Tensor,
    *,
    own: Tensor | None = None,
    out: Tensor | None = None,
) -> Tensor:
    """(a_i S + b_i) H_i - g_i H_{i-1}, the next hop, from ``now`` and the hop ``before``.

    Where ``matrix`` has only some rows of S, ``before``, ``own`` (of ``now``) and ``out`` have the
    same ones. ``out`` may be ``before``.
    """
    a, b, g = step
    own = now if own is None else own
    return spmm(
        matrix,
        now,
        scale=a,
        U=own if b else None,
        u_scale=b,
        W=before if g else None,
        w_scale=-g,
        out=out,
    )


def iterate(
    matrix: SparseMatrix,
    basis: str | Basis,
    signal: Tensor,
    hops: int,
    into: Tensor | None = None,
) -> Iterator[Tensor]:
    """Yield p_i(S) signal for i = 0 .. hops; ``signal`` is (n, w) and contiguous.

    Hop i from 1 on is written to ``into[i]``, where that is given.
    """
    yield signal
    before, now = signal, signal
    for i, step in enumerate(find_basis(basis).steps(hops)):
        out = None if into is None else into[i + 1]
        before, now = now, next_hop(matrix, step, now, before, out=out)
        yield now


def accumulate(
    matrix: SparseMatrix, basis: str | Basis, term: Callable[[int], Term], hops: int
) -> Tensor:
    """sum_i p_i(S) (Z_i * scale_i) where ``term(i)`` gives Z_i (n, w) and scale_i (w,).

    A_i = Z_i * scale_i + (a_i S + b_i) A_{i+1} - g_{i+1} A_{i+2}, down to A_0.
    """
    last, scale = term(hops)
    total, ahead, next_g = last * scale, None, 0.0
    for i, (a, b, g) in reversed(list(enumerate(find_basis(basis).steps(hops)))):
        last, scale = term(i)
        total, ahead = (
            spmm(
                matrix,
                total,
                scale=a,
                Z=last,
                column_scale=scale,
                U=total if b else None,
                u_scale=b,
                W=ahead if next_g else None,
                w_scale=-next_g,
            ),
            total,
        )
        next_g = g
    return total


def weighted_sum(
    matrix: SparseMatrix, basis: str | Basis, signal: Tensor, scales: Tensor
) -> Tensor:
    """sum_i p_i(S) (signal * scales[i]): (n, w) and (k + 1, w) -> (n, w)."""
    signal, scales = plain(signal), plain(scales)
    basis = _check(matrix, basis, signal, scales=scales)
    if not _in_tiles(matrix, signal):
        return accumulate(matrix, basis, lambda i: (signal, scales[i]), scales.shape[0] - 1)
    out = torch.empty_like(signal)
    _run_tiles(matrix, basis, signal, scales, out)
    return out


def last_hop(matrix: SparseMatrix, basis: str | Basis, signal: Tensor, hops: int) -> Tensor:
    """p_k(S) signal alone, k = hops: (n, w) -> (n, w)."""
    if _in_tiles(matrix, signal):
        scales = signal.new_zeros(hops + 1, signal.shape[1])
        scales[-1] = 1
        return weighted_sum(matrix, basis, signal, scales)
    return deque(iterate(matrix, basis, signal, hops), maxlen=1).pop()  # the others are dropped


def weighted_sum_adjoint(
    matrix: SparseMatrix, basis: str | Basis, gradient: Tensor, signal: Tensor, scales: Tensor
) -> tuple[Tensor, Tensor]:
    """The gradients of ``weighted_sum`` by its signal, (n, w), and by its scales, (k + 1, w).

    ``matrix`` is the transpose of its S.
    """
    gradient, signal, scales = plain(gradient), plain(signal), plain(scales)
    basis = _check(matrix, basis, signal, scales=scales)
    check_operand("gradient", gradient, signal, matrix.dtype, tuple(signal.shape))
    if not _in_tiles(matrix, signal):
        to_signal = torch.zeros_like(signal)
        to_scales = torch.empty(scales.shape, dtype=torch.float64, device=scales.device)
        for i, hop in enumerate(iterate(matrix, basis, gradient, scales.shape[0] - 1)):
            to_signal.addcmul_(hop, scales[i])
            to_scales[i] = (hop * signal).sum(dim=0, dtype=torch.float64)
        return to_signal, to_scales
    to_signal = torch.empty_like(signal)
    to_scales = torch.empty(scales.shape, dtype=torch.float64)
    _run_tiles(matrix, basis, gradient, scales, to_signal, signal, to_scales)
    return to_signal, to_scales


def _in_tiles(matrix: SparseMatrix, signal: Tensor) -> bool:
    """Whether a few packed columns stay in a core's cache while all hops pass over them.

    Larger graphs go hop by hop, each product shared by all threads.
    """
    return matrix.shape[0] <= TILE_ROWS and uses_native(signal)


def _run_tiles(
    matrix: SparseMatrix,
    basis: Basis,
    signal: Tensor,
    scales: Tensor,
    out: Tensor,
    other: Tensor | None = None,
    dots: Tensor | None = None,
) -> None:
    """The C++ core's loops over all hops: the sum, or with ``other`` and ``dots`` its adjoint."""
    hops = scales.shape[0] - 1
    matrix.handle.polynomial(
        _native_basis(basis, hops),
        hops,
        signal.shape[1],
        signal.data_ptr(),
        scales.data_ptr(),
        out.data_ptr(),
        0 if other is None else other.data_ptr(),
        0 if dots is None else dots.data_ptr(),
        get_num_threads(),
    )


@functools.lru_cache(maxsize=32)
def _native_basis(basis: Basis, hops: int) -> Any:
    """The table of a basis as the C++ core keeps it."""
    assert native is not None  # see _in_tiles
    return native.Basis(basis.table(hops))


def _check(
    matrix: SparseMatrix,
    basis: str | Basis,
    signal: Tensor,
    scales: Tensor | None = None,
    rows: Tensor | None = None,
) -> Basis:
    """The basis. The C++ core trusts its operands, so they are checked here, for torch alike."""
    chosen = find_basis(basis)
    n = matrix.shape[0]
    if matrix.shape[1] != n:
        raise GraphError(f"the operator has shape {matrix.shape}; it must be square.")
    width = signal.shape[-1] if signal.dim() else 0
    check_operand("signal", signal, signal, matrix.dtype, (n, width))
    if scales is not None:
        hops = max(1, scales.shape[0] if scales.dim() else 0)
        check_operand("scales", scales, signal, matrix.dtype, (hops, width))
    if rows is None:
        return chosen
    if rows.dim() != 1 or rows.dtype != torch.int64 or not rows.is_contiguous():
        raise GraphError(f"rows is {rows.dtype} of shape {tuple(rows.shape)}; pass int64 indices.")
    if len(rows):
        least, most = (int(end) for end in torch.aminmax(rows))
        if least < 0 or most >= n:
            raise GraphError(f"rows go from {least:,} to {most:,} but there are {n:,}.")
    return chosen


class _Combine(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any, signal: Tensor, coefficients: Tensor, matrix: SparseMatrix, basis: str | Basis
    ) -> Tensor:
        flat = signal.flatten(1).contiguous()
        # each run's coefficient repeated over its columns: (R, k + 1) -> (k + 1, R m)
        scales = coefficients.t().repeat_interleave(signal.shape[2], dim=1).contiguous()
        ctx.matrix, ctx.basis, ctx.shape = matrix, basis, signal.shape
        ctx.save_for_backward(flat, scales)
        return weighted_sum(matrix, basis, flat, scales).view(signal.shape)

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor | None, ...]:
        flat, scales = ctx.saved_tensors
        gradient = gradients[0].reshape(flat.shape).contiguous()
        if not ctx.needs_input_grad[1]:
            total = weighted_sum(ctx.matrix.T, ctx.basis, gradient, scales)
            return total.view(ctx.shape), None, None, None
        to_signal, to_scales = weighted_sum_adjoint(ctx.matrix.T, ctx.basis, gradient, flat, scales)
        by_run = to_scales.view(scales.shape[0], *ctx.shape[1:]).sum(dim=2)
        return to_signal.view(ctx.shape), by_run.t().to(flat.dtype), None, None


def gather_hops(
    matrix: SparseMatrix, basis: str | Basis, signal: Tensor, hops: int, rows: Tensor | None
) -> Tensor:
    """p_i(S) signal on ``rows`` (all if None): (n, w) -> (k + 1, rows, w), without gradients."""
    signal = plain(signal)
    basis = _check(matrix, basis, signal, rows=rows)
    check_number("hops", hops, 0, whole=True)
    count = signal.shape[0] if rows is None else len(rows)
    out = signal.new_empty(hops + 1, count, signal.shape[1])
    if _in_tiles(matrix, signal):
        _move_hops(matrix, False, basis, rows, signal, out, out.shape)
    else:
        for i, hop in enumerate(
            iterate(matrix, basis, signal, hops, out if rows is None else None)
        ):
            if rows is not None:
                torch.index_select(hop, 0, rows, out=out[i])
            elif i == 0:
                out[0] = hop
    return out


def scatter_hops(
    matrix: SparseMatrix, basis: str | Basis, gathered: Tensor, rows: Tensor | None
) -> Tensor:
    """The adjoint of ``gather_hops`` of the transposed S: (k + 1, rows, w) -> (n, w)."""
    n, width = matrix.shape[0], gathered.shape[-1]
    gathered = plain(gathered)
    basis = _check(matrix, basis, gathered.new_empty(n, 0), rows=rows)
    count = n if rows is None else len(rows)
    hops = max(1, gathered.shape[0])  # at least one
    check_operand("gathered", gathered, gathered, matrix.dtype, (hops, count, width))
    if not _in_tiles(matrix, gathered):
        one = gathered.new_ones(width)

        def term(i: int) -> Term:
            if rows is None:
                return gathered[i], one
            return gathered.new_zeros(n, width).index_add_(0, rows, gathered[i]), one

        return accumulate(matrix, basis, term, gathered.shape[0] - 1)
    out = gathered.new_empty(n, width)
    _move_hops(matrix, True, basis, rows, gathered, out, gathered.shape)
    return out


def _move_hops(
    matrix: SparseMatrix,
    scatter: bool,
    basis: Basis,
    rows: Tensor | None,
    source: Tensor,
    out: Tensor,
    shape: torch.Size,
) -> None:
    hops, count, width = shape
    matrix.handle.move_hops(
        scatter,
        _native_basis(basis, hops - 1),
        hops - 1,
        width,
        0 if rows is None else rows.data_ptr(),
        count,
        source.data_ptr(),
        out.data_ptr(),
        get_num_threads(),
    )


class _Hops(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any,
        signal: Tensor,
        hops: int,
        rows: Tensor | None,
        matrix: SparseMatrix,
        basis: str | Basis,
    ) -> Tensor:
        ctx.matrix, ctx.basis, ctx.rows, ctx.shape = matrix, basis, rows, signal.shape
        flat = signal.flatten(1).contiguous()
        return gather_hops(matrix, basis, flat, hops, rows).unflatten(2, signal.shape[1:])

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor | None, ...]:
        flat = gradients[0].flatten(2).contiguous()
        total = scatter_hops(ctx.matrix.T, ctx.basis, flat, ctx.rows)
        return total.view(ctx.shape), None, None, None, None


class _Blocks(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, signals: Tensor, matrix: SparseMatrix, basis: str | Basis) -> Tensor:
        ctx.matrix, ctx.basis, ctx.shape = matrix, basis, signals.shape
        total = scatter_hops(matrix, basis, signals.flatten(2).contiguous(), None)
        return total.view(signals.shape[1:])

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor | None, ...]:
        flat = gradients[0].flatten(1).contiguous()
        found = gather_hops(ctx.matrix.T, ctx.basis, flat, ctx.shape[0] - 1, None)
        return found.view(ctx.shape), None, None


def combine(
    matrix: SparseMatrix, basis: str | Basis, signal: Tensor, coefficients: Tensor
) -> Tensor:
    """sum_i c[r, i] p_i(S) Z[:, r]: (n, R, m) and (R, k + 1) -> (n, R, m), differentiable."""
    if signal.dim() != 3 or coefficients.dim() != 2 or len(coefficients) != signal.shape[1]:
        raise GraphError(
            f"the signal has shape {tuple(signal.shape)} and the coefficients "
            f"{tuple(coefficients.shape)}; pass nodes x runs x classes and runs x hops."
        )
    if coefficients.dtype != signal.dtype:
        raise ConfigError(
            f"the coefficients are {coefficients.dtype} but the signal is {signal.dtype}; "
            "convert one of them."
        )
    result = _Combine.apply(signal, coefficients, matrix, basis)
    assert isinstance(result, Tensor)
    return result


def hop_stack(
    matrix: SparseMatrix, basis: str | Basis, signal: Tensor, hops: int, rows: Tensor | None = None
) -> Tensor:
    """p_i(S) Z on ``rows``: (n, R, m) -> (k + 1, rows, R, m), differentiable in Z."""
    if signal.dim() != 3:
        raise GraphError(
            f"the signal has shape {tuple(signal.shape)}; pass nodes x runs x classes."
        )
    result = _Hops.apply(signal, hops, rows, matrix, basis)
    assert isinstance(result, Tensor)
    return result


def block_sum(matrix: SparseMatrix, basis: str | Basis, signals: Tensor) -> Tensor:
    """sum_i p_i(S) Z_i: (k + 1, n, R, m) -> (n, R, m), differentiable in Z.

    It is the adjoint of :func:`hop_stack` of S transposed: k products, however many signals.
    """
    if signals.dim() != 4:
        raise GraphError(
            f"the signals have shape {tuple(signals.shape)}; pass hops x nodes x runs x classes."
        )
    result = _Blocks.apply(signals, matrix, basis)
    assert isinstance(result, Tensor)
    return result
