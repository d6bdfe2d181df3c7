"""Predictions as a table: one row per node with its id and what the model tells of it."""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.csv
import pyarrow.parquet

from hoplite.errors import ConfigError, HopliteError
from hoplite.files import atomic_write
from hoplite.graph import PARTS
from hoplite.io.array_files import all_integers
from hoplite.io.convert import converted
from hoplite.labels import distinct
from hoplite.models.trained import SPLIT, TrainedModel, split_facts
from hoplite.node_data import NodeData
from hoplite.progress import Steps, steps_bar, watched

ROWS = 1 << 16  # of the table at a time


def predictions(
    model: TrainedModel,
    data: NodeData,
    *,
    memory: str | int | None = None,
    proba: bool = False,
    coverage: float | None = None,
    by_class: bool = False,
    progress: bool | Steps | None = False,
) -> tuple[pa.Schema, Iterator[pa.RecordBatch]]:
    """A table with a row for every node, in their order, a batch at a time.

    - ``id``: the data's node ids, or 0 .. n-1.
    - What the task tells: ``predicted`` and, of classes, its ``probability``.
    - With a ``coverage``, such as 0.9: the prediction ``set``, as ``a|b``, and its ``set_size``; of
      numbers ``low`` and ``high``. See :meth:`TrainedModel.prediction_sets`, also ``by_class``.
    - ``split``, where the data states one or has that of the training: train, val, test or null.
    - With ``proba`` the probability of every class, see :func:`class_columns`.

    ``memory`` is for hop stores: the peak of this process, such as ``"700MB"``. ``progress`` is
    True for a bar while the batches are made, or called with what is done and its share.
    """
    data = converted(data, prepare=model)
    most = None if coverage is None else model.set_quantile(coverage, by_class=by_class)
    if proba and not model.task.has_classes:
        raise ConfigError("requires classes, but the model predicts numbers.", "proba")
    pieces = model.logit_rows(data, memory=memory)
    first = next(pieces)
    kind, ids = _id_type(data.node_ids), data.node_ids
    parts, names = _split_parts(model, data), class_columns(model.class_names)

    def columns(start: int, logits: np.ndarray) -> dict[str, Any]:
        told = model.task.columns(logits, model.class_names)
        if most is not None:
            told |= model.task.set_columns(logits, model.class_names, most)
        if parts is not None:
            told["split"] = pa.array([*PARTS, None]).take(
                pa.array(parts[start : start + len(logits)])
            )
        if proba:
            told |= dict(zip(names, model.task.link(logits).T, strict=True))
        return told

    told = columns(0, first[1][:1])
    schema = pa.schema({"id": kind} | {name: pa.array(one).type for name, one in told.items()})

    def batches() -> Iterator[pa.RecordBatch]:
        with watched(progress, steps_bar, f"predict {data.name}") as report:
            for start, logits in itertools.chain([first], pieces):
                for low in range(0, len(logits), ROWS):
                    part = logits[low : low + ROWS]
                    nodes = range(start + low, start + low + len(part))
                    chosen = nodes if ids is None else ids[nodes.start : nodes.stop]
                    names = pa.array(map(str, chosen) if kind == pa.string() else chosen, kind)
                    told = columns(nodes.start, part)
                    yield pa.RecordBatch.from_pydict({"id": names, **told}, schema)
                    if report is not None:
                        report(f"predict {data.name}", nodes.stop / data.num_nodes)

    return schema, batches()


def predict_table(model: TrainedModel, data: NodeData, **options: Any) -> pa.Table:
    """All of the :func:`predictions`, in memory."""
    schema, batches = predictions(model, data, **options)
    return pa.Table.from_batches(batches, schema)


def class_columns(names: Sequence[str]) -> list[str]:
    """A column for the probability of each class: its name behind ``p_``, so that none is ``id``.

    >>> class_columns(["id", "a,b", "a,b"])  # a graph made in Python may have a name twice
    ['p_id', 'p_a,b', 'p_a,b (2)']
    """
    return distinct([f"p_{name}" for name in names])


def _split_parts(model: TrainedModel, data: NodeData) -> np.ndarray | None:
    """The number of each node's part; None if the split is none that anybody knows of.

    One that was drawn for the data, as its note says, is known if the training had the same.
    """
    facts = split_facts(data.split)
    foreign = data.split.seed is not None and model.training.get(SPLIT, facts) != facts
    if foreign or not any(data.split.sizes().values()):
        return None
    found = np.full(data.num_nodes, len(PARTS), np.int8)
    for number, part in enumerate(PARTS):
        found[getattr(data.split, part)] = number
    return found


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
    return pa.int64() if ids is None or all_integers(ids) else pa.string()
