"""Polynomials of an operator applied to a signal, and the adjoints of these maps.

With p_0, p_1, ... the polynomials of a basis (:mod:`hoplite.bases`) and M the operator in the form
that the basis needs:

    polynomial           sum_i p_i(M) (Z * c_i)                      k products (Horner, Clenshaw)
    polynomial_adjoint   U_i = p_i(M') G,  sum_i U_i * c_i  and  <U_i, Z>  by columns
    gather_hops          p_i(M) Z for every i, at some rows          k products
    scatter_hops         sum_i p_i(M) Z_i for signals Z_i            k products

``polynomial`` and its adjoint are each one call of the C++ core for graphs whose signals stay in
its caches; larger ones go hop by hop. No intermediate signal is kept for the adjoint.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

from hoplite.bases import Basis, Step, find_basis
from hoplite.config import check_number
from hoplite.engine.backend import get_num_threads, native, uses_native
from hoplite.engine.sparse import SparseMatrix, check_operand, spmm
from hoplite.errors import GraphError

TILE_ROWS = 65_536
Term = tuple[np.ndarray, np.ndarray]  # (Z, column scale): the term is Z * scale


def next_hop(
    matrix: SparseMatrix,
    step: Step,
    now: np.ndarray,
    before: np.ndarray,
    *,
    own: np.ndarray | None = None,
    out: np.ndarray | None = None,
) -> np.ndarray:
    """(a_i M + b_i) H_i - g_i H_{i-1}, the next hop, from ``now`` and the hop ``before``.

    Where ``matrix`` has only some rows of M, ``before``, ``own`` (of ``now``) and ``out`` have the
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
    signal: np.ndarray,
    hops: int,
    into: np.ndarray | None = None,
) -> Iterator[np.ndarray]:
    """Yield p_i(M) signal for i = 0 .. hops; ``signal`` is (n, w) and contiguous.

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
) -> np.ndarray:
    """sum_i p_i(M) (Z_i * scale_i) where ``term(i)`` gives Z_i (n, w) and scale_i (w,).

    A_i = Z_i * scale_i + (a_i M + b_i) A_{i+1} - g_{i+1} A_{i+2}, down to A_0.
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


def polynomial(
    matrix: SparseMatrix, basis: str | Basis, signal: np.ndarray, scales: np.ndarray
) -> np.ndarray:
    """sum_i p_i(M) (signal * scales[i]): (n, w) and (k + 1, w) -> (n, w)."""
    basis = _check(matrix, basis, signal, scales=scales)
    if not _in_tiles(matrix):
        return accumulate(matrix, basis, lambda i: (signal, scales[i]), scales.shape[0] - 1)
    out = np.empty_like(signal)
    table = _native_basis(basis, scales.shape[0] - 1)
    matrix.handle.polynomial(table, signal, scales, out, get_num_threads())
    return out


def polynomial_adjoint(
    matrix: SparseMatrix,
    basis: str | Basis,
    gradient: np.ndarray,
    signal: np.ndarray,
    scales: np.ndarray,
) -> tuple[np.ndarray, np.ndarray]:
    """The gradients of :func:`polynomial` by its signal, (n, w), and its scales, (k + 1, w).

    ``matrix`` is the transpose of its M. The second are sums in float64. ``signal`` may be some
    columns of a wider array.
    """
    basis = _check(matrix, basis, gradient, scales=scales)
    check_operand("signal", signal, matrix.dtype, gradient.shape, contiguous=False)
    to_scales = np.empty(scales.shape, np.float64)
    if not _in_tiles(matrix):
        to_signal = np.zeros_like(gradient)
        for i, hop in enumerate(iterate(matrix, basis, gradient, scales.shape[0] - 1)):
            to_signal += hop * scales[i]
            to_scales[i] = np.einsum("nw,nw->w", hop, signal, dtype=np.float64)
        return to_signal, to_scales
    to_signal = np.empty_like(gradient)
    table = _native_basis(basis, scales.shape[0] - 1)
    matrix.handle.polynomial_adjoint(
        table, gradient, signal, scales, to_signal, to_scales, get_num_threads()
    )
    return to_signal, to_scales


