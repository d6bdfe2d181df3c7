"""The losses of the tasks, each with its closed-form gradient.

    L = 1/count sum_v w_v l(z_v, t_v),    G = dL/dZ,    Z = (z_v): rows x m

    softmax_cross_entropy   l = log sum_c e^(z_c) - z_t                  G_v = w_v (softmax(z_v) - y_v) / count
    sigmoid_cross_entropy   l = 1/m sum_c log(1 + e^(z_c)) - t_c z_c     G = w * (s(Z) - T) / (m count)
    squared_error           l = (z - t)^2                                G_v = 2 w_v (z_v - t_v) / count
    huber                   l = c (d - c/2),  d = z - t, c = clip(d)     G_v = w_v c_v / count

y_v is the one-hot of class t_v, s(z) = 1 / (1 + e^-z), and clip limits to [-1, 1].

All functions have the same parameters and return value:

logits : ndarray, (rows, m)
    Z, float32 or float64.
targets : ndarray
    Class indices (rows,), 0 and 1 (rows, m), or values (rows,).
weights : ndarray or None
    w, (rows,), or for the sigmoid cross-entropy also (rows, m); None for 1.
count : float
    What the sum is divided by.
gradient : ndarray or None
    Where to write G, contiguous and of the shape and type of ``logits``; None if it is not needed.
returns : float
    L, summed in float64 from losses in the type of ``logits``.

Logits that are not finite give a loss that is not finite, without a warning; only the softmax takes
-infinity for a class of probability 0. The rows are processed in blocks that stay in a core's cache.
"""  # noqa: E501

from __future__ import annotations

from functools import partial

import numpy as np

from hoplite.engine.backend import get_num_threads, native, row_ranges, uses_native

BLOCK_NUMBERS = 1 << 17  # logits in one block of rows


def softmax(logits: np.ndarray) -> np.ndarray:
    """e^(z_c) / sum_c' e^(z_c') along the last axis, of the type of ``logits``.

    >>> softmax(np.array([0.0, 0.0, -np.inf])).tolist()
    [0.5, 0.5, 0.0]
    """
    with np.errstate(all="ignore"):
        chances = logits - logits.max(axis=-1, keepdims=True)
        np.exp(chances, out=chances)
        chances /= chances.sum(axis=-1, keepdims=True)
    return chances


def softmax_cross_entropy(
    logits: np.ndarray,
    targets: np.ndarray,
    weights: np.ndarray | None,
    count: float,
    gradient: np.ndarray | None = None,
) -> float:
    """-log softmax(z)_t; targets are class indices (rows,)."""
    if native is not None and uses_native() and logits.size and count:
        factors = None if weights is None else np.ascontiguousarray(weights, logits.dtype)
        logits = np.ascontiguousarray(logits)
        total = native.softmax_cross_entropy(
            logits, targets, factors, 1 / count, gradient, get_num_threads()
        )
        return total / count
    total = 0.0
    with np.errstate(all="ignore"):
        for block in row_ranges(len(logits), logits.shape[1], BLOCK_NUMBERS):
            # Classes first: sums over few classes are sums of long rows, several times as fast.
            chances, classes = logits[block].T.copy(), targets[block]
            at = np.arange(len(classes))
            chances -= chances.max(axis=0)
            losses = chances[classes, at]
            np.exp(chances, out=chances)
            sums = chances.sum(axis=0)
            np.subtract(np.log(sums), losses, out=losses)
            scale = _row_weights(weights, block, logits.dtype)
            total += float((losses * scale).sum(dtype=np.float64))
            if gradient is not None:
                scale = scale / logits.dtype.type(count)
                chances *= scale / sums
                chances[classes, at] -= scale
                gradient[block] = chances.T
    return _divided(total, count)


def sigmoid_cross_entropy(
    logits: np.ndarray,
    targets: np.ndarray,
    weights: np.ndarray | None,
    count: float,
    gradient: np.ndarray | None = None,
) -> float:
    """The mean over the m labels of -t log s(z) - (1 - t) log s(-z); targets are 0 and 1."""
    total, labels = 0.0, max(logits.shape[1], 1)
    with np.errstate(all="ignore"):
        for block in row_ranges(len(logits), logits.shape[1], BLOCK_NUMBERS):
            z, t = logits[block], targets[block].astype(logits.dtype)
            scale = _row_weights(weights, block, logits.dtype)
            scale = scale[:, None] if scale.ndim == 1 else scale
            small = np.abs(z)
            np.exp(np.negative(small, out=small), out=small)  # e^-|z|
            losses = np.log1p(small)
            losses += np.maximum(z, 0)
            losses -= z * t
            losses *= scale
            total += float(losses.sum(dtype=np.float64))
            if gradient is not None:
                upper = np.exp(np.minimum(z, 0))  # s(z) = e^min(z, 0) / (1 + e^-|z|): no overflow
                small += 1
                upper /= small
                upper -= t
                np.multiply(upper, scale / logits.dtype.type(labels * count), out=gradient[block])
    return _divided(total, labels * count)


def _limited_error(
    logits: np.ndarray,
    targets: np.ndarray,
    weights: np.ndarray | None,
    count: float,
    gradient: np.ndarray | None = None,
    *,
    limit: float,
    factor: float,
) -> float:
    """factor c (d - c/2) of one output, c = d = z - t limited to [-limit, limit]."""
    with np.errstate(all="ignore"):
        errors = logits[:, 0] - targets.astype(logits.dtype, copy=False)
        limited = np.clip(errors, -limit, limit)
        weighted = limited * _row_weights(weights, slice(None), logits.dtype)
        errors -= limited / 2
        errors *= weighted
        total = factor * float(errors.sum(dtype=np.float64))
        if gradient is not None:
            np.multiply(weighted, logits.dtype.type(factor) / count, out=gradient[:, 0])
    return _divided(total, count)


squared_error = partial(_limited_error, limit=np.inf, factor=2.0)
huber = partial(_limited_error, limit=1.0, factor=1.0)


def count_right(logits: np.ndarray, targets: np.ndarray) -> int:
    """How many rows have their largest output, of equal ones the first, at the target's place."""
    if native is not None and uses_native() and logits.size:
        return native.count_right(np.ascontiguousarray(logits), targets)
    return int(np.count_nonzero(logits.argmax(axis=1) == targets))


def _row_weights(weights: np.ndarray | None, block: slice, dtype: np.dtype) -> np.ndarray:
    """The weights of a block in the logits' type; the number 1 if there are none."""
    if weights is None:
        return np.ones((), dtype)
    return weights[block].astype(dtype, copy=False)


def _divided(total: float, count: float) -> float:
    """total / count, NaN or infinite where ``count`` is 0, as that of no rows."""
    with np.errstate(all="ignore"):
        return float(np.float64(total) / count)
