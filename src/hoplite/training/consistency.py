"""The consistency penalty, which trains on the unlabelled nodes too.

In a training step, draw s = 1 .. S drops entries of X, nodes and outputs at random
(:mod:`hoplite.engine.dropout`) and predicts probabilities P_s, n x m. With l_s the loss of the
labelled nodes in draw s, the step minimises

    1/S sum_s l_s  +  consistency * 1/(S n) sum_s sum_v w_v ||P_s[v] - Q[v]||^2

    P = 1/S sum_s P_s,    Q[v, c] = P[v, c]^(1/T) / sum_c' P[v, c']^(1/T)

over all n nodes. Q is the mean prediction, sharpened by the temperature T (``sharpen``). It is a
target: no gradient goes through it. The weight w_v is 1 if max_c P[v, c] >= ``confidence``, and 0
otherwise. With T = 0, Q is the one-hot vector of the most probable class: this is self-training,
where the predictions of confident nodes serve as labels. With T = 1 and S = 1 the penalty is 0.
"""

from __future__ import annotations

import numpy as np


def penalty(logits: np.ndarray, sharpen: float, confidence: float) -> tuple[float, np.ndarray]:
    """The penalty without its factor ``consistency``, and its gradient.

    With D_s = w * (P_s - Q), the gradient by the logits of draw s is

        2 / (S n) P_s * (D_s - sum_c D_s[:, c] P_s[:, c])

    Parameters
    ----------
    logits : ndarray, (S, n, m)
        Outputs of all draws, float32 or float64.
    sharpen : float
        Temperature T of the target, 0 to 1; 0 for the one-hot vector of the most probable class, of
        equal ones the first.
    confidence : float
        Smallest probability of the most probable class with which a node counts.

    Returns
    -------
    penalty : float
    gradient : ndarray, (S, n, m)
        Of the type of ``logits``.

    Examples
    --------
    Two draws of one node; each is 0.25 away from the mean, in both classes.

    >>> logits = np.log([[[0.25, 0.75]], [[0.75, 0.25]]])
    >>> value, gradient = penalty(logits, sharpen=1.0, confidence=0.0)
    >>> round(value, 6), gradient.shape
    (0.125, (2, 1, 2))
    """
    draws, nodes, _ = logits.shape
    with np.errstate(all="ignore"):
        # Classes first: sums over few classes are sums of long rows, several times as fast.
        chances = logits.transpose(2, 0, 1).copy()  # (m, S, n)
        chances -= chances.max(axis=0)
        np.exp(chances, out=chances)
        chances /= chances.sum(axis=0)
        mean = chances.mean(axis=1)  # (m, n)
        largest = mean.max(axis=0)
        apart = chances - _sharpened(mean, largest, sharpen)[:, None]
        apart *= largest >= confidence
        work = np.square(apart)
        value = float(work.sum(dtype=np.float64) / np.float64(draws * nodes))
        np.multiply(apart, chances, out=work)
        apart -= work.sum(axis=0)
        chances *= logits.dtype.type(2) / (draws * nodes)
        apart *= chances
    return value, np.ascontiguousarray(apart.transpose(1, 2, 0))


def _sharpened(mean: np.ndarray, largest: np.ndarray, temperature: float) -> np.ndarray:
    """Q of the mean prediction (m, n), whose largest values are given: (m, n)."""
    if temperature == 1:
        return mean
    if temperature == 0:
        is_largest = mean == largest
        if np.count_nonzero(is_largest) != is_largest.shape[1]:  # ties or NaN
            is_largest = np.arange(len(mean))[:, None] == mean.argmax(axis=0)
        return is_largest.astype(mean.dtype)
    target = mean / largest
    target **= 1 / temperature
    target /= target.sum(axis=0)
    return target
