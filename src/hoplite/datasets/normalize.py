"""Row normalisation, as the citation graphs use it."""

from __future__ import annotations

import numpy as np
import scipy.sparse as sp


def row_normalized(features: np.ndarray | sp.csr_array) -> np.ndarray | sp.csr_array:
    """Divide each row by its sum, so that it sums to 1; a row that sums to 0 stays as it is.

    Sums are taken in float64 and in column order, so equal input gives equal bits, whatever file
    it came from. The type of the values is kept.

    >>> row_normalized(np.array([[1.0, 3.0], [0.0, 0.0]]))
    array([[0.25, 0.75],
           [0.  , 0.  ]])
    """
    if isinstance(features, np.ndarray):
        sums = features.sum(axis=1, dtype=np.float64, keepdims=True)
        return (features / np.where(sums == 0, 1, sums)).astype(features.dtype)
    matrix = sp.csr_array(features, copy=True)
    matrix.sort_indices()
    n = matrix.indptr.size - 1
    rows = np.repeat(np.arange(n), np.diff(matrix.indptr))
    sums = np.bincount(rows, weights=matrix.data, minlength=n)
    values = matrix.data / np.where(sums == 0, 1, sums)[rows]
    parts = (values.astype(matrix.dtype), matrix.indices, matrix.indptr)
    return sp.csr_array(parts, shape=matrix.shape)
