"""Logits of a trained model from a hop store, some rows at a time and in bounded memory.

A node's filtered signal follows from its own hop features. Standardisation needs the mean and the
deviation of the signal over all nodes, so there the store is read twice:

    mean = sum_r v_r / n,  std^2 = sum_r (v_r - mean)^2 / n

merged from the sums of the pieces in double precision.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import torch
from torch import Tensor

from hoplite.errors import ConfigError
from hoplite.memory import parse_bytes, release_memory, show_bytes, used_memory
from hoplite.models.alignment import in_columns
from hoplite.models.base import Model, Weights
from hoplite.node_data import StoredHops
from hoplite.propagation.engine import KnownRows

PIECE_BYTES = 16 * 10**6  # of hop features at a time
COPIES = 12  # of them at the same time: as read, in the model's order, and what a model makes
LEAST_ROWS = 16
RESERVE = 96 * 10**6  # threads, the file that is written, the allocator's own


def stored_logits(
    model: Model,
    weights: Weights,
    stored: StoredHops,
    columns: np.ndarray | None,
    memory: str | int | None = None,
) -> Iterator[tuple[int, np.ndarray]]:
    """The first node of every piece of rows, and the logits of the piece: (rows, m).

    ``weights`` are of one run, with a run axis. ``columns`` are those of :func:`aligned_columns`.
    ``memory`` is the peak of the whole process, such as ``"700MB"``.
    """
    hops = model.last_hop
    wanted = [hops] if model.kept_hops == "last" else list(range(hops + 1))
    step = _rows_at_a_time(
        model, len(wanted) * max(stored.num_features, model.num_features), memory
    )

    def pieces() -> Iterator[tuple[int, Tensor]]:
        for start in range(0, max(stored.num_nodes, 1), step):
            found = stored.read(start, min(start + step, stored.num_nodes), wanted)
            found = found if columns is None else in_columns(found, columns)
            yield start, torch.from_numpy(found)

    weights = {name: value.to(torch.float32) for name, value in weights.items()}  # as the hops are
    with torch.no_grad():
        scale = None
        if model.config.standardize:
            scale = _std_mean(model.filtered(weights, KnownRows(x), None) for _, x in pieces())
        for start, piece in pieces():
            yield start, model.logits(weights, _Piece(piece, scale))[:, 0].numpy()


class _Piece(KnownRows):
    """Some rows, with the deviation and mean of all."""

    def __init__(self, hops: Tensor, scale: tuple[Tensor, Tensor] | None) -> None:
        super().__init__(hops)
        self._scale = scale

    def std_mean(self, values: Tensor) -> tuple[Tensor, Tensor]:
        return super().std_mean(values) if self._scale is None else self._scale


def _std_mean(signals: Iterator[Tensor]) -> tuple[Tensor, Tensor]:
    """Deviation and mean over all rows of the pieces, (rows, R, m) -> (1, R, m)."""
    count, mean, squares = 0, torch.zeros(()), torch.zeros(())
    kind = torch.float32
    for signal in signals:
        kind, rows = signal.dtype, len(signal)
        spread, own = torch.std_mean(signal.double(), dim=0, keepdim=True, correction=0)
        gap, total = own - mean, count + rows
        mean = mean + gap * (rows / max(total, 1))
        squares = squares + spread.square() * rows + gap.square() * (count * rows / max(total, 1))
        count = total
    return (squares / max(count, 1)).sqrt().to(kind), mean.to(kind)


def _rows_at_a_time(model: Model, numbers: int, memory: str | int | None) -> int:
    """Rows of a piece; ConfigError, with the least that works, if ``memory`` is too little."""
    row_bytes = 4 * (numbers + 4 * model.num_classes)
    most = PIECE_BYTES
    if memory is not None:
        budget = parse_bytes(memory)
        release_memory()
        held = used_memory() + RESERVE
        least = held + LEAST_ROWS * COPIES * row_bytes
        if budget < least:
            enough = -(-int(1.05 * least) // 10**7) * 10
            raise ConfigError(
                f"memory is {show_bytes(budget)} but this prediction needs {enough} MB at least, "
                f"of which {show_bytes(held)} are in use before it starts; give --memory "
                f"{enough}MB or more."
            )
        most = min(most, (budget - held) // COPIES)
    return max(LEAST_ROWS, most // row_bytes)