def gather_hops(
    matrix: SparseMatrix,
    basis: str | Basis,
    signal: np.ndarray,
    hops: int,
    rows: np.ndarray | None = None,
) -> np.ndarray:
    """p_i(M) signal on ``rows`` (all if None): (n, w) -> (k + 1, rows, w)."""
    basis = _check(matrix, basis, signal, rows=rows)
    check_number("hops", hops, 0, whole=True)
    count = signal.shape[0] if rows is None else len(rows)
    out = np.empty((hops + 1, count, signal.shape[1]), signal.dtype)
    if _in_tiles(matrix):
        table = _native_basis(basis, hops)
        matrix.handle.gather_hops(table, rows, signal, out, get_num_threads())
        return out
    for i, hop in enumerate(iterate(matrix, basis, signal, hops, out if rows is None else None)):
        if rows is not None:
            np.take(hop, rows, axis=0, out=out[i])
        elif i == 0:
            out[0] = hop
    return out


def scatter_hops(
    matrix: SparseMatrix,
    basis: str | Basis,
    gathered: np.ndarray,
    rows: np.ndarray | None = None,
) -> np.ndarray:
    """sum_i p_i(M) Z_i, with Z_i 0 outside ``rows``: (k + 1, rows, w) -> (n, w).

    It is the adjoint of :func:`gather_hops` of the transposed M.
    """
    n, width = matrix.shape[0], gathered.shape[-1]
    basis = _check(matrix, basis, np.empty((n, 0), matrix.dtype), rows=rows)
    count = n if rows is None else len(rows)
    hops = gathered.shape[0] - 1
    check_operand("gathered", gathered, matrix.dtype, (max(hops, 0) + 1, count, width))
    if _in_tiles(matrix):
        out = np.empty((n, width), gathered.dtype)
        table = _native_basis(basis, hops)
        matrix.handle.scatter_hops(table, rows, gathered, out, get_num_threads())
        return out
    unscaled = np.ones(width, gathered.dtype)

    def term(i: int) -> Term:
        if rows is None:
            return gathered[i], unscaled
        spread = np.zeros((n, width), gathered.dtype)
        np.add.at(spread, rows, gathered[i])
        return spread, unscaled

    return accumulate(matrix, basis, term, hops)


def _in_tiles(matrix: SparseMatrix) -> bool:
    """Whether a few packed columns stay in a core's cache while all hops pass over them.

    Larger graphs go hop by hop, each product shared by all threads.
    """
    return matrix.shape[0] <= TILE_ROWS and uses_native()


@functools.lru_cache(maxsize=32)
def _native_basis(basis: Basis, hops: int) -> Any:
    """The table of a basis as the C++ core keeps it."""
    assert native is not None  # see _in_tiles
    return native.Basis(basis.table(hops))


def _check(
    matrix: SparseMatrix,
    basis: str | Basis,
    signal: np.ndarray,
    scales: np.ndarray | None = None,
    rows: np.ndarray | None = None,
) -> Basis:
    """The basis, once the operands fit together."""
    chosen = find_basis(basis)
    n = matrix.shape[0]
    if matrix.shape[1] != n:
        raise GraphError(f"the operator has shape {matrix.shape}; it must be square.")
    width = signal.shape[-1] if signal.ndim else 0
    check_operand("signal", signal, matrix.dtype, (n, width))
    if scales is not None:
        hops = max(1, scales.shape[0] if scales.ndim else 0)
        check_operand("scales", scales, matrix.dtype, (hops, width))
    if rows is None:
        return chosen
    if rows.ndim != 1 or rows.dtype != np.int64 or not rows.flags.c_contiguous:
        raise GraphError(
            f"rows has type {rows.dtype} and shape {rows.shape}; pass a list of int64 indices."
        )
    if rows.size and (rows.min() < 0 or rows.max() >= n):
        raise GraphError(f"row indices go from {rows.min():,} to {rows.max():,} but n is {n:,}.")
    return chosen
