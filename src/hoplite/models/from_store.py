"""Logits of a trained model from a hop store, some rows at a time and in bounded memory.

A node's filtered signal follows from its own hop features. Standardisation needs the mean and the
deviation of the signal over all nodes, so there the store is read twice:

    mean = sum_r v_r / n,  std^2 = sum_r (v_r - mean)^2 / n

merged from the sums of the pieces in double precision.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np

from hoplite.engine.standardize import Moments, Standardized
from hoplite.machine import free_memory
from hoplite.models.alignment import in_columns
from hoplite.models.base import Weights
from hoplite.node_data import StoredHops

PIECE_BYTES = 16 * 10**6  # of hop features at a time
COPIES = 12  # of them at the same time: as read, in the model's order, and what a model makes
MIN_ROWS = 16


def stored_logits(
    model: Any,
    weights: Weights,
    stored: StoredHops,
    columns: np.ndarray | None,
    memory: str | int | None = None,
) -> Iterator[tuple[int, np.ndarray]]:
    """The first node of every piece of rows, and the logits of the piece: (rows, m).

    ``columns`` are those of :func:`aligned_columns`. ``memory`` is the peak of the whole process,
    such as ``"700MB"``.
    """
    wanted = model.hops_read
    step = _rows_at_a_time(
        model, len(wanted) * max(stored.num_features, model.num_features), memory
    )
    weights = {name: value.astype(np.float32) for name, value in weights.items()}

    def pieces() -> Iterator[tuple[int, np.ndarray]]:
        for start in range(0, max(stored.num_nodes, 1), step):
            found = stored.read(start, min(start + step, stored.num_nodes), wanted)
            found = found if columns is None else in_columns(found, columns)
            yield start, model.signal_from_hops(weights, found)

    scale = None
    if model.config.standardize:
        moments = Moments(0, np.zeros(model.num_classes), np.zeros(model.num_classes))
        for _, signal in pieces():
            moments = moments.merged(Moments.of(signal))
        scale = Standardized.from_moments(moments, np.dtype(np.float32))
    for start, signal in pieces():
        logits = signal if scale is None else scale.apply(signal)
        yield start, logits + weights["bias"] if "bias" in weights else logits


def _rows_at_a_time(model: Any, numbers: int, memory: str | int | None) -> int:
    """Rows of a piece; ConfigError, with the least that works, if ``memory`` is too little."""
    row_bytes = 4 * (numbers + 4 * model.num_classes)
    size, least = PIECE_BYTES, MIN_ROWS * COPIES * row_bytes
    if memory is not None:
        size = min(size, (free_memory(memory, least, "this prediction") + least) // COPIES)
    return max(MIN_ROWS, size // row_bytes)
