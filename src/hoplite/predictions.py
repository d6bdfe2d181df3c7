"""Predictions as a table: one row per node with its id, predicted label and probability."""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.csv
import pyarrow.parquet

from hoplite.convert import converted
from hoplite.datasets.id_files import all_integers
from hoplite.errors import HopliteError
from hoplite.files import atomic_write
from hoplite.models.trained import TrainedModel
from hoplite.node_data import NodeData

ROWS = 1 << 16  # of the table at a time


def predictions(
    model: TrainedModel, data: NodeData, *, memory: str | int | None = None
) -> tuple[pa.Schema, Iterator[pa.RecordBatch]]:
    """Columns ``id`` (the data's node ids, or 0 .. n-1), ``predicted`` and ``probability``.

    The rows come in the order of the nodes, a batch at a time. ``memory`` is for hop stores: the
    peak of this process, such as ``"700MB"``.
    """
    data = converted(data, prepare=model)
    pieces = model.logit_rows(data, memory=memory)
    first = next(pieces)
    kind, ids = _id_type(data.node_ids), data.node_ids
    told = model.task.columns(first[1][:1], model.class_names)
    schema = pa.schema({"id": kind} | {name: pa.array(one).type for name, one in told.items()})

    def batches() -> Iterator[pa.RecordBatch]:
        for start, logits in itertools.chain([first], pieces):
            for low in range(0, len(logits), ROWS):
                part = logits[low : low + ROWS]
                nodes = range(start + low, start + low + len(part))
                chosen = nodes if ids is None else ids[nodes.start : nodes.stop]
                names = pa.array(map(str, chosen) if kind == pa.string() else chosen, kind)
                told = model.task.columns(part, model.class_names)
                yield pa.RecordBatch.from_pydict({"id": names, **told}, schema)

    return schema, batches()


def predict_table(model: TrainedModel, data: NodeData) -> pa.Table:
    """All of the :func:`predictions`, in memory."""
    schema, batches = predictions(model, data)
    return pa.Table.from_batches(batches, schema)


def write_table(table: pa.Table, path: Path) -> None:
    """Write ``table`` as CSV or Parquet, by the ending of ``path``, completely or not at all."""
    write_batches(table.schema, table.to_batches(), path)


def write_batches(schema: pa.Schema, batches: Iterable[pa.RecordBatch], path: Path) -> None:
    """As :func:`write_table`, of rows that come a batch at a time."""
    is_csv = path.suffix.lower() == ".csv"
    kind: Any = pyarrow.csv.CSVWriter if is_csv else pyarrow.parquet.ParquetWriter
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with atomic_write(path) as file, kind(file, schema) as writer:
            for batch in batches:
                writer.write_batch(batch)
    except OSError as error:
        raise HopliteError(f"cannot write {path}: {error.strerror or error}.") from error


def _id_type(ids: Sequence[Any] | None) -> pa.DataType:
    """Numbers where all ids are numbers that fit, and otherwise text."""
    if ids is None or (all_integers(ids) and all(-(2**63) <= name < 2**63 for name in ids)):
        return pa.int64()
    return pa.string()
